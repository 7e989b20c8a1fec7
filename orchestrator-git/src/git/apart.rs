//! A directory for git that only the orchestrator configures, over the objects of a repository.
//!
//! Calls about files and trees need objects, an index and a worktree, and nothing else of the
//! repository. They are made with this directory in the place of the repository's own, so that
//! nothing in its configuration, whoever changes it and when, can run a program in them, hide a line
//! of a difference, or lead them elsewhere.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::GitError;
use crate::files::{read_plain, renew};
use crate::git::exec::Call;
use crate::git::oid::Format;
use crate::git::repository::Git;

/// Such a directory, and the repository that it is over.
#[derive(Debug, Clone)]
pub(crate) struct Apart {
    pub(crate) git: Arc<Git>,
    dir: PathBuf,
}

impl Apart {
    /// Makes the directory, or what is missing of it or was changed.
    ///
    /// Git itself would leave a lock there when it is killed, and not begin again beside that.
    pub(crate) fn make(git: Arc<Git>, dir: PathBuf) -> Result<Self, GitError> {
        for below in ["objects", "refs"] {
            let below = dir.join(below);
            fs::create_dir_all(&below).map_err(GitError::io(&below, "made"))?;
        }
        let (version, extensions) = match git.format {
            Format::Sha1 => (0, ""),
            Format::Sha256 => (1, "[extensions]\n\tobjectformat = sha256\n"),
        };
        // By what the disk of the workspaces does: git would not see a file whose name differs from
        // another one's in case only, and leave it to the next task.
        let ignores_case = dir.join("OBJECTS").exists();
        let core = format!("[core]\n\trepositoryformatversion = {version}\n\tfilemode = true\n");
        let case = format!("\tbare = true\n\tignorecase = {ignores_case}\n");
        let config = [&core, &case, extensions].concat();
        for (name, text) in [("config", config.as_str()), ("HEAD", "ref: refs/heads/none\n")] {
            let file = dir.join(name);
            // Another process may be at it, and find the same.
            if read_plain(&file, text.len() as u64).is_none_or(|found| found != text.as_bytes()) {
                renew(&file, text.as_bytes())?;
            }
        }
        Ok(Self { git, dir })
    }

    /// A call that knows the objects of the repository and nothing of its configuration.
    pub(crate) fn call<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Call {
        Call::new(&self.dir, args)
            .env("GIT_DIR", &self.dir)
            .env("GIT_OBJECT_DIRECTORY", self.git.dir.join("objects"))
            .env("GIT_SHALLOW_FILE", self.git.dir.join("shallow"))
    }

    /// A call about the files of a directory. It believes nothing that lies in a `.git` there; how
    /// files are converted and which are ignored is as the repository has it.
    pub(crate) async fn in_dir<A: AsRef<OsStr>>(
        &self,
        (tree, index): (&Path, &Path),
        args: impl IntoIterator<Item = A>,
    ) -> Result<Call, GitError> {
        let mut config = self.git.shield().await?.taken_over.clone();
        for (key, file) in
            [("core.excludesFile", "info/exclude"), ("core.attributesFile", "info/attributes")]
        {
            let file = self.git.dir.join(file);
            // Git would wait for ever for a pipe.
            if fs::metadata(&file).is_ok_and(|meta| meta.is_file()) {
                config.push((OsString::from(key), file.into_os_string()));
            }
        }
        let call = self.call(args).cwd(tree).env("GIT_WORK_TREE", tree);
        Ok(call.env("GIT_INDEX_FILE", index).config(&config))
    }

    /// A call about trees that heeds no attributes: tasks can change those, also in the directory
    /// that git is called in.
    pub(crate) fn without_attributes<A: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = A>,
    ) -> Call {
        // Git knows the tree with nothing in it, whether the repository has it or not.
        let nothing = self.git.format.name_of("tree", b"");
        self.call(args).env("GIT_ATTR_SOURCE", nothing.as_str())
    }
}
