//! What a command needs in order to report from inside: the injected library, its socket, the simulated GPU.

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

use anyhow::Context;
use bpf::Marker;

use super::{target::Injection, user::User, workspace::Workspace};
use crate::{injector, sessions::Sessions};

/// Everything that is set up before a command starts.
pub struct Setup {
    /// The directory of these files; it must outlive the command. Absent without a command.
    pub workspace: Option<Workspace>,
    /// Additions to the command's environment.
    pub injection: Injection,
    /// The receiver of the injected library's messages.
    pub sessions: Option<Sessions>,
    /// The marker function for its launches.
    pub marker: Option<Marker>,
}

impl Setup {
    /// Sets up the injected library if `inject`, and the simulated GPU if `sim`.
    pub fn new(inject: bool, sim: bool, user: Option<&User>) -> anyhow::Result<Self> {
        let workspace = Workspace::create()?;
        let mut injection = Injection::default();
        let (mut sessions, mut marker) = (None, None);
        if inject {
            let library = workspace.write_injector()?;
            let (listener, socket) = workspace.listen()?;
            sessions = Some(Sessions::new(listener, User::uid_or_own(user), &library));
            marker = Some(injector::marker(library.clone()));
            injection.library = Some((library, socket));
        }
        if sim {
            let directory = workspace.make_directory("sim").context("cannot write the simulated GPU")?;
            embedded::write_sim(&directory).context("cannot write the simulated GPU")?;
            injection.simulator = Some(directory);
        }
        Ok(Self { workspace: Some(workspace), injection, sessions, marker })
    }

    /// Sets up the sessions of running processes if `inject`. They need no files.
    pub fn running(inject: bool, pids: &[u32]) -> Self {
        let sessions = inject.then(|| Sessions::attached(pids));
        Self { workspace: None, injection: Injection::default(), sessions, marker: None }
    }
}

/// Returns the files whose unwind tables are worth compiling before the command starts.
pub fn expected_files(program: &OsStr, injection: &Injection) -> Vec<PathBuf> {
    let in_path = |path: OsString| std::env::split_paths(&path).map(|d| d.join(program)).find(|p| p.is_file());
    let program = match Path::new(program) {
        path if program.as_encoded_bytes().contains(&b'/') => Some(path.to_owned()),
        _ => std::env::var_os("PATH").and_then(in_path),
    };
    let simulator = injection
        .simulator
        .iter()
        .flat_map(|d| embedded::SIM_LIBRARIES.iter().filter(|f| f.name.starts_with("libcu")).map(|f| d.join(f.name)));
    program.into_iter().chain(injection.library.iter().map(|(library, _)| library.clone())).chain(simulator).collect()
}
