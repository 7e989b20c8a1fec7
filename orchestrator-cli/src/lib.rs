//! What a person sees of a run: progress on a terminal, a report, and what waits for a decision.
//!
//! [`Terminal`] watches a run and shows it while it goes on. [`History`] is a run read back from its
//! store; [`Report`] and [`escalated_md`] are pure functions of it, and [`write_whole`] puts a file
//! in place at once or not at all.

mod board;
mod escalated;
mod history;
mod live;
mod report;
mod terminal;
mod text;
mod times;
mod write;

pub use self::{
    escalated::{Advice, escalated_md},
    history::History,
    report::{Report, TaskReport, TaskState, Waiting},
    terminal::Terminal,
    text::{harmless, shell_word},
    write::{WriteError, write_whole},
};
