//! Typed access to parsed values: each wrong one becomes a fault with its place.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Map, Number};

use super::span;
use super::tree::{Content, Field, Object, Value};
use crate::id::InvalidId;
use crate::money::Usd;
use crate::plan::error::{PLAN_DEPTH_MAX, PLAN_ERRORS_MAX, TaskRef, TextFault};
use crate::plan::nearest::Nearest;

/// A fault at an offset of the text.
pub(super) struct Found {
    pub(super) offset: usize,
    pub(super) task: Option<TaskRef>,
    pub(super) fault: TextFault,
}

/// Fields up to which each is held against those before it.
const FEW: usize = 16;

/// Collects faults while a text is read.
#[derive(Default)]
pub(super) struct Reader {
    pub(super) found: Vec<Found>,
    pub(super) more: usize,
    /// The task that is being read.
    pub(super) task: Option<TaskRef>,
    /// How long an attempt is expected to take, by role.
    pub(super) estimates: BTreeMap<String, Duration>,
    nearest: Nearest,
}

impl Reader {
    pub(super) fn fault(&mut self, offset: usize, fault: TextFault) {
        if self.found.len() < PLAN_ERRORS_MAX {
            self.found.push(Found { offset, task: self.task.clone(), fault });
        } else {
            self.more += 1;
        }
    }

    fn wrong_type(&mut self, field: &str, value: &Value<'_>, expected: &'static str) {
        let (field, found) = (field.to_owned(), kind(value));
        self.fault(value.start, TextFault::WrongType { field, expected, found });
    }

    pub(super) fn wrong_value(&mut self, field: &str, value: &Value<'_>, expected: &'static str) {
        let found = match &value.content {
            Content::Text(text) | Content::Number(text) => text.clone().into_owned(),
            Content::Truth(_) | Content::Object(_) | Content::List(_) | Content::Null => {
                kind(value).to_owned()
            }
        };
        let field = field.to_owned();
        self.fault(value.start, TextFault::WrongValue { field, expected, found });
    }

