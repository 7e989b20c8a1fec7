//! Records as rows, and rows as records.

use std::time::Duration;

use orchestrator_core::port::StoreError;
use orchestrator_core::{
    BlobHash, Candidate, ChangeId, Completion, Counts, Escalation, Extra, FencingToken, Lease,
    MergeIntent, Owner, OwnerId, OwnerRecord, Phase, PlanRef, PoolBounds, PoolRecord, RunRecord,
    RunState, Seq, SessionId, TaskRecord, Timestamp, Usd, millis,
};
use rusqlite::Row;

use crate::row::{Bound, Fields, NULL, Unfit, int, json, opt_int, opt_text, text, word};
use crate::table::{OWNERS, PLANS, POOLS, RUNS, TASKS};

/// The run's record without its plans, and its position.
pub(crate) fn read_run(row: &Row<'_>) -> Result<(Seq, RunRecord), StoreError> {
    let fields = &mut Fields::new(RUNS.name, row);
    let id = fields.parsed()?;
    let seq = Seq(fields.int()?);
    let record = RunRecord {
        id,
        state: read_state(fields)?,
        budget: fields.opt_u64()?.map(Usd),
        spent: Usd(fields.u64()?),
        reserved: Usd(fields.u64()?),
        last_at: Timestamp(fields.u64()?),
        last_token: FencingToken(fields.u64()?),
        driver: fields.opt_parsed()?,
        counts: Counts {
            open: fields.int()?,
            deferred: fields.int()?,
            leased: fields.int()?,
            stopping: fields.int()?,
            done: fields.int()?,
            escalated: fields.int()?,
            cancelled: fields.int()?,
        },
        first_stage_failures: fields.int()?,
        rules: fields.json()?,
        anchor: fields.opt_json()?,
        passed_over: fields.opt_json()?,
        pilot: fields.opt_int()?,
        plans: Vec::new(),
    };
    Ok((seq, record))
}

fn read_state(fields: &mut Fields<'_>) -> Result<RunState, StoreError> {
    let state = fields.text()?;
    match state {
        "active" | "completed" | "failed" => {
            fields.opt_text()?;
            match state {
                "active" => Ok(RunState::Active),
                "completed" => Ok(RunState::Completed),
                _ => Ok(RunState::Failed),
            }
        }
        "paused" => Ok(RunState::Paused { reason: fields.text()?.to_owned() }),
        "draining" => Ok(RunState::Draining { reason: fields.word()? }),
        "parked" => Ok(RunState::Parked { reason: fields.word()? }),
        other => Err(fields.unfit(Unfit::Word(other.to_owned()))),
    }
}

/// The columns of a run's record, at this position.
pub(crate) fn run_row(seq: Seq, record: &RunRecord) -> Vec<Bound<'_>> {
    let RunRecord {
        id,
        state,
        rules,
        last_at,
        last_token,
        budget,
        spent,
        reserved,
        driver,
        anchor,
        plans: _,
        first_stage_failures,
        passed_over,
        pilot,
        counts,
    } = record;
    let (state, reason) = match state {
        RunState::Active => ("active", NULL),
        RunState::Paused { reason } => ("paused", text(reason)),
        RunState::Draining { reason } => ("draining", word(reason)),
        RunState::Parked { reason } => ("parked", word(reason)),
        RunState::Completed => ("completed", NULL),
        RunState::Failed => ("failed", NULL),
    };
    let Counts { open, deferred, leased, stopping, done, escalated, cancelled } = *counts;
    let counts = [open, deferred, leased, stopping, done, escalated, cancelled];
    let mut row = vec![
        text(id.as_str()),
        int(seq.0),
        text(state),
        reason,
        opt_int(budget.map(|usd| usd.0)),
        int(spent.0),
        int(reserved.0),
        int(last_at.0),
        int(last_token.0),
        opt_text(driver.as_ref().map(OwnerId::as_str)),
    ];
    row.extend(counts.map(|count| int(u64::from(count))));
    row.push(int(u64::from(*first_stage_failures)));
    row.extend([json(rules), anchor.as_ref().map_or(NULL, json)]);
    row.push(passed_over.as_ref().map_or(NULL, json));
    row.push(opt_int(pilot.map(u64::from)));
    row
}

pub(crate) fn read_plan(row: &Row<'_>) -> Result<PlanRef, StoreError> {
    let fields = &mut Fields::new(PLANS.name, row);
    fields.int::<u32>()?;
    Ok(PlanRef { blob: BlobHash::from_stored(fields.text()?), tasks: fields.int()? })
}

