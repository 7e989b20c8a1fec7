//! The engine and the store in step: several commands become one commit, or none of them happened.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tracing::warn;

use super::{RunError, log};
use crate::command::{Answer, Command, Grant, Refusal};
use crate::engine::Engine;
use crate::event::StoredEvent;
use crate::id::{BlobHash, CommandId, OwnerId};
use crate::mutant::{Mutant, is_on};
use crate::policy::SchedulingPolicy;
use crate::port::{Commit, CommitError, Host, Store};
use crate::time::{Timestamp, WallTime};

/// How often a commit is tried again while the store cannot take it.
pub(super) const TRIES_MAX: u32 = 40;
/// The first wait between tries; it doubles up to [`WAIT_MAX`].
const WAIT_MIN: Duration = Duration::from_millis(20);
/// The longest wait between tries: with [`TRIES_MAX`] they go on for over a minute.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// Numbers the commands of this process.
static COMMANDS: AtomicU64 = AtomicU64::new(0);

/// What one turn came to, once it is committed.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// For each command, in order, its answer or why it was refused.
    pub(super) answers: Vec<Result<Answer, Refusal>>,
    /// The stages that were granted.
    pub(super) grants: Vec<Grant>,
    /// What was committed since the turn before, by whomever.
    pub(super) events: Vec<StoredEvent>,
}

/// The engine, and the store that has what it decided.
pub(super) struct Ledger {
    pub(super) engine: Engine,
    pub(super) owner: OwnerId,
    pub(super) store: Arc<dyn Store>,
    pub(super) host: Arc<dyn Host>,
    pub(super) policy: Arc<dyn SchedulingPolicy>,
    /// What other processes committed since the last turn.
    pub(super) missed: Vec<StoredEvent>,
}

/// What a turn is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Aim {
    /// These commands and nothing else, all of them or none.
    Commands,
    /// The commands that make sense.
    Winding,
    /// The commands that make sense, and what becomes of the run, but no grants.
    Holding,
    /// All of that, and all that can be granted.
    Granting,
}

impl Ledger {
    /// The run's time.
    pub(super) fn now(&self) -> Timestamp {
        let anchor = self.engine.run().and_then(|run| run.anchor.as_ref());
        anchor.map_or(Timestamp(0), |anchor| anchor.now(&self.host.reading()))
    }

    /// The run's time of a moment by the wall clock.
    pub(super) fn at_wall(&self, wall: WallTime) -> Timestamp {
        let anchor = self.engine.run().and_then(|run| run.anchor.as_ref());
        anchor.map_or(Timestamp(0), |anchor| anchor.at_wall(&self.host.reading(), wall))
    }

    /// A name that no command of this or another process has.
    pub(super) fn command_id(&self) -> CommandId {
        command_id(&self.owner, COMMANDS.fetch_add(1, Ordering::Relaxed))
    }

    /// Decides these commands, lets time do its work, claims what can run where that is the aim,
    /// and commits all of it at once.
    pub(super) async fn turn(&mut self, commands: &[Command], aim: Aim) -> Result<Turn, RunError> {
        let named: Vec<(CommandId, &Command)> =
            commands.iter().map(|command| (self.command_id(), command)).collect();
        let mut tries = 0;
        loop {
            let mut turn = self.decide(&named, aim);
            let Some(commit) = self.engine.batch() else {
                turn.events = std::mem::take(&mut self.missed);
                return Ok(turn);
            };
            let Err(err) = self.write(&commit).await else {
                self.engine.accept();
                turn.events = std::mem::take(&mut self.missed);
                turn.events.extend(numbered(commit));
                return Ok(turn);
            };
            self.engine.undo();
            tries += 1;
            if tries >= TRIES_MAX {
                return Err(err.into());
            }
            match err {
                CommitError::Moved { .. } | CommitError::Repeated { .. } => {
                    let reloaded = self.reload().await;
                    let Err(RunError::Store(err)) = reloaded else {
                        reloaded?;
                        continue;
                    };
                    warn!(error = %err, tries, "what others committed could not be read");
                    tokio::time::sleep(wait(tries)).await;
                }
                CommitError::Busy(_) if is_on(Mutant::BusyStoreEndsRun) => return Err(err.into()),
                CommitError::Busy(_) | CommitError::Full(_) | CommitError::Unknown(_) => {
                    warn!(error = %err, tries, "the store did not take a commit");
                    tokio::time::sleep(wait(tries)).await;
                }
                CommitError::Failed(_) => return Err(err.into()),
            }
        }
    }

