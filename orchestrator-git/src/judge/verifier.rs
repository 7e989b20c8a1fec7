//! What a failed verification is worth: whether it fails again, whether the target failed before,
//! and whether the task's own tests would notice if its work were missing.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use orchestrator_core::port::{StageContext, Trial, Verifier, Workspace};
use orchestrator_core::{Outcome, Restart, Scope, StageEnd, StageKind, VerifyCommand};
use tracing::{info, warn};

use crate::error::GitError;
use crate::files::{remove_if_there, replace};
use crate::git::apart::Apart;
use crate::git::oid::Oid;
use crate::judge::failures::{self, Failures};
use crate::names::listed;
use crate::run::GitRun;
use crate::worktrees::marker::Marker;
use crate::worktrees::place::Place;

/// Most bytes of a log that are looked at for failures.
const LOG_BYTES_MAX: u64 = 64 << 20;

/// A [`Verifier`] that asks another one more than once, where one answer is not enough.
///
/// Nothing is asked twice unless it is configured.
#[derive(Clone)]
pub struct Judge {
    inner: Arc<dyn Verifier>,
    run: GitRun,
    repeats: bool,
    failures: Option<Failures>,
    tests: Option<Scope>,
}

impl fmt::Debug for Judge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Judge")
            .field("repeats", &self.repeats)
            .field("has_baseline", &self.failures.is_some())
            .field("tests", &self.tests)
            .finish_non_exhaustive()
    }
}

/// How feedback begins on what failed twice.
const TWICE: &str = "It failed twice on the same tree.\n";

/// How the first line of a record begins that says how the command ended.
const ENDED: &str = "ended: ";

/// What a command made of the commit that work stands on.
struct Before {
    how: String,
    failed: BTreeSet<String>,
}

impl Before {
    fn read(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let how = lines.next()?.strip_prefix(ENDED)?.to_owned();
        Some(Self { how, failed: lines.map(str::to_owned).collect() })
    }

    fn text(&self) -> String {
        let failed = self.failed.iter().flat_map(|name| [name.as_str(), "\n"]);
        [ENDED, &self.how, "\n"].into_iter().chain(failed).collect()
    }
}

/// How a command ended, as the feedback on it says first.
fn how_it_ended(feedback: &str) -> String {
    let feedback = feedback.strip_prefix(TWICE).unwrap_or(feedback);
    feedback.lines().next().unwrap_or_default().to_owned()
}

/// What stands in the way of a further question.
enum Trouble {
    Git(GitError),
    /// The other verifier did not get to judge.
    Ended(StageEnd),
}

impl From<GitError> for Trouble {
    fn from(err: GitError) -> Self {
        Self::Git(err)
    }
}

impl Judge {
    /// A judge that passes on what the other verifier says about workspaces of this run.
    #[must_use]
    pub fn new(run: GitRun, inner: Arc<dyn Verifier>) -> Self {
        Self { inner, run, repeats: false, failures: None, tests: None }
    }

    /// A merge that fails is verified once more on the same tree: when it passes then, the failure
    /// was no fault of the work, and is only said.
    #[must_use]
    pub const fn with_repeat(mut self) -> Self {
        self.repeats = true;
        self
    }

    /// Failures that the target had already do not count. They are found in the output of the
    /// command, and looked for on the commit that the work stands on, once for each.
    ///
    /// They count as ever where the command ends otherwise than there (by the first line of the
    /// feedback): one that did not get to its end says nothing of what would have come. A command
    /// that stops at its first failure never gets there, so let it go on (`--no-fail-fast`).
    #[must_use]
    pub fn with_baseline(mut self, failures: Failures) -> Self {
        self.failures = Some(failures);
        self
    }

    /// A task passes only if its own tests, which are the files of this scope that it changes, fail
    /// on the tree without its other changes.
    #[must_use]
    pub fn with_proof(mut self, tests: Scope) -> Self {
        self.tests = Some(tests);
        self
    }

    async fn judge(&self, cx: &StageContext) -> Result<StageEnd, Trouble> {
        let mut end = self.inner.verify(cx).await;
        if cx.stage.kind == StageKind::Gate {
            // It says something of the world, not of the tree.
            return Ok(end);
        }
        if self.repeats && cx.stage.kind == StageKind::Integrate && is_rejected(&end) {
            end = self.again(cx, end).await?;
        }
        if let (Some(failures), true) = (&self.failures, is_rejected(&end)) {
            end = self.only_new(cx, end, failures).await?;
        }
        if let (Some(tests), Outcome::Passed, StageKind::Verify) =
            (&self.tests, &end.outcome, cx.stage.kind)
            && let Some(feedback) = self.without_proof(cx, tests).await?
        {
            return Ok(StageEnd::rejected(feedback));
        }
        Ok(end)
    }

