//! The stages that a task goes through, as data.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::{PoolName, StageName};
use crate::money::Usd;

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
    /// The candidate is merged.
    Integrate,
}

impl StageKind {
    /// The kind in one word, as in plans.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Verify => "verify",
            Self::Review => "review",
            Self::Integrate => "integrate",
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
}

/// The ordered stages of a task; a rejection sends it back to the first one.
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
    /// Only the first stage may make a candidate.
    #[error("stage {0} is a second one of kind `run`")]
    SecondRun(usize),
    /// A name stands twice.
    #[error("stage {0} has the name of an earlier stage")]
    SameName(usize),
    /// What was merged cannot be judged any more.
    #[error("a stage of kind `integrate` comes last")]
    IntegrateLast,
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
            match stage.kind {
                StageKind::Run if at > 0 => return Err(InvalidPipeline::SecondRun(at + 1)),
                StageKind::Verify | StageKind::Review | StageKind::Integrate if at == 0 => {
                    return Err(InvalidPipeline::RunFirst);
                }
                StageKind::Integrate if at + 1 < stages.len() => {
                    return Err(InvalidPipeline::IntegrateLast);
                }
                StageKind::Run | StageKind::Verify | StageKind::Review | StageKind::Integrate => {}
            }
            if stages.iter().take(at).any(|earlier| earlier.name == stage.name) {
                return Err(InvalidPipeline::SameName(at + 1));
            }
        }
        Ok(Self { stages })
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
/// The pool of the integrate stage, in the default pipeline; its limit of 1 makes merges follow one
/// another.
pub const INTEGRATE: &str = "integrate";

impl StageSpec {
    /// A stage of this kind as the default pipeline has it, named after its kind.
    ///
    /// Run: pool `agents`, 45 minutes, $5. Verify: pool `verify`, 15 minutes. Review: pool `agents`,
    /// 20 minutes, $2. Integrate: pool `integrate`, 20 minutes.
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
            StageKind::Integrate => (INTEGRATE, 20, 0),
        };
        Self {
            name: StageName::parse(kind.as_str()).expect("a stage kind is a valid name"),
            kind,
            pool: PoolName::parse(pool).expect("the built-in pool names are valid"),
            model: None,
            timeout: Duration::from_secs(minutes * 60),
            cap: Usd::dollars(dollars),
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
        assert_eq!(Pipeline::new(stages(&[Run, Run])), Err(InvalidPipeline::SecondRun(2)));
        assert_eq!(
            Pipeline::new(stages(&[Run, Verify, Verify])),
            Err(InvalidPipeline::SameName(3))
        );
        let merged_first = stages(&[Run, Integrate, Verify]);
        assert_eq!(Pipeline::new(merged_first), Err(InvalidPipeline::IntegrateLast));
    }
}
