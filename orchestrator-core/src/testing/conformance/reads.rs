//! Checks of what comes back from a store.
#![expect(clippy::missing_panics_doc, reason = "a check panics when the store does not conform")]

use super::StoreFixture;
use super::samples::{
    answers, command_id, event, events, first_commit, full_run_record, full_task_record,
    next_commit, owner_id, owner_record, phases, pool_records, run_id, run_record, run_states,
    task_id, task_record,
};
use crate::command::Answer;
use crate::event::{Event, EventKind, StoredEvent};
use crate::id::{BlobHash, FencingToken, ID_BYTES_MAX, RunId, Seq};
use crate::money::Usd;
use crate::outcome::Interruption;
use crate::port::{Commit, Store};
use crate::record::{
    Cause, Escalation, Phase, PlanRef, Records, RunState, Snapshot, TaskRecord, Wait,
};
use crate::time::Timestamp;

/// Reads of a run that is not there find nothing and are no errors.
pub async fn nothing_is_known_of_a_run_that_was_never_committed(fixture: &dyn StoreFixture) {
    let store = fixture.open().await;
    let run = run_id("none");
    assert_eq!(store.load(&run).await.expect("load"), None);
    assert_eq!(store.header(&run).await.expect("header"), None);
    assert_eq!(store.task(&run, &task_id("t")).await.expect("task"), None);
    assert_eq!(store.answer(&run, &command_id("c")).await.expect("answer"), None);
    assert_eq!(store.events(&run, Seq(0), 10).await.expect("events"), []);
    assert_eq!(store.blob(&run, &BlobHash::of(b"x")).await.expect("blob"), None);
    assert_eq!(store.runs().await.expect("runs"), []);
    store.touch(&run, &owner_id("o"), Timestamp(1)).await.expect("touch");
    store.prune(&run, Seq(1)).await.expect("prune");
    assert_eq!(store.runs().await.expect("runs"), []);
}

/// A record of each sort, a task in each phase, every field filled.
pub async fn records_come_back_as_they_were_committed(fixture: &dyn StoreFixture) {
    let store = fixture.open().await;
    let run = run_id("r");
    let mut tasks = vec![full_task_record("full"), task_record("plain")];
    for (phase, number) in phases().into_iter().zip(1..) {
        tasks.push(TaskRecord { phase, ..full_task_record(&format!("phase {number}")) });
    }
    let mut ended = owner_record("ended", 3);
    ended.ended = true;
    let commit = Commit {
        records: Records {
            run: Some(full_run_record("r")),
            tasks: (0..).zip(tasks.clone()).collect(),
            pools: pool_records(),
            owners: vec![ended, owner_record("live", 4)],
        },
        ..first_commit("r", "create")
    };
    assert_eq!(store.commit(&run, &commit).await.expect("commit"), Seq(1));
    let loaded = store.load(&run).await.expect("load").expect("the run is there");
    let expected = Snapshot {
        seq: Seq(1),
        run: full_run_record("r"),
        tasks,
        pools: commit.records.pools.clone(),
        owners: commit.records.owners.clone(),
        plans: Vec::new(),
    };
    assert_eq!(loaded, expected);
}

/// A run's record in each state.
pub async fn every_run_state_comes_back(fixture: &dyn StoreFixture) {
    let store = fixture.open().await;
    let run = run_id("r");
    let mut at = store.commit(&run, &first_commit("r", "create")).await.expect("commit");
    for state in run_states() {
        let mut commit = next_commit(at);
        let mut record = run_record("r");
        record.state = state;
        commit.records.run = Some(record.clone());
        at = store.commit(&run, &commit).await.expect("commit");
        let header = store.header(&run).await.expect("header");
        assert_eq!(header, Some((at, record)));
    }
}

