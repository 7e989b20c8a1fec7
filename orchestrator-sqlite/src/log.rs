//! The write-ahead log beside the file: whether it belongs to it, and how large it may get.
//!
//! Whoever puts a backup in the place of a file and leaves the log of the old one beside it would
//! have SQLite mix both. So each log brings a mark of its own, with the one before it, and a file is
//! taken with its log only when the file alone has one of the two.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags, OptionalExtension as _, TransactionBehavior, params};
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
/// How a log begins, but for the last bit.
const MAGIC: u32 = 0x377f_0682;
/// How often a file is looked at that changes meanwhile.
const LOOKS_MAX: usize = 20;

/// The log's name.
pub(crate) fn path_of(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

/// What SQLite tells a log from others by; `None` where there is none.
fn salts(log: &Path) -> io::Result<Option<i64>> {
    let mut header = [0; HEADER_BYTES];
    match File::open(log).and_then(|mut log| log.read_exact(&mut header)) {
        Ok(()) => {}
        Err(err)
            if matches!(err.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof) =>
        {
            return Ok(None);
        }
        Err(err) => return Err(err),
    }
    let [m0, m1, m2, m3, _, _, _, _, _, _, _, _, _, _, _, _, rest @ ..] = header;
    let [s0, s1, s2, s3, s4, s5, s6, s7, ..] = rest;
    let is_log = u32::from_be_bytes([m0, m1, m2, m3]) & !1 == MAGIC;
    Ok(is_log.then(|| i64::from_be_bytes([s0, s1, s2, s3, s4, s5, s6, s7])))
}

/// What a file says of itself, with or without its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct View {
    identity: Identity,
    /// Grows with each change of the tables.
    tables: i64,
    /// The present mark and the one before.
    marks: Option<(i64, i64)>,
}

fn view(conn: &Connection) -> rusqlite::Result<View> {
    let tx = conn.unchecked_transaction()?;
    let tables = tx.pragma_query_value(None, "schema_version", |row| row.get(0))?;
    // A table of a newer format may look otherwise: its file is refused all the same.
    let marks = match tx.prepare("SELECT mark, former_mark FROM file") {
        Ok(mut marks) => marks.query_row([], |row| Ok((row.get(0)?, row.get(1)?))).optional()?,
        Err(err) if failure(&err) == Failure::Other => None,
        Err(err) => return Err(err),
    };
    drop(tx);
    Ok(View { identity: schema::identify(conn)?, tables, marks })
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
    let Ok(Some(_)) = salts(&path_of(file)) else { return Ok(true) };
    for _ in 0..LOOKS_MAX {
        let before = view(conn)?;
        let alone = view_alone(file);
        // Another process may have begun a log in between and folded the last one.
        if view(conn)? == before {
            return Ok(fits(&before, &alone));
        }
    }
    // Who writes so fast was let in with this log.
    Ok(true)
}

/// Whether the same file can look so with its log and without.
fn fits(with: &View, alone: &rusqlite::Result<View>) -> bool {
    let alone = match alone {
        Ok(alone) => alone,
        // A process that died while it folded the log leaves pages of both; SQLite mends that.
        Err(err) => return failure(err) != Failure::NotADatabase,
    };
    let (now, former) = with.marks.unwrap_or((0, 0));
    match (with.identity, alone.identity) {
        (Identity::Foreign, Identity::Foreign | Identity::Empty)
        | (Identity::Empty, Identity::Empty) => true,
        (Identity::Ours(_), Identity::Empty) => former == 0,
        (Identity::Ours(newer), Identity::Ours(older)) => {
            let (mark, _) = alone.marks.unwrap_or((0, 0));
            older <= newer && alone.tables <= with.tables && (mark == now || mark == former)
        }
        (Identity::Foreign, Identity::Ours(_))
        | (Identity::Empty, Identity::Ours(_) | Identity::Foreign)
        | (Identity::Ours(_), Identity::Foreign) => false,
    }
}

/// Whether a log lies where no file is, or an empty one: SQLite would remove it.
pub(crate) fn is_orphan(file: &Path) -> bool {
    // The log first: whoever makes a file makes the log after it.
    let is_log = matches!(salts(&path_of(file)), Ok(Some(_)));
    is_log && fs::metadata(file).map_or(true, |file| file.len() == 0)
}

/// Gives a copy a mark of its own, so that no log of the original belongs to it.
pub(crate) fn mark_copy(conn: &Connection) -> rusqlite::Result<()> {
    const MARK: &str =
        "UPDATE file SET mark = random() | 1, former_mark = random() | 1, log_salts = 1";
    conn.execute(MARK, []).map(drop)
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
    /// The log that is known to bring its mark.
    marked: Option<i64>,
    /// When readers were last waited for.
    folded: Option<Instant>,
    has_warned: bool,
}

impl Log {
    pub(crate) fn new(file: &Path, bytes_max: u64, busy_max: Duration) -> Self {
        let path = path_of(file);
        Self { path, bytes_max, busy_max, marked: None, folded: None, has_warned: false }
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

    /// After a write: gives a log that was just begun its mark.
    pub(crate) fn mark(&mut self, conn: &mut Connection) {
        let Ok(Some(salts)) = salts(&self.path) else { return };
        if self.marked == Some(salts) {
            return;
        }
        match put_mark(conn, salts) {
            Ok(()) => self.marked = Some(salts),
            // The next write tries again.
            Err(err) => debug!(error = %err, "the log could not be given its mark"),
        }
    }
}

/// The log that a file was made in, or brought to this format in, has the first mark already.
fn put_mark(conn: &mut Connection, salts: i64) -> rusqlite::Result<()> {
    const MARK: &str = "UPDATE file SET former_mark = iif(log_salts, mark, former_mark), \
                        mark = iif(log_salts, random() | 1, mark), log_salts = ?1 \
                        WHERE log_salts <> ?1";
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    tx.prepare_cached(MARK)?.execute(params![salts])?;
    tx.commit()
}
