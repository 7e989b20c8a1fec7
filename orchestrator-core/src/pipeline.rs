//! The stages that a task goes through, as data.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::{PoolName, StageName};
use crate::money::Usd;
use crate::task::VerifyCommand;

/// Most stages in a pipeline.
pub const STAGES_MAX: usize = 16;

/// What a stage does, and so which port carries it out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StageKind {
    /// An agent or program works in the task's workspace; ends with a candidate.
    Run,
    /// The task's command judges the candidate.
    Verify,
    /// An independent agent judges the candidate.
    Review,
    /// The candidate waits until a command says that it may go on (a CI job is green, say), or,
    /// where there is none, until a person does. Holds nothing but its scope meanwhile.
    Gate,
    /// The candidate is merged.
    Integrate,
}

impl StageKind {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Run, Self::Verify, Self::Review, Self::Gate, Self::Integrate];

    /// The kind in one word, as in plans.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Verify => "verify",
            Self::Review => "review",
            Self::Gate => "gate",
            Self::Integrate => "integrate",
        }
    }

    /// Whether a program carries it out and no model: a supervisor that runs the agents itself can
    /// have it carried out in its own process.
    #[must_use]
    pub const fn is_deterministic(self) -> bool {
        match self {
            Self::Verify | Self::Gate | Self::Integrate => true,
            Self::Run | Self::Review => false,
        }
    }
}

/// One stage of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageSpec {
    /// Its name, unique in the pipeline.
    pub name: StageName,
    /// What it does.
    pub kind: StageKind,
    /// The pool that one permit is taken from while it runs.
    pub pool: PoolName,
    /// The model that its agent uses; `None` leaves it to the adapter.
    pub model: Option<String>,
    /// How long it may run.
    pub timeout: Duration,
    /// The most that one grant of it may spend, or what is left of the budget when that is less; this
    /// is reserved before it starts.
    pub cap: Usd,
    /// What a `verify` stage runs in place of the task's own command, and what a `gate` asks whether
    /// it is open.
    pub command: Option<VerifyCommand>,
    /// The `run` stage that its rejections go to, itself or an earlier one; `None` is the first
    /// stage. A rejection that needs a new start from the target always goes to the first stage.
    pub on_rejection: Option<StageName>,
    /// How often it may reject one task before that escalates; `None` leaves it to the task's
    /// retries alone.
    pub rounds: Option<u32>,
}

/// The ordered stages of a task.
///
/// The first makes a change, the last may merge it, and those between judge it or work on it
/// further. Several reviewers are several `review` stages: all of them must approve.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<StageSpec>", into = "Vec<StageSpec>")]
pub struct Pipeline {
    stages: Vec<StageSpec>,
}

/// Stages that are no pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidPipeline {
    /// None, or too many.
    #[error("a pipeline has 1 to {STAGES_MAX} stages, this one has {0}")]
    Length(usize),
    /// There is nothing to judge or merge before a run stage.
    #[error("the first stage of a pipeline is of kind `run`")]
    RunFirst,
    /// A name stands twice.
    #[error("stage {0} has the name of an earlier stage")]
    SameName(usize),
    /// What was merged cannot be judged any more.
    #[error("a stage of kind `integrate` comes last")]
    IntegrateLast,
    /// Only a `run` stage can do something about a rejection, and only one that came before.
    #[error("the rejections of stage {0} go to a stage of kind `run`, itself or an earlier one")]
    OnRejection(usize),
    /// Only some kinds run a command of their own.
    #[error("stage {0} has a command, which only stages of kind `verify` and `gate` have")]
    Command(usize),
    /// A command that names no program.
    #[error("the command of stage {0} is empty")]
    EmptyCommand(usize),
}