    fn decide(&mut self, commands: &[(CommandId, &Command)], aim: Aim) -> Turn {
        let mut turn = Turn::default();
        let now = self.now();
        if self.engine.next_wake().is_some_and(|wake| wake <= now) {
            self.submit(now, &Command::Tick);
        }
        for (id, command) in commands {
            turn.answers.push(self.engine.submit(now, id, command));
        }
        if aim == Aim::Commands && turn.answers.iter().any(Result::is_err) {
            self.engine.undo();
        }
        let claim = Command::Claim { owner: self.owner.clone() };
        if aim == Aim::Granting {
            while let Some(Answer::Granted { task, .. }) = self.submit(now, &claim) {
                turn.grants.extend(self.engine.grant(task));
                if is_on(Mutant::OneGrantATurn) {
                    break;
                }
            }
        }
        let settles = matches!(aim, Aim::Holding | Aim::Granting);
        if settles && self.engine.settlement(now).is_some() {
            self.submit(now, &Command::Settle);
        }
        turn
    }

    fn submit(&mut self, now: Timestamp, command: &Command) -> Option<Answer> {
        let id = self.command_id();
        self.engine.submit(now, &id, command).ok()
    }

    /// Writes a commit; one whose fate is unknown is settled by asking for the answer of its
    /// first command.
    async fn write(&self, commit: &Commit) -> Result<(), CommitError> {
        let run = self.engine.id();
        let Err(err) = self.store.commit(run, commit).await else { return Ok(()) };
        let CommitError::Unknown(_) = err else { return Err(err) };
        warn!(error = %err, "asking the store whether it has the last commit");
        let Some((first, _)) = commit.commands.first() else { return Err(err) };
        let mut tries = 0;
        loop {
            match self.store.answer(run, first).await {
                Ok(Some(_)) => return Ok(()),
                Ok(None) => return Err(err),
                Err(ask) if tries >= TRIES_MAX => return Err(CommitError::Failed(ask)),
                Err(_) => {
                    tries += 1;
                    tokio::time::sleep(wait(tries)).await;
                }
            }
        }
    }

    /// Takes over what other processes committed, if they did.
    pub(super) async fn catch_up(&mut self) -> Result<(), RunError> {
        let header = self.store.header(self.engine.id()).await;
        let moved = header.map(|known| known.is_some_and(|(seq, _)| seq > self.engine.seq()));
        let caught_up = match moved {
            Ok(true) => self.reload().await,
            Ok(false) => Ok(()),
            Err(err) => Err(err.into()),
        };
        let Err(RunError::Store(err)) = caught_up else { return caught_up };
        // The next commit will tell; until then nothing is acted on that is not so.
        warn!(error = %err, "what others committed could not be read");
        tokio::time::sleep(WAIT_MAX).await;
        Ok(())
    }

    async fn reload(&mut self) -> Result<(), RunError> {
        let run = self.engine.id().clone();
        let Some(snapshot) = self.store.load(&run).await? else { return Ok(()) };
        let missed = log::readable(&*self.store, &run, self.engine.seq(), snapshot.seq).await?;
        self.engine = Engine::restore(&snapshot)?.with_policy(Arc::clone(&self.policy));
        self.missed.extend(missed);
        Ok(())
    }
}

fn numbered(commit: Commit) -> Vec<StoredEvent> {
    let places = (1..).map(|step| commit.expected.plus(step));
    places.zip(commit.events).map(|(seq, event)| StoredEvent { seq, event }).collect()
}

/// How long is waited after so many tries.
pub(super) fn wait(tries: u32) -> Duration {
    WAIT_MIN.saturating_mul(1 << tries.min(10)).min(WAIT_MAX)
}

/// The name of an owner's command of this number: the owner's own and the number, or a hash of both
/// where that is too long for a name.
fn command_id(owner: &OwnerId, number: u64) -> CommandId {
    let name = format!("{owner}/{number}");
    CommandId::parse(&name).unwrap_or_else(|_| {
        let hash = BlobHash::of(name.as_bytes());
        CommandId::parse(hash.as_str()).expect("hex digits are a valid name")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::ID_BYTES_MAX;

    #[test]
    fn p16_an_owner_with_the_longest_name_still_names_its_commands_apart() {
        let owner = |last| OwnerId::parse(&("o".repeat(ID_BYTES_MAX - 1) + last)).unwrap();
        let names =
            [command_id(&owner("a"), 1), command_id(&owner("a"), 2), command_id(&owner("b"), 1)];
        assert!(names[0] != names[1] && names[0] != names[2] && names[1] != names[2]);
        let short = OwnerId::parse("host/1").unwrap();
        assert_eq!(command_id(&short, 7).as_str(), "host/1/7");
    }
}
