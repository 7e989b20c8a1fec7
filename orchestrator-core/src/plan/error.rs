//! What is wrong with the text of a plan, and where.

use std::fmt;

use super::PlanFault;
use crate::id::{InvalidId, TaskId};
use crate::pipeline::InvalidPipeline;
use crate::scope::InvalidScope;

/// Longest text of a plan, in bytes; the texts of the defaults count once for each task.
///
/// With the other limits it keeps the memory that reading takes under a gigabyte.
pub const PLAN_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Most values (texts, numbers, lists, objects) in the text of a plan; those of the defaults count
/// once for each task.
pub const PLAN_VALUES_MAX: usize = 2_000_000;
/// Deepest nesting of lists and objects in `inputs` and `metadata`.
pub const PLAN_DEPTH_MAX: usize = 64;
/// Most faults that are kept of one text; the rest is counted.
pub const PLAN_ERRORS_MAX: usize = 1_000;
/// Faults that are shown before the rest is only counted.
const SHOWN_MAX: usize = 100;

/// Everything that is wrong with the text of a plan, in the order of the text.
///
/// It shows one line for each fault: ``line 12, column 7, task `b`: …``.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanErrors {
    pub(super) errors: Vec<PlanError>,
    pub(super) more: usize,
}

impl PlanErrors {
    /// The faults, at least one and at most [`PLAN_ERRORS_MAX`].
    #[must_use]
    pub fn as_slice(&self) -> &[PlanError] {
        &self.errors
    }

    /// How many faults there are beyond those that are kept.
    #[must_use]
    pub const fn more(&self) -> usize {
        self.more
    }
}

impl fmt::Display for PlanErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.errors.len().min(SHOWN_MAX);
        for (at, error) in self.errors.iter().take(shown).enumerate() {
            let line_break = if at == 0 { "" } else { "\n" };
            write!(f, "{line_break}{error}")?;
        }
        match self.errors.len() - shown + self.more {
            0 => Ok(()),
            more => write!(f, "\n… and {more} more"),
        }
    }
}

impl std::error::Error for PlanErrors {}

/// One fault in the text of a plan.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PlanError {
    /// Where it is.
    pub position: Position,
    /// The task that it is in, if it is in one.
    pub task: Option<TaskRef>,
    /// What is wrong.
    pub fault: TextFault,
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fault = self.fault.to_string();
        let Some(task) = &self.task else { return write!(f, "{}: {fault}", self.position) };
        // Faults of a checked plan begin with their task.
        let of_task = format!("task {task} ");
        let fault = fault.strip_prefix(&of_task).unwrap_or(&fault);
        write!(f, "{}, task {task}: {fault}", self.position)
    }
}

impl std::error::Error for PlanError {}

/// A place in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line; the first is 1.
    pub line: usize,
    /// The character in the line; the first is 1.
    pub column: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// A task in a text, also one without a usable id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskRef {
    /// By its id.
    Id(TaskId),
    /// By its place in the list; the first is 1.
    Nth(usize),
}

impl fmt::Display for TaskRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => write!(f, "`{id}`"),
            Self::Nth(number) => write!(f, "{number}"),
        }
    }
}

/// One thing that is wrong with the text of a plan.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TextFault {
    /// There is nothing in it.
    #[error("there is no plan: write a list of tasks, or an object with `tasks`")]
    Empty,
    /// It is longer than [`PLAN_BYTES_MAX`].
    #[error("the plan has {0} bytes, more than {PLAN_BYTES_MAX}: hand in several plans")]
    TooLong(usize),
    /// It has more values than [`PLAN_VALUES_MAX`].
    #[error("the plan has more than {PLAN_VALUES_MAX} values: hand in several plans")]
    TooMany,
    /// The defaults, once for each task, are more than [`PLAN_BYTES_MAX`] or [`PLAN_VALUES_MAX`].
    #[error("the defaults are too much to be given to {tasks} tasks: move what is large to a file")]
    DefaultsTooLarge {
        /// How many tasks there are.
        tasks: usize,
    },
    /// It is nested deeper than [`PLAN_DEPTH_MAX`].
    #[error("nested more than {PLAN_DEPTH_MAX} deep")]
    TooDeep,
    /// It is no UTF-8.
    #[error("the byte at offset {offset} is no UTF-8")]
    NotUtf8 {
        /// The first byte that does not belong.
        offset: usize,
    },
    /// A byte 0: probably no text at all.
    #[error("a NUL character: is this a text file in UTF-8?")]
    Nul,
    /// A text in quotes goes on over the end of its line.
    #[error("a quote that is not closed in its line (a line break in a text is written `\\n`)")]
    OpenQuote,
    /// It is no JSON, also with comments and trailing commas.
    #[error("no valid JSON: {what}")]
    Syntax {
        /// What the parser says.
        what: String,
    },
    /// A field that does not exist here.
    #[error("unknown field `{}`{}", shown(.field), meant(*.nearest))]
    UnknownField {
        /// The field.
        field: String,
        /// The field that looks most like it.
        nearest: Option<&'static str>,
    },
    /// A field stands twice in one object.
    #[error("field `{}` is there twice", shown(.field))]
    RepeatedField {
        /// The field.
        field: String,
    },
    /// A field that has to be there is not.
    #[error("field `{field}` is missing")]
    MissingField {
        /// The field.
        field: &'static str,
    },
    /// A field that each task needs for itself stands among the defaults.
    #[error("`{field}` cannot be a default: each task has its own")]
    NoDefault {
        /// The field.
        field: &'static str,
    },
    /// A value is not of the kind that is needed.
    #[error("`{}` has to be {expected}, not {found}", shown(.field))]
    WrongType {
        /// The field.
        field: String,
        /// What is needed.
        expected: &'static str,
        /// What there is.
        found: &'static str,
    },
    /// A value is of the right kind, but cannot be used.
    #[error("`{}` has to be {expected}, not `{}`", shown(.field), shown(.found))]
    WrongValue {
        /// The field.
        field: String,
        /// What is needed.
        expected: &'static str,
        /// What there is.
        found: String,
    },
    /// A number that no double holds.
    #[error("the number `{}` is too large", shown(.0))]
    NumberRange(String),
    /// A text that is no identifier.
    #[error(transparent)]
    Id(InvalidId),
    /// A text that is no scope.
    #[error(transparent)]
    Scope(InvalidScope),
    /// Stages that are no pipeline.
    #[error("pipeline `{}`: {why}", shown(.pipeline))]
    Pipeline {
        /// The pipeline.
        pipeline: String,
        /// What is wrong with it.
        why: InvalidPipeline,
    },
    /// The text is fine, but the plan is not.
    #[error(transparent)]
    Plan(PlanFault),
}

fn meant(nearest: Option<&str>) -> String {
    nearest.map(|name| format!("; is `{name}` meant?")).unwrap_or_default()
}

/// A form of foreign text that is safe to print: short, and without control characters.
fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(80).flat_map(char::escape_debug).collect();
    if text.chars().nth(80).is_some() {
        shown.push('…');
    }
    shown
}
