//! Warnings of the libraries, shown among the progress instead of across it.

use std::io::{self, Write};
use std::sync::{Arc, Weak};

use orchestrator_cli::Terminal;
use tracing::Level;
use tracing_subscriber::fmt::MakeWriter;

/// Shows every warning and error from now on, for as long as the terminal is there.
pub(crate) fn show_on(terminal: &Arc<Terminal>) {
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(Level::WARN)
        .with_ansi(false)
        .without_time()
        .with_target(false)
        .with_writer(Lines(Arc::downgrade(terminal)))
        .finish();
    // Set once: the program composes one pipeline.
    if tracing::subscriber::set_global_default(subscriber).is_err() {
        terminal.say("warnings are shown elsewhere");
    }
}

struct Lines(Weak<Terminal>);

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line { terminal: Weak::clone(&self.0), bytes: Vec::new() }
    }
}

/// One warning, shown when it is whole.
struct Line {
    terminal: Weak<Terminal>,
    bytes: Vec<u8>,
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Some(terminal) = self.terminal.upgrade() {
            terminal.say(String::from_utf8_lossy(&self.bytes).trim());
        }
    }
}
