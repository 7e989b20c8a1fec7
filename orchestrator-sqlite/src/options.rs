//! How a store is opened, as its user says.

use std::time::Duration;

/// When a commit counts as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Synchronous {
    /// Once it is on disk: it outlives a crash of the machine.
    #[default]
    Full,
    /// Once the operating system has it: it outlives a crash of the process, but a crash of the
    /// machine may undo the last commits. Faster; a run that must not pay for work twice wants
    /// [`Synchronous::Full`].
    Normal,
}

/// How a store is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SqliteOptions {
    /// When a commit counts as written.
    pub synchronous: Synchronous,
    /// How long a call waits for other processes that write before it answers that the store is
    /// busy. The time counts from when its turn comes: writes are done one after another, so that
    /// one behind others that each wait so long waits for them too.
    pub busy_max: Duration,
    /// Whether a file on a network file system is opened all the same. That is safe only while
    /// processes of one host alone use it, and where its locks work.
    pub network_disk: bool,
    /// Whether the store is opened as the only one that opens the file so; any number of others may
    /// use it beside.
    pub exclusive: bool,
    /// How large the write-ahead log may get. It grows only while somebody reads without a break;
    /// over this limit commits answer that there is no room, and other writes that the store is
    /// busy, until that reader has ended. Renewals of leases may go a sixteenth further.
    pub log_bytes_max: u64,
    /// How large the file may get, its log apart. A commit that would make it larger answers that
    /// there is no room; what is there stays readable.
    pub file_bytes_max: u64,
}

impl SqliteOptions {
    /// Commits are on disk when they return and wait up to 10 seconds for others; the file is on a
    /// disk of this host, has any number of owners, a log of up to 4 GiB, and any size.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            synchronous: Synchronous::Full,
            busy_max: Duration::from_secs(10),
            network_disk: false,
            exclusive: false,
            log_bytes_max: 4 * 1024 * 1024 * 1024,
            file_bytes_max: u64::MAX,
        }
    }

    /// With commits that count as written from then on.
    #[must_use]
    pub const fn with_synchronous(mut self, synchronous: Synchronous) -> Self {
        self.synchronous = synchronous;
        self
    }

    /// With calls that wait so long for others that write.
    #[must_use]
    pub const fn with_busy_max(mut self, busy_max: Duration) -> Self {
        self.busy_max = busy_max;
        self
    }

    /// With a file that may be on a network file system.
    #[must_use]
    pub const fn with_network_disk(mut self, network_disk: bool) -> Self {
        self.network_disk = network_disk;
        self
    }

    /// As the only store, or not, that opens the file so.
    ///
    /// The claim is a lock of the operating system on a file of its own, `….db-owner`. It ends with
    /// the process that holds it, however that dies, and is bound to no pid that another process
    /// could get.
    #[must_use]
    pub const fn with_exclusive(mut self, exclusive: bool) -> Self {
        self.exclusive = exclusive;
        self
    }

    /// With a file of at most so many bytes, or of the size that it has by then.
    #[must_use]
    pub const fn with_file_bytes_max(mut self, file_bytes_max: u64) -> Self {
        self.file_bytes_max = file_bytes_max;
        self
    }

    /// With a write-ahead log of at most about so many bytes.
    #[must_use]
    pub const fn with_log_bytes_max(mut self, log_bytes_max: u64) -> Self {
        self.log_bytes_max = log_bytes_max;
        self
    }
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self::new()
    }
}
