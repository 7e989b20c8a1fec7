//! What is tried before anything is spent: whether each verify command can judge at all.

use std::collections::BTreeMap;

use super::Orchestrator;
use super::shield::caught;
use crate::id::TaskId;
use crate::plan::Plan;
use crate::port::{PortError, Trial};
use crate::task::VerifyCommand;

/// What a verify command does on the target as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tried {
    /// The command.
    pub command: VerifyCommand,
    /// The tasks that it is to judge.
    pub tasks: Vec<TaskId>,
    /// What it does: failing is as it should be before the work is done.
    pub trial: Trial,
}

impl Orchestrator {
    /// Runs each verify command of the plan once on the target as it is, each in a place of its
    /// own, and says what it did; nothing is committed, and no task is touched.
    ///
    /// # Errors
    /// [`PortError`] when there is no place to try them in.
    pub async fn try_verify_commands(&self, plan: &Plan) -> Result<Vec<Tried>, PortError> {
        let mut commands: BTreeMap<&VerifyCommand, Vec<TaskId>> = BTreeMap::new();
        for task in &plan.tasks {
            if let Some(command) = &task.verify {
                commands.entry(command).or_default().push(task.id.clone());
            }
        }
        let mut tried = Vec::with_capacity(commands.len());
        for (command, tasks) in commands {
            let trial = self.trial(command);
            let trial = caught("an adapter", trial).await.map_err(PortError::from)??;
            tried.push(Tried { command: command.clone(), tasks, trial });
        }
        Ok(tried)
    }

    async fn trial(&self, command: &VerifyCommand) -> Result<Trial, PortError> {
        let place = self.ports.workspaces.untouched(&self.config.run).await?;
        Ok(self.ports.verifier.try_on(command, &place).await)
    }
}
