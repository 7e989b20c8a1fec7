//! An observer that shows a run to a person.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::ProgressDrawTarget;
use orchestrator_core::StoredEvent;
use orchestrator_core::port::{Activity, Observer, Progress};
use owo_colors::{OwoColorize as _, Style};

use crate::board::{Board, Line, Tone, clock};
use crate::live::Live;
use crate::text::harmless;

/// Messages that may wait to be shown; what does not fit is counted and left out.
const BACKLOG: usize = 4_096;
/// Characters of a line of somebody else's that are shown.
const SAID_CHARS_MAX: usize = 2_000;
/// How long the end waits for what is still to be shown.
const CLOSE_WAIT: Duration = Duration::from_secs(10);

/// Shows a run to a person: live on a terminal, else in plain lines.
///
/// It shows from a thread of its own, so that a terminal that stands still holds nothing up.
pub struct Terminal {
    tx: SyncSender<Message>,
    thread: Mutex<Option<JoinHandle<()>>>,
    lost: AtomicU64,
}

enum Message {
    Committed(Vec<StoredEvent>, Box<Progress>),
    Activity(Activity),
    Said(String),
    Lost(u64),
    Close,
}

enum Screen {
    Live(Live),
    Plain(Box<dyn Write + Send>),
}

impl fmt::Debug for Terminal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Terminal")
    }
}

impl Terminal {
    /// Shows the run on the standard error: live if that is a terminal, else in lines. Colours are
    /// used on a terminal unless `NO_COLOR` is set.
    #[must_use]
    pub fn stderr() -> Self {
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        if io::stderr().is_terminal() && !dumb {
            let color = Self::has_color(&io::stderr());
            Self::start(Screen::Live(Live::new(ProgressDrawTarget::stderr(), color)), color)
        } else {
            Self::plain(io::stderr())
        }
    }

    /// Shows the run in lines without colours.
    #[must_use]
    pub fn plain(out: impl Write + Send + 'static) -> Self {
        Self::start(Screen::Plain(Box::new(out)), false)
    }

    /// Whether an output takes colours: it is a terminal, and `NO_COLOR` is not set.
    #[must_use]
    pub fn has_color(output: &impl IsTerminal) -> bool {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        output.is_terminal() && !refused
    }

    fn start(screen: Screen, color: bool) -> Self {
        let (tx, rx) = sync_channel(BACKLOG);
        let show = move || Show { screen, color, board: Board::default() }.run(&rx);
        // Without the thread nothing is shown, and the run goes on.
        let thread = std::thread::Builder::new().name("terminal".to_owned()).spawn(show).ok();
        Self { tx, thread: Mutex::new(thread), lost: AtomicU64::new(0) }
    }

    /// Shows a line of somebody else's, a warning of an adapter say, without spoiling the view.
    pub fn say(&self, text: &str) {
        self.send(Message::Said(text.to_owned()));
    }

    /// Shows what is still to be shown and takes the live view away; waits no longer than a moment.
    pub fn close(&self) {
        let Ok(mut thread) = self.thread.lock() else { return };
        let Some(thread) = thread.take() else { return };
        let until = Instant::now() + CLOSE_WAIT;
        let mut told = false;
        while !thread.is_finished() && Instant::now() < until {
            told = told || self.tx.try_send(Message::Close).is_ok();
            std::thread::sleep(Duration::from_millis(5));
        }
        if thread.is_finished() {
            // A panic in the view is no reason to end the run differently.
            drop(thread.join());
        }
    }

    fn send(&self, message: Message) {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        let mut missed = lost;
        if lost > 0 && self.tx.try_send(Message::Lost(lost)).is_ok() {
            missed = 0;
        }
        if let Err(TrySendError::Full(_)) = self.tx.try_send(message) {
            missed += 1;
        }
        self.lost.fetch_add(missed, Ordering::Relaxed);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.close();
    }
}

impl Observer for Terminal {
    fn committed(&self, events: &[StoredEvent], progress: &Progress) {
        self.send(Message::Committed(events.to_vec(), Box::new(progress.clone())));
    }

    fn activity(&self, activity: &Activity) {
        self.send(Message::Activity(activity.clone()));
    }
}

/// What the thread has.
struct Show {
    screen: Screen,
    color: bool,
    board: Board,
}

impl Show {
    fn run(mut self, rx: &Receiver<Message>) {
        while let Ok(message) = rx.recv() {
            match message {
                Message::Committed(events, progress) => self.committed(&events, &progress),
                Message::Activity(activity) => self.board.activity(&activity),
                Message::Said(text) => {
                    let text = harmless(&text, SAID_CHARS_MAX);
                    self.print(None, &Line { tone: Tone::Warn, text });
                }
                Message::Lost(count) => {
                    let text = format!("({count} messages were not shown)");
                    self.print(None, &Line { tone: Tone::Plain, text });
                }
                Message::Close => break,
            }
            if let Screen::Live(live) = &self.screen {
                live.said(&self.board);
            }
        }
        if let Screen::Live(live) = &self.screen {
            live.close();
        }
    }

    fn committed(&mut self, events: &[StoredEvent], progress: &Progress) {
        for line in self.board.lines(events, progress) {
            self.print(Some(progress), &line);
        }
        if let Screen::Live(live) = &mut self.screen {
            live.update(progress);
        }
    }

    fn print(&mut self, progress: Option<&Progress>, line: &Line) {
        let place = progress.map_or_else(String::new, |progress| {
            let (counts, now) = (progress.counts, clock(progress.now));
            format!("[{now}] {:>3}/{} ", counts.done, counts.total())
        });
        let text = if self.color {
            line.text.style(colour(line.tone)).to_string()
        } else {
            line.text.clone()
        };
        let whole = format!("{place}{text}");
        match &mut self.screen {
            // The view itself shows what starts and passes.
            Screen::Live(_) if line.tone == Tone::Quiet => {}
            Screen::Live(live) => live.print(&whole),
            // Nobody reads it any more; the run goes on.
            Screen::Plain(out) => drop(writeln!(out, "{whole}").and_then(|()| out.flush())),
        }
    }
}

const fn colour(tone: Tone) -> Style {
    match tone {
        Tone::Quiet => Style::new().dimmed(),
        Tone::Plain => Style::new(),
        Tone::Good => Style::new().green(),
        Tone::Warn => Style::new().yellow(),
        Tone::Bad => Style::new().red().bold(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    use orchestrator_core::port::ActivityKind;
    use orchestrator_core::{FencingToken, TaskId};

    use super::*;
    use crate::stuck::Stuck;

    #[test]
    fn a_terminal_that_stands_still_holds_nothing_up() {
        let (let_go, stuck) = channel::<()>();
        let terminal = Arc::new(Terminal::plain(Stuck(stuck)));
        let task = TaskId::parse("a").unwrap();
        let kind = ActivityKind::Said("on it".to_owned());
        let activity = Activity { task, token: FencingToken(1), kind };
        terminal.send(Message::Lost(1));
        for _ in 0..3 * BACKLOG {
            terminal.activity(&activity);
        }
        assert!(terminal.lost.load(Ordering::Relaxed) > 0);
        drop(let_go);
        terminal.close();
        assert!(terminal.thread.lock().unwrap().is_none());
    }
}
