//! How much at once, and how far by itself.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::{Args, ValueEnum};
use orchestrator_claude::{Account, AccountCapacity};
use orchestrator_core::{Adaptive, CapacitySource, PilotRule, PoolName, SharedCapacity, Usd};

use super::options::usd;

/// Of the command line, what is about the pace of the run.
#[derive(Debug, Args)]
pub(crate) struct Pace {
    /// What says how many agents work at once, up to --max-concurrent.
    #[arg(long, value_enum, default_value = "fixed")]
    capacity: Source,
    /// Begin so many tasks, and judge the rest of the run by them: without a bound, a person does.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pilot: Option<u32>,
    /// After the pilot, go on by itself if the rest will probably take no longer than this, in minutes.
    #[arg(long, value_name = "MINUTES", requires = "pilot")]
    go_on_within: Option<u32>,
    /// After the pilot, go on by itself if the rest will probably cost no more than this, in US dollars.
    #[arg(long, value_name = "X", requires = "pilot", value_parser = usd)]
    go_on_under: Option<Usd>,
}

/// What says the limit of the pool of agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Source {
    /// --max-concurrent.
    Fixed,
    /// What is left of the account's fullest usage window, as --account knows it.
    Account,
    /// One more with each round of stages that passes, half when the service is overloaded.
    Adaptive,
}

impl Pace {
    /// What is wrong with it, beside what the command line says by itself.
    pub(crate) fn check(&self, has_account: bool) -> anyhow::Result<()> {
        let lacks = self.capacity == Source::Account && !has_account;
        anyhow::ensure!(!lacks, "--capacity account needs --account FILE");
        Ok(())
    }

    /// What says the limits of pools, by their names.
    pub(crate) fn sources(
        &self,
        agents: PoolName,
        full: u32,
        account: Option<&Account>,
    ) -> BTreeMap<PoolName, SharedCapacity> {
        fn shared(source: impl CapacitySource + 'static) -> SharedCapacity {
            Arc::new(Mutex::new(source))
        }
        let source = match (self.capacity, account) {
            (Source::Account, Some(account)) => shared(AccountCapacity::new(account.clone(), full)),
            (Source::Adaptive, _) => shared(Adaptive::new(1, full, full)),
            (Source::Fixed | Source::Account, _) => return BTreeMap::new(),
        };
        BTreeMap::from([(agents, source)])
    }

    /// The pilot, and when the run goes on after it.
    pub(crate) fn pilot(&self) -> Option<PilotRule> {
        let minutes = |minutes: u32| Duration::from_secs(u64::from(minutes) * 60);
        self.pilot.map(|tasks| PilotRule {
            makespan_max: self.go_on_within.map(minutes),
            cost_max: self.go_on_under,
            ..PilotRule::new(tasks)
        })
    }

    /// Says the same again.
    pub(crate) fn again(&self, put: &mut impl FnMut(&str, &OsStr)) {
        match self.capacity {
            Source::Fixed => {}
            Source::Account => put("--capacity", "account".as_ref()),
            Source::Adaptive => put("--capacity", "adaptive".as_ref()),
        }
        let minutes = self.go_on_within.map(|minutes| minutes.to_string());
        let dollars = self.go_on_under.map(|usd| usd.as_dollars().to_string());
        let pilot = self.pilot.map(|tasks| tasks.to_string());
        let said = [("--pilot", pilot), ("--go-on-within", minutes), ("--go-on-under", dollars)];
        for (flag, value) in said {
            if let Some(value) = value {
                put(flag, value.as_ref());
            }
        }
    }
}
