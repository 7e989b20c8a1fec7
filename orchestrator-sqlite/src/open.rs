//! Opening a file: what it must be, and how it is set up.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io, path, thread};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, ffi};

use crate::error::{Failure, OpenError, failure, open_error};
use crate::log::{self, Log};
use crate::options::{SqliteOptions, Synchronous};
use crate::owner::{self, Claim};
use crate::place::{FilePlace, network_disk};
use crate::schema::{self, Identity};
use crate::writer::Writer;

/// The connections of an open store.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) writer: Writer,
    pub(crate) reader: Connection,
    pub(crate) place: FilePlace,
}

/// The file that a path leads to. SQLite follows links, and keeps its log beside what they lead to:
/// whoever looks for the log has to do the same.
fn resolved(path: &Path) -> io::Result<PathBuf> {
    // An absolute path has no special meaning to SQLite, as `:memory:` would.
    let path = path::absolute(path)?;
    if path.symlink_metadata().is_ok() {
        return path.canonicalize();
    }
    let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
    Ok(folder
        .zip(path.file_name())
        .map_or_else(|| path.clone(), |(folder, name)| folder.join(name)))
}

/// Opens or makes the file.
pub(crate) fn open(path: &Path, options: &SqliteOptions) -> Result<Opened, OpenError> {
    let failed = |source| OpenError::Path { path: path.to_owned(), source };
    let path = &resolved(path).map_err(failed)?;
    let is_new = check_path(path)?;
    check_disk(path, options)?;
    check_room(path, options)?;
    if log::is_orphan(path) || log::is_stranger(path) {
        return Err(OpenError::ForeignLog { path: path.clone(), log: log::path_of(path) });
    }
    let claim = options.exclusive.then(|| claim(path)).transpose()?;
    let explain = |source| open_error(path, source);
    let flags = OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_READ_WRITE;
    let create = flags | OpenFlags::SQLITE_OPEN_CREATE;
    let mut writer = Connection::open_with_flags(path, create).map_err(explain)?;
    check_identity(&writer, path, options)?;
    let log = Log::new(path, options.log_bytes_max, options.busy_max);
    set_up(&mut writer, path, options, &log)?;
    if is_new {
        sync_folder(path)?;
    }
    let reader = Connection::open_with_flags(path, flags).map_err(explain)?;
    reader.busy_timeout(options.busy_max).map_err(explain)?;
    reader.pragma_update(None, "query_only", true).map_err(explain)?;
    // Both are there by now, and stay as long as a connection is open: it has read the file.
    let beside = [log::path_of(path), log::index_of(path)];
    let place = FilePlace::with(path, &beside).map_err(failed)?;
    let writer = Writer::new(writer, place.clone(), log, claim);
    Ok(Opened { writer, reader, place })
}

fn check_disk(path: &Path, options: &SqliteOptions) -> Result<(), OpenError> {
    allow_disk(network_disk(path.parent().unwrap_or(path)), path, options)
}

fn allow_disk(kind: Option<String>, path: &Path, options: &SqliteOptions) -> Result<(), OpenError> {
    match kind.filter(|_| !options.network_disk) {
        Some(kind) => Err(OpenError::NetworkDisk { path: path.to_owned(), kind }),
        None => Ok(()),
    }
}

/// Refuses a limit under which nothing can be set up, before a file is made.
fn check_room(path: &Path, options: &SqliteOptions) -> Result<(), OpenError> {
    let is_empty = fs::metadata(path).map_or(0, |file| file.len()) == 0;
    if !is_empty || options.file_bytes_max >= schema::FRESH_BYTES {
        return Ok(());
    }
    let source = rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_FULL), None);
    Err(OpenError::Full { path: path.to_owned(), source })
}

fn claim(path: &Path) -> Result<Claim, OpenError> {
    match owner::claim(path) {
        Ok(Ok(claim)) => Ok(claim),
        Ok(Err(owner)) => Err(OpenError::Owned { path: path.to_owned(), owner }),
        Err(source) => Err(OpenError::Path { path: owner::path_of(path), source }),
    }
}

