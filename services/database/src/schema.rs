//! What tells the tables of one service from those of another, and how they are made.

/// What a service's database is known by, and how it is made.
#[derive(Debug)]
pub struct Schema {
    /// PostgreSQL's schema: several services can share one database. A plain lower-case name, which goes into statements as it is.
    pub name: &'static str,
    /// SQLite's `application_id`: tells one service's file from another's. On PostgreSQL the number of the advisory lock that
    /// writing transactions of the schema take.
    pub application_id: i64,
    /// One script for each version of the SQLite file, from 1. Scripts only ever add.
    pub sqlite: &'static [&'static str],
    /// The same for PostgreSQL, which may have begun later.
    pub postgres: &'static [&'static str],
}

impl Schema {
    /// The version that all scripts lead to.
    pub(crate) fn newest(scripts: &[&str]) -> i64 {
        i64::try_from(scripts.len()).unwrap_or(i64::MAX)
    }

    /// The scripts after those of version `found`; `None` when that is a version that this program does not know.
    pub(crate) fn pending<'a>(
        scripts: &'a [&'static str],
        found: i64,
    ) -> Option<&'a [&'static str]> {
        scripts.get(usize::try_from(found).ok()?..)
    }
}
