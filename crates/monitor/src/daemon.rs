//! `monitor`: watches, serves metrics and prints tables until it is stopped.

use std::{path::PathBuf, sync::Arc};

use anyhow::Context;
use collect::command::{priority, signals::Signals};

use crate::{
    config::Options,
    console::display::Display,
    http::Server,
    serve::{self, Remote, Scrapes},
    watch::{Monitor, check, health},
};

/// What is printed.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// No tables, and only warnings in the log.
    pub quiet: bool,
    /// What is probed, and how long attaching took.
    pub verbose: bool,
    /// Tables with colours.
    pub colour: bool,
}

/// A monitor whose probes are attached.
pub struct Daemon {
    monitor: Monitor,
    server: Option<Server>,
    /// The file with the token for recordings.
    token: Option<PathBuf>,
    output: Output,
}

impl Daemon {
    /// Serves metrics and attaches the probes.
    pub fn start(options: Options, output: Output) -> anyhow::Result<Self> {
        check(&options)?;
        health::limit_heaps();
        // The thread that answers scrapes needs a high priority, as this one does; name resolution can wait.
        priority::raise();
        // Before any other thread starts: all threads must inherit the blocked signals.
        let signals = Signals::take().context("cannot set up signal handling")?;
        let token = options.allow_record.clone();
        let scrapes = Arc::new(Scrapes::new(options.limits).context("cannot serve metrics")?);
        let remote = token.as_deref().map(Remote::new).transpose()?;
        let server = match &options.metrics_addr {
            Some(address) => Some(serve::start(address, scrapes.clone(), remote)?),
            None => None,
        };
        let displays = options.display_interval.is_some() && !output.quiet;
        let mut monitor = Monitor::start(options, signals, scrapes)?;
        if displays {
            let display = Display::start(output.colour).context("cannot start the thread for the console")?;
            monitor.display = Some(display);
        }
        Ok(Self { monitor, server, token, output })
    }

    /// Adds notes for the user.
    pub fn note(&mut self, notes: Vec<String>) {
        notes.into_iter().for_each(|note| self.monitor.collector.sink.notes.add(note));
    }

    /// Runs until a signal arrives or all selected processes have ended.
    pub fn run(mut self) -> anyhow::Result<()> {
        self.announce()?;
        health::trim_heap();
        self.monitor.watch();
        // Nobody answers scrapes any more, and the server's thread must not wait for that.
        self.monitor.scrapes.close();
        // Includes losses of the last moments.
        self.monitor.log_losses();
        if let Some(display) = self.monitor.display.take() {
            display.finish();
        }
        self.monitor.collector.sink.notes.finish();
        Ok(())
    }

    fn announce(&mut self) -> anyhow::Result<()> {
        if let (Some(server), false) = (&self.server, self.output.quiet) {
            let address = server.address();
            eprintln!("warpscope: metrics on http://{address}/metrics");
            if let Some(token) = &self.token {
                eprintln!("warpscope: recordings on http://{address}/record, with the token in {}", token.display());
            }
        }
        let collector = &mut self.monitor.collector;
        collector.sink.notes.write_to_log().context("cannot start the thread for the log")?;
        if let (true, Some(trace)) = (self.output.verbose, &collector.trace) {
            let (costs, spent) = (&trace.libraries.costs, trace.libraries.spent);
            eprintln!("warpscope: monitoring {costs}, attached in {:.1} ms", spent.as_secs_f64() * 1e3);
        }
        Ok(())
    }
}
