//! Reads one task, or the defaults of all.

use std::collections::{BTreeMap, BTreeSet};

use super::tree::{Content, Field, Object, Value};
use super::value::Reader;
use crate::id::{PipelineName, PoolName, TaskId};
use crate::plan::check::Part;
use crate::plan::error::{TaskRef, TextFault};
use crate::scope::Scope;
use crate::task::{TaskSpec, VerifyCommand};

pub(super) const FIELDS: &[&str] = &[
    "id",
    "depends_on",
    "role",
    "prompt_template",
    "inputs",
    "verify",
    "max_retries",
    "scope",
    "priority",
    "estimate",
    "timeout",
    "budget",
    "needs",
    "pipeline",
    "model",
    "metadata",
];
const RETRIES: &str = "a whole number from 0 to 1000";
const PRIORITY: &str = "a whole number from -2147483648 to 2147483647";
const PERMITS: &str = "a whole number from 1 to 4294967295";

/// A task as far as it could be read, and where its parts stand.
#[derive(Clone)]
pub(super) struct Draft {
    pub(super) spec: TaskSpec,
    pub(super) places: Places,
}

/// Where the parts of a task stand.
#[derive(Clone, Default)]
pub(super) struct Places {
    parts: BTreeMap<Part, usize>,
    /// Where the task stands; parts that it does not have are told at its beginning.
    range: std::ops::Range<usize>,
    /// Fields with a fault: what the check says of them would be a consequence.
    broken: BTreeSet<&'static str>,
}

impl Default for Draft {
    /// Nothing that differs from a bare task; its id is replaced by that of each task.
    fn default() -> Self {
        let id = TaskId::parse("defaults").expect("a lower-case word is a valid id");
        Self { spec: TaskSpec::new(id), places: Places::default() }
    }
}

impl Places {
    /// Notes where a part stands, if that is known.
    fn put(&mut self, part: Part, value: &Value<'_>) {
        if value.end > 0 {
            self.parts.insert(part, value.start);
        }
    }

    /// Where the part stands; `None` when it could not be read.
    pub(super) fn of(&self, part: &Part) -> Option<usize> {
        let field = match part {
            Part::Id => "id",
            Part::Dependency(_) => "depends_on",
            Part::Pipeline => "pipeline",
            Part::Needs(_) => "needs",
            Part::Budget => "budget",
            Part::Verify => "verify",
        };
        let place = self.parts.get(part).copied().unwrap_or(self.range.start);
        // Of a list of dependencies those that could be read are there, and are judged.
        (field == "depends_on" || !self.broken.contains(field)).then_some(place)
    }

    /// Takes nothing for read, so that only what a task itself says is judged.
    pub(super) fn break_all(&mut self) {
        self.broken.extend(FIELDS);
    }

    /// Whether the offset is within the task, and not in the defaults.
    pub(super) fn hold(&self, offset: usize) -> bool {
        self.range.contains(&offset)
    }
}

impl Reader {
    /// The defaults of the tasks.
    pub(super) fn defaults(&mut self, draft: &mut Draft, object: Object<'_>) {
        for (field, value) in self.fields(object, FIELDS) {
            if matches!(field, "id" | "depends_on") {
                self.fault(value.start, TextFault::NoDefault { field });
            } else {
                self.field(&mut draft.spec, &mut draft.places, field, value);
            }
        }
    }

    /// The `number`th task; `None` when it has no usable id.
    pub(super) fn task(
        &mut self,
        number: usize,
        value: &Value<'_>,
        defaults: &Draft,
    ) -> Option<Draft> {
        self.task = Some(TaskRef::Nth(number));
        let object = self.object("task", value)?;
        let id = match object.field("id") {
            Some(field) => self.id("id", &field.value, TaskId::parse),
            None => {
                self.fault(object.start, TextFault::MissingField { field: "id" });
                None
            }
        };
        let mut draft = defaults.clone();
        draft.places.range = object.start..object.end;
        if let Some(id) = &id {
            self.task = Some(TaskRef::Id(id.clone()));
            draft.spec.id = id.clone();
        }
        for (field, value) in self.fields(object, FIELDS) {
            if field == "id" {
                draft.places.put(Part::Id, value);
            } else {
                self.field(&mut draft.spec, &mut draft.places, field, value);
            }
        }
        self.estimate_by_role(&mut draft.spec, object.field("estimate").is_some());
        id.map(|_| draft)
    }

    /// What is known of a task's role is nearer to it than what holds for all.
    pub(super) fn estimate_by_role(&self, spec: &mut TaskSpec, has_own: bool) {
        if let Some(estimate) = self.estimates.get(&spec.role).filter(|_| !has_own) {
            spec.estimate = Some(*estimate);
        }
    }

