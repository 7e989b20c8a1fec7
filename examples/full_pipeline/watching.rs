//! Who watches the run: the terminal, a file of JSON lines, and whoever is to be told.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use orchestrator_cli::{JsonLines, Notifier, Terminal};
use orchestrator_core::port::{Observer, Store};
use orchestrator_core::{RunEnd, RunId};

use super::options::whole;
use super::place::Place;
use super::stop::Stop;

const WITHIN_SECONDS: u32 = 10;

/// Of the command line, what is about watching.
#[derive(Debug, Args)]
pub(crate) struct Watching {
    /// A shell command that is run when a task is escalated, and when the run parks, stalls or is
    /// finished. It finds `ORCHESTRATOR_EVENT`, `ORCHESTRATOR_TASK`, `ORCHESTRATOR_WHY` and
    /// `ORCHESTRATOR_EVENT_ID` in its environment, and the same as JSON on its input; what is told
    /// twice has the same id.
    #[arg(long, value_name = "COMMAND")]
    notify: Option<String>,
    /// How long that command has at the end; what it was not told, it is by the next start.
    #[arg(long, value_name = "SECONDS", default_value_t = WITHIN_SECONDS)]
    notify_within: u32,
    /// Append what happens to this file, one JSON object a line.
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,
}

/// All who watch.
pub(crate) struct Watchers {
    pub(crate) terminal: Arc<Terminal>,
    lines: Option<Arc<JsonLines>>,
    notifier: Option<Arc<Notifier>>,
    within: Duration,
}

impl Watching {
    /// Begins to watch.
    pub(crate) async fn begin(
        &self,
        place: &Place,
        store: &dyn Store,
        run: &RunId,
    ) -> anyhow::Result<Watchers> {
        let lines = match &self.events {
            Some(path) => {
                let file = OpenOptions::new().create(true).append(true).open(path);
                let file = file.with_context(|| format!("cannot write {}", path.display()))?;
                Some(Arc::new(JsonLines::new(file)))
            }
            None => None,
        };
        let notifier = match &self.notify {
            Some(command) => {
                let command = ["sh", "-c", command].map(str::to_owned);
                let told = place.join("told");
                Some(Arc::new(Notifier::start(&command, told, store, run).await?))
            }
            None => None,
        };
        let within = Duration::from_secs(self.notify_within.into());
        Ok(Watchers { terminal: Arc::new(Terminal::stderr()), lines, notifier, within })
    }

    /// Says the same again.
    pub(crate) fn again(&self, put: &mut impl FnMut(&str, &OsStr)) {
        if let Some(command) = &self.notify {
            put("--notify", command.as_ref());
        }
        if self.notify_within != WITHIN_SECONDS {
            put("--notify-within", self.notify_within.to_string().as_ref());
        }
        if let Some(path) = &self.events {
            put("--events", whole(path).as_os_str());
        }
    }
}

impl Watchers {
    /// All of them as one.
    pub(crate) fn observer(&self) -> Arc<dyn Observer> {
        let mut all: Vec<Arc<dyn Observer>> = vec![Arc::<Terminal>::clone(&self.terminal)];
        if let Some(lines) = &self.lines {
            all.push(Arc::<JsonLines>::clone(lines));
        }
        if let Some(notifier) = &self.notifier {
            all.push(Arc::<Notifier>::clone(notifier));
        }
        Arc::new(all)
    }

    /// Shows and tells what is left of that, once driving has ended; whoever asks twice to stop does
    /// not wait until somebody was told.
    pub(crate) async fn close(
        &self,
        store: &dyn Store,
        run: &RunId,
        end: Option<&RunEnd>,
        stop: &Stop,
    ) -> anyhow::Result<()> {
        self.terminal.close();
        if let Some(lines) = &self.lines {
            lines.close();
        }
        if let Some(notifier) = &self.notifier {
            if let (Some(end), Some((seq, _))) = (end, store.header(run).await?) {
                notifier.ended(end, seq);
            }
            tokio::select! {
                biased;
                () = stop.asked_twice() => {}
                () = notifier.close(self.within) => {}
            }
        }
        Ok(())
    }
}