/// Times, amounts and tokens of any size: "never" is the greatest time.
pub async fn the_greatest_numbers_come_back(fixture: &dyn StoreFixture) {
    let store = fixture.open().await;
    let run = run_id("r");
    let mut commit = first_commit("r", "create");
    let mut record = full_run_record("r");
    record.last_at = Timestamp(u64::MAX);
    record.last_token = FencingToken(u64::MAX);
    record.budget = Some(Usd(u64::MAX));
    record.counts.open = u32::MAX;
    let mut task = full_task_record("t");
    task.stage = u8::MAX;
    task.attempt = u32::MAX;
    task.dispatches = u32::MAX;
    task.spent = Usd(u64::MAX);
    task.workspace = Some(FencingToken(u64::MAX));
    task.phase = Phase::Deferred {
        until: Timestamp(u64::MAX),
        why: Wait::Interrupted(Interruption::Overload),
    };
    let mut owner = owner_record("o", u64::MAX);
    owner.owner.start_time = u64::MAX;
    commit.records = Records {
        run: Some(record.clone()),
        tasks: vec![(0, task.clone())],
        pools: Vec::new(),
        owners: vec![owner.clone()],
    };
    commit.events = vec![event(u64::MAX)];
    store.commit(&run, &commit).await.expect("commit");
    let loaded = store.load(&run).await.expect("load").expect("the run is there");
    assert_eq!((loaded.run, loaded.tasks, loaded.owners), (record, vec![task], vec![owner]));
    let read = store.events(&run, Seq(0), 1).await.expect("events");
    assert_eq!(read.first().map(|stored| &stored.event), Some(&event(u64::MAX)));
    assert_eq!(store.events(&run, Seq(u64::MAX), 1).await.expect("events"), []);
}

/// An event of each kind.
pub async fn every_event_comes_back(fixture: &dyn StoreFixture) {
    let store = fixture.open().await;
    let run = run_id("r");
    let commit = Commit { events: events(), ..first_commit("r", "create") };
    let end = store.commit(&run, &commit).await.expect("commit");
    let read = store.events(&run, Seq(0), 1_000).await.expect("events");
    assert_eq!(read.last().map(|stored| stored.seq), Some(end));
    assert_eq!(read.into_iter().map(|stored| stored.event).collect::<Vec<_>>(), events());
}

/// An answer of each kind, under the command that got it.
pub async fn every_answer_comes_back(fixture: &dyn StoreFixture) {
    let store = fixture.open().await;
    let run = run_id("r");
    let commands: Vec<_> = answers()
        .into_iter()
        .zip(1..)
        .map(|(answer, number)| (command_id(&format!("c{number}")), answer))
        .collect();
    let commit = Commit { commands: commands.clone(), ..first_commit("r", "create") };
    store.commit(&run, &commit).await.expect("commit");
    for (id, answer) in commands {
        assert_eq!(store.answer(&run, &id).await.expect("answer"), Some(answer));
    }
    assert_eq!(store.answer(&run, &command_id("c99")).await.expect("answer"), None);
}

/// A commit changes the records that it brings and leaves all others as they are.
pub async fn a_record_replaces_the_one_of_its_name_and_no_other(fixture: &dyn StoreFixture) {
    let store = fixture.open().await;
    let run = run_id("r");
    let mut commit = first_commit("r", "create");
    commit.records.tasks = (0..).zip(["a", "b", "c"].map(full_task_record)).collect();
    commit.records.pools = pool_records();
    commit.records.owners = vec![owner_record("a", 1), owner_record("b", 1)];
    let at = store.commit(&run, &commit).await.expect("commit");
    let before = store.load(&run).await.expect("load").expect("the run is there");

    let mut second = next_commit(at);
    let mut pool = pool_records().remove(1);
    pool.limit = 9;
    pool.closed_until = None;
    second.records.tasks = vec![(1, task_record("b"))];
    second.records.pools = vec![pool.clone()];
    second.records.owners = vec![owner_record("b", 9)];
    let at = store.commit(&run, &second).await.expect("commit");
    let after = store.load(&run).await.expect("load").expect("the run is there");
    let mut expected = Snapshot { seq: at, ..before };
    expected.tasks.splice(1..2, [task_record("b")]);
    expected.pools.splice(1..2, [pool]);
    expected.owners.splice(1..2, [owner_record("b", 9)]);
    assert_eq!(after, expected);
}

/// The partial reads give what the whole one gives.
pub async fn header_and_task_agree_with_load(fixture: &dyn StoreFixture) {
    let store = fixture.open().await;
    let run = run_id("r");
    let mut commit = first_commit("r", "create");
    commit.records.run = Some(full_run_record("r"));
    commit.records.tasks = (0..).zip(["z", "a"].map(full_task_record)).collect();
    store.commit(&run, &commit).await.expect("commit");
    let loaded = store.load(&run).await.expect("load").expect("the run is there");
    let header = store.header(&run).await.expect("header");
    assert_eq!(header, Some((loaded.seq, loaded.run)));
    for task in loaded.tasks {
        assert_eq!(store.task(&run, &task.id).await.expect("task"), Some(task));
    }
    assert_eq!(store.task(&run, &task_id("other")).await.expect("task"), None);
}

