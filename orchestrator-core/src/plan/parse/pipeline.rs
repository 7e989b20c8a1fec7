//! Reads the pipelines of a plan.

use super::tree::{Object, Value};
use super::value::Reader;
use crate::id::{PoolName, StageName};
use crate::pipeline::{Pipeline, StageKind, StageSpec};
use crate::plan::error::TextFault;

const FIELDS: &[&str] =
    &["kind", "name", "pool", "model", "timeout", "cap_usd", "command", "on_rejection", "rounds"];
const KIND: &str = "`run`, `verify`, `review`, `gate` or `integrate`";
const ROUNDS: &str = "a whole number from 0 to 1000";

impl Reader {
    /// The pipeline of this name; `None` when something is wrong with it.
    pub(super) fn pipeline(&mut self, name: &str, value: &Value<'_>) -> Option<Pipeline> {
        let list = self.list(name, value)?;
        let stages: Vec<Option<StageSpec>> =
            list.iter().map(|element| self.stage(element)).collect();
        let stages: Option<Vec<StageSpec>> = stages.into_iter().collect();
        Pipeline::new(stages?)
            .map_err(|why| {
                let fault = TextFault::Pipeline { pipeline: name.to_owned(), why };
                self.fault(value.start, fault);
            })
            .ok()
    }

    fn stage(&mut self, value: &Value<'_>) -> Option<StageSpec> {
        match value.as_object() {
            Some(object) => self.stage_object(object),
            None => self.stage_kind("stage", value).map(StageSpec::of),
        }
    }

    fn stage_kind(&mut self, field: &str, value: &Value<'_>) -> Option<StageKind> {
        let text = self.text(field, value)?;
        let kind = StageKind::ALL.into_iter().find(|kind| kind.as_str() == text);
        if kind.is_none() {
            self.wrong_value(field, value, KIND);
        }
        kind
    }

    fn stage_object(&mut self, object: Object<'_>) -> Option<StageSpec> {
        let faults = self.found.len() + self.more;
        let fields = self.fields(object, FIELDS);
        let Some((_, kind)) = fields.iter().find(|(field, _)| *field == "kind") else {
            self.fault(object.start, TextFault::MissingField { field: "kind" });
            return None;
        };
        let mut stage = self.stage_kind("kind", kind).map(StageSpec::of);
        // Without a kind there is no stage, but what is wrong with the rest is told all the same.
        let mut unused = StageSpec::of(StageKind::Run);
        let stage_or = stage.as_mut().unwrap_or(&mut unused);
        for (field, value) in fields {
            self.stage_field(stage_or, field, value);
        }
        stage.filter(|_| self.found.len() + self.more == faults)
    }

    fn stage_field(&mut self, stage: &mut StageSpec, field: &'static str, value: &Value<'_>) {
        match field {
            "name" => {
                if let Some(name) = self.id(field, value, StageName::parse) {
                    stage.name = name;
                }
            }
            "pool" => {
                if let Some(pool) = self.id(field, value, PoolName::parse) {
                    stage.pool = pool;
                }
            }
            "model" => {
                stage.model = self.optional(value, |reader, value| reader.text(field, value));
            }
            "timeout" => {
                if let Some(timeout) = self.span(field, value) {
                    stage.timeout = timeout;
                }
            }
            "cap_usd" => {
                if let Some(cap) = self.dollars(field, value) {
                    stage.cap = cap;
                }
            }
            "command" => {
                stage.command = self.optional(value, |reader, value| reader.command(field, value));
            }
            "on_rejection" => {
                let name = |reader: &mut Self, value: &Value<'_>| {
                    reader.id(field, value, StageName::parse)
                };
                stage.on_rejection = self.optional(value, name);
            }
            "rounds" => {
                let rounds = |reader: &mut Self, value: &Value<'_>| {
                    reader.whole(field, value, 0..=1000, ROUNDS)
                };
                stage.rounds = self.optional(value, rounds);
            }
            _ => {}
        }
    }
}
