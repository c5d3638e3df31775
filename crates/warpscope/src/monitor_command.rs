//! `monitor`: its options, from the command line and a file.

use std::{io, process::ExitCode};

use anyhow::bail;
use monitor::{
    Daemon, Output,
    config::{Options, Settings},
    map::client,
};
use terminal::Style;

use crate::{args, privileges::keep_for_monitor};

/// Runs the command.
pub fn run(options: args::Monitor) -> anyhow::Result<ExitCode> {
    let colour = Style::of(&io::stdout()).colour;
    let output = Output { quiet: options.quiet, verbose: options.verbose, colour };
    let (map, json) = (options.map, options.json);
    let options = settings(options)?;
    if let Some(pid) = map {
        let Some(address) = &options.metrics_addr else {
            bail!("--map needs the address of a running monitor (--metrics-addr)")
        };
        client::print(pid, json, address)?;
        return Ok(ExitCode::SUCCESS);
    }
    let records = options.allow_record.is_some();
    let mut daemon = Daemon::start(options, output)?;
    // A recording on request is made by another process with the same privileges.
    if !records {
        daemon.note(keep_for_monitor());
    }
    daemon.run()?;
    Ok(ExitCode::SUCCESS)
}

/// Merges the options: the command line overrides the configuration file.
fn settings(options: args::Monitor) -> anyhow::Result<Options> {
    let file = match &options.config {
        Some(path) => Settings::read(path).map_err(anyhow::Error::msg)?,
        None => Settings::default(),
    };
    let flag = |given: bool| given.then_some(true);
    let given = Settings {
        memleak: flag(options.memleak),
        cudatrace: flag(options.cudatrace),
        bandwidth: flag(options.bandwidth),
        errors: flag(options.errors),
        metrics_addr: options.metrics_addr,
        display_interval: options.display_interval,
        pid: Some(options.pid).filter(|pids| !pids.is_empty()),
        cgroup: options.cgroup,
        max_series: options.max_series,
        top_kernels: options.top_kernels,
        keep_ended: options.keep_ended,
        lib: Some(options.lib).filter(|libraries| !libraries.is_empty()),
        nvml: options.no_nvml.then_some(false),
        stacks: options.no_stacks.then_some(false),
        max_overhead: options.max_overhead,
        allow_record: options.allow_record,
    };
    given.over(file).options().map_err(anyhow::Error::msg)
}
