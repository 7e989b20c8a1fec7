//! Writing small objects without starting git: the blobs of fences, and commits.
//!
//! They are what git itself would write, as loose objects, on the disk before anything names them.
//! Where a repository is shared between users its permissions are git's to choose, and git is asked.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::GitError;
use crate::files::unique;
use crate::git::oid::Oid;
use crate::git::repository::Git;
use crate::git::trailers::Commit;

impl Git {
    /// Writes an object and returns its name; it is on the disk then.
    pub(crate) async fn write_object(
        &self,
        kind: &'static str,
        body: Vec<u8>,
    ) -> Result<Oid, GitError> {
        if self.shield().await?.is_shared {
            let call = self.plumbing(["hash-object", "-w", "--stdin", "-t", kind]).stdin(body);
            let answer = self.run(call).await?;
            return Oid::parse(&answer.text()).ok_or_else(|| answer.unexpected("hash-object"));
        }
        let name = self.format.name_of(kind, &body);
        let path = self.loose(&name);
        let written = {
            let path = path.clone();
            let header = format!("{kind} {}\0", body.len()).into_bytes();
            let bytes = stored(&[header, body].concat());
            tokio::task::spawn_blocking(move || write_loose(&path, &bytes)).await
        };
        written
            .unwrap_or_else(|err| Err(io::Error::other(err)))
            .map_err(GitError::io(&path, "written"))?;
        Ok(name)
    }

    fn loose(&self, name: &Oid) -> PathBuf {
        let (fan, rest) = name.as_str().split_at(2);
        self.dir.join("objects").join(fan).join(rest)
    }

    /// Makes a commit of a tree, in the orchestrator's name.
    pub(crate) async fn commit(
        &self,
        tree: &Oid,
        parents: &[&Oid],
        message: &str,
    ) -> Result<Oid, GitError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let name = tidy(&self.caller.author_name);
        let name = if name.is_empty() { "orchestrator" } else { &name };
        let who = format!("{name} <{}> {now} +0000", tidy(&self.caller.author_email));
        let mut text = format!("tree {tree}\n");
        for parent in parents {
            text.extend(["parent ", parent.as_str(), "\n"]);
        }
        text.extend(["author ", &who, "\ncommitter ", &who, "\n\n", message]);
        let commit = self.write_object("commit", text.into_bytes()).await?;
        self.note_commit(&commit, Commit { tree: tree.clone(), message: message.to_owned() });
        Ok(commit)
    }
}

/// A name as it may stand in a commit.
fn tidy(name: &str) -> String {
    let is_meant = |c: &char| !c.is_control() && !matches!(c, '<' | '>');
    name.chars().filter(is_meant).collect::<String>().trim().to_owned()
}

/// The bytes as a zlib stream that does not compress.
fn stored(bytes: &[u8]) -> Vec<u8> {
    const BLOCK_MAX: usize = 0xffff;
    let mut stream = vec![0x78, 0x01];
    let mut blocks = bytes.chunks(BLOCK_MAX).peekable();
    while let Some(block) = blocks.next() {
        let len = u16::try_from(block.len()).unwrap_or(u16::MAX);
        stream.push(u8::from(blocks.peek().is_none()));
        stream.extend(len.to_le_bytes());
        stream.extend((!len).to_le_bytes());
        stream.extend(block);
    }
    stream.extend(adler32(bytes).to_be_bytes());
    stream
}

fn adler32(bytes: &[u8]) -> u32 {
    const MODULUS: u32 = 65_521;
    let (mut a, mut b) = (1_u32, 0_u32);
    for byte in bytes {
        a = (a + u32::from(*byte)) % MODULUS;
        b = (b + a) % MODULUS;
    }
    b << 16 | a
}

/// Puts an object where it belongs, whole or not at all; one that is there already is the same.
fn write_loose(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if fs::metadata(path).is_ok_and(|meta| meta.len() > 0) {
        // It may be there since long; git must not take it for garbage now.
        let touched = File::open(path).and_then(|file| file.set_modified(SystemTime::now()));
        if touched.is_ok() {
            return Ok(());
        }
    }
    let dir = path.parent().ok_or(io::ErrorKind::NotFound)?;
    fs::create_dir_all(dir)?;
    // Git removes files of this name that were left, when it collects garbage.
    let new = dir.join(format!("tmp_obj_{}", unique()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o444).open(&new)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    let moved = written.and_then(|()| fs::rename(&new, path));
    if moved.is_err() {
        // What it was written for failed already.
        fs::remove_file(&new).ok();
    }
    moved?;
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_sum_is_that_of_zlib() {
        assert_eq!(adler32(b"Wikipedia"), 0x11e6_0398);
    }
}
