//! What a store keeps of the plans of a run: an entry for each plan, for each edit, and for each plan
//! that was pruned what is left of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::BlobHash;
use crate::plan::Plan;
use crate::specs::Pruned;
use crate::task::TaskSpec;

/// What one entry of a run's plans is.
#[derive(Debug, Clone)]
pub(super) enum Body {
    Plan(Arc<Plan>),
    Amendment(Arc<TaskSpec>),
    Pruned(Arc<Pruned>),
}

/// An edit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Amendment {
    /// What the task is from then on.
    amends: Arc<TaskSpec>,
}

impl Body {
    /// Reads an entry as a store has it.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        // No entry has the fields of another kind: each but the right one fails at its first.
        if let Ok(Amendment { amends }) = serde_json::from_slice(bytes) {
            return Ok(Self::Amendment(amends));
        }
        if let Ok(pruned) = serde_json::from_slice(bytes) {
            return Ok(Self::Pruned(Arc::new(pruned)));
        }
        serde_json::from_slice(bytes).map(|plan| Self::Plan(Arc::new(plan)))
    }

    /// How many tasks it brings.
    pub(super) fn tasks(&self) -> usize {
        match self {
            Self::Plan(plan) => plan.tasks.len(),
            Self::Pruned(pruned) => pruned.plan.tasks.len(),
            Self::Amendment(_) => 0,
        }
    }

    /// The form that its address is taken of.
    pub(super) fn canonical(&self) -> Vec<u8> {
        match self {
            Self::Plan(plan) => plan_text(plan),
            Self::Amendment(spec) => edit_text(spec),
            Self::Pruned(pruned) => text(&**pruned),
        }
    }
}

/// The form of a plan that its address is taken of.
fn plan_text(plan: &Plan) -> Vec<u8> {
    text(plan)
}

/// The form of an edit that its address is taken of.
pub(super) fn edit_text(spec: &TaskSpec) -> Vec<u8> {
    text(&Amendment { amends: Arc::new(spec.clone()) })
}

fn text<T: Serialize>(body: &T) -> Vec<u8> {
    serde_json::to_vec(body).expect("a plan holds nothing that JSON cannot say")
}

/// Entries whose content is known, by their address.
pub(super) type Bodies = BTreeMap<BlobHash, Body>;
