//! SQL over the tables of a recording, by the `duckdb` program of the user.
//!
//! Nobody has checked the queries: an agent may have written them because a name in a recording asked it to. So
//! - a query is the argument of DuckDB's `query()`, which accepts one SELECT statement, and nothing of it is on a line of its own,
//!   where DuckDB's shell has commands;
//! - DuckDB may read the files of the tables, by their paths, and no other; extensions, secrets, the environment and changes of its
//!   configuration are off;
//! - the process has no capabilities, may not write files or use TCP (`collect::confined`), and is killed at the end of its time.

use std::{
    env,
    fs::{self, File, Permissions},
    io::{self, BufWriter, Seek, Write},
    os::unix::fs::{PermissionsExt, chown},
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use collect::{
    command::{
        user::{User, acting_as},
        workspace::Workspace,
    },
    confined::{self, End, Limits},
};
use export::formats::parquet;
use mcp::{Opened, Query, Rows};
use rustix::fs::{MemfdFlags, memfd_create};

/// The time of a query, with the start of DuckDB.
const TIME: Duration = Duration::from_secs(20);
/// DuckDB's memory, and the address space of its process, which is larger.
const MEMORY: &str = "400MB";
const ADDRESSES: u64 = 8 << 30;
const THREADS: usize = 2;
/// What each row begins with. As values of JSON, large sums are numbers; DuckDB's shell prints them as texts.
const ROW: &str = r#"{"row":"#;
/// The longest row, and the longest error.
const LONGEST_ROW: usize = 64 << 10;
const LONGEST_ERROR: usize = 2_000;

/// The program.
#[derive(Debug)]
pub struct DuckDb {
    path: PathBuf,
    user: Option<User>,
}

/// The tables of a recording, in files that are removed with this.
#[derive(Debug)]
pub struct Tables {
    _workspace: Workspace,
    /// Their names and files.
    files: Vec<(&'static str, PathBuf)>,
}

/// Returns the names of the tables.
pub fn names() -> &'static [&'static str] {
    static NAMES: std::sync::LazyLock<Vec<&str>> =
        std::sync::LazyLock::new(|| parquet::FILES.iter().map(|file| file.trim_end_matches(".parquet")).collect());
    &NAMES
}

impl Tables {
    /// Writes the tables of a recording, for `user` alone.
    pub fn write(opened: &Opened, user: Option<&User>) -> anyhow::Result<Self> {
        let workspace = Workspace::create()?;
        let directory = workspace.make_private_directory("tables").context("cannot create a directory")?;
        let mut create = |name: &str| -> io::Result<Box<dyn Write>> {
            Ok(Box::new(BufWriter::new(File::create_new(directory.join(name))?)))
        };
        let shown = analysis::View::default();
        let written = (opened.events)().and_then(|events| parquet::write(&opened.profile, shown, events, &mut create));
        written.context("cannot write the tables of the recording")?;
        let files: Vec<_> =
            names().iter().zip(parquet::FILES).map(|(name, file)| (*name, directory.join(file))).collect();
        for path in files.iter().map(|(_, path)| path).chain([&directory]) {
            if path != &directory {
                fs::set_permissions(path, Permissions::from_mode(0o400))?;
            }
            if let Some(user) = user {
                chown(path, Some(user.uid), Some(user.gid))?;
            }
        }
        Ok(Self { _workspace: workspace, files })
    }
}

impl DuckDb {
    /// Finds the program in PATH, if it works.
    pub fn find(user: Option<User>) -> Option<Self> {
        let path = env::var_os("PATH")?;
        let candidates =
            env::split_paths(&path).filter(|directory| directory.is_absolute()).map(|one| one.join("duckdb"));
        let is_there =
            |path: &PathBuf| acting_as(user.as_ref(), || fs::metadata(path)).is_ok_and(|file| file.is_file());
        let found = Self { path: candidates.into_iter().find(is_there)?, user };
        // With all that is required of it: an old version does not know how to restrict itself.
        let works = Query { text: "SELECT 42 AS works".to_owned(), from: 0, rows: 1, bytes: 1 << 10 };
        found.query(&[], &works, &|| false).is_ok_and(|rows| rows.lines == [r#"{"works":42}"#]).then_some(found)
    }

    /// Runs a query over tables of a recording.
    pub fn run(&self, tables: &Tables, query: &Query, is_cancelled: &dyn Fn() -> bool) -> anyhow::Result<Rows> {
        self.query(&tables.files, query, is_cancelled)
    }

    fn query(
        &self,
        tables: &[(&str, PathBuf)],
        query: &Query,
        is_cancelled: &dyn Fn() -> bool,
    ) -> anyhow::Result<Rows> {
        let mut script = File::from(memfd_create(c"warpscope-sql", MemfdFlags::CLOEXEC)?);
        script.write_all(script_of(tables, query)?.as_bytes())?;
        script.rewind()?;
        let mut command = Command::new(&self.path);
        command.args(["-no-init", "-batch", "-bail", "-jsonlines"]);
        // A script around the program may need PATH.
        let path = env::var_os("PATH").unwrap_or_default();
        command.env_clear().env("PATH", path).current_dir("/").stdin(script);
        let limits = Limits {
            end: Instant::now() + TIME,
            is_cancelled,
            with_errors: true,
            output: query.bytes as u64,
            line: LONGEST_ROW,
            memory: ADDRESSES,
            is_read_only: true,
        };
        let (mut lines, mut error) = (Vec::new(), String::new());
        let mut line = |line: &str| match line.trim_end() {
            row if row.starts_with(ROW) => {
                lines.push(row[ROW.len()..].strip_suffix('}').unwrap_or_default().to_owned());
            }
            other if error.len() < LONGEST_ERROR => error = format!("{error}{other}\n"),
            _ => {}
        };
        let end = confined::run(command, self.user.as_ref(), &limits, &mut line);
        match end.with_context(|| format!("cannot run {}", self.path.display()))? {
            End::Exited(status) if status.success() => Ok(Rows { lines, is_all: true }),
            End::Output if !lines.is_empty() => Ok(Rows { lines, is_all: false }),
            End::Output => bail!("a row is too long: select less"),
            End::Exited(status) => bail!("DuckDB failed ({status}): {}", reason(&error)),
            End::TimedOut => bail!("the query took longer than {} s", TIME.as_secs()),
            End::Cancelled => bail!("cancelled"),
        }
    }
}

/// Returns the commands that run a query over tables.
fn script_of(tables: &[(&str, PathBuf)], query: &Query) -> anyhow::Result<String> {
    let path = |path: &PathBuf| path.to_str().map(quoted).context("the path of temporary files is not UTF-8");
    let paths = tables.iter().map(|(_, file)| path(file)).collect::<anyhow::Result<Vec<_>>>()?;
    let views: String = tables
        .iter()
        .zip(&paths)
        .map(|((name, _), path)| format!("CREATE VIEW {name} AS FROM read_parquet({path});\n"))
        .collect();
    let Query { text, from, rows, .. } = query;
    Ok(format!(
        "SET autoinstall_known_extensions = false;\nSET autoload_known_extensions = false;\n\
         SET allow_persistent_secrets = false;\nSET temp_directory = '';\n\
         SET memory_limit = '{MEMORY}';\nSET threads = {THREADS};\n\
         SET allowed_paths = [{}];\n{views}\
         SET enable_external_access = false;\nSET lock_configuration = true;\n\
         SELECT to_json(found) AS row FROM (FROM query({}) LIMIT {rows} OFFSET {from}) found;\n",
        paths.join(", "),
        quoted(text),
    ))
}

/// Returns a text of SQL, on one line.
fn quoted(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('\'', "''").replace('\n', "\\n").replace('\r', "\\r");
    format!("E'{escaped}'")
}

/// Returns what is wrong with a query, and what DuckDB suggests, without the place in our own commands and general advice.
fn reason(error: &str) -> String {
    let lines = error.lines().map(str::trim).take_while(|line| !line.starts_with("LINE "));
    lines.filter(|line| !line.is_empty()).take(2).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a query is one text of one line, whatever it contains.
    #[test]
    fn queries_stay_in_their_text() {
        let query = |text: &str| Query { text: text.to_owned(), from: 5, rows: 3, bytes: 1 };
        let script =
            script_of(&[("kernels", "/tmp/it's/kernels.parquet".into())], &query("SELECT 'a\\'\n.shell id\n--"));
        let script = script.expect("a script");
        assert!(
            script.contains("CREATE VIEW kernels AS FROM read_parquet(E'/tmp/it''s/kernels.parquet');\n"),
            "{script}"
        );
        let last = script.lines().last().expect("a line");
        assert_eq!(
            last,
            r"SELECT to_json(found) AS row FROM (FROM query(E'SELECT ''a\\''\n.shell id\n--') LIMIT 3 OFFSET 5) found;"
        );
    }

    /// Check that an error is what DuckDB says about the query alone.
    #[test]
    fn errors_are_about_the_query() {
        let error = "Catalog Error: Table with name kernel does not exist!\nDid you mean \"kernels\"?\n\nLINE 1: FROM query(E'x')\n   ^\n";
        assert_eq!(reason(error), "Catalog Error: Table with name kernel does not exist! Did you mean \"kernels\"?");
    }
}