    /// One field; whether it is broken shows in the number of faults.
    pub(super) fn field(
        &mut self,
        spec: &mut TaskSpec,
        places: &mut Places,
        field: &'static str,
        value: &Value<'_>,
    ) {
        let faults = self.found.len() + self.more;
        places.broken.remove(field);
        match field {
            "depends_on" => self.depends_on(spec, places, value),
            "needs" => self.needs(spec, places, value),
            "verify" => {
                places.put(Part::Verify, value);
                spec.verify = self.optional(value, |reader, value| reader.command(field, value));
            }
            "pipeline" => {
                places.put(Part::Pipeline, value);
                let id = |reader: &mut Self, value: &Value<'_>| {
                    reader.id(field, value, PipelineName::parse)
                };
                spec.pipeline = self.optional(value, id);
            }
            "budget" => {
                places.put(Part::Budget, value);
                let dollars = |reader: &mut Self, value: &Value<'_>| reader.dollars(field, value);
                spec.budget = self.optional(value, dollars);
            }
            "scope" => spec.scope = self.optional(value, Self::scope),
            _ => self.plain_field(spec, field, value),
        }
        if self.found.len() + self.more > faults {
            places.broken.insert(field);
        }
    }

    /// A field whose place nobody asks for.
    fn plain_field(&mut self, spec: &mut TaskSpec, field: &'static str, value: &Value<'_>) {
        let text = |reader: &mut Self, value: &Value<'_>| reader.text(field, value);
        let span = |reader: &mut Self, value: &Value<'_>| reader.span(field, value);
        match field {
            "role" => take(&mut spec.role, self.text(field, value)),
            "prompt_template" => take(&mut spec.prompt_template, self.text(field, value)),
            "model" => spec.model = self.optional(value, text),
            "estimate" => spec.estimate = self.optional(value, span),
            "timeout" => spec.timeout = self.optional(value, span),
            "priority" => {
                take(&mut spec.priority, self.whole(field, value, i32::MIN..=i32::MAX, PRIORITY));
            }
            "max_retries" => {
                take(&mut spec.max_retries, self.whole(field, value, 0..=1000, RETRIES));
            }
            "inputs" => spec.inputs.extend(self.free(field, value).unwrap_or_default()),
            "metadata" => spec.metadata.extend(self.free(field, value).unwrap_or_default()),
            _ => {}
        }
    }

    /// `null` takes away what the defaults gave.
    pub(super) fn optional<T>(
        &mut self,
        value: &Value<'_>,
        read: impl FnOnce(&mut Self, &Value<'_>) -> Option<T>,
    ) -> Option<T> {
        if matches!(value.content, Content::Null) { None } else { read(self, value) }
    }

    fn depends_on(&mut self, spec: &mut TaskSpec, places: &mut Places, value: &Value<'_>) {
        let Some(list) = self.list("depends_on", value) else { return };
        spec.depends_on.reserve_exact(list.len());
        for element in list {
            if let Some(id) = self.id("depends_on", element, TaskId::parse) {
                places.put(Part::Dependency(spec.depends_on.len()), element);
                spec.depends_on.push(id);
            }
        }
    }

    fn needs(&mut self, spec: &mut TaskSpec, places: &mut Places, value: &Value<'_>) {
        let Some(object) = self.object("needs", value) else { return };
        for Field { start, name, value } in self.once(object) {
            let pool = self.taken(*start, PoolName::parse(name));
            let range = std::num::NonZeroU32::MIN..=std::num::NonZeroU32::MAX;
            let permits = self.whole(name, value, range, PERMITS);
            if let (Some(pool), Some(permits)) = (pool, permits) {
                places.put(Part::Needs(pool.clone()), value);
                spec.needs.insert(pool, permits);
            }
        }
    }

    pub(super) fn command(&mut self, field: &str, value: &Value<'_>) -> Option<VerifyCommand> {
        if value.as_text().is_some() {
            return self.text(field, value).map(VerifyCommand::Shell);
        }
        let Some(words) = value.as_list() else {
            return self.texts(field, value)?.pop().map(VerifyCommand::Shell);
        };
        let mut argv = Vec::with_capacity(words.len());
        for (at, word) in words.iter().enumerate() {
            // An argument may be empty, a program's name may not.
            let empty = word.as_text().filter(|word| at > 0 && word.trim().is_empty());
            argv.push(match empty {
                Some(word) => Some(word.to_owned()),
                None => self.text(field, word),
            });
        }
        let argv: Option<Vec<String>> = argv.into_iter().collect();
        argv.map(VerifyCommand::Argv)
    }

    fn scope(&mut self, value: &Value<'_>) -> Option<Scope> {
        let patterns = self.texts("scope", value)?;
        Scope::parse(patterns)
            .map_err(|invalid| self.fault(value.start, TextFault::Scope(invalid)))
            .ok()
    }
}

fn take<T>(field: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *field = value;
    }
}
