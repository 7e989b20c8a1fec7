//! Typed access to parsed values: each wrong one becomes a fault with its place.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jsonc_parser::ast::{Array, NumberLit, Object, ObjectProp, Value};
use jsonc_parser::common::Ranged as _;
use serde_json::{Map, Number};

use super::span;
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
        self.fault(value.start(), TextFault::WrongType { field, expected, found });
    }

    pub(super) fn wrong_value(&mut self, field: &str, value: &Value<'_>, expected: &'static str) {
        let found = match value {
            Value::StringLit(text) => text.value.clone().into_owned(),
            Value::NumberLit(number) => number.value.to_owned(),
            Value::BooleanLit(_) | Value::Object(_) | Value::Array(_) | Value::NullKeyword(_) => {
                kind(value).to_owned()
            }
        };
        let field = field.to_owned();
        self.fault(value.start(), TextFault::WrongValue { field, expected, found });
    }

    /// The fields of an object that are known, each once; others are faults.
    pub(super) fn fields<'v>(
        &mut self,
        object: &'v Object<'v>,
        known: &'static [&'static str],
    ) -> Vec<(&'static str, &'v Value<'v>)> {
        let mut fields = Vec::with_capacity(object.properties.len());
        for property in self.once(object) {
            let name = property.name.as_str();
            if let Some(field) = known.iter().find(|field| **field == name) {
                fields.push((*field, &property.value));
            } else {
                let nearest = self.nearest.find(name, known.iter().copied());
                let fault = TextFault::UnknownField { field: name.to_owned(), nearest };
                self.fault(property.start(), fault);
            }
        }
        fields
    }

    /// The fields of an object whose names are free; those that stand twice are faults.
    pub(super) fn once<'v>(&mut self, object: &'v Object<'v>) -> Vec<&'v ObjectProp<'v>> {
        let mut names = BTreeSet::new();
        let mut once = Vec::with_capacity(object.properties.len());
        for property in &object.properties {
            let name = property.name.as_str();
            if names.insert(name) {
                once.push(property);
            } else {
                let field = name.to_owned();
                self.fault(property.start(), TextFault::RepeatedField { field });
            }
        }
        once
    }

    pub(super) fn object<'v>(
        &mut self,
        field: &str,
        value: &'v Value<'v>,
    ) -> Option<&'v Object<'v>> {
        let object = value.as_object();
        if object.is_none() {
            self.wrong_type(field, value, "an object");
        }
        object
    }

    pub(super) fn list<'v>(&mut self, field: &str, value: &'v Value<'v>) -> Option<&'v Array<'v>> {
        let list = value.as_array();
        if list.is_none() {
            self.wrong_type(field, value, "a list");
        }
        list
    }

    /// A text that is not blank and has no NUL, which no program can be given.
    pub(super) fn text(&mut self, field: &str, value: &Value<'_>) -> Option<String> {
        let Some(text) = value.as_string_lit() else {
            self.wrong_type(field, value, "a text");
            return None;
        };
        if text.value.trim().is_empty() || text.value.contains('\0') {
            self.wrong_value(field, value, "a text that says something, without NUL");
            return None;
        }
        Some(text.value.clone().into_owned())
    }

    /// A text, or a list of texts.
    pub(super) fn texts(&mut self, field: &str, value: &Value<'_>) -> Option<Vec<String>> {
        match value {
            Value::StringLit(_) => self.text(field, value).map(|text| vec![text]),
            Value::Array(list) => {
                let texts: Vec<Option<String>> =
                    list.elements.iter().map(|element| self.text(field, element)).collect();
                texts.into_iter().collect()
            }
            Value::NumberLit(_)
            | Value::BooleanLit(_)
            | Value::Object(_)
            | Value::NullKeyword(_) => {
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
        let Some(text) = value.as_string_lit() else {
            self.wrong_type(field, value, "a text");
            return None;
        };
        self.taken(value.start(), parse(&text.value))
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
        let Some(number) = value.as_number_lit() else {
            self.wrong_type(field, value, expected);
            return None;
        };
        let number = number.value.parse().ok().filter(|number| range.contains(number));
        if number.is_none() {
            self.wrong_value(field, value, expected);
        }
        number
    }

    pub(super) fn dollars(&mut self, field: &str, value: &Value<'_>) -> Option<Usd> {
        const EXPECTED: &str = "a number of dollars from 0 to 1e9";
        let Some(number) = value.as_number_lit() else {
            self.wrong_type(field, value, EXPECTED);
            return None;
        };
        let dollars = number.value.parse().ok().and_then(Usd::from_dollars);
        if dollars.is_none() {
            self.wrong_value(field, value, EXPECTED);
        }
        dollars
    }

    pub(super) fn span(&mut self, field: &str, value: &Value<'_>) -> Option<Duration> {
        let span = match value {
            Value::StringLit(text) => span::parse(&text.value),
            Value::NumberLit(number) => number.value.parse().ok().and_then(span::of_seconds),
            Value::BooleanLit(_) | Value::Object(_) | Value::Array(_) | Value::NullKeyword(_) => {
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

    fn free_object(&mut self, object: &Object<'_>, depth: usize) -> Map<String, serde_json::Value> {
        let properties = self.once(object);
        let mut map = Map::new();
        for property in properties {
            let value = self.free_value(&property.value, depth.saturating_sub(1));
            map.insert(property.name.as_str().to_owned(), value);
        }
        map
    }

    /// The recursion ends at a depth that is far below what serde and the stack can take.
    fn free_value(&mut self, value: &Value<'_>, depth: usize) -> serde_json::Value {
        if depth == 0 && matches!(value, Value::Object(_) | Value::Array(_)) {
            self.fault(value.start(), TextFault::TooDeep);
            return serde_json::Value::Null;
        }
        match value {
            Value::StringLit(text) => text.value.clone().into_owned().into(),
            Value::NumberLit(number) => self.free_number(number),
            Value::BooleanLit(truth) => truth.value.into(),
            Value::NullKeyword(_) => serde_json::Value::Null,
            Value::Object(object) => self.free_object(object, depth).into(),
            Value::Array(list) => {
                let below = depth.saturating_sub(1);
                list.elements.iter().map(|element| self.free_value(element, below)).collect()
            }
        }
    }

    /// A whole number as such where 64 bits hold it, else the nearest double.
    fn free_number(&mut self, number: &NumberLit<'_>) -> serde_json::Value {
        let text = number.value;
        let parsed = (text.parse::<u64>().map(Number::from).ok())
            .or_else(|| text.parse::<i64>().map(Number::from).ok())
            .or_else(|| text.parse::<f64>().ok().and_then(Number::from_f64));
        parsed.map_or_else(
            || {
                self.fault(number.start(), TextFault::NumberRange(text.to_owned()));
                serde_json::Value::Null
            },
            serde_json::Value::Number,
        )
    }
}

fn kind(value: &Value<'_>) -> &'static str {
    match value {
        Value::StringLit(_) => "a text",
        Value::NumberLit(_) => "a number",
        Value::BooleanLit(_) => "true or false",
        Value::Object(_) => "an object",
        Value::Array(_) => "a list",
        Value::NullKeyword(_) => "null",
    }
}
