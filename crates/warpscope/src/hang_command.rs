//! `hang`: which ranks of a stuck job wait, and which have not arrived.

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use analysis::hang::{Hang, file, frames_of_call};
use anyhow::{Context, bail};
use collect::{
    command::user::User,
    process::select::Criteria,
    snapshot::{self, Snapshot},
};
use model::hang::Host;
use symbols::DebugFiles;
use terminal::Style;

use crate::{args, outputs::write_file, privileges::keep_for_recording, say::say};

/// The status if ranks wait for others that are elsewhere.
const STUCK: u8 = 3;
/// The longest time to watch.
const LONGEST: f64 = 3600.0;

/// Runs the command.
pub fn run(options: &args::Hang) -> anyhow::Result<ExitCode> {
    let hosts = if options.files.is_empty() { vec![look(options)?] } else { read(&options.files)? };
    let hang = Hang::of(&hosts);
    for note in &hang.notes {
        say(note);
    }
    if let Some(path) = &options.output {
        write_file(path, User::behind_sudo().as_ref(), |out| file::write(out, &hang, &hosts))?;
    }
    let mut out = io::stdout().lock();
    if options.json {
        file::write(&mut out, &hang, &hosts)?;
    } else if !options.quiet {
        let style = Style::of(&io::stdout());
        write!(out, "{}", style.text(&terminal::hang(&hang, options.stacks, style.colour, style.width)))?;
    }
    Ok(if hang.is_stuck() { ExitCode::from(STUCK) } else { ExitCode::SUCCESS })
}

/// Looks at processes of this host.
fn look(options: &args::Hang) -> anyhow::Result<Host> {
    if !(0.0..=LONGEST).contains(&options.duration) {
        bail!("--duration: expected a time of at most an hour");
    }
    let pids = if !options.pid.is_empty() {
        let mut pids = options.pid.clone();
        pids.sort_unstable();
        pids.dedup();
        pids
    } else if options.all || options.cgroup.is_some() {
        let criteria = Criteria { cgroup: options.cgroup.clone(), ..Criteria::default() };
        let found = snapshot::ranks(&criteria)?;
        if found.is_empty() {
            bail!(
                "no rank was found: no process{} has loaded CUDA or NCCL and has RANK, OMPI_COMM_WORLD_RANK, PMI_RANK or \
                 SLURM_PROCID in the environment it was started with; give processes with -p",
                options.cgroup.as_ref().map_or_else(String::new, |group| format!(" in {group}"))
            );
        }
        found
    } else {
        bail!("say which processes to look at: -p PID, --all or --cgroup PATH; or give files that hang has written");
    };
    let snapshot = Snapshot::of(&pids)?;
    keep_for_recording(false, false).iter().for_each(say);
    let homes =
        [std::env::var_os("HOME").map(PathBuf::from), User::behind_sudo().and_then(|u| u.home).map(PathBuf::from)];
    let debug_files = DebugFiles::new(&[], &homes.into_iter().flatten().collect::<Vec<_>>());
    let naming = symbols::Options { lines: options.lines, debug_files, ..symbols::Options::default() };
    snapshot.take(Duration::from_secs_f64(options.duration), &naming, &frames_of_call)
}

/// Joins the files of several hosts.
fn read(paths: &[PathBuf]) -> anyhow::Result<Vec<Host>> {
    let mut hosts = Vec::new();
    for path in paths {
        let bytes = contents(path).with_context(|| format!("cannot read {}", path.display()))?;
        file::read(&bytes, &mut hosts).with_context(|| format!("cannot read {}", path.display()))?;
    }
    Ok(hosts)
}

fn contents(path: &Path) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(file::MOST_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > file::MOST_BYTES {
        bail!("it is larger than {}", text::units::bytes(file::MOST_BYTES));
    }
    Ok(bytes)
}
