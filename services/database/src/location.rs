//! Where a database is, as it is written on a command line.

use std::{fmt, path::PathBuf, str::FromStr};

use sqlx::postgres::PgConnectOptions;

/// A database. What it shows of itself holds no password.
#[derive(Clone)]
pub enum Database {
    /// A SQLite file. Made, for its owner alone, when it is missing.
    Sqlite(PathBuf),
    /// A PostgreSQL server and a database on it, with a schema of the service's own in that.
    Postgres(Server),
}

/// A PostgreSQL server, and how to log in there.
#[derive(Clone)]
pub struct Server(Box<PgConnectOptions>);

impl Server {
    /// How to connect there.
    pub(crate) fn options(&self) -> PgConnectOptions {
        PgConnectOptions::clone(&self.0)
    }
}

/// The text names no database. It is not told, because a password may be in it.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "the database's URL cannot be used: {0}; write sqlite:///path/to/file.db or postgres://user@host/database"
)]
pub struct InvalidDatabase(&'static str);

impl FromStr for Database {
    type Err = InvalidDatabase;

    fn from_str(url: &str) -> Result<Self, InvalidDatabase> {
        if let Some(path) = url.strip_prefix("sqlite://") {
            let path = PathBuf::from(path);
            if path.is_absolute() && path.file_name().is_some() {
                return Ok(Self::Sqlite(path));
            }
            return Err(InvalidDatabase("the file's path is not absolute"));
        }
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            let options: PgConnectOptions = url
                .parse()
                .map_err(|_| InvalidDatabase("it is malformed"))?;
            // The driver takes one, and would look for a machine of that name.
            if options.get_host().contains(',') {
                return Err(InvalidDatabase(
                    "it names several servers; name one address that leads to the primary (a proxy, a virtual address, a service name)",
                ));
            }
            if options.get_database().is_none() {
                return Err(InvalidDatabase("it names no database"));
            }
            return Ok(Self::Postgres(Server(Box::new(options))));
        }
        Err(InvalidDatabase("it is neither SQLite's nor PostgreSQL's"))
    }
}

impl fmt::Display for Server {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (options, database) = (&self.0, self.0.get_database().unwrap_or_default());
        match options.get_socket() {
            Some(socket) => write!(formatter, "postgres://{}/{database}", socket.display()),
            None => {
                let (host, port) = (options.get_host(), options.get_port());
                write!(formatter, "postgres://{host}:{port}/{database}")
            }
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(formatter, "sqlite://{}", path.display()),
            Self::Postgres(server) => fmt::Display::fmt(server, formatter),
        }
    }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn databases_are_absolute_files_or_servers_with_a_database() {
        for (url, shown) in [
            ("sqlite:///a/b.db", "sqlite:///a/b.db"),
            (
                "postgres://u:secret@db/p?sslmode=require",
                "postgres://db:5432/p",
            ),
            (
                "postgresql://u:secret@[::1]:6000/p",
                "postgres://[::1]:6000/p",
            ),
            ("postgres:///p?host=/run/pg&user=u", "postgres:///run/pg/p"),
        ] {
            let database: Database = url.parse().expect(url);
            assert_eq!(format!("{database:?}"), shown);
        }
    }

    #[test]
    fn what_is_no_database_is_refused_without_telling_what_was_written() {
        for bad in [
            "",
            "a.db",
            "/a.db",
            "sqlite://a.db",
            "sqlite:///",
            "mysql://u:secret@x/y",
            "postgres://u:secret@host:notaport/y",
            "postgres://u:secret@host/y?sslmode=secret",
            "postgres://u:secret@one,other/y",
            "postgres://u:secret@one:5432,other:5432/y",
            "postgres:///y?host=one,other&password=secret",
        ] {
            let error = bad.parse::<Database>().expect_err(bad);
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
