//! `export`: a recording in other formats.

use std::process::ExitCode;

use export::View;

use crate::{args, load::load, outputs::Outputs, record::user::User};

/// Runs the command.
pub fn run(options: &args::Export) -> anyhow::Result<ExitCode> {
    let mut outputs = Outputs::open(&options.output, &[], User::behind_sudo().as_ref())?;
    let loaded = load(&options.recording)?;
    outputs.read_from(loaded.file)?;
    let view = View { cpu: !options.gpu_only, gpu: !options.cpu_only };
    for note in &loaded.profile.notes {
        crate::say::say(note);
    }
    Ok(if outputs.write(&loaded.profile, view, true) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