/// Any page of the log is what lies behind the position, no more than asked for.
pub async fn events_are_read_in_order_and_without_gaps_in_pages_of_any_size(
    fixture: &dyn StoreFixture,
) {
    let store = fixture.open().await;
    let run = run_id("r");
    let mut at = Seq(0);
    for size in [1, 3, 1, 7] {
        let commit = Commit {
            expected: at,
            commands: Vec::new(),
            events: (1..=size).map(|number| event(at.0 + number)).collect(),
            ..first_commit("r", "unused")
        };
        at = store.commit(&run, &commit).await.expect("commit");
    }
    assert_eq!(at, Seq(12));
    for limit in [1, 2, 5, 12, usize::MAX] {
        let mut read = Vec::new();
        loop {
            let after = read.last().copied().unwrap_or(Seq(0));
            let page = store.events(&run, after, limit).await.expect("events");
            assert!(page.len() <= limit, "{} of {limit}", page.len());
            if page.is_empty() {
                break;
            }
            for stored in page {
                assert_eq!(stored.event, event(stored.seq.0));
                read.push(stored.seq);
            }
        }
        assert_eq!(read, (1..=12).map(Seq).collect::<Vec<_>>(), "in pages of {limit}");
    }
    assert_eq!(store.events(&run, Seq(0), 0).await.expect("events"), []);
    assert_eq!(store.events(&run, Seq(12), 5).await.expect("events"), []);
}

/// The same bytes have one address and may be committed again; any bytes come back.
pub async fn blobs_are_addressed_by_content_and_kept_once(fixture: &dyn StoreFixture) {
    let store = fixture.open().await;
    let run = run_id("r");
    let blobs = vec![Vec::new(), vec![0, 255, 0, 10], b"text".to_vec(), vec![7; 300_000]];
    let first = Commit { blobs: blobs.clone(), ..first_commit("r", "create") };
    let at = store.commit(&run, &first).await.expect("commit");
    let again = Commit { blobs: blobs.clone(), ..next_commit(at) };
    store.commit(&run, &again).await.expect("the same blobs again");
    for blob in blobs {
        let hash = BlobHash::of(&blob);
        assert_eq!(store.blob(&run, &hash).await.expect("blob"), Some(blob));
    }
    for hash in [BlobHash::of(b"other"), BlobHash::from_stored("no address")] {
        assert_eq!(store.blob(&run, &hash).await.expect("blob"), None);
    }
}

/// A run's plans come with it, each as often as the run names it.
pub async fn plans_are_loaded_in_their_order(fixture: &dyn StoreFixture) {
    let store = fixture.open().await;
    let run = run_id("r");
    let plans = [b"{\"z\":1}".to_vec(), b"{\"a\":1}".to_vec(), b"{\"z\":1}".to_vec()];
    let mut at = Seq(0);
    for count in 1..=plans.len() {
        let mut record = run_record("r");
        let given = plans.iter().take(count);
        record.plans =
            given.clone().map(|plan| PlanRef { blob: BlobHash::of(plan), tasks: 2 }).collect();
        let commit = Commit {
            expected: at,
            events: vec![event(at.0)],
            records: Records { run: Some(record.clone()), ..Records::default() },
            blobs: given.clone().skip(count - 1).cloned().collect(),
            ..Commit::default()
        };
        at = store.commit(&run, &commit).await.expect("commit");
        let loaded = store.load(&run).await.expect("load").expect("the run is there");
        assert_eq!(loaded.plans, given.cloned().collect::<Vec<_>>());
        assert_eq!(loaded.run, record);
    }
}