pub(crate) fn plan_row(run: i64, position: usize, plan: &PlanRef) -> Vec<Bound<'_>> {
    let PlanRef { blob, tasks } = plan;
    vec![int(position as u64), Bound::from(run), text(blob.as_str()), int(u64::from(*tasks))]
}

/// Values that many tasks have in common, as they were read last, so that each is kept once.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    base: Option<ChangeId>,
    onto: Option<ChangeId>,
    owner: Option<OwnerId>,
}

/// A task's place and record.
pub(crate) fn read_task(
    row: &Row<'_>,
    shared: &mut Shared,
) -> Result<(u32, TaskRecord), StoreError> {
    let fields = &mut Fields::new(TASKS.name, row);
    let id = fields.parsed()?;
    let place = fields.int()?;
    let record = TaskRecord {
        id,
        stage: fields.int()?,
        attempt: fields.int()?,
        under_way: fields.flag()?,
        rejections: fields.int()?,
        rounds: read_rounds(fields)?,
        interruptions: fields.int()?,
        deferrals: fields.int()?,
        dispatches: fields.int()?,
        extra: Extra {
            retries: fields.int()?,
            dispatches: fields.int()?,
            deferrals: fields.int()?,
        },
        feedback: read_feedback(fields)?,
        signature: fields.opt_u64()?,
        restart: fields.word()?,
        holds_scope: fields.flag()?,
        workspace: fields.opt_u64()?.map(FencingToken),
        session: fields.opt_parsed()?,
        candidate: read_candidate(fields, &mut shared.base)?,
        intent: read_intent(fields, &mut shared.onto)?,
        last_token: FencingToken(fields.u64()?),
        content: fields.opt_text()?.map(BlobHash::from_stored),
        settled: Usd(fields.u64()?),
        unheard: fields.opt_json()?.unwrap_or_default(),
        refused: fields.opt_u64()?.map(FencingToken),
        spent: Usd(fields.u64()?),
        since: Timestamp(fields.u64()?),
        phase: read_phase(fields, &mut shared.owner)?,
    };
    Ok((place, record))
}

/// A task whose row has no value either that means nothing in its phase, and stops nobody.
pub(crate) fn read_exact_task(
    row: &Row<'_>,
    shared: &mut Shared,
) -> Result<(u32, TaskRecord), StoreError> {
    let read = read_task(row, shared)?;
    let written = phase_columns(&read.1.phase);
    let fields = &mut Fields::new(TASKS.name, row);
    // A row is read without its run.
    fields.skip(TASKS.columns_read() - written.len());
    for column in written {
        if column == NULL { fields.nothing()? } else { fields.skip(1) }
    }
    Ok(read)
}

/// A list of counts as JSON, nearly always an empty one.
fn read_rounds(fields: &mut Fields<'_>) -> Result<Vec<u32>, StoreError> {
    let text = fields.text()?;
    if text == "[]" { Ok(Vec::new()) } else { fields.again_as_json(text) }
}

/// A list of hashes as JSON; what is written here needs no general reader.
fn read_feedback(fields: &mut Fields<'_>) -> Result<Vec<BlobHash>, StoreError> {
    let text = fields.text()?;
    match hashes(text) {
        Some(hashes) => Ok(hashes),
        None => fields.again_as_json(text),
    }
}

fn hashes(text: &str) -> Option<Vec<BlobHash>> {
    let list = text.strip_prefix('[')?.strip_suffix(']')?;
    if list.is_empty() {
        return Some(Vec::new());
    }
    let hash = |item: &str| {
        let hash = item.strip_prefix('"')?.strip_suffix('"')?;
        hash.bytes().all(|byte| byte.is_ascii_alphanumeric()).then(|| BlobHash::from_stored(hash))
    };
    list.split(',').map(hash).collect()
}

fn read_candidate(
    fields: &mut Fields<'_>,
    last_base: &mut Option<ChangeId>,
) -> Result<Option<Candidate>, StoreError> {
    let (change, base) = (fields.opt_parsed()?, fields.opt_shared(last_base, ChangeId::as_str)?);
    match (change, base) {
        (Some(change), Some(base)) => Ok(Some(Candidate { change, base })),
        (None, None) => Ok(None),
        (Some(_), None) | (None, Some(_)) => Err(fields.unfit(Unfit::Missing)),
    }
}

