//! The documents that every agent gets.

use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// Longest document, in bytes.
pub const DOCUMENT_BYTES_MAX: u64 = 128 * 1024;

/// Which documents every agent gets, as paths below the root of the repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Documents {
    paths: Vec<PathBuf>,
}

/// A document as it was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Document {
    /// Its path below the root.
    pub name: String,
    /// What it says.
    pub text: String,
}

/// Why a document cannot be given to agents.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DocumentError {
    /// It is not there.
    #[error("document `{}` is not in {}: every agent gets it; write it, or name the documents that there are", .path.display(), .root.display())]
    Missing {
        /// The document.
        path: PathBuf,
        /// Where it was looked for.
        root: PathBuf,
    },
    /// It is outside of the repository, maybe by a link.
    #[error("document `{}` is outside of the repository", .path.display())]
    Outside {
        /// The document.
        path: PathBuf,
    },
    /// It is too long.
    #[error("document `{}` has {bytes} bytes, {DOCUMENT_BYTES_MAX} are allowed: it goes into every prompt", .path.display())]
    TooLong {
        /// The document.
        path: PathBuf,
        /// Its length.
        bytes: u64,
    },
    /// It cannot be read as text.
    #[error("document `{}` cannot be read", .path.display())]
    Unreadable {
        /// The document.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl Default for Documents {
    /// `CONVENTIONS.md`, `INTERFACES.md` and `DECISIONS.md`.
    fn default() -> Self {
        Self::new(["CONVENTIONS.md", "INTERFACES.md", "DECISIONS.md"])
    }
}

impl Documents {
    /// These documents, in this order.
    pub fn new<P: Into<PathBuf>>(paths: impl IntoIterator<Item = P>) -> Self {
        Self { paths: paths.into_iter().map(Into::into).collect() }
    }

    /// No documents.
    #[must_use]
    pub const fn none() -> Self {
        Self { paths: Vec::new() }
    }

    /// Reads all of them below a root, and says of all of them what is wrong.
    ///
    /// # Errors
    /// A [`DocumentError`] for each one that cannot be given to agents.
    pub fn read(&self, root: &Path) -> Result<Vec<Document>, Vec<DocumentError>> {
        let mut documents = Vec::new();
        let mut errors = Vec::new();
        for path in &self.paths {
            match read(root, path) {
                Ok(document) => documents.push(document),
                Err(err) => errors.push(err),
            }
        }
        if errors.is_empty() { Ok(documents) } else { Err(errors) }
    }
}

fn read(root: &Path, path: &Path) -> Result<Document, DocumentError> {
    let unreadable = |source| DocumentError::Unreadable { path: path.to_owned(), source };
    let root_real = root.canonicalize().map_err(unreadable)?;
    let real = root_real.join(path).canonicalize().map_err(|source| {
        if source.kind() == io::ErrorKind::NotFound {
            DocumentError::Missing { path: path.to_owned(), root: root.to_owned() }
        } else {
            unreadable(source)
        }
    })?;
    if !real.starts_with(&root_real) {
        return Err(DocumentError::Outside { path: path.to_owned() });
    }
    let meta = real.metadata().map_err(unreadable)?;
    if !meta.is_file() {
        return Err(unreadable(io::Error::other("it is no regular file")));
    }
    if meta.len() > DOCUMENT_BYTES_MAX {
        return Err(DocumentError::TooLong { path: path.to_owned(), bytes: meta.len() });
    }
    let text = std::fs::read_to_string(&real).map_err(unreadable)?;
    Ok(Document { name: path.display().to_string(), text: text.trim_end().to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_documents_that_cannot_be_given_are_named_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("repo");
        std::fs::create_dir_all(root.join("dir")).unwrap();
        std::fs::write(root.join("here.md"), "text\n").unwrap();
        std::fs::write(root.join("long.md"), " ".repeat(200_000)).unwrap();
        std::fs::write(root.join("bytes.md"), b"\xff").unwrap();
        std::fs::write(dir.path().join("secret"), "secret").unwrap();
        std::os::unix::fs::symlink("../secret", root.join("link.md")).unwrap();
        let all = ["here.md", "gone.md", "long.md", "bytes.md", "link.md", "../secret", "dir"];
        let errors = Documents::new(all).read(&root).unwrap_err();
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(errors.len(), 6, "{errors:#?}");
        assert!(errors[0].contains("gone.md") && errors[0].contains("repo"), "{errors:#?}");
        assert!(errors[3].contains("outside") && errors[4].contains("outside"), "{errors:#?}");
        let read = Documents::new(["here.md"]).read(&root).unwrap();
        assert_eq!(read[0].text, "text");
    }
}
