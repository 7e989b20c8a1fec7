//! What a person sees of a run: progress on a terminal, a report, and what waits for a decision.
//!
//! [`Terminal`] watches a run and shows it while it goes on; [`JsonLines`] writes it for programs,
//! [`Spans`] makes `tracing` spans of it, and [`Notifier`] runs a command when a person is needed.
//! Several of them make one observer: `vec![…]`. [`History`] is a run read back from its
//! store; [`Report`] and [`escalated_md`] are pure functions of it, and [`write_whole`] puts a file
//! in place at once or not at all.

mod board;
mod escalated;
mod history;
mod json_lines;
mod live;
mod notify;
mod report;
mod spans;
#[cfg(test)]
mod stuck;
mod terminal;
mod text;
mod times;
mod write;

pub use self::{
    escalated::{Advice, Remedy, escalated_md},
    history::History,
    json_lines::JsonLines,
    notify::{Notifier, NotifyError},
    report::{Report, TaskReport, TaskState, Waiting},
    spans::Spans,
    terminal::Terminal,
    text::{harmless, shell_word},
    write::{WriteError, write_whole},
};
