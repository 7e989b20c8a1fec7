//! Reads a plan's text: JSON with comments and trailing commas, all faults at once.

mod pipeline;
mod plain;
mod span;
mod task;
mod text;
mod tree;
mod value;

use std::collections::{BTreeMap, BTreeSet};

use jsonc_parser::errors::{ParseError, ParseErrorKind};
use jsonc_parser::{CollectOptions, ParseOptions};

use self::task::{Draft, Places};
use self::text::Locator;
use self::tree::{Content, Field, Object, Value};
use self::value::{Found, Reader};
use super::Plan;
use super::check::{self, Part};
use super::error::{PLAN_BYTES_MAX, PLAN_VALUES_MAX, PlanError, PlanErrors, TaskRef, TextFault};
use crate::id::{PipelineName, PoolName, TaskId};
use crate::record::PoolBounds;

/// The field of a plan that has its tasks, if the plan is no list of them.
const TASKS: &str = "tasks";
const FIELDS: &[&str] = &[TASKS, "defaults", "estimates", "pools", "pipelines", "budget"];
const POOL_FIELDS: &[&str] = &["limit", "budget", "in_flight_max"];
const PERMITS: &str = "a whole number from 0 to 4294967295";

impl Plan {
    /// Reads a plan for a run without tasks, and checks it.
    ///
    /// The text is JSON, with comments and trailing commas as people write them: a list of tasks,
    /// or an object with
    ///
    /// | field | |
    /// | --- | --- |
    /// | `tasks` | the list |
    /// | `defaults` | any field of a task but `id` and `depends_on`, for all that do not have it |
    /// | `estimates` | by role, for tasks without one of their own: `{"implement": "30m"}` |
    /// | `pools` | limits by name: `{"gpu": 2}`, or objects with `limit`, `budget`, `in_flight_max` |
    /// | `pipelines` | lists of stages by name; one called `default` replaces the built-in one |
    /// | `budget` | the most that the run may spend, in dollars |
    ///
    /// A pool's `budget` is the most, in dollars, that stages which take permits of it may spend; as
    /// long as `in_flight_max` tasks that it began are past their first stage and not finished, it
    /// begins none.
    ///
    /// A stage is a kind (`"run"`, `"verify"`, `"review"`, `"gate"`, `"integrate"`), or an object
    /// with `kind` and, where they differ from the built-in stage of that kind, `name`, `pool`,
    /// `model`, `timeout`, `cap_usd`, `command` (of a `verify` or `gate` stage), `on_rejection` (the
    /// `run` stage that its rejections go to) and `rounds` (rejections until the task escalates). A
    /// task has
    ///
    /// | field | | without it |
    /// | --- | --- | --- |
    /// | `id` | up to 256 bytes, no control characters | a fault |
    /// | `depends_on` | ids of tasks that must be done before | none |
    /// | `role`, `prompt_template` | what kind of work, and the prompt | `implement` |
    /// | `inputs`, `metadata` | objects for the prompt, and for nobody; up to 64 deep | empty |
    /// | `verify` | a line for the shell, or a list: program and arguments | a fault, if it is needed |
    /// | `max_retries` | 0 to 1000 | 3 |
    /// | `scope` | a path or glob that may be changed, or a list of them | all may |
    /// | `priority` | a whole number; a higher one goes first | 0 |
    /// | `estimate`, `timeout` | of an attempt: `"45m"`, `"1h30m"`, or seconds | none, the stage's |
    /// | `budget` | the most that all of its stages together may spend, in dollars | none |
    /// | `needs` | permits by pool: `{"gpu": 1}` | those of its stages |
    /// | `pipeline`, `model` | a name; what its agent runs on | `default`, the stage's |
    ///
    /// A task's own `inputs`, `metadata` and `needs` are added to those of the defaults name by
    /// name; any other field takes the default's place, and `null` takes away an optional one.
    ///
    /// ```
    /// use orchestrator_core::Plan;
    /// let plan = Plan::parse(r#"{
    ///     "defaults": {"scope": "src", "timeout": "20m", "inputs": {"language": "rust"}},
    ///     "tasks": [
    ///         {"id": "types", "verify": "cargo test types::", "scope": "src/types.rs"},
    ///         // Needs the types.
    ///         {"id": "client", "verify": ["cargo", "test", "client::"], "depends_on": ["types"],},
    ///     ],
    ///     "pipelines": {"default": ["run", "verify", {"kind": "review", "cap_usd": 0.5}]},
    ///     "budget": 25,
    /// }"#)?;
    /// assert_eq!(plan.tasks.len(), 2);
    ///
    /// let errors = Plan::parse(r#"[{"id": "a", "verfy": "true"}]"#).unwrap_err();
    /// assert!(errors.to_string().starts_with(
    ///     "line 1, column 2, task `a`: has no `verify` command, but its pipeline verifies\n\
    ///      line 1, column 14, task `a`: unknown field `verfy`; is `verify` meant?"
    /// ));
    /// # Ok::<(), orchestrator_core::PlanErrors>(())
    /// ```
    ///
    /// # Errors
    /// [`PlanErrors`] has every fault of the text and of the plan, each with its place.
    pub fn parse(text: &str) -> Result<Self, PlanErrors> {
        Self::parse_with(text, &|_| false)
    }

