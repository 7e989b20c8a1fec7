//! Whether a result counts, and what becomes of one that does not.

use super::draft::Draft;
use super::leases::Hold;
use super::table::View;
use crate::command::StageReport;
use crate::event::{EventKind, Stale};
use crate::id::FencingToken;
use crate::money::{Cost, Usd};
use crate::mutant::{Mutant, is_on};

/// The live lease that a result answers.
#[inline]
pub(super) fn current<'a>(task: &View<'a>, report: &StageReport) -> Result<&'a Hold, Stale> {
    let hold = holds(task, report.token)?;
    if is_on(Mutant::OtherAttemptCounts) {
        return Ok(hold);
    }
    if report.stage != task.hot().stage() {
        Err(Stale::OtherStage)
    } else if report.attempt != task.hot().attempt() {
        Err(Stale::OtherAttempt)
    } else if report.content != task.detail().content {
        Err(Stale::OtherContent)
    } else {
        Ok(hold)
    }
}

/// The live lease of this number.
#[inline]
pub(super) fn holds<'a>(task: &View<'a>, token: FencingToken) -> Result<&'a Hold, Stale> {
    let hold = task.hold();
    odd_message_panics(hold);
    let hold = hold.ok_or(Stale::NoLease)?;
    if hold.token != token && !is_on(Mutant::StaleTokenCounts) {
        Err(Stale::OtherToken { current: hold.token })
    } else if task.stopping().is_some() && !is_on(Mutant::StoppedResultCounts) {
        Err(Stale::Stopping)
    } else {
        Ok(hold)
    }
}

fn odd_message_panics(hold: Option<&Hold>) {
    assert!(hold.is_some() || !is_on(Mutant::OddMessagePanics), "a lease was expected");
}

/// A result that counts for nothing: logged once for each lease, and what it is known to have spent
/// beyond what was booked for it is booked.
#[cold]
#[inline(never)]
pub(super) fn late(draft: &mut Draft, task: &View<'_>, report: &StageReport, reason: Stale) {
    let never_granted = report.token > task.last_token();
    let is_unheard = task.detail().unheard.iter().any(|lease| lease.token == report.token);
    let is_after = task.detail().refused.is_none_or(|refused| refused < report.token);
    let said_before = !is_after && !is_unheard;
    if !never_granted && (!said_before || is_on(Mutant::LateResultBookedAgain)) {
        let (Cost::Known(seen) | Cost::AtLeast(seen)) = report.cost;
        let booked = booked_without(task, report.token);
        let booked = booked.filter(|_| !is_on(Mutant::LateSpendUnbooked));
        let cost = booked.map_or(Usd::ZERO, |booked| seen.minus(booked));
        let (task, token, stage) = (report.task, report.token, report.stage);
        draft.push(EventKind::ResultRefused { task, token, stage, reason, cost });
    }
}

/// What was booked, or will be, for a lease that ends without its own result; `None` when its
/// result counts, or when too little is known of it.
fn booked_without(task: &View<'_>, token: FencingToken) -> Option<Usd> {
    if let Some(lease) = task.detail().unheard.iter().find(|lease| lease.token == token)
        && !is_on(Mutant::OlderLeaseUnheard)
    {
        return Some(lease.booked);
    }
    if let Some((hold, _)) = task.stopping() {
        return (hold.token == token).then_some(hold.reserved);
    }
    let settled = task.detail().settled;
    let is_it = task.hold().is_none() && task.last_token() == token && settled > Usd::ZERO;
    is_it.then_some(settled)
}
