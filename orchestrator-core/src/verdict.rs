//! What a reviewer answers.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A reviewer's judgement of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judgement {
    /// Whether the change may be merged.
    pub verdict: Verdict,
    /// What was found; a rejection has at least one that blocks.
    pub findings: Vec<Finding>,
}

/// The two answers a reviewer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Verdict {
    /// The change may be merged.
    Approve,
    /// The change goes back with the findings.
    Reject,
}

/// One thing that a reviewer found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Its name among the findings on the task, once it was given one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// How bad it is.
    pub severity: Severity,
    /// The file it is in, relative to the repository's root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The line it is at; the first is 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// What is wrong, and what would be right.
    pub message: String,
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Worth knowing; does not stop a merge.
    Note,
    /// Must be mended before the change is merged.
    Blocking,
}

impl Judgement {
    /// The findings as feedback for the next attempt.
    #[must_use]
    pub fn feedback(&self) -> String {
        let mut text = String::from("The reviewer rejected the change:\n");
        for finding in &self.findings {
            text.extend(["- ", &finding.to_string(), "\n"]);
        }
        text
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(id) = &self.id {
            write!(f, "{id} ")?;
        }
        f.write_str(match self.severity {
            Severity::Note => "[note]",
            Severity::Blocking => "[blocking]",
        })?;
        match (&self.file, self.line) {
            (Some(file), Some(line)) => write!(f, " {file}:{line}:")?,
            (Some(file), None) => write!(f, " {file}:")?,
            (None, _) => {}
        }
        write!(f, " {}", self.message)
    }
}
