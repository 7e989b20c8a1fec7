//! Keys and tokens that a change would bring into the target.

use orchestrator_core::Mask;

use crate::error::GitError;
use crate::git::diff::{Content, Entry, is_file};
use crate::git::oid::Oid;
use crate::git::repository::Git;
use crate::names::{listed, path_of, shown};

/// Most bytes of a file as it was before that are looked at.
const BEFORE_BYTES_MAX: usize = 64 << 20;

/// The files into which a change brings keys or tokens, in words; those that a file had before do
/// not count, and neither do files that are longer.
pub(crate) async fn find(
    git: &Git,
    base: &Oid,
    (entries, contents): (&[Entry], &[Content]),
    bytes_max: u64,
) -> Result<Option<String>, GitError> {
    let mut holding = Vec::new();
    // A longer one is refused for that.
    let read = entries.iter().zip(contents).filter(|(_, content)| content.bytes <= bytes_max);
    for (entry, _) in read.filter(|(entry, _)| is_file(entry.new_mode)) {
        let Some(new) = &entry.new else { continue };
        let bytes = git.object("blob", new).await?.unwrap_or_default();
        let secrets = Mask::keys().find(&bytes);
        if secrets.is_empty() {
            continue;
        }
        let before = if entry.old_mode == 0 {
            Vec::new()
        } else {
            let name = [base.as_str().as_bytes(), b":", entry.path.as_slice()].concat();
            let call = git.plumbing(["cat-file", "blob"]).arg(path_of(&name));
            // Its beginning will do: what is not found in it was brought.
            git.ask(call.bytes_max(BEFORE_BYTES_MAX)).await?.stdout
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
