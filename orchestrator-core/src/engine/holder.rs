//! What is said of a live lease besides its result: that nothing of it runs any more, that it is taken
//! back, what it works on, what it is about to merge.

use super::Engine;
use super::draft::Draft;
use super::late::holds;
use super::leases::Hold;
use super::table::View;
use crate::command::Answer;
use crate::event::{EventKind, Stale};
use crate::id::{BlobHash, FencingToken, TaskNo};
use crate::mutant::{Mutant, is_on};
use crate::outcome::{Interruption, MergeIntent};
use crate::record::{OwnerRecord, RunRecord};

impl Engine {
    pub(super) fn decide_stopped(
        &self,
        draft: &mut Draft,
        run: &RunRecord,
        number: TaskNo,
        token: FencingToken,
    ) -> Answer {
        if !self.has(number) {
            return Answer::Refused(Stale::UnknownTask);
        }
        let task = self.table.view(number.0);
        let Some((hold, why)) = task.stopping() else {
            return Answer::Refused(Stale::NoLease);
        };
        if hold.token != token {
            return Answer::Refused(Stale::NoLease);
        }
        self.ended_without(draft, run, number, hold, why);
        Answer::Done
    }

    pub(super) fn decide_supersede(
        &self,
        draft: &mut Draft,
        run: &RunRecord,
        number: TaskNo,
        token: FencingToken,
    ) -> Answer {
        if !self.has(number) {
            return Answer::Refused(Stale::UnknownTask);
        }
        let task = self.table.view(number.0);
        let Some(hold) = task.hold() else { return Answer::Refused(Stale::NoLease) };
        if hold.token != token {
            return Answer::Refused(Stale::OtherToken { current: hold.token });
        }
        let reason = match task.stopping() {
            Some((_, why)) => why,
            None if self.is_held(hold) || is_on(Mutant::RenewedLeaseTakenBack) => {
                Interruption::Superseded
            }
            None => return Answer::Refused(Stale::Renewed),
        };
        self.ended_without(draft, run, number, hold, reason);
        Answer::Done
    }

    /// Whether nobody renews the lease.
    fn is_held(&self, hold: &Hold) -> bool {
        let owner = self.owners.by_name(self.owners.name(hold.owner));
        owner.is_some_and(OwnerRecord::is_held)
    }

    /// The task, if its live lease is the one of this number.
    fn live(&self, task: TaskNo, token: FencingToken) -> Result<View<'_>, Stale> {
        if !self.has(task) {
            return Err(Stale::UnknownTask);
        }
        let view = self.table.view(task.0);
        holds(&view, token).map(|_| view)
    }

    pub(super) fn decide_dispatch(
        &self,
        draft: &mut Draft,
        task: TaskNo,
        token: FencingToken,
        content: &BlobHash,
    ) -> Answer {
        match self.live(task, token) {
            // Who does not know whether it was noted says it again.
            Ok(view) if view.detail().content.as_ref() == Some(content) => Answer::Done,
            Ok(_) => {
                draft.push(EventKind::Dispatched { task, token, content: content.clone() });
                Answer::Done
            }
            Err(reason) => Answer::Refused(reason),
        }
    }

    pub(super) fn decide_intent(
        &self,
        draft: &mut Draft,
        task: TaskNo,
        token: FencingToken,
        intent: &MergeIntent,
    ) -> Answer {
        match self.live(task, token) {
            // As in a dispatch.
            Ok(view) if view.detail().intent.as_ref() == Some(intent) => Answer::Done,
            Err(Stale::OtherToken { .. } | Stale::Stopping) if is_on(Mutant::AnyoneMerges) => {
                draft.push(EventKind::MergeIntended { task, token, intent: intent.clone() });
                Answer::Done
            }
            Ok(_) => {
                draft.push(EventKind::MergeIntended { task, token, intent: intent.clone() });
                Answer::Done
            }
            Err(reason) => Answer::Refused(reason),
        }
    }
}