/// Neither a late touch nor a commit takes back the time at which an owner was last seen.
pub async fn a_touch_never_goes_back(fixture: &dyn StoreFixture) {
    let store = fixture.open().await;
    let run = run_id("r");
    let mut commit = first_commit("r", "create");
    commit.records.owners = vec![owner_record("a", 5), owner_record("b", 5)];
    let at = store.commit(&run, &commit).await.expect("commit");
    for (now, expected) in [(9, 9), (3, 9), (9, 9), (u64::MAX, u64::MAX), (4, u64::MAX)] {
        store.touch(&run, &owner_id("a"), Timestamp(now)).await.expect("touch");
        assert_eq!(touched(&*store).await, [expected, 5]);
    }
    store.touch(&run, &owner_id("unknown"), Timestamp(7)).await.expect("touch");
    assert_eq!(touched(&*store).await, [u64::MAX, 5]);
    let header = store.header(&run).await.expect("header").expect("the run is there");
    assert_eq!(header.0, at, "a touch is no event");

    let mut ended = owner_record("a", 6);
    ended.ended = true;
    let mut commit = next_commit(at);
    commit.records.owners = vec![ended, owner_record("b", 6)];
    store.commit(&run, &commit).await.expect("commit");
    assert_eq!(touched(&*store).await, [u64::MAX, 6]);
    let loaded = store.load(&run).await.expect("load").expect("the run is there");
    assert!(loaded.owners.first().is_some_and(|owner| owner.ended));
}

async fn touched(store: &dyn Store) -> Vec<u64> {
    let loaded = store.load(&run_id("r")).await.expect("load").expect("the run is there");
    loaded.owners.into_iter().map(|owner| owner.touched_at.0).collect()
}

/// The list of runs is complete and in order.
pub async fn runs_are_listed_by_name(fixture: &dyn StoreFixture) {
    let store = fixture.open().await;
    for name in ["b", "B", "a/1", "é"] {
        store.commit(&run_id(name), &first_commit(name, "create")).await.expect("commit");
    }
    let names = ["B", "a/1", "b", "é"].map(run_id);
    assert_eq!(store.runs().await.expect("runs"), names);
}

/// Ids that look alike, hold wildcards, quotes or any script, or are as long as ids get.
pub async fn odd_ids_are_kept_apart(fixture: &dyn StoreFixture) {
    let store = fixture.open().await;
    let longest = "x".repeat(ID_BYTES_MAX);
    let almost = "x".repeat(ID_BYTES_MAX - 1);
    let wide = "語".repeat(ID_BYTES_MAX / 3);
    let names = [
        "a",
        "A",
        " a",
        "a ",
        "a%",
        "a_",
        "%",
        "'; DROP TABLE tasks; --",
        "\"",
        "#123",
        "0",
        "00",
        "1e3",
        "é",
        "e\u{301}",
        "日本/ü",
        "🦀",
        "NULL",
        &longest,
        &almost,
        &wide,
    ];
    for name in names {
        let run = run_id(name);
        let mut commit = first_commit(name, name);
        commit.records.tasks = (0..).zip(names.map(task_record)).collect();
        commit.records.owners = vec![owner_record(name, 1)];
        store.commit(&run, &commit).await.expect(name);
    }
    for name in names {
        let run = run_id(name);
        let loaded = store.load(&run).await.expect("load").expect("the run is there");
        assert_eq!(loaded.run.id, run);
        assert_eq!(loaded.tasks, names.map(task_record));
        assert_eq!(loaded.owners, [owner_record(name, 1)]);
        let task = store.task(&run, &task_id(name)).await.expect("task");
        assert_eq!(task, Some(task_record(name)));
        assert!(store.answer(&run, &command_id(name)).await.expect("answer").is_some());
    }
    assert_eq!(store.runs().await.expect("runs").len(), names.len());
}

/// Equal names of tasks, commands, owners and blobs in two runs have nothing to do with each other.
pub async fn two_runs_in_one_store_do_not_mix(fixture: &dyn StoreFixture) {
    let store = fixture.open().await;
    let (one, two) = (run_id("one"), run_id("two"));
    let mut first = first_commit("one", "same");
    first.records.tasks = vec![(0, task_record("t"))];
    first.records.owners = vec![owner_record("o", 1)];
    first.blobs = vec![b"only in one".to_vec()];
    let mut second = first_commit("two", "same");
    second.records.tasks = vec![(0, full_task_record("t"))];
    second.records.owners = vec![owner_record("o", 1)];
    second.commands = vec![(command_id("same"), Answer::Nothing)];
    store.commit(&one, &first).await.expect("commit");
    store.commit(&two, &second).await.expect("the same command in another run");
    store.touch(&one, &owner_id("o"), Timestamp(8)).await.expect("touch");
    store.commit(&two, &next_commit(Seq(1))).await.expect("commit");
    store.prune(&two, Seq(9)).await.expect("prune");

    let loaded = store.load(&one).await.expect("load").expect("the run is there");
    assert_eq!((loaded.seq, loaded.tasks), (Seq(1), vec![task_record("t")]));
    assert_eq!(loaded.owners, [owner_record("o", 8)]);
    let loaded = store.load(&two).await.expect("load").expect("the run is there");
    assert_eq!((loaded.seq, loaded.tasks), (Seq(2), vec![full_task_record("t")]));
    assert_eq!(loaded.owners, [owner_record("o", 1)]);
    for (run, answer, blobs, events) in [(one, Some(Answer::Done), 1, 1), (two, None, 0, 2)] {
        assert_eq!(store.answer(&run, &command_id("same")).await.expect("answer"), answer);
        let blob = store.blob(&run, &BlobHash::of(b"only in one")).await.expect("blob");
        assert_eq!(blob.into_iter().count(), blobs);
        assert_eq!(store.events(&run, Seq(0), 9).await.expect("events").len(), events);
    }
}