    /// Reads a plan for a run that has the `known` tasks, which its own may depend on.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn parse_with(text: &str, known: &dyn Fn(&TaskId) -> bool) -> Result<Self, PlanErrors> {
        let text = text::without_mark(text);
        // Most of long texts is written by programs, and nothing is wrong with it.
        quickly(text, known).map_or_else(|| carefully(text, known), Ok)
    }

    /// Reads a plan from the bytes of a file; see [`parse`](Self::parse).
    ///
    /// # Errors
    /// As [`parse`](Self::parse), and [`TextFault::NotUtf8`].
    pub fn parse_bytes(bytes: &[u8]) -> Result<Self, PlanErrors> {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::parse(text),
            Err(err) => {
                let offset = err.valid_up_to();
                let valid = bytes.get(..offset).and_then(|bytes| std::str::from_utf8(bytes).ok());
                let valid = text::without_mark(valid.unwrap_or_default());
                let mut reader = Reader::default();
                reader.fault(valid.len(), TextFault::NotUtf8 { offset });
                Err(located(valid, reader))
            }
        }
    }
}

/// Reads a plan that is plain JSON and has no fault; `None` for any other text.
fn quickly(text: &str, known: &dyn Fn(&TaskId) -> bool) -> Option<Plan> {
    let Reading { plan, .. } = plain::read(text)?;
    check::is_sound(&plan, known).then_some(plan)
}

/// Reads any text, and says where what is wrong.
fn carefully(text: &str, known: &dyn Fn(&TaskId) -> bool) -> Result<Plan, PlanErrors> {
    let mut reader = Reader::default();
    let plan = reader.document(text, known);
    if reader.found.is_empty() { Ok(plan) } else { Err(located(text, reader)) }
}

/// A plan as far as it could be read.
#[derive(Default)]
struct Reading {
    plan: Plan,
    /// Where the parts of the tasks stand.
    places: Vec<Places>,
    /// The names of pipelines that could not be read.
    broken: BTreeSet<String>,
}

/// The faults in the order of the text, with positions instead of offsets.
fn located(text: &str, mut reader: Reader) -> PlanErrors {
    reader.found.sort_by_key(|found| found.offset);
    let mut locator = Locator::new(text);
    let error = |Found { offset, task, fault }| PlanError {
        position: locator.position(offset),
        task,
        fault,
    };
    PlanErrors { errors: reader.found.into_iter().map(error).collect(), more: reader.more }
}

impl Reader {
    fn document(&mut self, text: &str, known: &dyn Fn(&TaskId) -> bool) -> Plan {
        if let Err((offset, fault)) = text::scan(text) {
            self.fault(offset, fault);
            return Plan::default();
        }
        let parsed = jsonc_parser::parse_to_ast(text, &CollectOptions::default(), &options());
        match parsed.map(|parsed| parsed.value) {
            Ok(Some(value)) => {
                let reading = self.read(&value.into());
                self.judge(&reading, known);
                reading.plan
            }
            Ok(None) => {
                self.fault(0, TextFault::Empty);
                Plan::default()
            }
            Err(err) => self.syntax(&err),
        }
    }

    fn read(&mut self, value: &Value<'_>) -> Reading {
        let tasks = match value.as_object() {
            Some(object) => object.field(TASKS).and_then(|field| field.value.as_list()),
            None => value.as_list(),
        };
        let tasks = tasks.unwrap_or_default();
        let (mut reading, defaults) = self.head(value, tasks.len());
        for (at, value) in tasks.iter().enumerate() {
            let Some(Draft { spec, places }) = self.task(at + 1, value, &defaults) else {
                continue;
            };
            reading.plan.tasks.push(spec);
            reading.places.push(places);
        }
        self.task = None;
        reading
    }

    /// Reads all but the tasks, of which there are so many; gives their defaults too.
    fn head(&mut self, value: &Value<'_>, tasks: usize) -> (Reading, Draft) {
        let mut reading = Reading::default();
        let defaults = match &value.content {
            Content::List(_) => Draft::default(),
            Content::Object(fields) => {
                let object = Object { start: value.start, end: value.end, fields };
                self.plan(&mut reading, object, tasks)
            }
            Content::Text(_) | Content::Number(_) | Content::Truth(_) | Content::Null => {
                self.fault(value.start, TextFault::Empty);
                Draft::default()
            }
        };
        (reading, defaults)
    }

    fn syntax(&mut self, err: &ParseError) -> Plan {
        let fault = if matches!(err.kind(), ParseErrorKind::NestingDepthExceeded) {
            TextFault::TooDeep
        } else {
            TextFault::Syntax { what: lower_first(&err.kind().to_string()) }
        };
        self.fault(err.range().start, fault);
        Plan::default()
    }

