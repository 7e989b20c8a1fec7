//! Carrying out a short program whose output is wanted in memory.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::process::Signal;
use tokio::net::unix::pipe::Receiver;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::command::Output;
use crate::error::SpawnError;
use crate::program::Program;
use crate::run::{End, end_of, end_tree};
use crate::spawn::Tree;

/// What a short program answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    /// How it came to its end.
    pub how: End,
    /// How long it ran.
    pub wall: Duration,
    /// What it wrote to its standard output; the beginning when it was ended for writing too much.
    pub stdout: Vec<u8>,
    /// What it wrote to its standard error, or the beginning of it.
    pub stderr: Vec<u8>,
}

impl Captured {
    /// Whether it ended by itself with code 0.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.how == End::Exited(0)
    }
}

/// Starts a program and returns what it wrote, once it has ended.
///
/// At most `bytes_max` bytes of each output are kept. A program that writes more to its standard
/// output is ended ([`End::OutputLimit`]); what it writes beyond that to its standard error is
/// dropped. Of the limits, `wall` and `grace` hold.
///
/// A program without a [`Marker`](crate::Marker) is taken for one that leaves nothing outside its
/// group: when it ends by itself, its group is killed, and nothing is looked for beyond that, which
/// saves some milliseconds. After one with a marker all is cleared up as [`run`](crate::run) does. When the returned future is dropped, the tree is
/// killed in the background.
///
/// # Errors
/// [`SpawnError`] when it could not be started.
///
/// # Panics
/// Outside a tokio runtime with IO and time enabled.
pub async fn capture(
    program: &Program,
    cancel: &CancellationToken,
    bytes_max: usize,
) -> Result<Captured, SpawnError> {
    if cancel.is_cancelled() {
        let (stdout, stderr) = (Vec::new(), Vec::new());
        return Ok(Captured { how: End::Cancelled, wall: Duration::ZERO, stdout, stderr });
    }
    let mut tree = Tree::spawn(program, Output::Pipes).await?;
    let begun = Instant::now();
    let name = program.program.to_string_lossy();
    let named = |err| SpawnError::from_spawn(&name, err);
    let mut pipes = Pipes::of(&mut tree, bytes_max).map_err(named)?;
    let wall_at = begun.checked_add(program.limits.wall);
    let stopped = loop {
        if pipes.stdout.is_over {
            break Some(End::OutputLimit);
        }
        tokio::select! {
            biased;
            () = cancel.cancelled() => break Some(End::Cancelled),
            () = at(wall_at) => break Some(End::WallLimit),
            () = pipes.stdout.read() => {}
            () = pipes.stderr.read() => {}
            () = tree.exited() => break None,
        }
    };
    if stopped.is_some() || program.marker.is_some() {
        end_tree(&tree, stopped.is_some(), program.limits.grace).await;
    } else {
        tree.signal_group(Signal::KILL);
    }
    let wall = begun.elapsed();
    let how = match stopped {
        Some(how) => {
            tree.put_away().await;
            how
        }
        None => end_of(tree.reap().map_err(named)?),
    };
    let (stdout, stderr, is_over) = pipes.finish();
    let how = if is_over { End::OutputLimit } else { how };
    Ok(Captured { how, wall, stdout, stderr })
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

struct Pipes {
    stdout: Pipe,
    stderr: Pipe,
}

impl Pipes {
    fn of(tree: &mut Tree, bytes_max: usize) -> io::Result<Self> {
        let [stdout, stderr] =
            tree.take_pipes().ok_or_else(|| io::Error::other("it was started without pipes"))?;
        Ok(Self { stdout: Pipe::new(stdout, bytes_max)?, stderr: Pipe::new(stderr, bytes_max)? })
    }

    /// Takes what is there still, without waiting for others who may hold the pipes.
    fn finish(mut self) -> (Vec<u8>, Vec<u8>, bool) {
        self.stdout.drain();
        self.stderr.drain();
        (self.stdout.bytes, self.stderr.bytes, self.stdout.is_over)
    }
}

struct Pipe {
    receiver: Option<Receiver>,
    bytes: Vec<u8>,
    bytes_max: usize,
    /// Whether there was more than is kept.
    is_over: bool,
}

impl Pipe {
    fn new(fd: OwnedFd, bytes_max: usize) -> io::Result<Self> {
        let receiver = Some(Receiver::from_owned_fd(fd)?);
        Ok(Self { receiver, bytes: Vec::new(), bytes_max, is_over: false })
    }

    /// Waits for more and takes it; never returns once the other end is closed.
    async fn read(&mut self) {
        match &self.receiver {
            None => std::future::pending().await,
            Some(receiver) => {
                if receiver.readable().await.is_err() {
                    self.receiver = None;
                }
            }
        }
        self.take_piece();
    }

    /// Takes one piece of what is there.
    fn take_piece(&mut self) {
        let Some(receiver) = &self.receiver else { return };
        let mut piece = [0; 16 * 1024];
        match receiver.try_read(&mut piece) {
            Ok(0) => self.receiver = None,
            Ok(read) => self.keep(piece.get(..read).unwrap_or_default()),
            Err(err) if err.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.receiver = None,
        }
    }

    /// Takes what is there still.
    fn drain(&mut self) {
        // The runtime may not have noticed yet that there is something, and would say that there is
        // nothing: only the pipe itself knows.
        let Some(fd) =
            self.receiver.take().and_then(|receiver| receiver.into_nonblocking_fd().ok())
        else {
            return;
        };
        let mut pipe = File::from(fd);
        let mut piece = [0; 16 * 1024];
        // A pipe holds 64 KiB unless somebody asked for more; what is written while this reads is
        // of a process that could not be ended, and may be lost.
        for _ in 0..1024 {
            match pipe.read(&mut piece) {
                Ok(0) => break,
                Ok(read) => self.keep(piece.get(..read).unwrap_or_default()),
                Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
    }

    fn keep(&mut self, piece: &[u8]) {
        let room = self.bytes_max.saturating_sub(self.bytes.len());
        self.is_over |= piece.len() > room;
        self.bytes.extend_from_slice(piece.get(..room).unwrap_or(piece));
    }
}