fn read_intent(
    fields: &mut Fields<'_>,
    last_onto: &mut Option<ChangeId>,
) -> Result<Option<MergeIntent>, StoreError> {
    let (onto, merged) = (fields.opt_shared(last_onto, ChangeId::as_str)?, fields.opt_parsed()?);
    match (onto, merged) {
        (Some(onto), Some(merged)) => Ok(Some(MergeIntent { onto, merged })),
        (None, None) => Ok(None),
        (Some(_), None) | (None, Some(_)) => Err(fields.unfit(Unfit::Missing)),
    }
}

/// The columns from `phase` on; each phase reads its own and passes over the others.
fn read_phase(
    fields: &mut Fields<'_>,
    last_owner: &mut Option<OwnerId>,
) -> Result<Phase, StoreError> {
    let phase = fields.text()?;
    match phase {
        "open" => Ok(Phase::Open),
        "cancelled" => Ok(Phase::Cancelled),
        "deferred" => Ok(Phase::Deferred { until: Timestamp(fields.u64()?), why: fields.word()? }),
        "leased" => {
            fields.skip(2);
            Ok(Phase::Leased(read_lease(fields, last_owner)?))
        }
        "stopping" => {
            fields.skip(1);
            let why = fields.word()?;
            Ok(Phase::Stopping { lease: read_lease(fields, last_owner)?, why })
        }
        "done" => {
            fields.skip(7);
            read_completion(fields).map(Phase::Done)
        }
        "escalated" => {
            fields.skip(9);
            let cause = fields.word()?;
            let text = fields.opt_text()?.map(BlobHash::from_stored);
            let kept = fields.opt_text()?.map(str::to_owned);
            Ok(Phase::Escalated(Escalation { cause, text, kept }))
        }
        other => Err(fields.unfit(Unfit::Word(other.to_owned()))),
    }
}

fn read_lease(
    fields: &mut Fields<'_>,
    last_owner: &mut Option<OwnerId>,
) -> Result<Lease, StoreError> {
    Ok(Lease {
        token: FencingToken(fields.u64()?),
        owner: fields.shared(last_owner, OwnerId::as_str)?,
        granted_at: Timestamp(fields.u64()?),
        hard_stop: Timestamp(fields.u64()?),
        reserved: Usd(fields.u64()?),
    })
}

fn read_completion(fields: &mut Fields<'_>) -> Result<Completion, StoreError> {
    match fields.text()? {
        "merged" => Ok(Completion::Merged(fields.parsed()?)),
        "verified" => Ok(Completion::Verified),
        "by_hand" => Ok(Completion::ByHand),
        "skipped" => Ok(Completion::Skipped),
        other => Err(fields.unfit(Unfit::Word(other.to_owned()))),
    }
}

/// The columns of a task's record.
pub(crate) fn task_row(run: i64, place: u32, record: &TaskRecord) -> Vec<Bound<'_>> {
    let TaskRecord {
        id,
        phase,
        stage,
        attempt,
        under_way,
        rejections,
        rounds,
        interruptions,
        deferrals,
        dispatches,
        extra,
        feedback,
        signature,
        restart,
        holds_scope,
        workspace,
        session,
        candidate,
        intent,
        last_token,
        content,
        settled,
        unheard,
        refused,
        spent,
        since,
    } = record;
    let mut row = vec![
        text(id.as_str()),
        Bound::from(run),
        int(u64::from(place)),
        int(u64::from(*stage)),
        int(u64::from(*attempt)),
        Bound::from(*under_way),
        int(u64::from(*rejections)),
        if rounds.is_empty() { text("[]") } else { json(rounds) },
        int(u64::from(*interruptions)),
        int(u64::from(*deferrals)),
        int(u64::from(*dispatches)),
        int(u64::from(extra.retries)),
        int(u64::from(extra.dispatches)),
        int(u64::from(extra.deferrals)),
        json(feedback),
        opt_int(*signature),
        word(restart),
        Bound::from(*holds_scope),
        opt_int(workspace.map(|token| token.0)),
        opt_text(session.as_ref().map(SessionId::as_str)),
        opt_text(candidate.as_ref().map(|candidate| candidate.change.as_str())),
        opt_text(candidate.as_ref().map(|candidate| candidate.base.as_str())),
        opt_text(intent.as_ref().map(|intent| intent.onto.as_str())),
        opt_text(intent.as_ref().map(|intent| intent.merged.as_str())),
        int(last_token.0),
        opt_text(content.as_ref().map(BlobHash::as_str)),
        int(settled.0),
        if unheard.is_empty() { NULL } else { json(unheard) },
        opt_int(refused.map(|token| token.0)),
        int(spent.0),
        int(since.0),
    ];
    row.extend(phase_columns(phase));
    row
}

