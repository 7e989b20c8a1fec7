//! The values that fill a template.

use orchestrator_core::{Scope, TaskSpec, head_and_tail};
use serde_json::{Map, Value, json};

use super::Document;

/// How much of the last error a prompt holds, in bytes; the middle is left out.
pub const FEEDBACK_BYTES_MAX: usize = 24 * 1024;
/// How much of each earlier error a prompt holds at most, in bytes; less when there are many.
pub const LEARNING_BYTES_MAX: usize = 4 * 1024;
/// How much of all earlier errors together a prompt holds, in bytes; no attempt is left out.
pub const LEARNINGS_BYTES_MAX: usize = 48 * 1024;
/// How little of an earlier error is still worth telling, in bytes.
const LEARNING_BYTES_MIN: usize = 128;

/// What is known when a prompt is made.
#[derive(Debug, Clone, Copy)]
pub struct Values<'a> {
    /// The task.
    pub task: &'a TaskSpec,
    /// The attempt; the first is 1.
    pub attempt: u32,
    /// What earlier attempts were rejected for, oldest first.
    pub feedback: &'a [String],
    /// What was noticed about the attempt before.
    pub noticed: &'a [String],
    /// The documents.
    pub documents: &'a [Document],
    /// The change, for a review.
    pub change: Option<ChangeText<'a>>,
}

/// A change as the reviewer's prompt shows it.
#[derive(Debug, Clone, Copy, Default)]
pub struct ChangeText<'a> {
    /// The paths that differ.
    pub files: &'a [String],
    /// The difference; in a later round of review only the part of it that is new.
    pub diff: &'a str,
    /// What was left out of it.
    pub cut: Option<&'a str>,
    /// The paths whose difference is as it was in the round before, and not shown again.
    pub known: &'a [String],
    /// Which of the documents it alters.
    pub documents: &'a [String],
    /// What the round before found, each finding in one line with its name.
    pub earlier: &'a [String],
    /// What whoever made the change said to that.
    pub answer: Option<&'a str>,
    /// A word that does not stand in the difference, which marks its beginning and end.
    pub mark: &'a str,
    /// Why the last answer could not be read, when it is asked for again.
    pub repeat: Option<&'a str>,
}

impl Values<'_> {
    /// The values by name. An input stands under `inputs`, and by itself where no other value has
    /// its name.
    pub(super) fn to_json(self) -> Value {
        let task = self.task;
        let mut own = Map::new();
        let mut put = |name: &str, value: Value| own.insert(name.to_owned(), value);
        put("task", json!({ "id": task.id, "role": task.role, "metadata": task.metadata }));
        put("inputs", Value::Object(task.inputs.clone()));
        put("attempt", json!(self.attempt));
        put("attempts_max", json!(task.max_retries.saturating_add(1)));
        put("verify", task.verify.as_ref().map_or(Value::Null, |verify| json!(verify.to_string())));
        let scope = task.scope.iter().flat_map(Scope::patterns);
        put("scope", scope.map(Value::from).collect());
        put("documents", json!(self.documents));
        let last = self.feedback.last();
        let last = last.map(|text| head_and_tail(text.trim_end(), FEEDBACK_BYTES_MAX));
        put("last_error", last.map_or(Value::Null, Value::from));
        let earlier = self.feedback.split_last().map_or(&[][..], |(_, earlier)| earlier);
        let share = (LEARNINGS_BYTES_MAX / earlier.len().max(1)).min(LEARNING_BYTES_MAX);
        let share = share.max(LEARNING_BYTES_MIN);
        let kept = earlier.iter().map(|text| head_and_tail(text.trim_end(), share));
        put("learnings", kept.map(Value::from).collect());
        put("noticed", json!(self.noticed));
        if let Some(change) = self.change {
            put("repeat", change.repeat.map_or(Value::Null, Value::from));
            put(
                "change",
                json!({
                    "files": change.files,
                    "diff": change.diff,
                    "cut": change.cut,
                    "known": change.known,
                    "documents": change.documents,
                    "earlier": change.earlier,
                    "answer": change.answer,
                    "mark": change.mark,
                }),
            );
        }
        for (name, value) in &task.inputs {
            if !own.contains_key(name) {
                own.insert(name.clone(), value.clone());
            }
        }
        Value::Object(own)
    }
}
