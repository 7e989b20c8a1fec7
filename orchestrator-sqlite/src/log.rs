//! The write-ahead log beside the file: whether it belongs to it, and how large it may get.
//!
//! Whoever puts a backup in the place of a file and leaves the log of the old one beside it would
//! have SQLite mix both. So each transaction draws a new mark for the file and writes it beside the
//! one before: a file belongs to a log as long as the mark that it has alone, without what is in the
//! log, is in the log too, or stays the same with it.

use std::fs::{self, File};
use std::io::{self, BufReader, Read as _};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags, OptionalExtension as _};
use tracing::{debug, warn};

use crate::error::{Failure, failure};
use crate::schema::{self, Identity};

/// From which size on a log is folded into its file with some patience, and down to which it shrinks.
const FOLD_FROM_BYTES: u64 = 64 * 1024 * 1024;
/// How large a log gets before what is in it is folded into the file without waiting for anybody.
const FOLD_EAGERLY_BYTES: u64 = 16 * 1024 * 1024;
/// How often the log is folded while readers keep it from getting shorter.
const FOLD_EVERY: Duration = Duration::from_secs(1);
/// How long one attempt at that waits for readers. While there is room left, there is one; without
/// room, as many as fit in the time that any call waits for others.
const ATTEMPT: Duration = Duration::from_millis(50);
/// Bytes of a log before its first page.
const HEADER_BYTES: usize = 32;
/// Bytes of a log before each of its pages.
const FRAME_HEADER_BYTES: usize = 24;
/// How a log begins, but for the last bit.
const MAGIC: u32 = 0x377f_0682;
/// The former mark of a file that had none: "No Mark!".
const NO_MARK: i64 = 0x4e6f_204d_6172_6b21;
/// Sizes that a page may have.
const PAGE_BYTES: RangeInclusive<u32> = 512..=65_536;
/// How much of a log is read at once.
const BUFFER_BYTES: usize = 256 * 1024;
/// How often a file is looked at that changes meanwhile.
const LOOKS_MAX: usize = 20;

/// The log's name.
pub(crate) fn path_of(file: &Path) -> PathBuf {
    beside(file, "-wal")
}

/// The name of the index of the log, which its users share.
pub(crate) fn index_of(file: &Path) -> PathBuf {
    beside(file, "-shm")
}

/// The name of what SQLite has in the place of a log before that is turned on.
pub(crate) fn journal_of(file: &Path) -> PathBuf {
    beside(file, "-journal")
}

fn beside(file: &Path, end: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(end);
    name.into()
}

/// How a log begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Head {
    /// By which SQLite tells a log from others.
    salts: [u8; 8],
    page_bytes: u32,
}

impl Head {
    /// `None` where there is no log.
    fn of(log: &Path) -> io::Result<Option<Self>> {
        match File::open(log).and_then(|mut log| Self::read(&mut log)) {
            Err(err)
                if matches!(err.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof) =>
            {
                Ok(None)
            }
            read => read,
        }
    }

    fn read(log: &mut impl io::Read) -> io::Result<Option<Self>> {
        let mut header = [0; HEADER_BYTES];
        log.read_exact(&mut header)?;
        let [m0, m1, m2, m3, _, _, _, _, p0, p1, p2, p3, _, _, _, _, rest @ ..] = header;
        let [s0, s1, s2, s3, s4, s5, s6, s7, ..] = rest;
        let page_bytes = u32::from_be_bytes([p0, p1, p2, p3]);
        let is_log = u32::from_be_bytes([m0, m1, m2, m3]) & !1 == MAGIC
            && page_bytes.is_power_of_two()
            && PAGE_BYTES.contains(&page_bytes);
        Ok(is_log.then_some(Self { salts: [s0, s1, s2, s3, s4, s5, s6, s7], page_bytes }))
    }
}

/// Whether one of the pages of a log has this number in a row.
fn has_number(log: &Path, head: Head, number: i64) -> io::Result<bool> {
    let bytes = number.to_be_bytes();
    // So SQLite keeps numbers that need no more than six bytes.
    let is_short = number.unsigned_abs() >> 47 == 0;
    let stored = bytes.get(if is_short { 2 } else { 0 }..).unwrap_or(&bytes);
    let mut log = BufReader::with_capacity(BUFFER_BYTES, File::open(log)?);
    if Head::read(&mut log)? != Some(head) {
        return Ok(false);
    }
    let mut frame = [0; FRAME_HEADER_BYTES];
    let mut page = vec![0; usize::try_from(head.page_bytes).unwrap_or(0)];
    loop {
        match log.read_exact(&mut frame).and_then(|()| log.read_exact(&mut page)) {
            Err(err) if err.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            read => read?,
        }
        // What follows was left by a log before this one.
        if frame.get(8..16) != Some(&head.salts) {
            return Ok(false);
        }
        if page.windows(stored.len()).any(|part| part == stored) {
            return Ok(true);
        }
    }
}

/// What a file says of itself, with or without its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct View {
    identity: Identity,
    /// Grows with each change of the tables.
    tables: i64,
    marks: Option<Marks>,
}

