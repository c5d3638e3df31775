//! Where recordings, source files and explanations come from.

use std::{io, rc::Rc};

use analysis::{Events, explain::Entry};
use model::profile::Profile;
use serde::Deserialize;

use crate::inbox::Cancel;

/// A recording that can be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name, by which it is opened.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// When it was written, in seconds since 1970.
    pub written_s: u64,
}

/// Which part of a recording is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Selection {
    /// A process.
    pub pid: Option<u32>,
    /// A rank.
    pub rank: Option<u32>,
    /// A GPU, as it is shown.
    pub device: Option<String>,
    /// A pattern for kernels.
    pub kernel: Option<String>,
    /// A pattern for frames of stacks.
    pub path: Option<String>,
    /// A step: its number, or `slowest`.
    pub step: Option<String>,
    /// From this time after the start, such as `1.5s`.
    pub from: Option<String>,
    /// Until this time after the start.
    pub to: Option<String>,
}

/// Opens the events of a recording from their beginning.
pub type Open = Box<dyn Fn() -> io::Result<Events<'static>>>;

/// An open recording, or a part of one.
pub struct Opened {
    /// What it adds up to.
    pub profile: Profile,
    /// Its events.
    pub events: Open,
}

/// A source file of the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// Its path below the directory that the user has given.
    pub path: String,
    /// Its text.
    pub text: String,
}

/// A query in SQL: one SELECT statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// The statement.
    pub text: String,
    /// The first row that is wanted.
    pub from: usize,
    /// The most rows.
    pub rows: usize,
    /// The bytes of rows that are useful.
    pub bytes: usize,
}

/// Rows of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows {
    /// An object of JSON for each, in which numbers may be `Infinity` or `NaN`.
    pub lines: Vec<String>,
    /// There were no more bytes.
    pub is_all: bool,
}

/// What the server may read and do. Every error is one sentence for the agent.
pub trait Library {
    /// Returns the recordings, and whether these are all: a search that takes too long ends early.
    fn recordings(&mut self) -> Result<(Vec<Listed>, bool), String>;

    /// Opens a recording by its name.
    fn open(&mut self, name: &str, selection: &Selection) -> Result<Rc<Opened>, String>;

    /// Returns the names of the tables of recordings, if SQL is available.
    fn tables(&self) -> Option<&'static [&'static str]>;

    /// Runs a query over the tables of a recording. It must not have any other effect.
    fn query(&mut self, name: &str, selection: &Selection, query: &Query, cancel: &Cancel) -> Result<Rows, String>;

    /// Whether source files may be read.
    fn has_sources(&self) -> bool;

    /// Reads the source file with this path or, if it is not absolute, with this name. It must be below a directory that the user
    /// has given.
    fn source(&self, path: &str) -> Result<SourceFile, String>;

    /// Returns what is explained.
    fn explanations(&self) -> &[Entry];

    /// Returns the command that may be recorded, if the user has allowed it.
    fn command(&self) -> Option<String>;

    /// Records it. Returns the name of the recording, and the end of what the command printed.
    fn record(&mut self, cancel: &Cancel) -> Result<(String, String), String>;
}
