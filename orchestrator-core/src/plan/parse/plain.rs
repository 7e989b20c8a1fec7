//! Reads plans that are JSON and nothing else, and with which nothing is wrong.
//!
//! Most of long texts is written by programs. The parser that knows comments and places costs more
//! than all else, and places are only needed where something is wrong: so a text is read by serde
//! first, one task after the other, by the same code that reads what that parser finds. Whatever is
//! not as it should be ends this, and the text is read again with care.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::task::{self, Draft, Places};
use super::tree::{Content, Field, Value};
use super::value::Reader;
use super::{Reading, TASKS};
use crate::id::TaskId;
use crate::plan::error::{PLAN_BYTES_MAX, PLAN_VALUES_MAX};
use crate::task::TaskSpec;

/// Reads a text within the limits of a plan; `None` says nothing of it, but that it has to be read
/// with care. What is read here is read there too, as the same plan.
pub(super) fn read(text: &str) -> Option<Reading> {
    if text.len() > PLAN_BYTES_MAX {
        return None;
    }
    let plain = Plain { values: &Cell::new(0) };
    let mut reader = Reader::default();
    let (mut reading, defaults) = if text.trim_start().starts_with('[') {
        (Reading::default(), Draft::default())
    } else {
        let mut tasks = 0;
        let head = parse(text, Head { plain, tasks: &mut tasks })?;
        let head = reader.head(&Value::without_place(head), tasks);
        if !reader.found.is_empty() {
            return None;
        }
        head
    };
    // Each task is an object; those within tasks take room for a moment only.
    let tasks = &mut reading.plan.tasks;
    tasks.reserve_exact(objects(text).min(PLAN_VALUES_MAX / 2));
    parse(text, Tasks { plain, reader: &mut reader, defaults: &defaults, tasks })?;
    tasks.shrink_to_fit();
    Some(reading)
}

/// How many objects begin in a text, at most; some bytes at a time, so that many are looked at at once.
fn objects(text: &str) -> usize {
    let of = |bytes: &[u8]| bytes.iter().map(|byte| u8::from(*byte == b'{')).sum::<u8>();
    text.as_bytes().chunks(usize::from(u8::MAX)).map(|bytes| usize::from(of(bytes))).sum()
}

fn parse<'t, V: Visitor<'t>>(text: &'t str, visitor: V) -> Option<V::Value> {
    let mut parser = serde_json::Deserializer::from_str(text);
    let value = parser.deserialize_any(visitor).ok()?;
    parser.end().ok().map(|()| value)
}

/// Whoever reads with care says what is wrong.
fn wrong<E: Error>() -> E {
    E::custom("to be read with care")
}

/// Reads all but the tasks, in whose place it leaves an empty list, and counts those.
struct Head<'c> {
    plain: Plain<'c>,
    tasks: &'c mut usize,
}

impl<'t> Visitor<'t> for Head<'_> {
    type Value = Content<'t>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a plan")
    }

    fn visit_map<A: MapAccess<'t>>(self, mut entries: A) -> Result<Content<'t>, A::Error> {
        let mut fields = Vec::new();
        while let Some(name) = entries.next_key_seed(Name)? {
            self.plain.count(1)?;
            let value = if name == TASKS {
                *self.tasks = entries.next_value::<Vec<IgnoredAny>>()?.len();
                Value::without_place(Content::List(Vec::new()))
            } else {
                entries.next_value_seed(self.plain)?
            };
            fields.push(Field { start: 0, name, value });
        }
        Ok(Content::Object(fields))
    }
}

/// Reads the tasks only.
struct Tasks<'c> {
    plain: Plain<'c>,
    reader: &'c mut Reader,
    defaults: &'c Draft,
    tasks: &'c mut Vec<TaskSpec>,
}

impl<'t> Visitor<'t> for Tasks<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a plan")
    }

    fn visit_map<A: MapAccess<'t>>(self, mut entries: A) -> Result<(), A::Error> {
        let Self { plain, reader, defaults, tasks } = self;
        while let Some(name) = entries.next_key_seed(Name)? {
            if name == TASKS {
                let (reader, tasks) = (&mut *reader, &mut *tasks);
                entries.next_value_seed(Tasks { plain, reader, defaults, tasks })?;
            } else {
                entries.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'t>>(self, mut elements: A) -> Result<(), A::Error> {
        let Self { plain, reader, defaults, tasks } = self;
        let mut places = defaults.places.clone();
        loop {
            let (reader, places) = (&mut *reader, &mut places);
            let task = Task { plain, reader, defaults: &defaults.spec, places, tasks: &mut *tasks };
            if elements.next_element_seed(task)?.is_none() {
                return plain.count(usize::from(tasks.is_empty()));
            }
        }
    }
}

impl<'t> DeserializeSeed<'t> for Tasks<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'t>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

/// Reads a task, and adds it to the others.
struct Task<'c> {
    plain: Plain<'c>,
    reader: &'c mut Reader,
    defaults: &'c TaskSpec,
    /// Nobody asks for them here.
    places: &'c mut Places,
    tasks: &'c mut Vec<TaskSpec>,
}