/// A handle sees what another one committed, and so does one that is opened later.
pub async fn what_one_handle_commits_another_reads(fixture: &dyn StoreFixture) {
    let (one, two) = (fixture.open().await, fixture.open().await);
    let run = run_id("r");
    one.commit(&run, &first_commit("r", "create")).await.expect("commit");
    assert_eq!(two.commit(&run, &next_commit(Seq(1))).await.expect("commit"), Seq(2));
    let expected = one.load(&run).await.expect("load");
    assert_eq!(expected.as_ref().map(|snapshot| snapshot.seq), Some(Seq(2)));
    drop((one, two));
    let three = fixture.open().await;
    assert_eq!(three.load(&run).await.expect("load"), expected);
    assert!(three.answer(&run, &command_id("create")).await.expect("answer").is_some());
}

/// Thousands of tasks and events in one commit.
pub async fn a_large_commit_comes_back_whole(fixture: &dyn StoreFixture) {
    const COUNT: u32 = 5_000;
    // The text of a plan may be larger still.
    const BLOB_BYTES: usize = 2 << 20;
    let store = fixture.open().await;
    let run = run_id("r");
    let mut commit = first_commit("r", "create");
    let tasks: Vec<_> =
        (0..COUNT).map(|number| (number, full_task_record(&format!("task {number}")))).collect();
    commit.records.tasks.clone_from(&tasks);
    commit.events = (0..COUNT).map(|at| event(u64::from(at))).collect();
    let blob: Vec<u8> = (0_u8..=250).cycle().take(BLOB_BYTES).collect();
    commit.blobs = vec![blob.clone()];
    let end = store.commit(&run, &commit).await.expect("commit");
    assert_eq!(end, Seq(u64::from(COUNT)));
    let loaded = store.load(&run).await.expect("load").expect("the run is there");
    assert!(loaded.tasks.into_iter().eq(tasks.into_iter().map(|(_, task)| task)));
    let read = store.events(&run, Seq(0), usize::MAX).await.expect("events");
    assert!(read.into_iter().map(|stored| stored.event).eq(commit.events));
    let kept = store.blob(&run, &BlobHash::of(&blob)).await.expect("blob");
    assert!(kept.is_some_and(|kept| kept == blob), "the blob came back otherwise");
}

/// Free texts are any Unicode, of any length, a NUL among it; ids never get that far.
pub async fn texts_of_any_characters_come_back(fixture: &dyn StoreFixture) {
    let store = fixture.open().await;
    let run = run_id("r");
    let mut at = store.commit(&run, &first_commit("r", "create")).await.expect("commit");
    let long = "語\u{0}".repeat(16 * 1024);
    for text in ["", "\u{0}", "a\u{0}b", "\u{1b}[31m", "\u{202e}\r\n\t\"'\\", "🦀\u{10ffff}", &long]
    {
        let mut commit = next_commit(at);
        let mut record = run_record("r");
        record.state = RunState::Paused { reason: text.to_owned() };
        let mut task = full_task_record("t");
        task.phase = Phase::Escalated(Escalation {
            cause: Cause::Fatal,
            text: None,
            kept: Some(text.to_owned()),
        });
        let mut owner = owner_record("o", 1);
        owner.owner.host = text.to_owned();
        let (actor, reason) = (text.to_owned(), text.to_owned());
        let paused = Event { at: Timestamp(1), kind: EventKind::Paused { actor, reason } };
        commit.events = vec![paused.clone()];
        commit.blobs = vec![text.as_bytes().to_vec()];
        commit.records = Records {
            run: Some(record.clone()),
            tasks: vec![(0, task.clone())],
            pools: Vec::new(),
            owners: vec![owner.clone()],
        };
        let before = at;
        at = store.commit(&run, &commit).await.expect("commit");
        let loaded = store.load(&run).await.expect("load").expect("the run is there");
        assert_eq!((loaded.run, loaded.tasks, loaded.owners), (record, vec![task], vec![owner]));
        let read = store.events(&run, before, 1).await.expect("events");
        assert_eq!(read.first().map(|stored| &stored.event), Some(&paused));
        let blob = store.blob(&run, &BlobHash::of(text.as_bytes())).await.expect("blob");
        assert_eq!(blob.as_deref(), Some(text.as_bytes()));
    }
    let too_long = "x".repeat(64 * 1024);
    for text in ["a\u{0}b", "\u{0}", &too_long, &long] {
        let refused = RunId::parse(text).expect_err("this is no id").to_string();
        assert!(refused.len() < 1_000 && !refused.chars().any(char::is_control), "{refused:?}");
    }
}

