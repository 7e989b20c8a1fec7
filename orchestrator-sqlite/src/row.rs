//! Values of rows: how numbers, words and structures stand in columns.

use std::error::Error;
use std::str::FromStr;

use orchestrator_core::port::StoreError;
use rusqlite::Row;
use rusqlite::types::{FromSql, FromSqlError, ToSqlOutput, Value, ValueRef};
use serde::Serialize;
use serde::de::value::{Error as WordError, StrDeserializer};
use serde::de::{DeserializeOwned, IntoDeserializer as _};

use crate::error::corrupt;

/// The columns of one row, read from left to right; the first one names the row.
pub(crate) struct Fields<'row> {
    row: &'row Row<'row>,
    table: &'static str,
    at: usize,
}

/// A column of a phase or state has no value there, or one that it must not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unfit {
    #[error("the value is missing")]
    Missing,
    #[error("`{0}` is none of the values that belong here")]
    Word(String),
    #[error("{0} is out of range")]
    Number(i64),
    #[error("in this phase there is no value")]
    Odd,
}

impl<'row> Fields<'row> {
    pub(crate) const fn new(table: &'static str, row: &'row Row<'row>) -> Self {
        Self { row, table, at: 0 }
    }

    /// Passes over columns that mean nothing in this row.
    pub(crate) const fn skip(&mut self, columns: usize) {
        self.at += columns;
    }

    /// The next column, as SQLite has it.
    pub(crate) fn raw<T: FromSql>(&mut self) -> Result<T, StoreError> {
        self.at += 1;
        let value = self.row.get(self.at - 1);
        value.map_err(|err| self.unfit(err))
    }