/// The row that ties a file to its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Marks {
    mark: i64,
    former: i64,
}

fn view(conn: &Connection) -> rusqlite::Result<View> {
    let identity = schema::identify(conn)?;
    let tx = conn.unchecked_transaction()?;
    let tables = tx.pragma_query_value(None, "schema_version", |row| row.get(0))?;
    // A table of a newer format may look otherwise: its file is refused all the same.
    let marks = match tx.prepare("SELECT mark, former_mark FROM file") {
        Ok(mut marks) => marks
            .query_row([], |row| Ok(Marks { mark: row.get(0)?, former: row.get(1)? }))
            .optional()?,
        Err(err) if failure(&err) == Failure::Other => None,
        Err(err) => return Err(err),
    };
    Ok(View { identity, tables, marks })
}

/// The file as if it had no log.
fn view_alone(file: &Path) -> rusqlite::Result<View> {
    let mut uri = "file:".to_owned();
    for byte in file.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => {
                uri.push(char::from(*byte));
            }
            other => uri.extend(['%'].into_iter().chain(hex(*other))),
        }
    }
    uri.push_str("?immutable=1");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    view(&Connection::open_with_flags(uri, flags)?)
}

fn hex(byte: u8) -> [char; 2] {
    [byte >> 4, byte & 15].map(|digit| char::from_digit(u32::from(digit), 16).unwrap_or('0'))
}

/// Whether the log beside a file belongs to it; true where there is none. Writes nothing.
pub(crate) fn belongs(file: &Path, conn: &Connection) -> rusqlite::Result<bool> {
    let log = path_of(file);
    for _ in 0..LOOKS_MAX {
        let Ok(Some(head)) = Head::of(&log) else { return Ok(true) };
        // The file first: whatever is folded into it stays in the log as long as this one goes on.
        let alone = view_alone(file);
        let with = view(conn);
        let has = |mark| has_number(&log, head, mark).unwrap_or(false);
        if fits(&with, &alone, has) {
            return with.map(|_| true);
        }
        // Another process may have begun a log in between and folded the last one.
        let is_same = matches!(Head::of(&log), Ok(Some(now)) if now == head);
        if is_same && view_alone(file).ok() == alone.ok() {
            return Ok(false);
        }
    }
    // Who writes so fast was let in with this log.
    Ok(true)
}

/// Whether the same file can look so with its log and without; `has` says whether a mark is in the
/// log.
fn fits(
    with: &rusqlite::Result<View>,
    alone: &rusqlite::Result<View>,
    has: impl Fn(i64) -> bool,
) -> bool {
    let (with, alone) = match (with, alone) {
        (Ok(with), Ok(alone)) => (with, alone),
        // A log of another file may spoil this one; a disk may spoil both.
        (Err(err), Ok(alone)) => {
            let mark = alone.marks.map_or(NO_MARK, |marks| marks.mark);
            return failure(err) != Failure::Corrupt || has(mark);
        }
        // A process that died while it folded the log leaves pages of both; SQLite mends that.
        (_, Err(err)) => return failure(err) != Failure::NotADatabase,
    };
    let follows = || match (with.marks, alone.marks) {
        (Some(now), Some(then)) => now.mark == then.mark || has(then.mark),
        (None, Some(then)) => has(then.mark),
        // Formats before 8 left it at 0 as long as the first log went on.
        (Some(now), None) => now.former == 0 || has(NO_MARK),
        (None, None) => true,
    };
    match (with.identity, alone.identity) {
        // It is refused for that.
        (Identity::Ours(newer), _) if newer > schema::VERSION => true,
        (Identity::Foreign, Identity::Foreign | Identity::Empty)
        | (Identity::Empty, Identity::Empty) => true,
        (Identity::Ours(_), Identity::Empty) => follows(),
        (Identity::Ours(newer), Identity::Ours(older)) => {
            older <= newer && alone.tables <= with.tables && follows()
        }
        (Identity::Foreign, Identity::Ours(_))
        | (Identity::Empty, Identity::Ours(_) | Identity::Foreign)
        | (Identity::Ours(_), Identity::Foreign) => false,
    }
}

/// Whether a log lies where no file is, or an empty one: SQLite would remove it.
pub(crate) fn is_orphan(file: &Path) -> bool {
    // The log first: whoever makes a file makes the log after it.
    let is_log = matches!(Head::of(&path_of(file)), Ok(Some(_)));
    is_log && fs::metadata(file).map_or(true, |file| file.len() == 0)
}

/// Whether what has the log's name is none: SQLite would write over it. What a crash left of the
/// beginning of one has no head yet, or zeros.
pub(crate) fn is_stranger(file: &Path) -> bool {
    let mut head = [0; HEADER_BYTES];
    let read = File::open(path_of(file)).and_then(|mut log| log.read_exact(&mut head));
    let [m0, m1, m2, m3, ..] = head;
    read.is_ok() && !matches!(u32::from_be_bytes([m0, m1, m2, m3]) & !1, 0 | MAGIC)
}