/// Whoever reads on from where it was, woken by hints, gets each event once, in order, none left
/// out, while others commit in small and large pieces.
pub async fn a_tail_sees_every_event_once_and_in_order(fixture: &dyn StoreFixture) {
    const COMMITS: u64 = 40;
    let (writer, reader) = (fixture.open().await, fixture.open().await);
    let run = run_id("r");
    let mut end = writer.commit(&run, &first_commit("r", "create")).await.expect("commit");
    let size = |round: u64| 1 + round * round % 7;
    let all = end.plus((0..COMMITS).map(size).sum());
    let name = run.clone();
    let tail = tokio::spawn(async move {
        let mut read = Vec::new();
        while read.len() < usize::try_from(all.0).expect("a few events") {
            let after = read.last().map_or(Seq(0), |stored: &StoredEvent| stored.seq);
            let page = reader.events(&name, after, 5).await.expect("events");
            if page.is_empty() {
                reader.changed(&name, after).await.expect("changed");
            }
            read.extend(page);
        }
        read
    });
    for round in 0..COMMITS {
        let events = (0..size(round)).map(|number| event(end.0 + number + 1)).collect();
        let commit = Commit { events, ..next_commit(end) };
        end = writer.commit(&run, &commit).await.expect("commit");
    }
    let read = tail.await.expect("the tail panicked");
    assert!(read.iter().map(|stored| stored.seq).eq((1..=all.0).map(Seq)));
    assert!(read.iter().skip(1).all(|stored| stored.event == event(stored.seq.0)));
}

/// A run of 100,000 tasks, made by and by, of which single tasks are read and changed.
pub async fn a_run_of_many_tasks_is_kept_and_read_in_parts(fixture: &dyn StoreFixture) {
    const TASKS: u32 = 100_000;
    const CHUNK: usize = 25_000;
    let store = fixture.open().await;
    let run = run_id("r");
    let mut at = store.commit(&run, &first_commit("r", "create")).await.expect("commit");
    let record = |place: u32| (place, task_record(&format!("task {place}")));
    let places: Vec<u32> = (0..TASKS).collect();
    for chunk in places.chunks(CHUNK) {
        let mut commit = next_commit(at);
        commit.records.tasks = chunk.iter().copied().map(record).collect();
        at = store.commit(&run, &commit).await.expect("commit");
    }
    let changed = [0, 50_001, TASKS - 1];
    let mut commit = next_commit(at);
    commit.records.tasks =
        changed.iter().map(|place| (*place, full_task_record(&format!("task {place}")))).collect();
    at = store.commit(&run, &commit).await.expect("commit");
    for place in changed.into_iter().chain([7, 99_000]) {
        let id = task_id(&format!("task {place}"));
        let found = store.task(&run, &id).await.expect("task").expect("the task is there");
        assert_eq!((&found.id, found.attempt > 0), (&id, changed.contains(&place)));
    }
    let loaded = store.load(&run).await.expect("load").expect("the run is there");
    assert_eq!((loaded.seq, loaded.tasks.len()), (at, places.len()));
    for (place, task) in (0..).zip(loaded.tasks) {
        let is_changed = changed.contains(&place);
        assert!(is_changed || (place, task) == record(place), "task {place}");
    }
}