/// Finds what is wrong with the path before SQLite does, which would not say. Returns whether the
/// file is yet to be made.
fn check_path(path: &Path) -> Result<bool, OpenError> {
    let failed = |path: &Path, source| OpenError::Path { path: path.to_owned(), source };
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(failed(path, io::ErrorKind::IsADirectory.into())),
        Ok(found) if !found.is_file() => {
            let said = io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file");
            Err(failed(path, said))
        }
        // SQLite takes a file of one byte for an empty one.
        Ok(found) if found.len() == 1 => Err(OpenError::NotOurs { path: path.to_owned() }),
        Ok(_) => Ok(false),
        Err(err) if err.kind() == io::ErrorKind::NotFound => {
            let folder = path.parent().unwrap_or(path);
            fs::metadata(folder).map_err(|err| failed(folder, err))?;
            // The names of the files beside it are longer.
            match fs::symlink_metadata(log::journal_of(path)) {
                Err(err) if err.kind() != io::ErrorKind::NotFound => Err(failed(path, err)),
                Ok(_) | Err(_) => Ok(true),
            }
        }
        Err(err) => Err(failed(path, err)),
    }
}

/// Refuses a file that is not ours or too new, without having written to it.
fn check_identity(
    conn: &Connection,
    path: &Path,
    options: &SqliteOptions,
) -> Result<(), OpenError> {
    let explain = |source| open_error(path, source);
    conn.busy_timeout(options.busy_max).map_err(explain)?;
    // Otherwise closing would move the other program's log into its file.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(explain)?;
    let is_readonly = conn.is_readonly("main").map_err(explain)?;
    if !is_readonly && !log::belongs(path, conn).map_err(explain)? {
        return Err(OpenError::ForeignLog { path: path.to_owned(), log: log::path_of(path) });
    }
    let path = || path.to_owned();
    match schema::identify(conn) {
        Ok(Identity::Foreign) => return Err(OpenError::NotOurs { path: path() }),
        Ok(Identity::Ours(found)) if found > schema::VERSION => {
            return Err(OpenError::TooNew { path: path(), found, known: schema::VERSION });
        }
        // In a read-only folder even reading may fail, since it takes a log beside the file.
        Err(err) if !is_readonly || failure(&err) != Failure::Other => return Err(explain(err)),
        _ if is_readonly => return Err(OpenError::ReadOnly { path: path() }),
        Ok(Identity::Ours(_) | Identity::Empty) | Err(_) => {}
    }
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false).map_err(explain)?;
    Ok(())
}

/// Statements that are kept prepared; there are fewer.
const STATEMENTS_MAX: usize = 64;
/// How much of the file a connection keeps in memory. With more tasks than fit, a commit reads
/// those that it changes anew.
const CACHE_KIB: i64 = 16 * 1024;

fn set_up(
    conn: &mut Connection,
    path: &Path,
    options: &SqliteOptions,
    log: &Log,
) -> Result<(), OpenError> {
    let explain = |source| open_error(path, source);
    let mode = turn_on_log(conn, options.busy_max).map_err(explain)?;
    if mode != "wal" {
        return Err(OpenError::NoLog { path: path.to_owned(), mode });
    }
    let synchronous = match options.synchronous {
        Synchronous::Full => "FULL",
        Synchronous::Normal => "NORMAL",
    };
    conn.pragma_update(None, "synchronous", synchronous).map_err(explain)?;
    conn.pragma_update(None, "foreign_keys", true).map_err(explain)?;
    conn.pragma_update(None, "trusted_schema", false).map_err(explain)?;
    conn.pragma_update(None, "cache_size", -CACHE_KIB).map_err(explain)?;
    log.set_up(conn).map_err(explain)?;
    limit_file(conn, options.file_bytes_max).map_err(explain)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    let found = schema::migrate(conn).map_err(explain)?;
    if found > schema::VERSION {
        return Err(OpenError::TooNew { path: path.to_owned(), found, known: schema::VERSION });
    }
    Ok(())
}

