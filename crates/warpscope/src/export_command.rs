//! `export`: a recording in other formats.

use std::{fs, process::ExitCode};

use anyhow::Context;
use export::{Format, View};

use crate::{args, load::load, outputs::Outputs};

/// Runs the command.
pub fn run(options: &args::Export) -> anyhow::Result<ExitCode> {
    let mut outputs = Outputs::check(&options.output, &[], None)?;
    let loaded = load(&options.recording)?;
    for path in &options.output {
        if fs::canonicalize(path).ok().is_some_and(|p| Some(p) == fs::canonicalize(&options.recording).ok()) {
            anyhow::bail!("{} is the recording itself", path.display());
        }
        if Format::from_path(path)? == Format::Recording {
            fs::copy(&options.recording, path)
                .with_context(|| format!("cannot copy the recording to {}", path.display()))?;
        }
    }
    outputs.read_from(loaded.file);
    let view = View { cpu: !options.gpu_only, gpu: !options.cpu_only };
    for note in &loaded.profile.notes {
        eprintln!("warpscope: {note}");
    }
    Ok(if outputs.write(&loaded.profile, view, true) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