    /// An object that is a plan; gives the defaults.
    fn plan(&mut self, reading: &mut Reading, object: Object<'_>, tasks: usize) -> Draft {
        let fields: BTreeMap<&str, &Value<'_>> = self.fields(object, FIELDS).into_iter().collect();
        let defaults = self.defaults_of(&fields, tasks);
        if let Some(value) = fields.get("budget") {
            let dollars = |reader: &mut Self, value: &Value<'_>| reader.dollars("budget", value);
            reading.plan.budget = self.optional(value, dollars);
        }
        if let Some(object) =
            fields.get("estimates").and_then(|value| self.object("estimates", value))
        {
            self.estimates(object);
        }
        if let Some(object) = fields.get("pools").and_then(|value| self.object("pools", value)) {
            self.pools(&mut reading.plan, object);
        }
        if let Some(object) =
            fields.get("pipelines").and_then(|value| self.object("pipelines", value))
        {
            self.pipelines(reading, object);
        }
        match fields.get(TASKS) {
            Some(value) => drop(self.list(TASKS, value)),
            None => self.fault(object.start, TextFault::MissingField { field: TASKS }),
        }
        defaults
    }

    /// The defaults, unless they would be too much with as many tasks as there are.
    fn defaults_of(&mut self, fields: &BTreeMap<&str, &Value<'_>>, tasks: usize) -> Draft {
        let mut defaults = Draft::default();
        let Some(value) = fields.get("defaults") else { return defaults };
        let fits = || {
            let (values, bytes) = value.size();
            values.saturating_mul(tasks) <= PLAN_VALUES_MAX
                && bytes.saturating_mul(tasks) <= PLAN_BYTES_MAX
        };
        match self.object("defaults", value) {
            Some(object) if fits() => self.defaults(&mut defaults, object),
            Some(_) => {
                defaults.places.break_all();
                self.fault(value.start, TextFault::DefaultsTooLarge { tasks });
            }
            None => defaults.places.break_all(),
        }
        defaults
    }

    fn estimates(&mut self, object: Object<'_>) {
        for Field { name, value, .. } in self.once(object) {
            let span = self.span(name, value);
            self.estimates.extend(span.map(|span| (name.to_string(), span)));
        }
    }

    fn pools(&mut self, plan: &mut Plan, object: Object<'_>) {
        for Field { start, name, value } in self.once(object) {
            let pool = self.taken(*start, PoolName::parse(name));
            let (limit, bounds) = match value.as_object() {
                Some(object) => self.pool(object),
                None => (self.whole(name, value, 0..=u32::MAX, PERMITS), PoolBounds::default()),
            };
            let Some(pool) = pool else { continue };
            if bounds != PoolBounds::default() {
                plan.pool_bounds.insert(pool.clone(), bounds);
            }
            plan.pools.extend(limit.map(|limit| (pool, limit)));
        }
    }

    fn pool(&mut self, object: Object<'_>) -> (Option<u32>, PoolBounds) {
        let (mut limit, mut bounds) = (None, PoolBounds::default());
        for (field, value) in self.fields(object, POOL_FIELDS) {
            let whole = |reader: &mut Self, value: &Value<'_>| {
                reader.whole(field, value, 0..=u32::MAX, PERMITS)
            };
            match field {
                "limit" => limit = whole(self, value),
                "in_flight_max" => bounds.in_flight_max = self.optional(value, whole),
                "budget" => {
                    let dollars =
                        |reader: &mut Self, value: &Value<'_>| reader.dollars(field, value);
                    bounds.budget = self.optional(value, dollars);
                }
                _ => {}
            }
        }
        (limit, bounds)
    }

    fn pipelines(&mut self, reading: &mut Reading, object: Object<'_>) {
        for Field { start, name, value } in self.once(object) {
            let known = self.taken(*start, PipelineName::parse(name));
            match (known, self.pipeline(name, value)) {
                (Some(name), Some(pipeline)) => {
                    drop(reading.plan.pipelines.insert(name, pipeline));
                }
                (_, None) => drop(reading.broken.insert(name.to_string())),
                (None, Some(_)) => {}
            }
        }
    }

    /// What the check says of the whole plan; what only follows from a fault that was told already is
    /// left out, and what comes from the defaults is told once.
    fn judge(&mut self, reading: &Reading, known: &dyn Fn(&TaskId) -> bool) {
        let Reading { plan, places, broken } = reading;
        let mut told = BTreeSet::new();
        for (place, fault) in check::faults(plan, known) {
            let (Some(places), Some(spec)) = (places.get(place.task), plan.tasks.get(place.task))
            else {
                continue;
            };
            let Some(offset) = places.of(&place.part) else { continue };
            let of_pipeline = place.part >= Part::Pipeline;
            let follows = of_pipeline && broken.contains(spec.pipeline_name());
            let is_told = !places.hold(offset) && !told.insert(offset);
            if !follows && !is_told {
                self.task = Some(TaskRef::Id(spec.id.clone()));
                self.fault(offset, TextFault::Plan(fault));
            }
        }
    }
}

/// JSON, with comments and trailing commas but nothing else beside it.
const fn options() -> ParseOptions {
    ParseOptions {
        allow_comments: true,
        allow_loose_object_property_names: false,
        allow_trailing_commas: true,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    }
}

/// The parser's messages begin with a capital, ours do not.
fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