impl Pipeline {
    /// Takes these stages as a pipeline.
    ///
    /// # Errors
    /// [`InvalidPipeline`] says what is wrong with them.
    pub fn new(stages: Vec<StageSpec>) -> Result<Self, InvalidPipeline> {
        if stages.is_empty() || stages.len() > STAGES_MAX {
            return Err(InvalidPipeline::Length(stages.len()));
        }
        for (at, stage) in stages.iter().enumerate() {
            if at == 0 && stage.kind != StageKind::Run {
                return Err(InvalidPipeline::RunFirst);
            }
            if stage.kind == StageKind::Integrate && at + 1 < stages.len() {
                return Err(InvalidPipeline::IntegrateLast);
            }
            if stages.iter().take(at).any(|earlier| earlier.name == stage.name) {
                return Err(InvalidPipeline::SameName(at + 1));
            }
            if stage.command.is_some() && !matches!(stage.kind, StageKind::Verify | StageKind::Gate)
            {
                return Err(InvalidPipeline::Command(at + 1));
            }
            if stage.command.as_ref().is_some_and(VerifyCommand::is_empty) {
                return Err(InvalidPipeline::EmptyCommand(at + 1));
            }
            if let Some(name) = &stage.on_rejection {
                let mut before = stages.iter().take(at + 1);
                if !before.any(|to| to.name == *name && to.kind == StageKind::Run) {
                    return Err(InvalidPipeline::OnRejection(at + 1));
                }
            }
        }
        Ok(Self { stages })
    }

    /// The stage that a rejection by the stage at this place goes to.
    #[must_use]
    pub fn after_rejection(&self, at: u8) -> u8 {
        let name = self.stage(at).and_then(|stage| stage.on_rejection.as_ref());
        let to = self.stages.iter().position(|stage| Some(&stage.name) == name);
        to.and_then(|to| u8::try_from(to).ok()).unwrap_or(0)
    }

    /// Whether the stage at this place is of this kind.
    #[must_use]
    pub fn is(&self, at: u8, kind: StageKind) -> bool {
        self.stage(at).is_some_and(|stage| stage.kind == kind)
    }

    /// The stages in order.
    #[must_use]
    pub fn stages(&self) -> &[StageSpec] {
        &self.stages
    }

    /// The stage at this place.
    #[must_use]
    pub fn stage(&self, at: u8) -> Option<&StageSpec> {
        self.stages.get(usize::from(at))
    }

    /// The pipeline with this time limit and model for its `run` stage, where given.
    #[must_use]
    pub fn for_task(&self, timeout: Option<Duration>, model: Option<&str>) -> Self {
        let mut stages = self.stages.clone();
        for stage in stages.iter_mut().filter(|stage| stage.kind == StageKind::Run) {
            if let Some(timeout) = timeout {
                stage.timeout = timeout;
            }
            if let Some(model) = model {
                stage.model = Some(model.to_owned());
            }
        }
        Self { stages }
    }

    /// Whether some stage is of this kind.
    #[must_use]
    pub fn has(&self, kind: StageKind) -> bool {
        self.stages.iter().any(|stage| stage.kind == kind)
    }
}

impl TryFrom<Vec<StageSpec>> for Pipeline {
    type Error = InvalidPipeline;
    fn try_from(stages: Vec<StageSpec>) -> Result<Self, InvalidPipeline> {
        Self::new(stages)
    }
}

impl From<Pipeline> for Vec<StageSpec> {
    fn from(pipeline: Pipeline) -> Self {
        pipeline.stages
    }
}

/// The pool of the stages that run an agent, in the default pipeline.
pub const AGENTS: &str = "agents";
/// The pool of the verify stage, in the default pipeline.
pub const VERIFY: &str = "verify";
/// The pool of gates.
pub const GATES: &str = "gates";
/// The pool of the integrate stage, in the default pipeline; its limit of 1 makes merges follow one
/// another.
pub const INTEGRATE: &str = "integrate";

