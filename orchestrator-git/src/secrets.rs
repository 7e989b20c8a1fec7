//! Keys and tokens that a change would bring into the target.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use orchestrator_core::Mask;

use crate::diff::Entry;
use crate::error::GitError;
use crate::names::{Oid, path_of, shown};
use crate::rules::{is_file, listed};
use crate::run::Inner;

/// How much of a file is looked at.
const LOOKED_AT_BYTES: u64 = 1 << 20;

impl Inner {
    /// The files into which a change brings keys or tokens, in words; those that a file had before
    /// do not count.
    pub(crate) async fn secrets(
        &self,
        tree: &Path,
        base: &Oid,
        entries: &[Entry],
    ) -> Result<Option<String>, GitError> {
        if self.config.takes_keys {
            return Ok(None);
        }
        let mut holding = Vec::new();
        for entry in entries.iter().filter(|entry| is_file(entry.new_mode)) {
            let bytes = beginning(&tree.join(path_of(&entry.path)));
            let secrets = Mask::keys().find(&bytes);
            if secrets.is_empty() {
                continue;
            }
            let before = if entry.old_mode == 0 {
                Vec::new()
            } else {
                let name = [base.as_str().as_bytes(), b":", entry.path.as_slice()].concat();
                let call = self.git.plumbing(["cat-file", "blob"]).arg(path_of(&name));
                self.git.ask(call).await?.stdout
            };
            let is_known = |secret: &[u8]| before.windows(secret.len()).any(|it| it == secret);
            let mut secrets = secrets.into_iter().filter_map(|secret| bytes.get(secret));
            if secrets.any(|secret| !is_known(secret)) {
                holding.push(shown(&entry.path));
            }
        }
        Ok((!holding.is_empty()).then(|| {
            let paths = listed(holding.iter().map(String::as_str));
            format!("These files hold private keys or tokens of services, remove them: {paths}")
        }))
    }
}

/// What is looked at of a file; of one that cannot be read, nothing.
fn beginning(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(LOOKED_AT_BYTES).read_to_end(&mut bytes));
    if read.is_ok() { bytes } else { Vec::new() }
}
