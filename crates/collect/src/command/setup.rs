//! What a command needs to report from inside: the injected library, its socket, the simulated GPU.

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

use anyhow::Context;
use bpf::Marker;

use super::{target::Injection, user::User, workspace::Workspace};
use crate::sessions::Sessions;

/// Everything that is set up before a command starts.
pub struct Setup {
    /// Where it all lies; it must outlive the command.
    pub workspace: Workspace,
    /// What the command's environment gets.
    pub injection: Injection,
    /// Who listens to the injected library.
    pub sessions: Option<Sessions>,
    /// Where its launches are seen.
    pub marker: Option<Marker>,
}

impl Setup {
    /// With the injected library if `inject`, with the simulated GPU if `sim`.
    pub fn new(inject: bool, sim: bool, user: Option<&User>) -> anyhow::Result<Self> {
        let workspace = Workspace::create()?;
        let mut injection = Injection::default();
        let (mut sessions, mut marker) = (None, None);
        if inject {
            let library = workspace.write_injector()?;
            let (listener, socket) = workspace.listen()?;
            // SAFETY: always succeeds.
            let uid = user.map_or_else(|| unsafe { libc::geteuid() }, |u| u.uid);
            sessions = Some(Sessions::new(listener, uid, &library));
            marker = Some(Marker { library: library.clone(), symbol: wire::MARKER_SYMBOL.into() });
            injection.library = Some((library, socket));
        }
        if sim {
            let directory = workspace.make_directory("sim").context("cannot write the simulated GPU")?;
            embedded::write_sim(&directory).context("cannot write the simulated GPU")?;
            injection.simulator = Some(directory);
        }
        Ok(Self { workspace, injection, sessions, marker })
    }
}

/// Files whose unwind tables are worth making before the command starts.
pub fn expected_files(program: &OsStr, injection: &Injection) -> Vec<PathBuf> {
    let in_path = |path: OsString| std::env::split_paths(&path).map(|d| d.join(program)).find(|p| p.is_file());
    let program = match Path::new(program) {
        path if program.as_encoded_bytes().contains(&b'/') => Some(path.to_owned()),
        _ => std::env::var_os("PATH").and_then(in_path),
    };
    let simulator = injection.simulator.iter().flat_map(|d| embedded::SIM_LIBRARIES.iter().map(|f| d.join(f.name)));
    program.into_iter().chain(injection.library.iter().map(|(library, _)| library.clone())).chain(simulator).collect()
}
