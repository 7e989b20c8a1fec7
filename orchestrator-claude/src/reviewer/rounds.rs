//! What a reviewer remembers of the rounds before, so that it reads only what is new.
//!
//! It is kept beside the task's workspace and goes with it: a task that a person starts anew is
//! reviewed anew. Where somebody changed it, the next round is the first.

use std::collections::BTreeSet;
use std::io;

use orchestrator_core::port::{Change, StageContext};
use orchestrator_core::{BlobHash, ChangeId, Finding, Judgement, Severity, Verdict};
use serde::{Deserialize, Serialize};

use crate::kept;

/// What begins the part of a difference that is about one file.
const SECTION: &str = "diff --git ";

/// The rounds so far.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Rounds {
    /// How many there were that ended with a verdict.
    pub(super) count: u32,
    /// How many findings were given names.
    named: u32,
    /// What the last one found and was not met yet.
    pub(super) open: Vec<Finding>,
    /// The parts of the difference that it saw.
    seen: BTreeSet<BlobHash>,
    /// What the last one came to.
    last: Option<Last>,
}

/// A round that ended with a verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Last {
    attempt: u32,
    change: ChangeId,
    judgement: Judgement,
}

/// The part of a change that is new since the last round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct New {
    /// The difference.
    pub(super) diff: String,
    /// The paths that were seen as they are.
    pub(super) known: Vec<String>,
}

/// The name of the file.
fn name(cx: &StageContext) -> String {
    let stage = BlobHash::of(cx.stage.name.as_str().as_bytes());
    let stage: String = stage.as_str().chars().take(12).collect();
    format!("review-{stage}.json")
}

impl Rounds {
    /// The rounds of this task and stage so far.
    pub(super) fn of(cx: &StageContext) -> Self {
        let text = kept::read(cx, &name(cx));
        text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }

    /// The verdict on this very change that nobody heard of, since what came after it was cut off.
    pub(super) fn unheard(&self, cx: &StageContext, change: &Change) -> Option<&Judgement> {
        let last = self.last.as_ref()?;
        let is_it = last.attempt == cx.attempt && last.change == change.candidate.change;
        is_it.then_some(&last.judgement)
    }

    /// What of a change was not seen in the last round; all of it when that is nothing.
    pub(super) fn new_part(&self, change: &Change) -> New {
        let (old, new): (Vec<&str>, Vec<&str>) =
            sections(&change.diff).into_iter().partition(|part| self.seen.contains(&hash(part)));
        if self.count == 0 || new.is_empty() {
            return New { diff: change.diff.clone(), known: Vec::new() };
        }
        let is_known = |path: &&String| {
            let end = format!(" b/{path}");
            let names = |part: &&str| part.lines().next().is_some_and(|line| line.ends_with(&end));
            old.iter().any(names) && !new.iter().any(names)
        };
        let known = change.files.iter().filter(is_known).cloned().collect();
        New { diff: new.concat(), known }
    }

    /// Gives names to findings that have none.
    pub(super) fn name(&mut self, findings: &mut [Finding]) {
        for finding in findings.iter_mut().filter(|finding| finding.id.is_none()) {
            self.named = self.named.saturating_add(1);
            finding.id = Some(format!("F{}", self.named));
        }
    }

    /// Keeps what a round came to.
    pub(super) fn keep(
        mut self,
        cx: &StageContext,
        change: &Change,
        judgement: &Judgement,
    ) -> io::Result<()> {
        self.count = self.count.saturating_add(1);
        self.open = match judgement.verdict {
            Verdict::Reject => judgement.findings.clone(),
            Verdict::Approve => Vec::new(),
        };
        self.seen = sections(&change.diff).into_iter().map(hash).collect();
        self.last = Some(Last {
            attempt: cx.attempt,
            change: change.candidate.change.clone(),
            judgement: judgement.clone(),
        });
        kept::write(cx, &name(cx), &serde_json::to_vec(&self)?)
    }
}