    /// Verifies once more on the same tree.
    async fn again(&self, cx: &StageContext, first: StageEnd) -> Result<StageEnd, Trouble> {
        let run = &self.run.0;
        let place = place_of(cx)?;
        run.spaces.worktrees.make_clean(&place).await?;
        let again = StageContext { dir: cx.dir.join("again"), ..cx.clone() };
        let second = self.inner.verify(&again).await;
        if second.outcome == Outcome::Passed {
            let feedback = feedback_of(&first);
            warn!(task = %cx.task.id, "verification failed and then passed on the same tree: it is flaky");
            let said = replace(&cx.dir.join("flaky.txt"), feedback.as_bytes());
            said.map_err(GitError::io(&cx.dir, "written"))?;
            return Ok(second);
        }
        Ok(match second.outcome {
            Outcome::Rejected { feedback, restart } => {
                let feedback = format!("{TWICE}{feedback}");
                StageEnd { outcome: Outcome::Rejected { feedback, restart }, ..second }
            }
            Outcome::Passed
            | Outcome::Question { .. }
            | Outcome::Interrupted { .. }
            | Outcome::Suspended { .. }
            | Outcome::Fatal { .. } => second,
        })
    }

    /// Takes away the failures that the target had already.
    async fn only_new(
        &self,
        cx: &StageContext,
        end: StageEnd,
        failures: &Failures,
    ) -> Result<StageEnd, Trouble> {
        let dirs = [cx.dir.join("again"), cx.dir.clone()];
        let log = dirs.iter().find_map(|dir| log_in(dir));
        let now = failures.find(log.as_deref().unwrap_or_else(|| feedback_of(&end)));
        if now.is_empty() {
            return Ok(end);
        }
        let before = self.baseline(cx, failures).await?;
        let new: Vec<&str> = now.difference(&before.failed).map(String::as_str).collect();
        let old = now.len() - new.len();
        let how = how_it_ended(feedback_of(&end));
        if new.is_empty() && how != before.how {
            let feedback = format!(
                "What failed had failed before the change, but the command ended otherwise than \
                 then, so what it did not get to may fail too. Then: {}\n{}",
                before.how,
                feedback_of(&end)
            );
            let outcome = Outcome::Rejected { feedback, restart: Restart::OnCandidate };
            return Ok(StageEnd { outcome, ..end });
        }
        if new.is_empty() {
            info!(task = %cx.task.id, old, "only what failed before fails");
            return Ok(StageEnd { outcome: Outcome::Passed, ..end });
        }
        let feedback = format!(
            "New failures: {}. {old} others failed before the change and do not count.\n{}",
            listed(new.iter().copied()),
            feedback_of(&end)
        );
        let outcome = Outcome::Rejected { feedback, restart: Restart::OnCandidate };
        Ok(StageEnd { outcome, ..end })
    }

    /// What fails on the commit that the work stands on; found out once, and recorded.
    async fn baseline(&self, cx: &StageContext, failures: &Failures) -> Result<Before, Trouble> {
        let run = &self.run.0;
        let base = Oid::of(&cx.workspace.base)?;
        let tree = run.apart.git.tree_of(&base).await?;
        let command = format!("{:?}", cx.task.verify);
        let name = run.apart.git.format.name_of("blob", command.as_bytes());
        let dir = run.spaces.worktrees.root.join(".baseline");
        let record = dir.join(format!("{tree}-{}", name.short()));
        let turn = run.spaces.turn("+baseline");
        let _turn = turn.lock().await;
        if let Some(before) = fs::read_to_string(&record).ok().as_deref().and_then(Before::read) {
            return Ok(before);
        }
        let workspace = run.spaces.open_beside("+baseline", &base).await?;
        let before = StageContext { dir: cx.dir.join("before"), workspace, ..cx.clone() };
        let end = self.inner.verify(&before).await;
        run.spaces.close_beside("+baseline").await?;
        let found = match end.outcome {
            Outcome::Passed => Before { how: "it passed".to_owned(), failed: BTreeSet::new() },
            Outcome::Rejected { .. } => {
                let log = log_in(&before.dir);
                let failed = failures.find(log.as_deref().unwrap_or_else(|| feedback_of(&end)));
                Before { how: how_it_ended(feedback_of(&end)), failed }
            }
            Outcome::Question { .. }
            | Outcome::Interrupted { .. }
            | Outcome::Suspended { .. }
            | Outcome::Fatal { .. } => return Err(Trouble::Ended(end)),
        };
        fs::create_dir_all(&dir).map_err(GitError::io(&dir, "made"))?;
        replace(&record, found.text().as_bytes()).map_err(GitError::io(&record, "written"))?;
        Ok(found)
    }

