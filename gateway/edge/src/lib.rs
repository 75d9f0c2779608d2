//! The owner's instance: channel client, call pipeline and owner API.