fn limit_file(conn: &Connection, bytes_max: u64) -> rusqlite::Result<()> {
    let page: u32 = conn.pragma_query_value(None, "page_size", |row| row.get(0))?;
    // More pages than SQLite can count are no limit.
    let Ok(pages) = u32::try_from(bytes_max / u64::from(page.max(1))) else { return Ok(()) };
    conn.pragma_update_and_check(None, "max_page_count", pages.max(1), |_| Ok(()))
}

/// Turns the write-ahead log on; SQLite does not wait by itself when another process does the same.
fn turn_on_log(conn: &Connection, busy_max: Duration) -> rusqlite::Result<String> {
    let start = Instant::now();
    loop {
        let mode = conn.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0));
        match mode {
            Err(err) if failure(&err) == Failure::Busy && start.elapsed() < busy_max => {
                thread::sleep(Duration::from_millis(5));
            }
            mode => return mode,
        }
    }
}

/// Makes the name of a new file outlive a crash of the machine.
fn sync_folder(path: &Path) -> Result<(), OpenError> {
    let Some(folder) = path.parent() else { return Ok(()) };
    if !cfg!(unix) {
        return Ok(());
    }
    let synced = fs::File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|source| OpenError::Path { path: folder.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(conn: &Connection, pragma: &str) -> i64 {
        conn.pragma_query_value(None, pragma, |row| row.get(0)).unwrap()
    }

    #[test]
    fn a_store_is_set_up_for_durable_commits_unless_asked_otherwise() {
        for (synchronous, expected) in [(Synchronous::Full, 2), (Synchronous::Normal, 1)] {
            let dir = tempfile::tempdir().unwrap();
            let options = SqliteOptions::new().with_synchronous(synchronous);
            let mut opened = open(&dir.path().join("run.db"), &options).unwrap();
            assert_eq!(number(opened.writer.conn(), "synchronous"), expected);
            assert_eq!(number(opened.writer.conn(), "foreign_keys"), 1);
            assert_eq!(number(opened.writer.conn(), "user_version"), i64::from(schema::VERSION));
            assert_eq!(number(&opened.reader, "query_only"), 1);
            let mode: String =
                opened.reader.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
            assert_eq!(mode, "wal");
        }
    }

    #[test]
    fn a_limit_under_which_no_file_can_be_made_leaves_none() {
        let dir = tempfile::tempdir().unwrap();
        let (path, empty) = (dir.path().join("run.db"), dir.path().join("empty.db"));
        fs::write(&empty, "").unwrap();
        for bytes_max in [0, 1, 4096, schema::FRESH_BYTES - 4096] {
            let options = SqliteOptions::new().with_file_bytes_max(bytes_max);
            for path in [&path, &empty] {
                let err = open(path, &options).unwrap_err();
                assert!(matches!(err, OpenError::Full { .. }), "{bytes_max}: {err:?}");
            }
            assert_eq!(fs::metadata(&empty).unwrap().len(), 0, "it is as it was");
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing was made");
        }
        let options = SqliteOptions::new().with_file_bytes_max(schema::FRESH_BYTES);
        for path in [&path, &empty] {
            drop(open(path, &options).unwrap());
            assert_eq!(fs::metadata(path).unwrap().len(), schema::FRESH_BYTES);
        }
    }

    #[test]
    fn a_name_that_is_special_to_sqlite_is_a_file_like_any_other() {
        let dir = tempfile::tempdir().unwrap();
        for name in [":memory:", "file:x?mode=memory", "a b%20.db"] {
            let path = dir.path().join(name);
            drop(open(&path, &SqliteOptions::new()).unwrap());
            assert!(fs::metadata(&path).unwrap().len() > 0, "{name}");
        }
    }

    #[test]
    fn a_network_disk_is_refused_by_name_unless_it_is_allowed() {
        let (path, options) = (Path::new("/net/run.db"), SqliteOptions::new());
        let refused = allow_disk(Some("nfs4".to_owned()), path, &options).unwrap_err();
        assert!(matches!(&refused, OpenError::NetworkDisk { kind, .. } if kind == "nfs4"));
        assert!(refused.to_string().contains("put it on a local disk"), "{refused}");
        allow_disk(None, path, &options).unwrap();
        let allowed = options.with_network_disk(true);
        allow_disk(Some("nfs4".to_owned()), path, &allowed).unwrap();
    }
}
