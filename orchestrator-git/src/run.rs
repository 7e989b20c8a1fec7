//! One run on one repository: the checks before it begins, and the parts that it is made of.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::branch::fence::Fences;
use crate::branch::integration::{self, Branch, BranchNames};
use crate::branch::remote::Remote;
use crate::change::seal::Sealer;
use crate::config::GitConfig;
use crate::error::GitError;
use crate::git::apart::Apart;
use crate::git::exec::Caller;
use crate::git::repository::Git;
use crate::merge::merger::Merger;
use crate::names::{Refs, short};
use crate::worktrees::spaces::Spaces;
use crate::worktrees::worktree::Worktrees;

/// The workspaces and the merge queue of one run on one repository.
///
/// A clone is the same run. The user's checkout, index, stash, hooks and configuration are neither
/// read nor written.
#[derive(Clone)]
pub struct GitRun(pub(crate) Arc<Parts>);

/// What a run is made of. Each part has what it needs, and knows nothing of those after it.
pub(crate) struct Parts {
    pub(crate) config: Arc<GitConfig>,
    /// Calls about files and trees.
    pub(crate) apart: Apart,
    /// What is merged into.
    pub(crate) branch: Arc<Branch>,
    /// Where tasks are worked on.
    pub(crate) spaces: Arc<Spaces>,
    /// From work to changes.
    pub(crate) sealer: Sealer,
    /// From changes to the branch.
    pub(crate) merger: Merger,
}

impl fmt::Debug for GitRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let repository = &self.0.apart.git.path;
        f.debug_struct("GitRun").field("repository", repository).finish_non_exhaustive()
    }
}

impl GitRun {
    /// Checks the repository, and changes nothing in it: the branch that is merged into is made when
    /// the first workspace is opened.
    ///
    /// # Errors
    /// [`GitError`] names what is in the way and what would help.
    pub async fn open(config: GitConfig) -> Result<Self, GitError> {
        let caller = Caller {
            author_name: config.author_name.clone(),
            author_email: config.author_email.clone(),
            ..Caller::new(&config.program)
        };
        let mut git = Git::open(caller, &config.repository).await?;
        let names = BranchNames::find(&git, &config).await?;
        let start = integration::head_of(&git, &names.target).await?;
        git.check_tree(&names.target, &start, config.takes_stored).await?;
        let root = root_for(&git, &config.worktrees_root)?.join(config.run.slug());
        let refs = Refs::of(&config.run);
        let roots = &mut git.caller.lock_roots;
        roots.below = vec![root.clone(), git.dir.join(refs.root())];
        roots.files = vec![git.dir.join(format!("{}.lock", names.integration))];
        roots.guard = root.join(".guard");
        roots.wait = config.lock_wait;
        integration::check(&git, &refs, &names.integration, &start, config.remote.is_some())
            .await?;
        if let Some(tip) = git.tip(&names.integration).await?
            && tip != start
        {
            git.check_tree(short(&names.integration), &tip, config.takes_stored).await?;
        }
        fs::create_dir_all(&root).map_err(GitError::io(&root, "made"))?;
        let apart = Apart::make(Arc::new(git), root.join(".apart.git"))?;
        let remote = match &config.remote {
            Some(path) => Some(Arc::new(Remote::open(apart.clone(), path).await?)),
            None => None,
        };
        let (git, config) = (Arc::clone(&apart.git), Arc::new(config));
        let branch = Branch::new(Arc::clone(&git), refs.clone(), names, remote.clone());
        branch.check_there().await?;
        let fences = Arc::new(Fences::new(git, refs.clone(), remote));
        Ok(Self(Arc::new(Parts::new(config, apart, refs, (Arc::new(branch), fences), root))))
    }

    /// Removes the worktrees that no task has and that the next ones would get: when a run is over.
    ///
    /// # Errors
    /// [`GitError::Io`] when one could not be removed.
    pub async fn clear_spares(&self) -> Result<(), GitError> {
        self.0.spaces.pool.clear(true).await
    }

    /// The branch that changes are merged into, without `refs/heads/`.
    #[must_use]
    pub fn integration_branch(&self) -> &str {
        short(&self.0.branch.name)
    }

    /// The branch that the run started from.
    #[must_use]
    pub fn target_branch(&self) -> &str {
        &self.0.branch.target
    }
}

impl Parts {
    fn new(
        config: Arc<GitConfig>,
        apart: Apart,
        refs: Refs,
        (branch, fences): (Arc<Branch>, Arc<Fences>),
        root: PathBuf,
    ) -> Self {
        let worktrees = Arc::new(Worktrees::new(&config, apart.clone(), refs.clone(), root));
        let spaces = Spaces::new(&config, refs.clone(), Arc::clone(&branch), worktrees);
        let spaces = Arc::new(spaces);
        let sealer = Sealer::new(
            Arc::clone(&config),
            apart.clone(),
            refs.clone(),
            Arc::clone(&fences),
            Arc::clone(&spaces),
        );
        let merger =
            Merger::new(Arc::clone(&config), apart.clone(), refs, Arc::clone(&branch), fences);
        Self { config, apart, branch, spaces, sealer, merger }
    }
}

/// The place for workspaces, with all links in it resolved.
fn root_for(git: &Git, root: &Path) -> Result<PathBuf, GitError> {
    let root = std::path::absolute(root).map_err(GitError::io(root, "found"))?;
    let refused = |why| GitError::Root { root: root.clone(), why };
    let mut there = root.as_path();
    while !there.exists() {
        there = there.parent().ok_or_else(|| refused("which has no directory above it"))?;
    }
    let rest = root.strip_prefix(there).unwrap_or_else(|_| Path::new(""));
    let there = fs::canonicalize(there).map_err(GitError::io(there, "found"))?;
    let real = there.join(rest);
    if real.as_os_str().as_encoded_bytes().contains(&b'\n') {
        return Err(refused("whose path has a line break"));
    }
    // The main checkout, when the repository was given by another one of its worktrees.
    let main = if git.dir.ends_with(".git") { git.dir.parent() } else { None };
    let taken = git.checkout.as_deref().into_iter().chain([git.dir.as_path()]).chain(main);
    let is_inside = taken.into_iter().any(|dir| real.starts_with(dir));
    if is_inside || git.linked_checkouts().iter().any(|dir| real.starts_with(dir)) {
        return Err(refused("which is inside the repository"));
    }
    Ok(real)
}
