//! Values that go into a statement and rows that come out, on either database.

use postern_types::Timestamp;
use sqlx::{Row as _, postgres::PgRow, sqlite::SqliteRow};

use crate::Error;

/// A value of a statement.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// A text.
    Text(&'a str),
    /// A text, or NULL.
    OptionalText(Option<&'a str>),
    /// A number.
    Number(i64),
    /// A number, or NULL.
    OptionalNumber(Option<i64>),
    /// Bytes.
    Bytes(&'a [u8]),
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a String> for Value<'a> {
    fn from(text: &'a String) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<Option<&'a str>> for Value<'a> {
    fn from(text: Option<&'a str>) -> Self {
        Self::OptionalText(text)
    }
}

impl From<i64> for Value<'_> {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<Timestamp> for Value<'_> {
    fn from(instant: Timestamp) -> Self {
        Self::Number(instant.as_millis())
    }
}

impl From<Option<Timestamp>> for Value<'_> {
    fn from(instant: Option<Timestamp>) -> Self {
        Self::OptionalNumber(instant.map(Timestamp::as_millis))
    }
}

impl<'a> From<&'a [u8]> for Value<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Bytes(bytes)
    }
}

/// The values of a statement, in the order of their numbers.
#[macro_export]
macro_rules! values {
    ($($value:expr),* $(,)?) => {
        &[$($crate::Value::from($value)),*]
    };
}

/// A statement with its values. A macro, because the two databases have types of their own for it.
macro_rules! bound {
    ($query:expr, $values:expr) => {{
        let mut query = $query;
        for value in $values {
            query = match *value {
                $crate::Value::Text(text) => query.bind(text),
                $crate::Value::OptionalText(text) => query.bind(text),
                $crate::Value::Number(number) => query.bind(number),
                $crate::Value::OptionalNumber(number) => query.bind(number),
                $crate::Value::Bytes(bytes) => query.bind(bytes),
            };
        }
        query
    }};
}

/// The rows of a statement.
macro_rules! fetch {
    ($row:path, $executor:expr, $sql:expr, $values:expr) => {{
        let rows = $crate::statement::bound!(sqlx::query($sql), $values)
            .fetch_all($executor)
            .await?;
        Ok(rows.into_iter().map($row).collect())
    }};
}

pub(crate) use {bound, fetch};

/// A row.
#[derive(Debug)]
pub enum Row {
    /// Of SQLite.
    Sqlite(SqliteRow),
    /// Of PostgreSQL.
    Postgres(PgRow),
}

macro_rules! cell {
    ($row:expr, $column:expr) => {
        match $row {
            Row::Sqlite(row) => row.try_get($column)?,
            Row::Postgres(row) => row.try_get($column)?,
        }
    };
}

impl Row {
    /// A column's text.
    ///
    /// # Errors
    /// When there is no such column, or it holds something else.
    pub fn text(&self, column: &'static str) -> Result<String, Error> {
        Ok(cell!(self, column))
    }

    /// A column's text, or nothing for NULL.
    ///
    /// # Errors
    /// When there is no such column, or it holds something else.
    pub fn optional_text(&self, column: &'static str) -> Result<Option<String>, Error> {
        Ok(cell!(self, column))
    }

    /// A column's number.
    ///
    /// # Errors
    /// When there is no such column, or it holds something else.
    pub fn number(&self, column: &'static str) -> Result<i64, Error> {
        Ok(cell!(self, column))
    }

    /// A column's bytes.
    ///
    /// # Errors
    /// When there is no such column, or it holds something else.
    pub fn bytes(&self, column: &'static str) -> Result<Vec<u8>, Error> {
        Ok(cell!(self, column))
    }

    /// A column's time, stored as milliseconds since 1970 UTC.
    ///
    /// # Errors
    /// When there is no such column, or it holds something else.
    pub fn instant(&self, column: &'static str) -> Result<Timestamp, Error> {
        Ok(Timestamp::from_millis(self.number(column)?))
    }

    /// A column's time, or nothing for NULL.
    ///
    /// # Errors
    /// When there is no such column, or it holds something else.
    pub fn optional_instant(&self, column: &'static str) -> Result<Option<Timestamp>, Error> {
        let millis: Option<i64> = cell!(self, column);
        Ok(millis.map(Timestamp::from_millis))
    }
}