impl StageSpec {
    /// A stage of this kind as the default pipeline has it, named after its kind.
    ///
    /// Run: pool `agents`, 45 minutes, $5. Verify: pool `verify`, 15 minutes. Review: pool `agents`,
    /// 20 minutes, $2. Gate: pool `gates`, 5 minutes. Integrate: pool `integrate`, 20 minutes.
    #[must_use]
    #[expect(
        clippy::missing_panics_doc,
        reason = "the built-in names are valid: a test makes them all"
    )]
    pub fn of(kind: StageKind) -> Self {
        let (pool, minutes, dollars) = match kind {
            StageKind::Run => (AGENTS, 45, 5),
            StageKind::Verify => (VERIFY, 15, 0),
            StageKind::Review => (AGENTS, 20, 2),
            StageKind::Gate => (GATES, 5, 0),
            StageKind::Integrate => (INTEGRATE, 20, 0),
        };
        Self {
            name: StageName::parse(kind.as_str()).expect("a stage kind is a valid name"),
            kind,
            pool: PoolName::parse(pool).expect("the built-in pool names are valid"),
            model: None,
            timeout: Duration::from_secs(minutes * 60),
            cap: Usd::dollars(dollars),
            command: None,
            on_rejection: None,
            rounds: None,
        }
    }
}

impl Default for Pipeline {
    /// `run → verify → review → integrate`.
    fn default() -> Self {
        use StageKind::{Integrate, Review, Run, Verify};
        Self { stages: [Run, Verify, Review, Integrate].map(StageSpec::of).to_vec() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_pipeline_is_a_valid_one() {
        let stages = Pipeline::default().stages;
        assert_eq!(Pipeline::new(stages.clone()).unwrap().stages, stages);
    }

    #[test]
    fn stages_that_make_no_sense_are_refused() {
        use StageKind::{Integrate, Run, Verify};
        let stages = |kinds: &[StageKind]| kinds.iter().copied().map(StageSpec::of).collect();
        assert_eq!(Pipeline::new(vec![]), Err(InvalidPipeline::Length(0)));
        assert_eq!(Pipeline::new(stages(&[Verify])), Err(InvalidPipeline::RunFirst));
        assert_eq!(Pipeline::new(stages(&[Run, Run])), Err(InvalidPipeline::SameName(2)));
        assert_eq!(
            Pipeline::new(stages(&[Run, Verify, Verify])),
            Err(InvalidPipeline::SameName(3))
        );
        let merged_first = stages(&[Run, Integrate, Verify]);
        assert_eq!(Pipeline::new(merged_first), Err(InvalidPipeline::IntegrateLast));
    }

    #[test]
    fn a_rejection_goes_to_an_earlier_run_stage_or_the_pipeline_is_refused() {
        use StageKind::{Review, Run, Verify};
        let run =
            |name: &str| StageSpec { name: StageName::parse(name).unwrap(), ..StageSpec::of(Run) };
        let review = |to: &str| StageSpec {
            on_rejection: StageName::parse(to).ok(),
            ..StageSpec::of(Review)
        };
        let with = |to| Pipeline::new(vec![run("draft"), run("polish"), review(to)]);
        assert_eq!(with("polish").unwrap().after_rejection(2), 1);
        assert_eq!(with("polish").unwrap().after_rejection(1), 0);
        for other in ["review", "nowhere"] {
            assert_eq!(with(other), Err(InvalidPipeline::OnRejection(3)), "{other}");
        }
        let later = vec![StageSpec::of(Run), review("late"), run("late")];
        assert_eq!(Pipeline::new(later), Err(InvalidPipeline::OnRejection(2)));
        let verify = vec![StageSpec::of(Run), StageSpec::of(Verify), review("verify")];
        assert_eq!(Pipeline::new(verify), Err(InvalidPipeline::OnRejection(3)));
    }

    #[test]
    fn only_stages_that_judge_by_exit_code_have_a_command_and_it_says_something() {
        let with = |kind, line: &str| {
            let command = Some(VerifyCommand::Shell(line.to_owned()));
            Pipeline::new(vec![
                StageSpec::of(StageKind::Run),
                StageSpec { command, ..StageSpec::of(kind) },
            ])
        };
        assert!(with(StageKind::Verify, "true").is_ok() && with(StageKind::Gate, "true").is_ok());
        assert_eq!(with(StageKind::Review, "true"), Err(InvalidPipeline::Command(2)));
        assert_eq!(with(StageKind::Gate, " "), Err(InvalidPipeline::EmptyCommand(2)));
    }
}