/// What a transaction begins with: a new mark, which no trigger draws anew.
const DRAW: &str = "UPDATE file SET former_mark = mark, by_others = 1, \
                    mark = (random() & 4611686018427387903) | 4611686018427387904";
/// What it ends with: others draw one again.
const DRAWN: &str = "UPDATE file SET by_others = 0";

/// Has a transaction draw a new mark for the file, before it writes anything.
pub(crate) fn draw_mark(tx: &Connection) -> rusqlite::Result<()> {
    tx.prepare_cached(DRAW)?.execute([]).map(drop)
}

/// Has others draw a mark again, after all that the transaction writes.
pub(crate) fn end_mark(tx: &Connection) -> rusqlite::Result<()> {
    tx.prepare_cached(DRAWN)?.execute([]).map(drop)
}

/// Gives a copy a mark of its own, so that no log of the original belongs to it.
pub(crate) fn mark_copy(copy: &mut Connection) -> rusqlite::Result<()> {
    let tx = copy.transaction()?;
    draw_mark(&tx)?;
    end_mark(&tx)?;
    tx.commit()
}

/// The log grew over its limit, and something keeps it from being folded into the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{}` has {bytes} bytes, more than {max}, because another program has read the file without \
     a break since: end that program",
    .log.display()
)]
pub(crate) struct LogFull {
    log: PathBuf,
    bytes: u64,
    max: u64,
}

/// How much a write brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    Any,
    /// A sign of life: a page or two. Some room is left for these when there is none for commits, so
    /// that leases live on until the reader has ended.
    Small,
}

/// The log of the file that one connection writes to.
#[derive(Debug)]
pub(crate) struct Log {
    path: PathBuf,
    bytes_max: u64,
    busy_max: Duration,
    /// When readers were last waited for.
    folded: Option<Instant>,
    has_warned: bool,
}

impl Log {
    pub(crate) fn new(file: &Path, bytes_max: u64, busy_max: Duration) -> Self {
        let path = path_of(file);
        Self { path, bytes_max, busy_max, folded: None, has_warned: false }
    }

    /// Sets the sizes at which SQLite itself folds the log and cuts it.
    pub(crate) fn set_up(&self, conn: &Connection) -> rusqlite::Result<()> {
        let number = |bytes| i64::try_from(bytes).unwrap_or(i64::MAX);
        let page: i64 = conn.pragma_query_value(None, "page_size", |row| row.get(0))?;
        let pages = number(FOLD_EAGERLY_BYTES.min(self.fold_from() / 2)) / page.max(1);
        conn.pragma_update_and_check(None, "wal_autocheckpoint", pages.max(1), |_| Ok(()))?;
        let most = number(self.fold_from());
        conn.pragma_update_and_check(None, "journal_size_limit", most, |_| Ok(()))
    }

    fn fold_from(&self) -> u64 {
        FOLD_FROM_BYTES.min(self.bytes_max / 4)
    }

    fn bytes(&self) -> u64 {
        fs::metadata(&self.path).map_or(0, |log| log.len())
    }

    /// Before a write of this size: keeps the log from growing for ever while somebody reads without
    /// a break.
    pub(crate) fn make_room(&mut self, conn: &Connection, size: Size) -> Result<(), LogFull> {
        let bytes = self.bytes();
        if bytes <= self.fold_from() {
            self.has_warned = false;
            return Ok(());
        }
        let max = match size {
            Size::Any => self.bytes_max,
            Size::Small => self.bytes_max.saturating_add(self.bytes_max / 16),
        };
        let is_full = bytes > max;
        if !is_full && self.folded.is_some_and(|last| last.elapsed() < FOLD_EVERY) {
            return Ok(());
        }
        self.fold(conn, if is_full { self.busy_max } else { Duration::ZERO });
        self.folded = Some(Instant::now());
        let bytes = self.bytes();
        if bytes > self.fold_from() && !self.has_warned {
            self.has_warned = true;
            let log = self.path.display();
            warn!(%log, bytes, "a program that reads keeps the store's log from getting shorter");
        }
        if bytes <= max {
            return Ok(());
        }
        Err(LogFull { log: self.path.clone(), bytes, max })
    }

    /// Folds the log into the file and cuts it, if readers let go of it in time.
    fn fold(&self, conn: &Connection, patience: Duration) {
        let start = Instant::now();
        // In short attempts: within one, SQLite may wait for a place among the readers that others
        // take over in the meantime, as long as there are any.
        while !self.try_to_fold(conn).unwrap_or_else(|err| {
            debug!(error = %err, "the log could not be folded");
            true
        }) && start.elapsed() < patience
        {}
    }

    fn try_to_fold(&self, conn: &Connection) -> rusqlite::Result<bool> {
        conn.busy_timeout(ATTEMPT.min(self.busy_max))?;
        let fold = "PRAGMA wal_checkpoint(TRUNCATE)";
        let is_held = conn.query_row(fold, [], |row| row.get::<_, bool>(0));
        conn.busy_timeout(self.busy_max)?;
        Ok(!is_held?)
    }
}
