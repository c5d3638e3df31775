//! Probes that can be removed for a while, to limit the cost of watching.

use std::{
    fs::File,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use bpf::{
    Probe, Recorder, Watch,
    calls::{Gather, Memory},
};

use super::file::Identity;
use crate::process::procfs;

/// The probes of all files that can be removed.
#[derive(Default)]
pub struct Pausable {
    files: Vec<Probed>,
    /// When they were removed; `None` while they are attached.
    since: Option<Instant>,
    /// How long they were removed before.
    paused: Duration,
}

struct Probed {
    identity: Identity,
    file: File,
    probes: Vec<Probe>,
    /// `None` while the probes are removed.
    watch: Option<Watch>,
}

impl Probed {
    fn attach(&mut self, recorder: &mut Recorder) -> anyhow::Result<Duration> {
        // By descriptor: a path in /proc disappears with its process.
        let place = procfs::open_file(&self.file);
        let (watch, spent) = recorder.watch(&place, &self.probes)?;
        self.watch = Some(watch);
        Ok(spent)
    }
}

impl Pausable {
    /// Whether the probes of a function can be removed. Live memory and the names of kernels need every call.
    pub fn takes(gather: &Gather) -> bool {
        gather.memory == Memory::None && !gather.names_kernels
    }

    /// Adds the probes of a file, and attaches them unless they are paused; returns how long that took.
    pub fn add(
        &mut self,
        identity: Identity,
        file: &File,
        probes: Vec<Probe>,
        recorder: &mut Recorder,
    ) -> anyhow::Result<Duration> {
        let mut probed = Probed { identity, file: file.try_clone()?, probes, watch: None };
        let spent = if self.since.is_none() { probed.attach(recorder)? } else { Duration::ZERO };
        self.files.push(probed);
        Ok(spent)
    }

    /// Whether the probes are attached.
    pub fn is_attached(&self) -> bool {
        self.since.is_none()
    }

    /// Removes all probes; returns the thread that does it, if there are any.
    pub fn pause(&mut self, recorder: &mut Recorder) -> Option<JoinHandle<()>> {
        self.since = self.since.or_else(|| Some(Instant::now()));
        let watches: Vec<Watch> = self.files.iter_mut().filter_map(|probed| probed.watch.take()).collect();
        recorder.unwatch(&watches)
    }

    /// Attaches all probes again. Files that cannot be probed any more are dropped.
    pub fn resume(&mut self, recorder: &mut Recorder) {
        if let Some(since) = self.since.take() {
            self.files.retain_mut(|probed| probed.attach(recorder).is_ok());
            self.paused += since.elapsed();
        }
    }

    /// Drops the files for which `gone` holds.
    pub fn forget(&mut self, gone: impl Fn(&Identity) -> bool, recorder: &mut Recorder) {
        let watches: Vec<Watch> =
            self.files.extract_if(.., |probed| gone(&probed.identity)).filter_map(|probed| probed.watch).collect();
        recorder.unwatch(&watches);
    }

    /// Returns how long the probes were removed.
    pub fn paused(&self) -> Duration {
        self.paused + self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}