/// The question to a person when reviews do not come to an end.
pub(super) fn question(rounds: u32, findings: &[Finding]) -> String {
    let blocking = findings.iter().filter(|finding| finding.severity == Severity::Blocking);
    let lines: Vec<String> = blocking.map(|finding| format!("- {finding}\n")).collect();
    format!(
        "The change was reviewed {rounds} times, and the reviewer still rejects it. Decide who is \
         right: mend what the findings say (or the documents that they rest on) and retry the \
         task, or take the change over by hand.\n\nStill open:\n\n{}",
        lines.concat()
    )
}

/// The parts of a difference, one for each file, each with its line feeds.
fn sections(diff: &str) -> Vec<&str> {
    let begins = |at: &usize| *at == 0 || diff[..*at].ends_with('\n');
    let mut starts: Vec<usize> =
        diff.match_indices(SECTION).map(|(at, _)| at).filter(begins).collect();
    if starts.first() != Some(&0) {
        starts.insert(0, 0);
    }
    let ends = starts.iter().skip(1).copied().chain([diff.len()]);
    starts.iter().zip(ends).map(|(&start, end)| &diff[start..end]).collect()
}

fn hash(part: &str) -> BlobHash {
    BlobHash::of(part.trim_end().as_bytes())
}

#[cfg(test)]
mod tests {
    use orchestrator_core::Candidate;
    use proptest::prelude::*;

    use super::*;

    fn change(name: &str, diff: &str) -> Change {
        let id = |text| ChangeId::parse(text).unwrap();
        Change {
            candidate: Candidate { change: id(name), base: id("base") },
            files: vec!["a.rs".to_owned(), "b.rs".to_owned()],
            diff: diff.to_owned(),
            cut: None,
        }
    }

    const A: &str = "diff --git a/a.rs b/a.rs\n+one\n";
    const B: &str = "diff --git a/b.rs b/b.rs\n+two\n";
    const B_NEW: &str = "diff --git a/b.rs b/b.rs\n+three\n diff --git is no section here\n";

    #[test]
    fn only_the_parts_that_are_new_are_read_again() {
        let none = Rounds::default();
        let first = change("c1", &format!("{A}{B}"));
        assert_eq!(none.new_part(&first).diff, first.diff);
        let seen: BTreeSet<BlobHash> = sections(&first.diff).into_iter().map(hash).collect();
        let one = Rounds { count: 1, seen, ..Rounds::default() };
        let part = one.new_part(&change("c2", &format!("{A}{B_NEW}")));
        assert_eq!((part.diff.as_str(), part.known), (B_NEW, vec!["a.rs".to_owned()]));
        let mut alike = change("c3", &format!("{A}{B_NEW}"));
        alike.files.push("rs".to_owned());
        assert_eq!(one.new_part(&alike).known, ["a.rs"]);
        // Nothing is new: the answer is judged against all of it.
        assert_eq!(one.new_part(&first).diff, first.diff);
        assert_eq!(sections("no git"), ["no git"]);
        assert_eq!(sections(""), [""]);
    }

    proptest! {
        #[test]
        fn p16_no_part_of_any_difference_is_left_out_unseen(
            pieces in prop::collection::vec(
                prop_oneof![
                    Just("diff --git a/a b/a\n"), Just("diff --git "), Just("\n"), Just("+é"), Just("")
                ],
                0..24,
            ),
            seen in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        ) {
            let diff = pieces.concat();
            let parts = sections(&diff);
            prop_assert_eq!(parts.concat(), diff.clone());
            let seen: BTreeSet<BlobHash> =
                seen.iter().map(|at| hash(parts[at.index(parts.len())])).collect();
            let rounds = Rounds { count: 1, seen: seen.clone(), ..Rounds::default() };
            let new = rounds.new_part(&change("c", &diff));
            for part in parts {
                prop_assert!(new.diff.contains(part) || seen.contains(&hash(part)));
            }
        }
    }
}
