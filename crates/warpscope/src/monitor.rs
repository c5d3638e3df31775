//! `monitor`: a daemon that watches every process that uses CUDA. Everything is summed in the kernel; the sums are read
//! on demand, and ended processes are removed.

mod calls;
mod cgroup;
mod choice;
mod daemon;
mod display;
mod forget;
mod gather;
mod health;
mod kernels;
mod labels;
mod limit;
mod map;
mod namer;
mod periodic;
mod recording;
mod remote;
mod rescan;
mod scrape;
mod state;
mod suspects;
pub mod top;
mod top_recorder;

use std::{process::ExitCode, sync::Arc};

use anyhow::{Context, bail};
use collect::command::{priority, signals::Signals};
use metrics::{
    config::{Options, Settings},
    http::{self, Request, Server},
};

use crate::{args, privileges::keep_for_monitor};
use daemon::{Monitor, check};
use display::Display;
use remote::Remote;
use scrape::Scrapes;

/// Runs the command.
pub fn run(options: args::Monitor) -> anyhow::Result<ExitCode> {
    let (quiet, verbose, map, json) = (options.quiet, options.verbose, options.map, options.json);
    let options = settings(options)?;
    if let Some(pid) = map {
        let Some(address) = &options.metrics_addr else {
            bail!("--map needs the address of a running monitor (--metrics-addr)")
        };
        return map::print(pid, json, address);
    }
    check(&options)?;
    health::limit_heaps();
    // The thread that answers scrapes needs a high priority, as this one does; name resolution can wait.
    priority::raise();
    // Before any other thread starts: all threads must inherit the blocked signals.
    let signals = Signals::take().context("cannot set up signal handling")?;
    let scrapes = match &options.metrics_addr {
        Some(_) => Some(Arc::new(Scrapes::new(options.limits).context("cannot serve metrics")?)),
        None => None,
    };
    let remote = options.allow_record.as_deref().map(Remote::new).transpose()?.map(Arc::new);
    let server = match (&options.metrics_addr, &scrapes) {
        (Some(address), Some(scrapes)) => Some(serve(address, scrapes.clone(), remote.clone())?),
        _ => None,
    };
    let token = options.allow_record.clone();
    let displays = options.display_interval.is_some() && !quiet;
    let mut monitor = Monitor::start(options, signals, scrapes.clone())?;
    if displays {
        monitor.display = Some(Display::start().context("cannot start the thread for the console")?);
    }
    // A recording on request is made by another process with the same privileges.
    if token.is_none() {
        keep_for_monitor().into_iter().for_each(|note| monitor.collector.sink.notes.add(note));
    }
    if let (Some(server), false) = (&server, quiet) {
        eprintln!("warpscope: metrics on http://{}/metrics", server.address());
        if let Some(token) = token {
            let address = server.address();
            eprintln!("warpscope: recordings on http://{address}/record, with the token in {}", token.display());
        }
    }
    monitor.collector.sink.notes.write_to_log();
    if verbose && let Some(trace) = &monitor.collector.trace {
        let libraries = &trace.libraries;
        eprintln!(
            "warpscope: monitoring {}, attached in {:.1} ms",
            libraries.costs,
            libraries.spent.as_secs_f64() * 1e3
        );
    }
    health::trim_heap();
    monitor.watch();
    // Nobody answers scrapes any more, and the server's thread must not wait for that.
    if let Some(scrapes) = &scrapes {
        scrapes.close();
    }
    // Includes losses of the last moments.
    monitor.log_losses();
    if let Some(display) = monitor.display.take() {
        display.finish();
    }
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

fn serve(address: &str, scrapes: Arc<Scrapes>, remote: Option<Arc<Remote>>) -> anyhow::Result<Server> {
    let answer = move |request: &Request| match &remote {
        Some(remote) if is_record(&request.path) => remote.answer(request),
        _ => http::answer(request, &*scrapes),
    };
    Server::start(address, Arc::new(answer)).map_err(anyhow::Error::msg)
}

/// Whether a path is `/record`, or below it.
fn is_record(path: &str) -> bool {
    path.strip_prefix("/record").is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
