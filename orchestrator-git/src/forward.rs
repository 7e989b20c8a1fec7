//! Taking over what a run merged into the branch that it started from.

use std::fs;

use crate::error::GitError;
use crate::git::exec::Call;
use crate::git::oid::Oid;
use crate::names::{listed, shown};
use crate::run::GitRun;

/// What became of a fast-forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forwarded {
    /// The target moved.
    Moved,
    /// It stands there already.
    AlreadyThere,
}

impl GitRun {
    /// Moves the target to what was merged, for a composition that owns its repository. Where the
    /// target is checked out in the repository's own checkout, that is taken along, if it is clean.
    ///
    /// # Errors
    /// [`GitError::NoFastForward`] when the target has other commits, or a checkout that would have
    /// to change has changes of its own; nothing was moved then.
    pub async fn fast_forward(&self) -> Result<Forwarded, GitError> {
        let run = &self.0;
        let refused =
            |why: String| GitError::NoFastForward { branch: run.branch.target.clone(), why };
        let target = format!("refs/heads/{}", run.branch.target);
        let from = run.apart.git.find_ref(&target).await?;
        let from = from.ok_or_else(|| refused("it is not there any more".to_owned()))?;
        let to = run.branch.head().await?;
        if from.oid == to || run.apart.git.is_ancestor(to.as_str(), from.oid.as_str()).await? {
            return Ok(Forwarded::AlreadyThere);
        }
        if !run.apart.git.is_ancestor(from.oid.as_str(), to.as_str()).await? {
            return Err(refused(format!(
                "it has commits that `{0}` has not; `{1}` merges both",
                self.integration_branch(),
                self.merge_command()
            )));
        }
        let checkout = run.apart.git.checked_out(&target).await?;
        let checkout = checkout.map(|dir| fs::canonicalize(&dir).unwrap_or(dir));
        match checkout {
            None => {
                let line = format!("update {target} {to} {}\n", from.oid);
                let moved = run.apart.git.transact(&line).await?;
                if moved.code != 0 {
                    return Err(moved.failed("update-ref"));
                }
            }
            Some(dir) if Some(&dir) == run.apart.git.checkout.as_ref() => {
                self.forward_here(&to).await?;
            }
            Some(dir) => {
                return Err(refused(format!("it is checked out in {}", dir.display())));
            }
        }
        Ok(Forwarded::Moved)
    }

    /// Takes the checkout along.
    async fn forward_here(&self, to: &Oid) -> Result<(), GitError> {
        let run = &self.0;
        let status = ["status", "--porcelain", "-z", "--untracked-files=no", "--no-renames"];
        // Git would call itself in each submodule, and there run what that one is configured to.
        let status = self.in_checkout(&status).await?.arg("--ignore-submodules=dirty");
        let changed = run.apart.git.run(status).await?;
        let changed: Vec<String> = changed.records().map(shown).collect();
        if !changed.is_empty() {
            return Err(GitError::NoFastForward {
                branch: run.branch.target.clone(),
                why: format!(
                    "its checkout has changes ({}): commit or stash them first",
                    listed(changed.iter().map(String::as_str))
                ),
            });
        }
        let merge = ["merge", "--ff-only", "--no-stat", "--no-autostash", "-q", to.as_str()];
        // What else the branch is always merged with.
        let options = format!("branch.{}.mergeOptions", run.branch.target);
        let merge = self.in_checkout(&merge).await?.config(&[(options.into(), "".into())]);
        let merged = run.apart.git.ask(merge).await?;
        if merged.code != 0 {
            let branch = run.branch.target.clone();
            return Err(GitError::NoFastForward { branch, why: merged.stderr });
        }
        Ok(())
    }

    async fn in_checkout(&self, args: &[&str]) -> Result<Call, GitError> {
        let git = &self.0.apart.git;
        let shield = git.shield().await?;
        let dir = git.checkout.as_ref().unwrap_or(&git.dir);
        let call = Call::new(dir, args).env("GIT_DIR", &git.checkout_dir);
        let call = call.env("GIT_WORK_TREE", dir);
        Ok(call.config(&shield.overrides))
    }

    /// The command by which a person takes what was merged into the branch that is checked out.
    #[must_use]
    pub fn merge_command(&self) -> String {
        let quoted = |text: &str| text.replace('\'', r"'\''");
        let path = quoted(&self.0.apart.git.path.display().to_string());
        format!("git -C '{path}' merge '{}'", quoted(self.integration_branch()))
    }
}
