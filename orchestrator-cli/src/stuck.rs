//! Something to write to that stands still, for tests.

use std::io::{self, Write};
use std::sync::mpsc::Receiver;

/// A reader that takes nothing as long as somebody holds the other end.
pub(crate) struct Stuck(pub(crate) Receiver<()>);

impl Write for Stuck {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // An error says that whoever held it has let go.
        self.0.recv().map_or(Ok(bytes.len()), |()| Ok(bytes.len()))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
