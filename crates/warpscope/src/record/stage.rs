//! What a command needs to report from inside: the injected library, its socket, the simulated GPU.

use anyhow::Context;
use bpf::Marker;

use super::{sessions::Sessions, silent::Silent, target::Injection, user::User, workspace::Workspace};

/// Everything that is set up before a command starts.
pub struct Stage {
    /// Where it all lies; it must outlive the command.
    pub workspace: Workspace,
    /// What the command's environment gets.
    pub injection: Injection,
    /// Who listens to the injected library.
    pub sessions: Option<Sessions>,
    /// Who should report and does not.
    pub silent: Option<Silent>,
    /// Where its launches are seen.
    pub marker: Option<Marker>,
}

impl Stage {
    /// With the injected library if `inject`, with the simulated GPU if `sim`.
    pub fn set(inject: bool, sim: bool, user: Option<&User>) -> anyhow::Result<Self> {
        let workspace = Workspace::create()?;
        let mut injection = Injection::default();
        let (mut sessions, mut silent, mut marker) = (None, None, None);
        if inject {
            let library = workspace.write_injector()?;
            let (listener, socket) = workspace.listen()?;
            // SAFETY: always succeeds.
            let uid = user.map_or_else(|| unsafe { libc::geteuid() }, |u| u.uid);
            sessions = Some(Sessions::new(listener, uid));
            silent = Some(Silent::new(&library));
            marker = Some(Marker { library: library.clone(), symbol: wire::MARKER_SYMBOL.into() });
            injection.library = Some((library, socket));
        }
        if sim {
            let directory = workspace.make_directory("sim").context("cannot write the simulated GPU")?;
            embedded::write_sim(&directory).context("cannot write the simulated GPU")?;
            injection.simulator = Some(directory);
        }
        Ok(Self { workspace, injection, sessions, silent, marker })
    }
}
