//! The command after its recording or trace has ended: it may still run.

use std::{
    os::unix::process::ExitStatusExt,
    process::{Child, ExitCode, ExitStatus},
};

use anyhow::Context;
use collect::command::{
    signals::Signals,
    target::{self, Ending},
};

/// A command whose recording or trace has ended.
pub struct RunningCommand {
    /// None if only running processes were recorded.
    pub child: Option<Child>,
    /// Its exit status, if it has ended.
    pub status: Option<ExitStatus>,
    /// The end of a command that is terminated.
    pub ending: Option<Ending>,
    pub signals: Signals,
}

impl RunningCommand {
    /// Whether it may use the terminal.
    pub fn runs(&self) -> bool {
        self.child.is_some() && self.status.is_none()
    }

    /// Waits until it ends. `announcement` is printed before, unless it ends by itself or on request.
    pub fn wait(self, announcement: Option<String>) -> anyhow::Result<ExitStatus> {
        let Self { child, status, ending, signals } = self;
        let Some(mut child) = child.filter(|_| status.is_none()) else {
            // Without a command, the recording succeeded.
            return Ok(status.unwrap_or_default());
        };
        let ended = match ending {
            Some(ending) => ending.wait(&mut child, &signals).map(|status| {
                let on_request = status.signal().is_some_and(|signal| Ending::SIGNALS.contains(&signal));
                if on_request { ExitStatus::default() } else { status }
            }),
            None => {
                if let Some(announcement) = announcement {
                    eprintln!("warpscope: {announcement}; the command keeps running");
                }
                signals.wait_for(&mut child)
            }
        };
        ended.context("cannot wait for the command")
    }
}

/// Exits like the command; if it succeeded and an output is missing or incomplete, with status 1.
pub fn exit_code(status: ExitStatus, whole: bool) -> ExitCode {
    if status.success() { ExitCode::from(u8::from(!whole)) } else { target::exit_like(status) }
}
