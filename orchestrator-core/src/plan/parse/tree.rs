//! A text as a tree of values.
//!
//! The parser that knows comments tells where what is; what is read without it has no places. Whoever
//! goes through the tree need not know in which way it was made.

use std::borrow::Cow;

use jsonc_parser::ast;
use jsonc_parser::common::Ranged as _;
/// A value, and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Value<'t> {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) content: Content<'t>,
}

/// What a value is.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Content<'t> {
    Text(Cow<'t, str>),
    /// As it was written; read without places, a form that reads as the same number of the same kind.
    Number(Cow<'t, str>),
    Truth(bool),
    Null,
    List(Vec<Value<'t>>),
    Object(Vec<Field<'t>>),
}

/// A field of an object.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Field<'t> {
    pub(super) start: usize,
    pub(super) name: Cow<'t, str>,
    pub(super) value: Value<'t>,
}

/// A value that is an object.
#[derive(Debug, Clone, Copy)]
pub(super) struct Object<'v> {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) fields: &'v [Field<'v>],
}

impl<'v> Object<'v> {
    /// The field of this name that stands first.
    pub(super) fn field(&self, name: &str) -> Option<&'v Field<'v>> {
        self.fields.iter().find(|field| field.name == name)
    }
}

impl<'t> Value<'t> {
    pub(super) const fn without_place(content: Content<'t>) -> Self {
        Self { start: 0, end: 0, content }
    }

    pub(super) fn as_text(&self) -> Option<&str> {
        if let Content::Text(text) = &self.content { Some(text) } else { None }
    }

    pub(super) fn as_number(&self) -> Option<&str> {
        if let Content::Number(number) = &self.content { Some(number) } else { None }
    }

    pub(super) fn as_list(&self) -> Option<&[Self]> {
        if let Content::List(list) = &self.content { Some(list) } else { None }
    }

    pub(super) fn as_object(&self) -> Option<Object<'_>> {
        let Content::Object(fields) = &self.content else { return None };
        Some(Object { start: self.start, end: self.end, fields })
    }

    /// How many values there are in this one, with itself, and how many bytes of text.
    pub(super) fn size(&self) -> (usize, usize) {
        let sum = |(values, bytes), (more, longer): (usize, usize)| (values + more, bytes + longer);
        match &self.content {
            Content::Text(text) | Content::Number(text) => (1, text.len()),
            Content::Truth(_) | Content::Null => (1, 0),
            Content::List(list) => list.iter().map(Self::size).fold((1, 0), sum),
            Content::Object(fields) => {
                let sizes =
                    fields.iter().map(|field| sum((0, field.name.len()), field.value.size()));
                sizes.fold((1, 0), sum)
            }
        }
    }
}

impl<'t> From<ast::Value<'t>> for Value<'t> {
    fn from(value: ast::Value<'t>) -> Self {
        let (start, end) = (value.start(), value.end());
        let content = match value {
            ast::Value::StringLit(text) => Content::Text(text.value),
            ast::Value::NumberLit(number) => Content::Number(Cow::Borrowed(number.value)),
            ast::Value::BooleanLit(truth) => Content::Truth(truth.value),
            ast::Value::NullKeyword(_) => Content::Null,
            ast::Value::Array(list) => {
                Content::List(list.elements.into_iter().map(Self::from).collect())
            }
            ast::Value::Object(object) => {
                Content::Object(object.properties.into_iter().map(Field::from).collect())
            }
        };
        Self { start, end, content }
    }
}

impl<'t> From<ast::ObjectProp<'t>> for Field<'t> {
    fn from(property: ast::ObjectProp<'t>) -> Self {
        let start = property.start();
        let name = match property.name {
            ast::ObjectPropName::String(name) => name.value,
            ast::ObjectPropName::Word(name) => Cow::Borrowed(name.value),
        };
        Self { start, name, value: property.value.into() }
    }
}
