//! Listening to a program while it runs.

use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

use orchestrator_core::port::{ActivityKind, ActivitySink};
use orchestrator_core::{Mask, SessionId, Usd};
use orchestrator_process::{Flow, Line, Watch};
use tracing::warn;

use super::{Call, Called};
use crate::account::Account;
use crate::agent::{Denial, Event, Ledger, Prices, RateLimit, Reader};
use crate::outcome::Stop;
use crate::signals::Repeats;
use crate::starts::Turn;

/// Longest excerpt of what the model says or does, in characters.
const EXCERPT_CHARS_MAX: usize = 160;
/// Most denials that are kept of one run.
const DENIALS_MAX: usize = 64;

/// What was heard, as far as it is the same for all programs.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// The version of the program.
    pub(crate) version: Option<String>,
    /// Whether the output of that version is known.
    pub(crate) is_known: bool,
    /// The model.
    pub(crate) model: Option<String>,
    /// The conversation.
    pub(crate) session: Option<SessionId>,
    /// Whether the last line that was waited for has come.
    pub(crate) has_ended: bool,
    /// How the account stood when it was last heard of.
    pub(crate) limit: Option<RateLimit>,
    /// Uses of tools that were not allowed, the first of them.
    pub(crate) denials: Vec<Denial>,
    /// How many there were.
    pub(crate) denied: u32,
    /// Equal uses of a tool.
    pub(crate) repeats: Repeats,
    /// What was told of use.
    pub(crate) ledger: Ledger,
    /// Whether work was begun: something was asked of the model, or the conversation has a name.
    pub(crate) has_begun: bool,
    turns: u32,
}

/// Limits that are kept for a program that does not keep them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kept {
    pub(super) budget: Option<Usd>,
    pub(super) turns_max: Option<NonZeroU32>,
}

/// Reads what the program says while it runs.
pub(super) struct Listener<'a> {
    reader: &'a mut dyn Reader,
    heard: &'a mut Heard,
    activity: &'a ActivitySink,
    mask: &'a Mask,
    log: &'a Path,
    grace: Duration,
    prices: Prices,
    account: Option<&'a Account>,
    repeats_max: Option<NonZeroU32>,
    known_versions: &'a [&'a str],
    /// Limits that the program does not keep by itself.
    kept: Kept,
    /// Given back with the first line.
    turn: Option<Turn>,
    stop: Option<Stop>,
}

impl<'a> Listener<'a> {
    pub(super) fn new(
        call: &'a Call<'_>,
        called: &'a mut Called,
        turn: Option<Turn>,
        log: &'a Path,
        kept: Kept,
    ) -> Self {
        Self {
            reader: &mut *called.reader,
            heard: &mut called.heard,
            activity: &call.cx.activity,
            mask: &call.config.mask,
            log,
            grace: call.config.final_grace,
            prices: call.config.prices,
            account: call.config.account.as_ref(),
            repeats_max: call.config.repeats_max,
            known_versions: call.agent.known_versions(),
            kept,
            turn,
            stop: None,
        }
    }

    /// Why the program is to be ended, if something that it did is the reason.
    pub(super) const fn stop(&self) -> Option<Stop> {
        self.stop
    }

    fn take(&mut self, event: Event) {
        self.heard.has_begun |= match &event {
            Event::Session(_) | Event::Turn | Event::Text(_) | Event::Tool(_) => true,
            Event::Usage(usage) => !usage.is_nothing(),
            Event::Version(_)
            | Event::Model(_)
            | Event::Denied(_)
            | Event::Limit(_)
            | Event::Retried(_)
            | Event::End
            | Event::Torn
            | Event::Other => false,
        };
        match event {
            Event::Version(version) => self.is_of(version),
            Event::Model(model) => self.heard.model = Some(model),
            Event::Turn => {
                self.heard.turns = self.heard.turns.saturating_add(1);
                if self.kept.turns_max.is_some_and(|max| self.heard.turns > max.get()) {
                    self.stop = Some(Stop::Turns);
                }
            }
            Event::Session(id) => {
                self.activity.say(ActivityKind::Session(id.clone()));
                self.heard.session = Some(id);
            }
            Event::Text(text) => self.say(&text),
            Event::Tool(used) => {
                self.say(&format!("{} {}", used.name, used.input));
                let times = self.heard.repeats.push(used);
                if self.repeats_max.is_some_and(|max| times >= max.get()) {
                    self.stop = Some(Stop::Repeats);
                }
            }
            Event::Denied(mut denial) => {
                self.mask.apply(&mut denial.input);
                self.heard.denied = self.heard.denied.saturating_add(1);
                if self.heard.denials.len() < DENIALS_MAX {
                    self.heard.denials.push(denial);
                }
            }
            Event::Usage(usage) => {
                self.heard.ledger.take(usage);
                let spent = self.heard.ledger.spent(&self.prices);
                if self.kept.budget.is_some_and(|budget| spent >= budget) {
                    self.stop = Some(Stop::Budget);
                }
            }
            Event::Limit(limit) => {
                // By the end of this run it may be old.
                self.account.iter().for_each(|account| account.hear(&limit));
                self.heard.limit = Some(limit);
            }
            Event::Retried(retry) => {
                self.say(&format!("request tried again ({}): {}", retry.attempt, retry.error));
            }
            Event::End => self.heard.has_ended = true,
            Event::Torn | Event::Other => {}
        }
    }

    fn is_of(&mut self, version: String) {
        self.heard.is_known = self.known_versions.contains(&version.as_str());
        // It is told again when the conversation begins again.
        if !self.heard.is_known && self.heard.version.as_ref() != Some(&version) {
            warn!(version, "this version of the program is not known; its output may be misread");
            self.say(&format!("version {version} is not known; what it says may be misread"));
        }
        self.heard.version = Some(version);
    }

    fn say(&self, text: &str) {
        self.activity.say(ActivityKind::Said(shorten(text)));
    }
}

impl Watch for Listener<'_> {
    fn started(&mut self, pid: u32) {
        self.activity.say(ActivityKind::Started { pid, log: self.log.to_owned() });
    }

    fn output(&mut self, bytes: u64) {
        self.activity.say(ActivityKind::Output { bytes });
    }

    fn line(&mut self, line: Line<'_>) -> Flow {
        for event in self.reader.line(line.bytes) {
            self.take(event);
        }
        // Whoever starts now knows what it says of the account.
        self.turn = None;
        if self.heard.has_ended {
            Flow::EndAfter(self.grace)
        } else if self.stop.is_some() {
            Flow::EndAfter(Duration::ZERO)
        } else {
            Flow::Continue
        }
    }
}

fn shorten(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(EXCERPT_CHARS_MAX) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}
