//! What the repository would run, watched while tasks are at work.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracing::warn;

use crate::error::GitError;
use crate::git::repository::Git;
use crate::git::shield::Shield;
use crate::names::listed;

/// What the repository's configuration ran when each workspace was opened.
#[derive(Debug)]
pub(crate) struct Programs {
    git: Arc<Git>,
    noted: Mutex<HashMap<String, BTreeMap<String, String>>>,
}

impl Programs {
    pub(crate) fn of(git: Arc<Git>) -> Self {
        Self { git, noted: Mutex::default() }
    }

    fn noted(&self) -> MutexGuard<'_, HashMap<String, BTreeMap<String, String>>> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what the repository would run, when a workspace is opened. What is new since the last
    /// time came from those who judged, and is said where people read it.
    pub(crate) async fn note(&self, slug: &str) -> Result<(), GitError> {
        let now = self.git.programs().await?;
        let mut noted = self.noted();
        let before = noted.insert(slug.to_owned(), now.programs.clone());
        let new = before.map(|before| now.new_since(&before)).unwrap_or_default();
        say_once(&new, &now, &mut noted);
        Ok(())
    }

    /// What the repository would run now and did not when the workspace was opened, where nobody
    /// else can have done that.
    ///
    /// While several tasks are at work it is not known who did it, and the others must not pay for
    /// it: then it is said where people read it, once.
    pub(crate) async fn new_since_opened(&self, slug: &str) -> Result<Vec<String>, GitError> {
        let now = self.git.programs().await?;
        let mut noted = self.noted();
        let new = noted.get(slug).map(|before| now.new_since(before)).unwrap_or_default();
        if new.is_empty() || noted.len() == 1 {
            return Ok(new);
        }
        say_once(&new, &now, &mut noted);
        Ok(Vec::new())
    }

    /// Forgets what was noted of a workspace that is about to go.
    pub(crate) async fn forget(&self, slug: &str) -> Result<(), GitError> {
        let now = self.git.programs().await?;
        let mut noted = self.noted();
        let before = noted.remove(slug);
        let new = before.map(|before| now.new_since(&before)).unwrap_or_default();
        say_once(&new, &now, &mut noted);
        Ok(())
    }
}

/// Says that the repository's set-up was changed, and by whom is not known; no other task will hear
/// of it.
fn say_once(new: &[String], now: &Shield, noted: &mut HashMap<String, BTreeMap<String, String>>) {
    if new.is_empty() {
        return;
    }
    let programs = listed(new.iter().map(String::as_str));
    warn!(%programs, "git's own set-up of the repository was changed while tasks were worked on");
    for before in noted.values_mut() {
        before.clone_from(&now.programs);
    }
}