    /// Why the task's tests prove nothing; `None` when they fail without its work.
    async fn without_proof(
        &self,
        cx: &StageContext,
        tests: &Scope,
    ) -> Result<Option<String>, Trouble> {
        let run = &self.run.0;
        let place = place_of(cx)?;
        let base = Oid::of(&cx.workspace.base)?;
        let Some(old) = with_only(&run.apart, &place, &base, tests).await? else {
            let patterns: Vec<&str> = tests.patterns().collect();
            return Ok(Some(format!(
                "The task is to bring a test that fails without its work, and changes none ({}).",
                patterns.join(", ")
            )));
        };
        let name = format!("+proof-{}", place.slug);
        let workspace = run.spaces.open_beside(&name, &old).await?;
        let without = StageContext { dir: cx.dir.join("without"), workspace, ..cx.clone() };
        let end = self.inner.verify(&without).await;
        run.spaces.close_beside(&name).await?;
        match end.outcome {
            Outcome::Rejected { .. } => Ok(None),
            Outcome::Passed => Ok(Some(
                "The task's tests pass without its other changes too, so they prove nothing: they \
                 have to fail on the old code."
                    .to_owned(),
            )),
            Outcome::Question { .. }
            | Outcome::Interrupted { .. }
            | Outcome::Suspended { .. }
            | Outcome::Fatal { .. } => Err(Trouble::Ended(end)),
        }
    }
}

#[async_trait]
impl Verifier for Judge {
    async fn verify(&self, cx: &StageContext) -> StageEnd {
        match self.judge(cx).await {
            Ok(end) | Err(Trouble::Ended(end)) => end,
            Err(Trouble::Git(err)) => {
                warn!(task = %cx.task.id, %err, "a verification could not be judged");
                StageEnd::interrupted(orchestrator_core::Interruption::Crashed)
            }
        }
    }

    async fn try_on(&self, command: &VerifyCommand, workspace: &Workspace) -> Trial {
        self.inner.try_on(command, workspace).await
    }
}

fn is_rejected(end: &StageEnd) -> bool {
    matches!(end.outcome, Outcome::Rejected { .. })
}

fn feedback_of(end: &StageEnd) -> &str {
    match &end.outcome {
        Outcome::Rejected { feedback, .. } => feedback,
        Outcome::Passed
        | Outcome::Question { .. }
        | Outcome::Interrupted { .. }
        | Outcome::Suspended { .. }
        | Outcome::Fatal { .. } => "",
    }
}

fn place_of(cx: &StageContext) -> Result<Place, GitError> {
    let path = &cx.workspace.path;
    Place::around(path).ok_or_else(|| GitError::NoChange { text: path.display().to_string() })
}

/// The output that a verifier left in its directory.
fn log_in(dir: &Path) -> Option<String> {
    failures::read(&dir.join("output.log"), LOG_BYTES_MAX)
}

/// A commit of the base with those changes of the workspace that are in the scope; `None` when there
/// is none.
async fn with_only(
    apart: &Apart,
    place: &Place,
    base: &Oid,
    scope: &Scope,
) -> Result<Option<Oid>, GitError> {
    let marker = Marker::read(&place.marker);
    let marker =
        marker.ok_or_else(|| GitError::NoChange { text: place.tree.display().to_string() })?;
    let args = ["diff-tree", "-r", "--raw", "-z", "--no-renames", "--no-abbrev"];
    let args = args.into_iter().chain(["--ignore-submodules=none"]);
    let call = apart.call(args).args([base.as_str(), marker.start.as_str()]);
    let answer = apart.git.run(call).await?;
    let mut fields = answer.stdout.split(|byte| *byte == 0);
    let mut lines = Vec::new();
    while let (Some(meta), Some(path)) = (fields.next(), fields.next()) {
        let is_meant = std::str::from_utf8(path).is_ok_and(|path| scope.allows(path));
        let meta = String::from_utf8_lossy(meta);
        let words: Vec<&str> = meta.split(' ').collect();
        if let (true, [_, mode, _, oid, ..]) = (is_meant, words.as_slice()) {
            lines.extend_from_slice(format!("{mode} {oid}\t").as_bytes());
            lines.extend_from_slice(path);
            lines.push(0);
        }
    }
    if lines.is_empty() {
        return Ok(None);
    }
    let index = place.dir.join("index.proof");
    let call = |args: &[&str]| apart.call(args).env("GIT_INDEX_FILE", &index);
    apart.git.run(call(&["read-tree", base.as_str()])).await?;
    apart.git.run(call(&["update-index", "-z", "--index-info"]).stdin(lines)).await?;
    let answer = apart.git.run(call(&["write-tree"])).await?;
    remove_if_there(&index)?;
    let tree = Oid::parse(&answer.text()).ok_or_else(|| answer.unexpected("write-tree"))?;
    let commit = apart.git.commit(&tree, &[base], "a task's tests without its work\n").await?;
    Ok(Some(commit))
}
