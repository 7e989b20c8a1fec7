//! What users of this crate test their own adapters with, and this crate itself.

pub mod conformance;
mod explorer;
mod fault_store;
pub mod fuzz;
mod model;
#[cfg(feature = "mutants")]
pub mod museum;
pub mod policies;
mod scripted;
mod simulator;
pub mod strategies;

pub use self::{
    conformance::StoreFixture,
    explorer::{Exploration, Explored},
    fault_store::{Fault, FaultStore},
    model::Model,
    scripted::{MemoryTarget, Recorder, Scripted, VirtualHost},
    simulator::{
        Act, Amiss, Change, Conduct, Coverage, Dice, Ended, History, Mode, Simulation, Step,
        Violation,
    },
};
