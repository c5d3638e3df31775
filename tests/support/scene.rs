//! The environment of one test: its own directory, known environment variables, and the commands to run there.

use std::{
    ffi::OsStr,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

use serde_json::Value;
use tempfile::TempDir;

use super::{
    Ended, Group, defaults,
    programs::{self, WARPSCOPE},
};

/// A directory that anybody may use, and another for temporary files, like `/tmp`, which must be empty at the end.
pub struct Scene {
    directory: TempDir,
    temporary: TempDir,
    group: OnceLock<Option<Group>>,
}

impl Scene {
    /// Creates a scene.
    pub fn new() -> Self {
        defaults::apply_to_this_process();
        let directory = |mode| {
            let directory = TempDir::with_prefix_in("e2e-", defaults::temporary()).expect("a temporary directory");
            fs::set_permissions(directory.path(), fs::Permissions::from_mode(mode)).expect("the directory is ours");
            directory
        };
        Self { directory: directory(0o777), temporary: directory(0o1777), group: OnceLock::new() }
    }

    /// The path of a file in the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The same as text.
    pub fn text(&self, name: &str) -> String {
        self.path(name).into_os_string().into_string().expect("the path is text")
    }

    /// The value of `TMPDIR`.
    pub fn temporary(&self) -> PathBuf {
        self.temporary.path().to_owned()
    }

    /// Reads a file.
    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// The names of all files in the directory, sorted.
    pub fn files(&self) -> Vec<String> {
        names(self.directory.path())
    }

    /// A command without warpscope, with pipes for its output and [known conditions](defaults).
    pub fn bare(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        defaults::apply(&mut command);
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", std::env::var_os("HOME").unwrap_or_default())
            .env("TMPDIR", self.temporary())
            .current_dir(self.directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// The scene's control group. CUDA programs started from now on run in it.
    pub fn group(&self) -> Option<&Group> {
        self.group.get_or_init(Group::new).as_ref()
    }

    /// One of the test programs without warpscope, on the simulated GPU.
    pub fn bare_cuda(&self, program: &str) -> Command {
        let mut command = self.bare(programs::program(program));
        command.env("LD_LIBRARY_PATH", programs::libraries());
        self.grouped(command)
    }

    /// A command that starts in the scene's control group, if [`Self::group`] was called before.
    pub fn grouped(&self, mut command: Command) -> Command {
        if let Some(Some(group)) = self.group.get() {
            group.join(&mut command);
        }
        command
    }

    /// `warpscope` with arguments.
    pub fn warpscope<A: AsRef<OsStr>>(&self, arguments: &[A]) -> Command {
        let mut command = self.bare(WARPSCOPE);
        command.args(arguments);
        command
    }

    /// `warpscope record OPTIONS -- COMMAND`; both are split at blanks.
    pub fn record(&self, options: &str, command: &str) -> Command {
        let command: Vec<&str> = command.split_whitespace().collect();
        self.record_words(options, &command)
    }

    /// The same for a command whose arguments contain blanks.
    pub fn record_words(&self, options: &str, command: &[&str]) -> Command {
        let mut arguments = vec!["record"];
        arguments.extend(options.split_whitespace());
        arguments.push("--");
        arguments.extend(command);
        self.warpscope(&arguments)
    }

    /// `warpscope trace --all-calls OPTIONS -- COMMAND`; both are split at blanks. Without a command there is no `--`.
    pub fn trace(&self, options: &str, command: &str) -> Command {
        self.trace_words(options, &command.split_whitespace().collect::<Vec<_>>())
    }

    /// The same for a command whose arguments contain blanks.
    pub fn trace_words(&self, options: &str, command: &[&str]) -> Command {
        let mut arguments = vec!["trace", "--all-calls"];
        arguments.extend(options.split_whitespace());
        if !command.is_empty() {
            arguments.push("--");
            arguments.extend(command);
        }
        self.warpscope(&arguments)
    }

    /// The numbers of a recording, from `report --json`.
    #[track_caller]
    pub fn report(&self, recording: &str) -> Value {
        let report = Ended::of(&mut self.warpscope(&["report", "--json", recording])).exits(0);
        serde_json::from_str(report.out()).expect("the report is JSON")
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(names(&self.temporary()), Vec::<String>::new(), "left behind in TMPDIR");
        }
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("the directory can be read");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("it can be read").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// A number in a report.
#[track_caller]
pub fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("{key} is not a number: {}", value[key]))
}

/// The sum of all losses in a report.
pub fn lost(report: &Value) -> u64 {
    report["lost"].as_object().expect("losses by cause").values().filter_map(Value::as_u64).sum()
}

/// Returns how many launches the program reported without a probe.
pub fn unprobed(messages: &str) -> u64 {
    let count = messages.split("the program reported ").nth(1).and_then(|text| text.split(' ').next());
    count.and_then(|count| count.parse().ok()).expect("how many needed no probe")
}
