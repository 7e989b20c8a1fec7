//! What this machine has: cgroups of whichever version, and Landlock.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use super::cgroup::Cgroups;
use super::dirs::Dirs;
use super::sandbox;
use super::{
    Abilities, Cell, ConfineError, Confinement, Confiner, Entry, PlaceFor, SandboxMode, Tcp,
    TreeEnds,
};
use crate::guardian;
use crate::marks::Marker;

/// Confines programs by what this machine has.
#[derive(Debug)]
pub struct LocalConfiner {
    cgroups: Cgroups,
    abilities: Abilities,
    /// What the log has been told already.
    said: Mutex<BTreeSet<&'static str>>,
}

impl LocalConfiner {
    /// What this machine has, looked for once.
    #[must_use]
    pub fn detected() -> Arc<Self> {
        static DETECTED: LazyLock<Arc<LocalConfiner>> =
            LazyLock::new(|| Arc::new(LocalConfiner::with(Cgroups::detect())));
        Arc::clone(&DETECTED)
    }

    /// What this machine has, with cgroups of version 2 alone, as if there were none of version 1.
    #[must_use]
    pub fn with_cgroup_v2_only() -> Self {
        Self::with(Cgroups::detect_v2())
    }

    /// What this machine has but cgroups, as if there were none.
    #[must_use]
    pub fn without_cgroups() -> Self {
        Self::with(Cgroups::none("they are not to be used"))
    }

    fn with(cgroups: Cgroups) -> Self {
        let (write, tcp) = sandbox::abilities();
        let (mut tree, tree_why) = cgroups.tree();
        if tree == TreeEnds::Walk && guardian::is_possible() {
            tree = TreeEnds::Guardian;
        }
        let [memory, processes, cpu] = cgroups.limits();
        let abilities = Abilities { tree, tree_why, memory, processes, cpu, write, tcp };
        if abilities.tree == TreeEnds::Walk {
            tracing::warn!(
                why = %abilities.tree_why,
                "no cgroup holds the programs that are started: processes that leave their session, environment and parents behind are out of reach"
            );
        } else {
            tracing::info!(by = ?abilities.tree, why_no_cgroup = %abilities.tree_why, "nothing of the programs that are started survives them");
        }
        Self { cgroups, abilities, said: Mutex::default() }
    }

    fn say_once(&self, what: &'static str, why: &str) {
        if self.said.lock().unwrap_or_else(PoisonError::into_inner).insert(what) {
            tracing::warn!(why, "this machine cannot hold programs to their {what}");
        }
    }

    fn say_lacks(&self, ask: &Confinement) {
        let abilities = &self.abilities;
        let is_boxed = ask.sandbox.mode == SandboxMode::Prefer;
        let asked = [
            (ask.memory_bytes_max.is_some(), "memory limit", &abilities.memory),
            (ask.processes_max.is_some(), "process limit", &abilities.processes),
            (ask.cpu_percent_max.is_some(), "processor limit", &abilities.cpu),
            (is_boxed, "sandbox of writes", &abilities.write),
            (is_boxed && ask.sandbox.tcp != Tcp::Any, "sandbox of TCP", &abilities.tcp),
        ];
        for (_, what, how) in asked.into_iter().filter(|(is_asked, _, _)| *is_asked) {
            if let Err(why) = how {
                self.say_once(what, why);
            }
        }
    }
}

impl Confiner for LocalConfiner {
    fn abilities(&self) -> &Abilities {
        &self.abilities
    }

    fn confine(&self, ask: &PlaceFor<'_>) -> Result<Option<Box<dyn Cell>>, ConfineError> {
        self.say_lacks(ask.confinement);
        let rules = sandbox::rules(&ask.confinement.sandbox)?;
        let dirs = self.cgroups.make(ask).map_err(ConfineError::Place)?;
        if dirs.is_none() && rules.is_none() {
            return Ok(None);
        }
        Ok(Some(Box::new(LocalCell { dirs: dirs.unwrap_or_default(), rules: Mutex::new(rules) })))
    }

    fn left_by(&self, lease: &Marker) -> Vec<Box<dyn Cell>> {
        let cell =
            |dirs| -> Box<dyn Cell> { Box::new(LocalCell { dirs, rules: Mutex::default() }) };
        self.cgroups.left_by(lease).into_iter().map(cell).collect()
    }
}

#[derive(Debug)]
struct LocalCell {
    dirs: Dirs,
    /// Taken by the one child.
    rules: Mutex<Option<std::os::fd::OwnedFd>>,
}

impl Cell for LocalCell {
    fn entry(&self) -> io::Result<Entry> {
        let rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(Entry { rules, ..self.dirs.entry()? })
    }

    fn holds_tree(&self) -> bool {
        self.dirs.holds_tree()
    }

    fn holds(&self, pid: u32) -> bool {
        self.dirs.holds(pid)
    }

    fn processes(&self) -> io::Result<Vec<u32>> {
        self.dirs.processes()
    }

    fn kill(&self) -> io::Result<()> {
        self.dirs.kill()
    }

    fn has_run_out_of_memory(&self) -> bool {
        self.dirs.has_run_out_of_memory()
    }
}
