//! A command is decided, and what it causes is applied, as part of the present batch.

use std::sync::Arc;

use super::Engine;
use super::body::Body;
use super::draft::{Draft, Granted, Happening, What};
use crate::command::{Answer, Command, Refusal, StageReport};
use crate::event::{EventKind, Stale};
use crate::id::{CommandId, OwnerId};
use crate::time::Timestamp;

impl Engine {
    /// Decides a command and applies what it causes, as part of the present batch.
    ///
    /// The answer must not be acted on before the batch is committed: take it with
    /// [`Engine::batch`], and say what became of it with [`Engine::accept`] or [`Engine::undo`].
    ///
    /// # Errors
    /// [`Refusal`] when the command makes no sense now; the batch stays as it was.
    #[inline]
    pub fn submit(
        &mut self,
        now: Timestamp,
        id: &CommandId,
        command: &Command,
    ) -> Result<Answer, Refusal> {
        // Claims and results are most of what is asked, and bring nothing but their events.
        if self.run.is_some() {
            if let Command::Claim { owner } = command {
                return self.claim(now, id, owner);
            } else if let Command::Report(report) = command {
                let taken = self.report(now, id, report);
                return Ok(taken.map_or_else(Answer::Refused, |()| Answer::Done));
            }
        }
        self.take_on(now, id, command)
    }

    #[inline(never)]
    fn claim(
        &mut self,
        now: Timestamp,
        id: &CommandId,
        owner: &OwnerId,
    ) -> Result<Answer, Refusal> {
        if !self.index.locks.is_empty() {
            self.park(now);
        }
        let now = self.not_before(now);
        let Some(run) = &self.run else { return Ok(Answer::Nothing) };
        let grant = self.decide_claim(now, run, owner).map_err(|refusal| *refusal)?;
        let Some(grant) = grant else { return Ok(Answer::Nothing) };
        self.batch.open(self.seq, self.run.as_ref());
        // Field by field: what is put together in one place and copied to another is waited for.
        let Granted { task, stage, attempt, token, owner, hard_stop, reserved } = grant;
        let grant = || Granted { task, stage, attempt, token, owner, hard_stop, reserved };
        self.batch.draft.happens(now, What::Granted(grant()));
        self.apply_grant(now, &grant());
        self.has_happened(now);
        *self.batch.note(id) = Answer::Granted { task, stage, attempt, token };
        Ok(Answer::Granted { task, stage, attempt, token })
    }

    #[inline(never)]
    fn report(
        &mut self,
        now: Timestamp,
        id: &CommandId,
        report: &StageReport,
    ) -> Result<(), Stale> {
        let now = self.not_before(now);
        if let Some(passed) = self.plain_pass(report) {
            self.batch.open(self.seq, self.run.as_ref());
            self.batch.draft.happens(now, What::Passed(passed));
            self.apply_passed(now, &passed, None);
            self.has_happened(now);
            *self.batch.note(id) = Answer::Done;
            return Ok(());
        }
        let mut draft = std::mem::take(&mut self.batch.draft);
        draft.now = now;
        let first = draft.events.len();
        let is_taken = self.decide_report(&mut draft, report);
        if draft.events.len() > first {
            self.batch.open(self.seq, self.run.as_ref());
            self.happen_from(&draft, first);
            // Apart, so that each is put together where it goes.
            match is_taken {
                Ok(()) => *self.batch.note(id) = Answer::Done,
                Err(reason) => *self.batch.note(id) = Answer::Refused(reason),
            }
        }
        self.batch.draft = draft;
        is_taken
    }

    /// As [`Engine::submit`], for any command.
    #[cold]
    #[inline(never)]
    fn take_on(
        &mut self,
        now: Timestamp,
        id: &CommandId,
        command: &Command,
    ) -> Result<Answer, Refusal> {
        let mut draft = std::mem::take(&mut self.batch.draft);
        let before = draft.lengths();
        let decided = self.decide_into(&mut draft, now, command);
        match &decided {
            Err(_) => draft.cut(before),
            Ok(_) if draft.lengths() == before => {}
            Ok(answer) => {
                self.batch.open(self.seq, self.run.as_ref());
                if matches!(command, Command::AddPlan { .. } | Command::Edit { .. }) {
                    self.keep_content(&draft, before.events, command);
                    self.batch.links = draft.links.take();
                }
                self.happen_from(&draft, before.events);
                if matches!(command, Command::Prune) {
                    self.rank();
                }
                *self.batch.note(id) = *answer;
            }
        }
        self.batch.draft = draft;
        decided.map_err(|refusal| *refusal)
    }

    /// Applies the events of a draft from this one on.
    #[inline(always)]
    fn happen_from(&mut self, draft: &Draft, first: usize) {
        for event in &draft.events[first..] {
            self.happen(draft, event);
        }
    }

    /// Keeps the plan or the edit that a command brings under the address that its event names.
    fn keep_content(&mut self, draft: &Draft, first: usize, command: &Command) {
        for Happening { what, .. } in &draft.events[first..] {
            let What::Other(place) = what else { continue };
            match (draft.other(*place), command) {
                (EventKind::PlanAdded { plan: hash, .. }, Command::AddPlan { plan }) => {
                    self.bodies.insert(hash.clone(), Body::Plan(Arc::clone(plan)));
                }
                (EventKind::Edited { spec: hash, .. }, Command::Edit { spec, .. }) => {
                    self.bodies.insert(hash.clone(), Body::Amendment(Arc::clone(spec)));
                }
                _ => {}
            }
        }
    }
}
