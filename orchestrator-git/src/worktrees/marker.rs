//! What is known of a workspace, in a file beside it.

use std::fs;
use std::path::Path;

use orchestrator_core::FencingToken;

use crate::error::GitError;
use crate::files::{renew, replace};
use crate::git::oid::Oid;

/// What is known of a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Marker {
    /// The lease that it was opened under.
    pub(crate) token: FencingToken,
    /// The attempt of that lease.
    pub(crate) attempt: u32,
    /// What the work in it stands on.
    pub(crate) base: Oid,
    /// What was checked out when it was opened.
    pub(crate) start: Oid,
    /// Its name among the repository's worktrees.
    pub(crate) name: String,
    /// Whether it is ready; otherwise its opening broke off, and nobody has worked in it.
    pub(crate) is_ready: bool,
    /// What was sealed there, and in which attempt, if nothing else was opened since.
    pub(crate) sealed: Option<(Oid, u32)>,
}

impl Marker {
    /// Reads the marker; `None` when there is none that can be understood.
    pub(crate) fn read(path: &Path) -> Option<Self> {
        let text = fs::read_to_string(path).ok()?;
        let field =
            |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let sealed = match field("sealed").and_then(|value| value.split_once(' ')) {
            Some((change, attempt)) => Some((Oid::parse(change)?, attempt.parse().ok()?)),
            None => None,
        };
        Some(Self {
            token: FencingToken(field("token")?.parse().ok()?),
            attempt: field("attempt")?.parse().ok()?,
            base: Oid::parse(field("base")?)?,
            start: Oid::parse(field("start")?)?,
            name: field("name")?.to_owned(),
            is_ready: field("state")? == "ready",
            sealed,
        })
    }

    /// Writes the marker in place of the old one, at once; it is on the disk then.
    pub(crate) fn write(&self, path: &Path) -> Result<(), GitError> {
        replace(path, self.text().as_bytes()).map_err(GitError::io(path, "written"))
    }

    /// The same where it does no harm when a machine that goes down loses it.
    pub(crate) fn note(&self, path: &Path) -> Result<(), GitError> {
        renew(path, self.text().as_bytes())
    }

    fn text(&self) -> String {
        let state = if self.is_ready { "ready" } else { "opening" };
        let mut text = format!(
            "token {}\nattempt {}\nbase {}\nstart {}\nname {}\nstate {state}\n",
            self.token, self.attempt, self.base, self.start, self.name
        );
        if let Some((change, attempt)) = &self.sealed {
            let line = format!("sealed {change} {attempt}\n");
            text.push_str(&line);
        }
        text
    }

    /// Whether all that the agent did is in the sealed change, so that what differs from it comes
    /// from those who judged it.
    pub(crate) fn is_judged_only(&self) -> bool {
        self.sealed.as_ref().is_some_and(|(_, attempt)| *attempt == self.attempt)
    }
}
