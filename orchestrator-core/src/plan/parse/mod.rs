//! Reads a plan's text: JSON with comments and trailing commas, all faults at once.

mod pipeline;
mod span;
mod task;
mod text;
mod value;

use std::collections::{BTreeMap, BTreeSet};

use jsonc_parser::ast::{Array, Object, Value};
use jsonc_parser::common::Ranged as _;
use jsonc_parser::errors::{ParseError, ParseErrorKind};
use jsonc_parser::{CollectOptions, ParseOptions};

use self::task::{Draft, Places};
use self::text::Locator;
use self::value::{Found, Reader};
use super::Plan;
use super::check::{self, Part};
use super::error::{PLAN_BYTES_MAX, PLAN_VALUES_MAX, PlanError, PlanErrors, TaskRef, TextFault};
use crate::id::{PipelineName, PoolName, TaskId};
use crate::record::PoolBounds;

const FIELDS: &[&str] = &["tasks", "defaults", "estimates", "pools", "pipelines", "budget"];
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
        let mut reader = Reader::default();
        let plan = reader.document(text, known);
        if reader.found.is_empty() { Ok(plan) } else { Err(located(text, reader)) }
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
            Ok(Some(Value::Array(tasks))) => {
                let defaults = Draft::default();
                let drafts = self.tasks(&tasks, &defaults);
                self.checked(Plan::default(), drafts, known, &BTreeSet::new())
            }
            Ok(Some(Value::Object(object))) => self.plan(&object, text, known),
            Ok(None) => self.nothing(0),
            Ok(Some(
                value @ (Value::StringLit(_)
                | Value::NumberLit(_)
                | Value::BooleanLit(_)
                | Value::NullKeyword(_)),
            )) => self.nothing(value.start()),
            Err(err) => self.syntax(&err),
        }
    }

    fn nothing(&mut self, offset: usize) -> Plan {
        self.fault(offset, TextFault::Empty);
        Plan::default()
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

    fn plan(&mut self, object: &Object<'_>, text: &str, known: &dyn Fn(&TaskId) -> bool) -> Plan {
        let mut plan = Plan::default();
        let mut broken = BTreeSet::new();
        let fields: BTreeMap<&str, &Value<'_>> = self.fields(object, FIELDS).into_iter().collect();
        let defaults = self.defaults_of(&fields, text);
        if let Some(value) = fields.get("budget") {
            plan.budget = self.optional(value, |reader, value| reader.dollars("budget", value));
        }
        if let Some(object) =
            fields.get("estimates").and_then(|value| self.object("estimates", value))
        {
            self.estimates(object);
        }
        if let Some(object) = fields.get("pools").and_then(|value| self.object("pools", value)) {
            self.pools(&mut plan, object);
        }
        if let Some(object) =
            fields.get("pipelines").and_then(|value| self.object("pipelines", value))
        {
            self.pipelines(&mut plan, &mut broken, object);
        }
        let drafts = match fields.get("tasks") {
            Some(value) => self.list("tasks", value).map(|tasks| self.tasks(tasks, &defaults)),
            None => {
                self.fault(object.start(), TextFault::MissingField { field: "tasks" });
                None
            }
        };
        self.checked(plan, drafts.unwrap_or_default(), known, &broken)
    }

    /// The defaults, unless they would be too much with as many tasks as there are.
    fn defaults_of(&mut self, fields: &BTreeMap<&str, &Value<'_>>, text: &str) -> Draft {
        let mut defaults = Draft::default();
        let Some(value) = fields.get("defaults") else { return defaults };
        let tasks = fields.get("tasks").and_then(|value| value.as_array());
        let tasks = tasks.map_or(0, |tasks| tasks.elements.len());
        let fits = |object: &Object<'_>| {
            let values = text::scan(object.text(text)).unwrap_or(PLAN_VALUES_MAX);
            values.saturating_mul(tasks) <= PLAN_VALUES_MAX
                && object.width().saturating_mul(tasks) <= PLAN_BYTES_MAX
        };
        match self.object("defaults", value) {
            Some(object) if fits(object) => self.defaults(&mut defaults, object),
            Some(_) => {
                defaults.places.break_all();
                self.fault(value.start(), TextFault::DefaultsTooLarge { tasks });
            }
            None => defaults.places.break_all(),
        }
        defaults
    }

    fn tasks(&mut self, list: &Array<'_>, defaults: &Draft) -> Vec<Draft> {
        let mut drafts = Vec::with_capacity(list.elements.len());
        for (at, value) in list.elements.iter().enumerate() {
            drafts.extend(self.task(at + 1, value, defaults));
        }
        self.task = None;
        drafts
    }

    fn estimates(&mut self, object: &Object<'_>) {
        for property in self.once(object) {
            let role = property.name.as_str();
            let span = self.span(role, &property.value);
            self.estimates.extend(span.map(|span| (role.to_owned(), span)));
        }
    }

    fn pools(&mut self, plan: &mut Plan, object: &Object<'_>) {
        for property in self.once(object) {
            let name = property.name.as_str();
            let pool = self.taken(property.start(), PoolName::parse(name));
            let (limit, bounds) = match &property.value {
                Value::Object(object) => self.pool(object),
                Value::StringLit(_)
                | Value::NumberLit(_)
                | Value::BooleanLit(_)
                | Value::Array(_)
                | Value::NullKeyword(_) => {
                    let limit = self.whole(name, &property.value, 0..=u32::MAX, PERMITS);
                    (limit, PoolBounds::default())
                }
            };
            let Some(pool) = pool else { continue };
            if bounds != PoolBounds::default() {
                plan.pool_bounds.insert(pool.clone(), bounds);
            }
            plan.pools.extend(limit.map(|limit| (pool, limit)));
        }
    }

    fn pool(&mut self, object: &Object<'_>) -> (Option<u32>, PoolBounds) {
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

    fn pipelines(&mut self, plan: &mut Plan, broken: &mut BTreeSet<String>, object: &Object<'_>) {
        for property in self.once(object) {
            let text = property.name.as_str();
            let name = self.taken(property.start(), PipelineName::parse(text));
            let pipeline = self.pipeline(text, &property.value);
            match (name, pipeline) {
                (Some(name), Some(pipeline)) => drop(plan.pipelines.insert(name, pipeline)),
                (_, None) => drop(broken.insert(text.to_owned())),
                (None, Some(_)) => {}
            }
        }
    }

    /// The whole plan, with what the check says of it; what only follows from a fault that was told
    /// already is left out, and what comes from the defaults is told once.
    fn checked(
        &mut self,
        mut plan: Plan,
        drafts: Vec<Draft>,
        known: &dyn Fn(&TaskId) -> bool,
        broken: &BTreeSet<String>,
    ) -> Plan {
        let places: Vec<Places>;
        (plan.tasks, places) = drafts.into_iter().map(|draft| (draft.spec, draft.places)).unzip();
        let mut told = BTreeSet::new();
        for (place, fault) in check::faults(&plan, known) {
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
        plan
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
