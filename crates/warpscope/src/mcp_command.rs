//! `mcp`: serves recordings to agents. What they may read and do is decided here; the `mcp` crate answers.

use std::{
    cell::OnceCell,
    ffi::OsString,
    fs::Metadata,
    io::{self, BufReader, IsTerminal},
    os::unix::fs::MetadataExt,
    path::PathBuf,
    process::ExitCode,
    rc::Rc,
};

use analysis::explain::Entry;
use anyhow::Context;
use collect::command::user::User;
use mcp::{Cancel, Library, Listed, Opened, Query, Rows, Selection, Server, SourceFile};

use crate::{
    args, explanations,
    load::{Find, load_open},
    recordings::Recordings,
    say::{say, sentence},
};

mod beneath;
mod duckdb;
mod recorder;

use beneath::Directory;
use duckdb::{DuckDb, Tables};

/// Recordings that stay open: two, so that they can be compared.
const OPEN: usize = 2;
/// The largest source file that is read.
const LARGEST_SOURCE: u64 = 4 << 20;

/// Runs the command until its input ends.
pub fn run(options: args::Mcp) -> anyhow::Result<ExitCode> {
    let user = User::behind_sudo();
    let open =
        |path: &PathBuf| Directory::open(path, user.clone()).with_context(|| format!("cannot open {}", path.display()));
    let here = [PathBuf::from(".")];
    let recordings = if options.recordings.is_empty() { &here[..] } else { &options.recordings };
    let files = Files {
        recordings: recordings.iter().map(open).collect::<anyhow::Result<_>>()?,
        sources: options.source.iter().map(open).collect::<anyhow::Result<_>>()?,
        command: options.command,
        explanations: explanations::entries(),
        open: Vec::new(),
        duckdb: OnceCell::new(),
        user,
    };
    if io::stdin().is_terminal() {
        say("waiting for the requests of an agent on stdin: docs/agents.md says how to connect one");
    }
    mcp::serve(Server::new(files), BufReader::new(io::stdin()), io::stdout())?;
    Ok(ExitCode::SUCCESS)
}

/// The files that an agent may read.
struct Files {
    recordings: Vec<Directory>,
    sources: Vec<Directory>,
    /// The arguments of `record`; empty if nothing may be recorded.
    command: Vec<OsString>,
    explanations: Vec<Entry>,
    /// The last one is the one that was used last.
    open: Vec<Open>,
    /// Looked for when tools are first listed or called.
    duckdb: OnceCell<Option<DuckDb>>,
    user: Option<User>,
}

/// An open recording.
struct Open {
    key: Key,
    opened: Rc<Opened>,
    /// Written for the first query.
    tables: Option<Tables>,
}

impl Files {
    fn duckdb(&self) -> Option<&DuckDb> {
        self.duckdb.get_or_init(|| DuckDb::find(self.user.clone())).as_ref()
    }
}

/// A recording and the part of it that is shown. A file that was written again is another one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Key {
    name: String,
    selection: Selection,
    file: (u64, u64, u64, i64, i64),
}

impl Key {
    fn of(name: &str, selection: &Selection, file: &Metadata) -> Self {
        let file = (file.dev(), file.ino(), file.len(), file.mtime(), file.mtime_nsec());
        Self { name: name.to_owned(), selection: selection.clone(), file }
    }
}

impl Library for Files {
    fn recordings(&mut self) -> Result<(Vec<Listed>, bool), String> {
        let (mut all, mut is_complete) = (Vec::new(), true);
        for directory in &self.recordings {
            let found = directory.files(&|name| name.ends_with(".wscope")).map_err(|error| error.to_string())?;
            is_complete &= found.is_complete;
            all.extend(found.files.into_iter().map(|file| Listed {
                name: file.name,
                bytes: file.bytes,
                written_s: file.written_s,
            }));
        }
        all.sort_by(|a, b| b.written_s.cmp(&a.written_s).then(a.name.cmp(&b.name)));
        all.dedup_by(|a, b| a.name == b.name);
        Ok((all, is_complete))
    }

    fn open(&mut self, name: &str, selection: &Selection) -> Result<Rc<Opened>, String> {
        if !name.ends_with(".wscope") {
            return Err("a recording ends in .wscope: list_recordings has the names".to_owned());
        }
        let file = self.recordings.iter().find_map(|directory| directory.file(name).ok());
        let file =
            file.ok_or("there is no such recording below the directories of this server: see list_recordings")?;
        let key = Key::of(name, selection, &file.metadata().map_err(|error| error.to_string())?);
        if let Some(at) = self.open.iter().position(|known| known.key == key) {
            let known = self.open.remove(at);
            self.open.push(known);
        } else {
            // Before another one is read, so that no more than this number is in memory.
            while self.open.len() >= OPEN {
                self.open.remove(0);
            }
            let opened = opened(name, file, selection).map_err(|error| sentence(&error))?;
            self.open.push(Open { key, opened: Rc::new(opened), tables: None });
        }
        self.open.last().map(|open| open.opened.clone()).ok_or_else(|| "nothing is open".to_owned())
    }

    fn tables(&self) -> Option<&'static [&'static str]> {
        self.duckdb().map(|_| duckdb::names())
    }

    fn query(&mut self, name: &str, selection: &Selection, query: &Query, cancel: &Cancel) -> Result<Rows, String> {
        let opened = self.open(name, selection)?;
        let tables = match self.open.last_mut().and_then(|open| open.tables.take()) {
            Some(tables) => tables,
            None => Tables::write(&opened, self.user.as_ref()).map_err(|error| sentence(&error))?,
        };
        let duckdb = self.duckdb().ok_or("there is no DuckDB")?;
        let rows = duckdb.run(&tables, query, &|| cancel.is_cancelled()).map_err(|error| sentence(&error));
        if let Some(open) = self.open.last_mut() {
            open.tables = Some(tables);
        }
        rows
    }

    fn has_sources(&self) -> bool {
        !self.sources.is_empty()
    }

    fn source(&self, path: &str) -> Result<SourceFile, String> {
        let found = self.sources.iter().find_map(|directory| directory.text(path, LARGEST_SOURCE).transpose());
        let (path, text) = found.transpose()?.ok_or("the file is not below the directories given with --source")?;
        Ok(SourceFile { path, text })
    }

    fn explanations(&self) -> &[Entry] {
        &self.explanations
    }

    fn command(&self) -> Option<String> {
        let words: Vec<_> = self.command.iter().map(|word| word.to_string_lossy()).collect();
        (!words.is_empty()).then(|| words.join(" "))
    }

    fn record(&mut self, cancel: &Cancel) -> Result<(String, String), String> {
        let directory = self.recordings.first().ok_or("there is no directory to write to")?;
        recorder::record(directory.path(), &self.command, &|| cancel.is_cancelled()).map_err(|error| sentence(&error))
    }
}

/// Reads a recording.
fn opened(name: &str, file: std::fs::File, selection: &Selection) -> anyhow::Result<Opened> {
    let Selection { pid, rank, device, kernel, path, step, from, to } = selection.clone();
    let filters = args::Filters {
        pid: pid.into_iter().collect(),
        rank,
        device: device.into_iter().collect(),
        kernel: kernel.into_iter().collect(),
        path: path.into_iter().collect(),
        step: step.into_iter().collect(),
        from,
        to,
        ..args::Filters::default()
    };
    let loaded = load_open(Recordings::of(name.into(), file), &filters, Find::Outliers)?;
    let (source, filter) = (loaded.source, loaded.filter);
    Ok(Opened { profile: loaded.profile, events: Box::new(move || source.events(filter.clone())) })
}
