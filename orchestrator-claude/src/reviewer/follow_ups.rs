//! Findings that do not block a merge, kept for a person to go through.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use orchestrator_core::port::{Change, Review, Reviewer, StageContext};
use orchestrator_core::{BlobHash, Finding, Mask, Verdict};
use tracing::warn;

/// Longest title, in characters.
const TITLE_CHARS_MAX: usize = 90;

/// A reviewer whose findings on an approved change are kept, a file for each.
///
/// It goes around whoever has the last word, so around a [`Panel`](super::Panel) and not around its
/// members: what a member found that was outvoted is kept then too.
///
/// ```
/// use std::sync::Arc;
/// use orchestrator_claude::{ClaudeConfig, ClaudeReviewer, FollowUps};
///
/// let reviewer = Arc::new(ClaudeReviewer::new(ClaudeConfig::new("claude", "claude-haiku-5")));
/// let reviewer = FollowUps::of(reviewer, "run/follow-ups");
/// # drop(reviewer);
/// ```
#[derive(Clone)]
pub struct FollowUps {
    reviewer: Arc<dyn Reviewer>,
    dir: PathBuf,
    mask: Mask,
}

impl std::fmt::Debug for FollowUps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FollowUps").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl FollowUps {
    /// Keeps the findings of this reviewer in this directory.
    pub fn of(reviewer: Arc<dyn Reviewer>, dir: impl Into<PathBuf>) -> Self {
        Self { reviewer, dir: dir.into(), mask: Mask::keys() }
    }

    /// With secrets that are kept out of the files; otherwise what looks like a key is.
    #[must_use]
    pub fn with_mask(mut self, mask: Mask) -> Self {
        self.mask = mask;
        self
    }
}

#[async_trait]
impl Reviewer for FollowUps {
    async fn review(&self, cx: &StageContext, change: &Change) -> Review {
        let review = self.reviewer.review(cx, change).await;
        if let Ok(judgement) = &review.judgement
            && judgement.verdict == Verdict::Approve
            && let Err(err) = self.write(cx, change, &judgement.findings)
        {
            warn!(task = %cx.task.id, error = %err, "follow-ups could not be written");
        }
        review
    }
}

impl FollowUps {
    /// Writes each finding into a file of its own, with where it comes from at its foot. A finding
    /// has the same file however often it is written, so that one that was mended, edited or moved
    /// away by a person and found again is seen as what it is.
    fn write(&self, cx: &StageContext, change: &Change, findings: &[Finding]) -> io::Result<()> {
        if findings.is_empty() {
            return Ok(());
        }
        std::fs::create_dir_all(&self.dir)?;
        for finding in findings {
            let place = format!("{}\0{:?}\0{}", cx.task.id, finding.file, finding.message);
            let hash = BlobHash::of(place.as_bytes());
            let short: String = hash.as_str().chars().take(8).collect();
            let path = self.dir.join(format!("{}-{short}.md", cx.task.id.slug()));
            match std::fs::File::create_new(&path) {
                Ok(mut file) => {
                    let message = self.mask.text(&finding.message).into_owned();
                    let shown = Finding { message, ..finding.clone() };
                    io::Write::write_all(&mut file, text(cx, change, &shown).as_bytes())?;
                }
                Err(err) if err.kind() == io::ErrorKind::AlreadyExists => {}
                Err(err) => return Err(err),
            }
        }
        Ok(())
    }
}

fn text(cx: &StageContext, change: &Change, finding: &Finding) -> String {
    let line = finding.message.lines().next().unwrap_or_default();
    let title: String = line.chars().take(TITLE_CHARS_MAX).collect();
    let place = match (&finding.file, finding.line) {
        (Some(file), Some(line)) => format!("At `{file}:{line}`.\n\n"),
        (Some(file), None) => format!("In `{file}`.\n\n"),
        (None, _) => String::new(),
    };
    format!(
        "# {title}\n\n{}\n\n{place}---\n\nFound by stage `{}` of task `{}` in run `{}`, attempt {}, \
         in change `{}`{}. It did not block the merge.\n",
        finding.message.trim(),
        cx.stage.name,
        cx.task.id,
        cx.run,
        cx.attempt,
        change.candidate.change,
        finding.id.as_ref().map(|id| format!(", as {id}")).unwrap_or_default(),
    )
}
