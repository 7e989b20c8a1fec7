//! Git programs that stay for the next question, since starting one costs more than most answers.
//!
//! Two commands can be asked again and again: `update-ref --stdin` and `cat-file --batch`. Whoever
//! asks takes the program out of its slot and puts it back when the answer is whole; so one that was
//! given up in the middle is never asked again, and two questions at once have a program each. A
//! program whose input is closed finishes what it was asked, and ends: also when this process dies.
//!
//! None stays for longer than [`LIFE`]: a lock that a killed git left is removed only when every git
//! that may hold it has ended, and nobody can tell from outside that one of these holds none.

use std::io;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use orchestrator_process::Environment;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

/// How long a program stays; well below what a lock is waited for.
const LIFE: Duration = Duration::from_secs(2);

/// How long programs without input are waited for when the repository is closed; they need a
/// moment.
const END_WAIT: Duration = Duration::from_millis(200);

/// Most that is kept of what a program says on its standard error.
const WORDS_BYTES_MAX: u64 = 16 << 10;

/// Which command a program carries out, and so where its answers end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    /// `update-ref --stdin`: each question is a transaction, with `start`, `prepare` and an end.
    Updates,
    /// `cat-file --batch`: each question names one object.
    Objects,
}

/// The programs of one repository that wait for their next question.
#[derive(Debug, Clone, Default)]
pub(crate) struct Servers(Arc<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    updates: Mutex<Option<Server>>,
    objects: Mutex<Option<Server>>,
}

impl Waiting {
    fn slot(&self, service: Service) -> MutexGuard<'_, Option<Server>> {
        let slot = match service {
            Service::Updates => &self.updates,
            Service::Objects => &self.objects,
        };
        slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Waiting {
    /// Nothing survives: those that wait have ended, unless something holds them up.
    fn drop(&mut self) {
        let slots = [&mut self.updates, &mut self.objects];
        let waiting =
            slots.map(|slot| slot.get_mut().unwrap_or_else(PoisonError::into_inner).take());
        // All are asked to end before the first is waited for.
        let children: Vec<Child> = waiting.into_iter().flatten().map(|it| it.child).collect();
        let begun = std::time::Instant::now();
        for mut child in children {
            while begun.elapsed() < END_WAIT && matches!(child.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

/// What a program answered.
#[derive(Debug)]
pub(crate) enum Reply {
    /// The answer; the program stays.
    Answer(Vec<u8>),
    /// It ended, with what it had written, its exit code, and its words.
    Ended(Vec<u8>, i32, String),
}

impl Servers {
    /// Asks a program that waits, or a new one that this command starts. `None` when there is no
    /// answer, and nothing was done: then git has to be called as usual.
    pub(crate) async fn ask(
        &self,
        service: Service,
        environment: &Environment,
        question: &[u8],
        start: impl FnOnce() -> Command,
    ) -> io::Result<Option<Reply>> {
        let waiting = self.0.slot(service).take();
        let is_fit =
            |server: &Server| Instant::now() < server.ends && server.environment == *environment;
        let mut server = match waiting.filter(is_fit) {
            Some(server) => server,
            None => match Server::start(start(), environment) {
                Ok(server) => server,
                Err(_) => return Ok(None),
            },
        };
        let mut answer = Vec::new();
        match server.answer(service, question, &mut answer).await {
            Ok(()) => {
                self.put(service, server);
                Ok(Some(Reply::Answer(answer)))
            }
            // It ended before it was asked.
            Err(_) if answer.is_empty() && server.has_answered => Ok(None),
            Err(_) => {
                let (code, words) = server.end().await?;
                Ok(Some(Reply::Ended(answer, code, words)))
            }
        }
    }

    /// Ends the programs that wait.
    pub(crate) fn end(&self) {
        for service in [Service::Updates, Service::Objects] {
            drop(self.0.slot(service).take());
        }
    }

    /// Lets a program wait for its next question.
    fn put(&self, service: Service, mut server: Server) {
        if !std::mem::replace(&mut server.is_watched, true) {
            tokio::spawn(end_in_time(Arc::downgrade(&self.0), service, server.ends));
        }
        *self.0.slot(service) = Some(server);
    }
}

/// Ends the program that waits when its time is over.
async fn end_in_time(waiting: Weak<Waiting>, service: Service, ends: Instant) {
    sleep_until(ends).await;
    if let Some(waiting) = waiting.upgrade() {
        drop(waiting.slot(service).take_if(|server| server.ends <= ends));
    }
}

/// A program that answers one question after the other. Dropped, it ends by itself.
#[derive(Debug)]
struct Server {
    /// What it was started with.
    environment: Environment,
    ends: Instant,
    is_watched: bool,
    has_answered: bool,
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    words: JoinHandle<String>,
}

impl Server {
    fn start(mut command: Command, environment: &Environment) -> io::Result<Self> {
        // A person's Ctrl-C is for this process, which ends what it has begun.
        command.process_group(0).env_clear().envs(environment.iter());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        let stdin = child.stdin.take().ok_or_else(gone)?;
        let stdout = BufReader::new(child.stdout.take().ok_or_else(gone)?);
        let stderr = child.stderr.take().ok_or_else(gone)?;
        let words = tokio::spawn(async move {
            let (mut words, mut rest) = (Vec::new(), tokio::io::sink());
            let mut kept = stderr.take(WORDS_BYTES_MAX);
            // What it says beyond that is read, so that it is not held up, and dropped.
            if kept.read_to_end(&mut words).await.is_ok() {
                tokio::io::copy(&mut kept.into_inner(), &mut rest).await.ok();
            }
            String::from_utf8_lossy(&words).trim().to_owned()
        });
        Ok(Self {
            environment: environment.clone(),
            ends: Instant::now() + LIFE,
            is_watched: false,
            has_answered: false,
            child,
            stdin,
            stdout,
            words,
        })
    }

    /// Asks, and reads the answer to its end.
    async fn answer(
        &mut self,
        service: Service,
        question: &[u8],
        answer: &mut Vec<u8>,
    ) -> io::Result<()> {
        self.stdin.write_all(question).await?;
        self.stdin.flush().await?;
        match service {
            Service::Updates => {
                for _step in ["start", "prepare", "commit"] {
                    self.line(answer).await?;
                }
            }
            Service::Objects => {
                self.line(answer).await?;
                let text = String::from_utf8_lossy(answer);
                let mut words = text.split_whitespace().skip(1);
                let (_kind, size) = (words.next(), words.next().and_then(|it| it.parse().ok()));
                if let Some(size) = size {
                    let body: u64 = size;
                    let read = (&mut self.stdout).take(body + 1).read_to_end(answer).await?;
                    if u64::try_from(read).ok() != Some(body + 1) {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
            }
        }
        self.has_answered = true;
        Ok(())
    }

    async fn line(&mut self, answer: &mut Vec<u8>) -> io::Result<()> {
        let read = self.stdout.read_until(b'\n', answer).await?;
        let is_whole = read > 0 && answer.last() == Some(&b'\n');
        if is_whole { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    /// How a program ended that gave no whole answer.
    async fn end(self) -> io::Result<(i32, String)> {
        let Self { mut child, stdin, stdout, words, .. } = self;
        drop((stdin, stdout));
        let status = child.wait().await?;
        Ok((status.code().unwrap_or(-1), words.await.unwrap_or_default()))
    }
}
