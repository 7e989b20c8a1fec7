//! A branch in another repository on disk, moved by compare-and-swap.
//!
//! The other repository has the truth: its branch and the fences of the run. The branch of the same
//! name here follows it. Git is called with a directory of our own, so that nothing in either
//! repository's configuration leads it elsewhere, and its hooks do not run.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::GitError;
use crate::git::apart::Apart;
use crate::git::exec::{Answer, Call, Caller};
use crate::git::oid::Oid;
use crate::git::repository::Git;

/// How git is started on the other side.
const UPLOAD: &str =
    "--upload-pack=git -c safe.directory=* -c core.hooksPath=/dev/null upload-pack";
const RECEIVE: &str = "--receive-pack=git -c safe.directory=* -c core.hooksPath=/dev/null \
                       -c core.alternateRefsCommand=true -c receive.denyCurrentBranch=refuse \
                       -c receive.autogc=false -c core.fsync=all receive-pack";

/// The other repository.
#[derive(Debug)]
pub(crate) struct Remote {
    /// How it is looked at without a push or a fetch.
    theirs: Git,
    path: PathBuf,
    /// What git is called with, and over our objects.
    apart: Apart,
}

/// How something stands on the other side, as one answer of it has it.
pub(crate) struct Standing {
    pub(crate) branch: Option<Oid>,
    pub(crate) fence: Option<Oid>,
}

impl Remote {
    /// Finds the other repository.
    pub(crate) async fn open(apart: Apart, path: &Path) -> Result<Self, GitError> {
        let refused =
            |why: String| GitError::Remote { path: path.to_owned(), why: why.trim().to_owned() };
        let git = Arc::clone(&apart.git);
        let theirs = Git::open(Caller::new(&git.caller.program), path).await;
        let theirs = theirs.map_err(|err| refused(err.to_string()))?;
        if !theirs.is_bare {
            return Err(refused("it has a checkout".to_owned()));
        }
        if theirs.format != git.format {
            let (theirs, ours) = (theirs.format.name(), git.format.name());
            let why = format!("its objects are named by {theirs}, and not by {ours}");
            return Err(refused(why));
        }
        let remote = Self { path: theirs.path.clone(), theirs, apart };
        let asked = git.ask(remote.call(["ls-remote", UPLOAD]).arg(&remote.path)).await?;
        if asked.code != 0 {
            return Err(refused(asked.stderr));
        }
        Ok(remote)
    }

    /// Refuses a branch there that is checked out, or another name of one: a push would move that.
    pub(crate) async fn refuse_taken(&self, branch: &str) -> Result<(), GitError> {
        self.theirs.refuse_taken(branch).await
    }

    /// A call that knows the objects of our repository and nothing of its configuration.
    fn call<const N: usize>(&self, args: [&str; N]) -> Call {
        self.apart
            .call(args)
            .env("GIT_ALLOW_PROTOCOL", "file")
            .config(&[("protocol.file.allow".into(), "always".into())])
    }

    /// How a branch and a fence stand there.
    pub(crate) async fn standing(&self, branch: &str, fence: &str) -> Result<Standing, GitError> {
        let call = self.call(["ls-remote", UPLOAD]).arg(&self.path).args([branch, fence]);
        let answer = self.apart.git.run(call).await?;
        let text = answer.text();
        let find = |name: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once('\t'));
            lines.find(|(_, found)| *found == name).and_then(|(oid, _)| Oid::parse(oid))
        };
        Ok(Standing { branch: find(branch), fence: find(fence) })
    }

    /// Where a branch stands there.
    pub(crate) async fn branch(&self, branch: &str) -> Result<Option<Oid>, GitError> {
        Ok(self.standing(branch, branch).await?.branch)
    }

    /// Brings the objects of a ref here.
    pub(crate) async fn fetch(&self, name: &str) -> Result<(), GitError> {
        let args = ["fetch", "-q", "--no-tags", "--no-write-fetch-head", "--no-auto-gc", UPLOAD];
        let call = self.call(args).arg(&self.path).arg(format!("+{name}:{name}"));
        self.apart.git.run(call).await.map(drop)
    }

    /// Moves refs, all of them or none, if each stands where it is expected to.
    pub(crate) async fn push(
        &self,
        moves: &[(&str, Option<&Oid>, &Oid)],
    ) -> Result<Answer, GitError> {
        let mut call = self.call(["push", "-q", "--atomic", "--porcelain", "--no-signed", RECEIVE]);
        for (name, expected, _) in moves {
            let expected = expected.map_or("", |oid| oid.as_str());
            call = call.arg(format!("--force-with-lease={name}:{expected}"));
        }
        call = call.arg(&self.path);
        for (name, _, to) in moves {
            call = call.arg(format!("{to}:{name}"));
        }
        let mut answer = self.apart.git.ask(call).await?;
        if answer.code != 0 {
            // Why it was refused stands with the refs.
            let text = answer.text();
            let refused = text.lines().filter(|line| line.starts_with('!'));
            answer.stderr = refused.chain([answer.stderr.as_str()]).collect::<Vec<_>>().join("\n");
        }
        Ok(answer)
    }

    /// What is in the fences there that lie below this.
    pub(crate) async fn fences(&self, below: &str) -> Result<Vec<Vec<u8>>, GitError> {
        self.fetch(&format!("{below}/*")).await?;
        let list = self.call(["for-each-ref", "--format=%(raw)%00", below]);
        let answer = self.apart.git.run(list).await?;
        Ok(answer.records().map(<[u8]>::to_vec).collect())
    }
}