impl<'t> DeserializeSeed<'t> for Task<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'t>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'t> Visitor<'t> for Task<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a task")
    }

    fn visit_map<A: MapAccess<'t>>(self, mut entries: A) -> Result<(), A::Error> {
        let Self { plain, reader, defaults, places, tasks } = self;
        // A task is large: it is made where it stays.
        tasks.push(defaults.clone());
        let spec = tasks.last_mut().ok_or_else(wrong)?;
        let (mut has_id, mut has_estimate, mut seen) = (false, false, 0_u32);
        while let Some(place) = entries.next_key_seed(Known(task::FIELDS))? {
            plain.count(1)?;
            if seen >> place & 1 == 1 {
                return Err(wrong());
            }
            seen |= 1 << place;
            match task::FIELDS[place] {
                "id" => {
                    has_id = true;
                    spec.id = entries.next_value_seed(Id)?;
                }
                "depends_on" => {
                    entries.next_value_seed(Ids { plain, ids: &mut spec.depends_on })?;
                }
                field => {
                    has_estimate |= field == "estimate";
                    reader.field(spec, places, field, &entries.next_value_seed(plain)?);
                }
            }
        }
        reader.estimate_by_role(spec, has_estimate);
        plain.count(1)?;
        if has_id && reader.found.is_empty() { Ok(()) } else { Err(wrong()) }
    }
}

/// One of these names, by its place.
struct Known(&'static [&'static str]);

impl<'t> DeserializeSeed<'t> for Known {
    type Value = usize;

    fn deserialize<D: Deserializer<'t>>(self, deserializer: D) -> Result<usize, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Known {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<usize, E> {
        self.0.iter().position(|known| *known == name).ok_or_else(wrong)
    }
}

/// Reads the id of a task.
struct Id;

impl<'t> DeserializeSeed<'t> for Id {
    type Value = TaskId;

    fn deserialize<D: Deserializer<'t>>(self, deserializer: D) -> Result<TaskId, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Id {
    type Value = TaskId;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an id")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<TaskId, E> {
        TaskId::parse(text).map_err(|_| wrong())
    }
}

/// Reads the ids of what a task depends on.
struct Ids<'c> {
    plain: Plain<'c>,
    ids: &'c mut Vec<TaskId>,
}

impl<'t> DeserializeSeed<'t> for Ids<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'t>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'t> Visitor<'t> for Ids<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ids")
    }

    fn visit_seq<A: SeqAccess<'t>>(self, mut elements: A) -> Result<(), A::Error> {
        while let Some(id) = elements.next_element_seed(Id)? {
            self.ids.push(id);
        }
        self.plain.count(self.ids.len().max(1))
    }
}

/// Makes a tree of what serde finds.
#[derive(Clone, Copy)]
struct Plain<'c> {
    /// How many values there are so far, as [`scan`](super::text::scan) counts them.
    values: &'c Cell<usize>,
}

impl Plain<'_> {
    /// Counts the values in a list or an object; an empty one counts too.
    fn count<E: Error>(self, values: usize) -> Result<(), E> {
        self.values.set(self.values.get() + values);
        if self.values.get() > PLAN_VALUES_MAX { Err(wrong()) } else { Ok(()) }
    }
}

impl<'t> DeserializeSeed<'t> for Plain<'_> {
    type Value = Value<'t>;

    fn deserialize<D: Deserializer<'t>>(self, deserializer: D) -> Result<Value<'t>, D::Error> {
        deserializer.deserialize_any(self).map(Value::without_place)
    }
}

impl<'t> Visitor<'t> for Plain<'_> {
    type Value = Content<'t>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Content<'t>, E> {
        Ok(Content::Null)
    }

    fn visit_bool<E>(self, truth: bool) -> Result<Content<'t>, E> {
        Ok(Content::Truth(truth))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Content<'t>, E> {
        Ok(Content::Number(number.to_string().into()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Content<'t>, E> {
        Ok(Content::Number(number.to_string().into()))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Content<'t>, E> {
        // It may have been written as a whole number, which is another 0.
        if number == 0.0 && number.is_sign_negative() {
            return Err(wrong());
        }
        // This form has a point or an exponent, so that it does not read as a whole number.
        Ok(Content::Number(format!("{number:?}").into()))
    }

    fn visit_borrowed_str<E>(self, text: &'t str) -> Result<Content<'t>, E> {
        Ok(Content::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Content<'t>, E> {
        Ok(Content::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'t>>(self, mut elements: A) -> Result<Content<'t>, A::Error> {
        let mut list = Vec::new();
        while let Some(element) = elements.next_element_seed(self)? {
            self.count(1)?;
            list.push(element);
        }
        if list.is_empty() {
            self.count(1)?;
        }
        Ok(Content::List(list))
    }

    fn visit_map<A: MapAccess<'t>>(self, mut entries: A) -> Result<Content<'t>, A::Error> {
        let mut fields = Vec::new();
        while let Some(name) = entries.next_key_seed(Name)? {
            self.count(1)?;
            // Built with numbers of any precision, serde hands them over as objects with such a field.
            if name.starts_with("$serde_json::") {
                return Err(wrong());
            }
            let value = entries.next_value_seed(self)?;
            fields.push(Field { start: 0, name, value });
        }
        if fields.is_empty() {
            self.count(1)?;
        }
        Ok(Content::Object(fields))
    }
}

/// The name of a field, borrowed where nothing is escaped in it.
struct Name;

impl<'t> DeserializeSeed<'t> for Name {
    type Value = Cow<'t, str>;

    fn deserialize<D: Deserializer<'t>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'t> Visitor<'t> for Name {
    type Value = Cow<'t, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_borrowed_str<E>(self, text: &'t str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}