fn phase_columns(phase: &Phase) -> [Bound<'_>; 13] {
    let mut columns = [const { NULL }; 13];
    let [name, until, why, token, owner, granted, stop, reserved, done, merged, cause, about, kept] =
        &mut columns;
    let mut lease_is = |lease: &'_ Lease| {
        *token = int(lease.token.0);
        *granted = int(lease.granted_at.0);
        *stop = int(lease.hard_stop.0);
        *reserved = int(lease.reserved.0);
    };
    match phase {
        Phase::Open => *name = text("open"),
        Phase::Cancelled => *name = text("cancelled"),
        Phase::Deferred { until: time, why: reason } => {
            (*name, *until, *why) = (text("deferred"), int(time.0), word(reason));
        }
        Phase::Leased(lease) => {
            (*name, *owner) = (text("leased"), text(lease.owner.as_str()));
            lease_is(lease);
        }
        Phase::Stopping { lease, why: reason } => {
            (*name, *owner) = (text("stopping"), text(lease.owner.as_str()));
            *why = word(reason);
            lease_is(lease);
        }
        Phase::Done(how) => {
            *name = text("done");
            (*done, *merged) = match how {
                Completion::Merged(change) => (text("merged"), text(change.as_str())),
                Completion::Verified => (text("verified"), NULL),
                Completion::ByHand => (text("by_hand"), NULL),
                Completion::Skipped => (text("skipped"), NULL),
            };
        }
        Phase::Escalated(Escalation { cause: why, text: blob, kept: place }) => {
            (*name, *cause) = (text("escalated"), word(why));
            *about = opt_text(blob.as_ref().map(BlobHash::as_str));
            *kept = opt_text(place.as_deref());
        }
    }
    columns
}

pub(crate) fn read_pool(row: &Row<'_>) -> Result<PoolRecord, StoreError> {
    let fields = &mut Fields::new(POOLS.name, row);
    let mut record = PoolRecord::new(fields.parsed()?, fields.int()?);
    record.closed_until = fields.opt_u64()?.map(Timestamp);
    record.bounds.budget = fields.opt_u64()?.map(Usd);
    record.spent = Usd(fields.u64()?);
    record.bounds.in_flight_max = fields.opt_int()?;
    Ok(record)
}

pub(crate) fn pool_row(run: i64, record: &PoolRecord) -> Vec<Bound<'_>> {
    let PoolRecord { name, limit, closed_until, bounds, spent } = record;
    let PoolBounds { budget, in_flight_max } = *bounds;
    vec![
        text(name.as_str()),
        Bound::from(run),
        int(u64::from(*limit)),
        opt_int(closed_until.map(|time| time.0)),
        opt_int(budget.map(|usd| usd.0)),
        int(spent.0),
        opt_int(in_flight_max.map(u64::from)),
    ]
}

pub(crate) fn read_owner(row: &Row<'_>) -> Result<OwnerRecord, StoreError> {
    let fields = &mut Fields::new(OWNERS.name, row);
    Ok(OwnerRecord {
        owner: Owner {
            id: fields.parsed()?,
            host: fields.text()?.to_owned(),
            boot_id: fields.text()?.to_owned(),
            pid: fields.int()?,
            start_time: fields.u64()?,
        },
        touched_at: Timestamp(fields.u64()?),
        ttl: Duration::from_millis(fields.u64()?),
        ended: fields.flag()?,
    })
}

/// The columns of an owner's record; a time to live is kept in whole milliseconds.
pub(crate) fn owner_row(run: i64, record: &OwnerRecord, touched_at: Timestamp) -> Vec<Bound<'_>> {
    let OwnerRecord { owner, touched_at: _, ttl, ended } = record;
    let Owner { id, host, boot_id, pid, start_time } = owner;
    vec![
        text(id.as_str()),
        Bound::from(run),
        text(host),
        text(boot_id),
        int(u64::from(*pid)),
        int(*start_time),
        int(touched_at.0),
        int(millis(*ttl)),
        Bound::from(*ended),
    ]
}