    pub(crate) fn text(&mut self) -> Result<&'row str, StoreError> {
        let text = self.opt_text()?;
        text.ok_or_else(|| self.unfit(Unfit::Missing))
    }

    pub(crate) fn opt_text(&mut self) -> Result<Option<&'row str>, StoreError> {
        self.at += 1;
        let value = self.row.get_ref(self.at - 1);
        let value = value.map_err(|err| self.unfit(err))?;
        let text = value.as_str_or_null();
        text.map_err(|err: FromSqlError| self.unfit(err))
    }

    /// A number of 64 bits; those from 2^63 on stand there as negative ones.
    pub(crate) fn u64(&mut self) -> Result<u64, StoreError> {
        Ok(self.raw::<i64>()?.cast_unsigned())
    }

    pub(crate) fn opt_u64(&mut self) -> Result<Option<u64>, StoreError> {
        Ok(self.raw::<Option<i64>>()?.map(i64::cast_unsigned))
    }

    /// A number that fits a smaller type.
    pub(crate) fn int<T: TryFrom<i64>>(&mut self) -> Result<T, StoreError> {
        let number = self.raw::<i64>()?;
        T::try_from(number).map_err(|_| self.unfit(Unfit::Number(number)))
    }

    pub(crate) fn opt_int<T: TryFrom<i64>>(&mut self) -> Result<Option<T>, StoreError> {
        let number = self.raw::<Option<i64>>()?;
        let fits = |number| T::try_from(number).map_err(|_| self.unfit(Unfit::Number(number)));
        number.map(fits).transpose()
    }

    /// Yes or no, as 1 or 0.
    pub(crate) fn flag(&mut self) -> Result<bool, StoreError> {
        match self.raw::<i64>()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(self.unfit(Unfit::Number(other))),
        }
    }

    /// A column that has no value in this row.
    pub(crate) fn nothing(&mut self) -> Result<(), StoreError> {
        let is_nothing = self.raw::<Value>()? == Value::Null;
        if is_nothing { Ok(()) } else { Err(self.unfit(Unfit::Odd)) }
    }

    /// A text that is checked when it is parsed, an id say.
    pub(crate) fn parsed<T>(&mut self) -> Result<T, StoreError>
    where
        T: FromStr<Err: Error + Send + Sync + 'static>,
    {
        let text = self.text()?;
        text.parse().map_err(|err| self.unfit(err))
    }

    pub(crate) fn opt_parsed<T>(&mut self) -> Result<Option<T>, StoreError>
    where
        T: FromStr<Err: Error + Send + Sync + 'static>,
    {
        let text = self.opt_text()?;
        text.map(str::parse).transpose().map_err(|err| self.unfit(err))
    }

    /// A text that is often the same as in a row before.
    pub(crate) fn opt_shared<T>(
        &mut self,
        last: &mut Option<T>,
        as_str: fn(&T) -> &str,
    ) -> Result<Option<T>, StoreError>
    where
        T: FromStr<Err: Error + Send + Sync + 'static> + Clone,
    {
        let Some(text) = self.opt_text()? else { return Ok(None) };
        if last.as_ref().is_none_or(|last| as_str(last) != text) {
            *last = Some(text.parse().map_err(|err| self.unfit(err))?);
        }
        Ok(last.clone())
    }

    pub(crate) fn shared<T>(
        &mut self,
        last: &mut Option<T>,
        as_str: fn(&T) -> &str,
    ) -> Result<T, StoreError>
    where
        T: FromStr<Err: Error + Send + Sync + 'static> + Clone,
    {
        let value = self.opt_shared(last, as_str)?;
        value.ok_or_else(|| self.unfit(Unfit::Missing))
    }

    /// A value without fields, as its name.
    pub(crate) fn word<T: DeserializeOwned>(&mut self) -> Result<T, StoreError> {
        let word = self.opt_word()?;
        word.ok_or_else(|| self.unfit(Unfit::Missing))
    }

    pub(crate) fn opt_word<T: DeserializeOwned>(&mut self) -> Result<Option<T>, StoreError> {
        let Some(word) = self.opt_text()? else { return Ok(None) };
        let from: StrDeserializer<'_, WordError> = word.into_deserializer();
        T::deserialize(from).map(Some).map_err(|_| self.unfit(Unfit::Word(word.to_owned())))
    }

    /// A structure, as JSON.
    pub(crate) fn json<T: DeserializeOwned>(&mut self) -> Result<T, StoreError> {
        let text = self.text()?;
        self.again_as_json(text)
    }

    /// The column that was read last, as JSON.
    pub(crate) fn again_as_json<T: DeserializeOwned>(&self, text: &str) -> Result<T, StoreError> {
        serde_json::from_str(text).map_err(|err| self.unfit(err))
    }

    pub(crate) fn opt_json<T: DeserializeOwned>(&mut self) -> Result<Option<T>, StoreError> {
        let text = self.opt_text()?;
        text.map(serde_json::from_str).transpose().map_err(|err| self.unfit(err))
    }

    /// A fault of the column that was read last.
    pub(crate) fn unfit(&self, cause: impl Error + Send + Sync + 'static) -> StoreError {
        let at = self.at.saturating_sub(1);
        let column = self.row.as_ref().column_name(at).unwrap_or("?").to_owned();
        let row = match self.row.get_ref(0) {
            Ok(ValueRef::Text(text)) => String::from_utf8_lossy(text).into_owned(),
            Ok(ValueRef::Integer(number)) => number.to_string(),
            Ok(ValueRef::Null | ValueRef::Real(_) | ValueRef::Blob(_)) | Err(_) => "?".to_owned(),
        };
        corrupt(self.table, format_args!("row `{row}`, column `{column}`"), cause)
    }
}

/// A value as it is bound to a statement.
pub(crate) type Bound<'a> = ToSqlOutput<'a>;

pub(crate) const NULL: Bound<'static> = ToSqlOutput::Owned(Value::Null);

pub(crate) const fn text(text: &str) -> Bound<'_> {
    ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes()))
}

pub(crate) fn opt_text(value: Option<&str>) -> Bound<'_> {
    value.map_or(NULL, text)
}

pub(crate) const fn int(number: u64) -> Bound<'static> {
    ToSqlOutput::Owned(Value::Integer(number.cast_signed()))
}

pub(crate) fn opt_int(number: Option<u64>) -> Bound<'static> {
    number.map_or(NULL, int)
}

/// A value without fields, by its name.
pub(crate) fn word<T: Serialize>(value: T) -> Bound<'static> {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => ToSqlOutput::Owned(Value::Text(word)),
        // A column that takes no NULL then refuses the row.
        _ => NULL,
    }
}

pub(crate) fn json<T: Serialize>(value: &T) -> Bound<'static> {
    serde_json::to_string(value).map_or(NULL, |text| ToSqlOutput::Owned(Value::Text(text)))
}