    /// The fields of an object that are known, each once; others are faults.
    pub(super) fn fields<'v>(
        &mut self,
        object: Object<'v>,
        known: &'static [&'static str],
    ) -> Vec<(&'static str, &'v Value<'v>)> {
        let mut fields = Vec::with_capacity(object.fields.len());
        for Field { start, name, value } in self.once(object) {
            if let Some(field) = known.iter().find(|field| *field == name) {
                fields.push((*field, value));
            } else {
                let nearest = self.nearest.find(name, known.iter().copied());
                let fault = TextFault::UnknownField { field: name.to_string(), nearest };
                self.fault(*start, fault);
            }
        }
        fields
    }

    /// The fields of an object whose names are free; those that stand twice are faults.
    pub(super) fn once<'v>(
        &mut self,
        object: Object<'v>,
    ) -> impl Iterator<Item = &'v Field<'v>> + use<'v> {
        let repeated = repeated(object.fields);
        for Field { start, name, .. } in repeated.iter().filter_map(|at| object.fields.get(*at)) {
            self.fault(*start, TextFault::RepeatedField { field: name.to_string() });
        }
        let all = object.fields.iter().enumerate();
        all.filter(move |(at, _)| !repeated.contains(at)).map(|(_, field)| field)
    }

    pub(super) fn object<'v>(&mut self, field: &str, value: &'v Value<'v>) -> Option<Object<'v>> {
        let object = value.as_object();
        if object.is_none() {
            self.wrong_type(field, value, "an object");
        }
        object
    }

    pub(super) fn list<'v>(
        &mut self,
        field: &str,
        value: &'v Value<'v>,
    ) -> Option<&'v [Value<'v>]> {
        let list = value.as_list();
        if list.is_none() {
            self.wrong_type(field, value, "a list");
        }
        list
    }

    /// A text that is not blank and has no NUL, which no program can be given.
    pub(super) fn text(&mut self, field: &str, value: &Value<'_>) -> Option<String> {
        let Some(text) = value.as_text() else {
            self.wrong_type(field, value, "a text");
            return None;
        };
        if text.trim().is_empty() || text.contains('\0') {
            self.wrong_value(field, value, "a text that says something, without NUL");
            return None;
        }
        Some(text.to_owned())
    }

    /// A text, or a list of texts.
    pub(super) fn texts(&mut self, field: &str, value: &Value<'_>) -> Option<Vec<String>> {
        match &value.content {
            Content::Text(_) => self.text(field, value).map(|text| vec![text]),
            Content::List(list) => {
                let texts: Vec<Option<String>> =
                    list.iter().map(|element| self.text(field, element)).collect();
                texts.into_iter().collect()
            }
            Content::Number(_) | Content::Truth(_) | Content::Object(_) | Content::Null => {
                self.wrong_type(field, value, "a text or a list of texts");
                None
            }
        }
    }

    /// An identifier of any kind.
    pub(super) fn id<T>(
        &mut self,
        field: &str,
        value: &Value<'_>,
        parse: impl Fn(&str) -> Result<T, InvalidId>,
    ) -> Option<T> {
        let Some(text) = value.as_text() else {
            self.wrong_type(field, value, "a text");
            return None;
        };
        self.taken(value.start, parse(text))
    }

    pub(super) fn taken<T>(&mut self, offset: usize, id: Result<T, InvalidId>) -> Option<T> {
        id.map_err(|invalid| self.fault(offset, TextFault::Id(invalid))).ok()
    }

    /// A whole number in a range that `expected` describes.
    pub(super) fn whole<T: std::str::FromStr + PartialOrd>(
        &mut self,
        field: &str,
        value: &Value<'_>,
        range: std::ops::RangeInclusive<T>,
        expected: &'static str,
    ) -> Option<T> {
        let Some(number) = value.as_number() else {
            self.wrong_type(field, value, expected);
            return None;
        };
        let number = number.parse().ok().filter(|number| range.contains(number));
        if number.is_none() {
            self.wrong_value(field, value, expected);
        }
        number
    }

    pub(super) fn dollars(&mut self, field: &str, value: &Value<'_>) -> Option<Usd> {
        const EXPECTED: &str = "a number of dollars from 0 to 1e9";
        let Some(number) = value.as_number() else {
            self.wrong_type(field, value, EXPECTED);
            return None;
        };
        let dollars = number.parse().ok().and_then(Usd::from_dollars);
        if dollars.is_none() {
            self.wrong_value(field, value, EXPECTED);
        }
        dollars
    }

    pub(super) fn span(&mut self, field: &str, value: &Value<'_>) -> Option<Duration> {
        let span = match &value.content {
            Content::Text(text) => span::parse(text),
            Content::Number(number) => number.parse().ok().and_then(span::of_seconds),
            Content::Truth(_) | Content::Object(_) | Content::List(_) | Content::Null => {
                self.wrong_type(field, value, span::EXPECTED);
                return None;
            }
        };
        if span.is_none() {
            self.wrong_value(field, value, span::EXPECTED);
        }
        span
    }

    /// Free values by name.
    pub(super) fn free(
        &mut self,
        field: &str,
        value: &Value<'_>,
    ) -> Option<Map<String, serde_json::Value>> {
        let object = self.object(field, value)?;
        Some(self.free_object(object, PLAN_DEPTH_MAX))
    }

    fn free_object(&mut self, object: Object<'_>, depth: usize) -> Map<String, serde_json::Value> {
        let mut map = Map::new();
        for Field { name, value, .. } in self.once(object) {
            let value = self.free_value(value, depth.saturating_sub(1));
            map.insert(name.to_string(), value);
        }
        map
    }

    /// The recursion ends at a depth that is far below what serde and the stack can take.
    fn free_value(&mut self, value: &Value<'_>, depth: usize) -> serde_json::Value {
        if depth == 0 && matches!(value.content, Content::Object(_) | Content::List(_)) {
            self.fault(value.start, TextFault::TooDeep);
            return serde_json::Value::Null;
        }
        match &value.content {
            Content::Text(text) => text.clone().into_owned().into(),
            Content::Number(number) => self.free_number(value.start, number),
            Content::Truth(truth) => (*truth).into(),
            Content::Null => serde_json::Value::Null,
            Content::Object(_) => value
                .as_object()
                .map_or(serde_json::Value::Null, |object| self.free_object(object, depth).into()),
            Content::List(list) => {
                let below = depth.saturating_sub(1);
                list.iter().map(|element| self.free_value(element, below)).collect()
            }
        }
    }

    /// A whole number as such where 64 bits hold it, else the nearest double.
    fn free_number(&mut self, start: usize, text: &str) -> serde_json::Value {
        let parsed = (text.parse::<u64>().map(Number::from).ok())
            .or_else(|| text.parse::<i64>().map(Number::from).ok())
            .or_else(|| text.parse::<f64>().ok().and_then(Number::from_f64));
        parsed.map_or_else(
            || {
                self.fault(start, TextFault::NumberRange(text.to_owned()));
                serde_json::Value::Null
            },
            serde_json::Value::Number,
        )
    }
}

/// The places of fields whose names stand before them already.
fn repeated(fields: &[Field<'_>]) -> BTreeSet<usize> {
    let all = fields.iter().enumerate();
    if fields.len() <= FEW {
        let is_there = |at: usize, name: &str| fields.iter().take(at).any(|one| one.name == name);
        all.filter(|(at, one)| is_there(*at, &one.name)).map(|(at, _)| at).collect()
    } else {
        let mut names = BTreeSet::new();
        all.filter(|(_, one)| !names.insert(&one.name)).map(|(at, _)| at).collect()
    }
}

fn kind(value: &Value<'_>) -> &'static str {
    match value.content {
        Content::Text(_) => "a text",
        Content::Number(_) => "a number",
        Content::Truth(_) => "true or false",
        Content::Object(_) => "an object",
        Content::List(_) => "a list",
        Content::Null => "null",
    }
}
