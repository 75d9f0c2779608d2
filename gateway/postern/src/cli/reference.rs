//! The command line of `postern reference`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// `postern reference`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postern reference --out docs/reference
  postern reference --lang nb --out referanse")]
pub(crate) struct Reference {
    /// Language
    #[arg(long, value_enum, env = "POSTERN_LANG", default_value_t)]
    pub(crate) lang: Language,
    /// Folder for the pages; it is made if need be, and pages in it are replaced
    #[arg(long, value_name = "DIR", env = "POSTERN_OUT")]
    pub(crate) out: PathBuf,
}

/// Languages of the reference.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum Language {
    /// English
    #[default]
    En,
    /// Norsk bokmål
    Nb,
    /// Español
    Es,
}
