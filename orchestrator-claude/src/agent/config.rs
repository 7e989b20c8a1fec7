//! What holds for every agent program.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use orchestrator_core::{Mask, Usd};
use orchestrator_process::Confinement;

use super::Prices;
use crate::account::Account;
use crate::prompt::{Documents, Templates};
use crate::starts::Starts;

/// What holds for every agent program: prompts, limits, and what runs share.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AgentConfig {
    /// The templates of the prompts.
    pub templates: Arc<Templates>,
    /// The documents that every agent gets.
    pub documents: Documents,
    /// The most turns in one run of the program.
    pub turns_max: NonZeroU32,
    /// How long the program may write nothing; `None` is as long as it may be silent and still be at
    /// work ([`Agent::silence`](super::Agent::silence)).
    pub silence: Option<Duration>,
    /// How long the program has to end after its final line.
    pub final_grace: Duration,
    /// How long it has between being asked to end and being killed.
    pub kill_grace: Duration,
    /// What one turn may cost past a limit of money: a program is given that much less than what is
    /// reserved for it, or half of it where that is less still.
    pub turn_overshoot: Usd,
    /// Prices, for what is known in tokens only: all of what a program spends that names no money,
    /// and of one that does the lower bound of a run that is ended before it says what it cost.
    pub prices: Prices,
    /// How often in a row the same tool may be used in the same way before the run is ended; `None`
    /// is without end.
    pub repeats_max: Option<NonZeroU32>,
    /// Whether the attempt after a rejection takes up the conversation of the one before, where the
    /// workspace still holds its work.
    pub resume_rejected: bool,
    /// How often a change of one task is reviewed before a person is asked.
    pub review_rounds_max: NonZeroU32,
    /// What a program, with all that it starts, may use and where it may reach. In a sandbox it may
    /// write to the workspace, to its own home and to a directory for temporary files, and to what
    /// is named here.
    pub confinement: Confinement,
    /// What is overwritten in the logs of a program once it has ended: what looks like a key, unless
    /// more is said.
    pub mask: Mask,
    /// How many programs start at the same time; clones share it.
    pub starts: Starts,
    /// What is known of the account, shared by all runs of the host.
    pub account: Option<Account>,
}

impl Default for AgentConfig {
    /// Built-in templates, the three usual documents, 200 turns, no prices, half a dollar for a turn
    /// past the limit, 25 equal uses of a tool in a row, 4 reviews of one task, and starts as
    /// [`Starts::default`] says.
    fn default() -> Self {
        Self {
            templates: Arc::new(Templates::built_in()),
            documents: Documents::default(),
            turns_max: NonZeroU32::MIN.saturating_add(199),
            silence: None,
            final_grace: Duration::from_secs(8),
            kill_grace: Duration::from_secs(10),
            turn_overshoot: Usd(500_000),
            prices: Prices::default(),
            repeats_max: NonZeroU32::new(25),
            resume_rejected: true,
            review_rounds_max: NonZeroU32::MIN.saturating_add(3),
            confinement: Confinement::none(),
            mask: Mask::keys(),
            starts: Starts::default(),
            account: None,
        }
    }
}

impl AgentConfig {
    /// What the program is told that it may spend, of what is reserved.
    #[must_use]
    pub fn budget_of(&self, reserved: Usd) -> Usd {
        reserved.minus(self.turn_overshoot.min(Usd(reserved.0 / 2)))
    }
}
