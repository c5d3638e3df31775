//! Bounds the memory of the daemon: removes ended processes in batches, and limits everything that could grow for
//! weeks.

use std::{collections::HashSet, path::Path, time::Instant};

use bpf::calls::Site;
use collect::{
    Collector,
    calls::{file::identity, libraries::Libraries},
    process::procfs,
};
use model::event::{Frame, ProcessId, StackId};

use super::{
    health::{self, Findings},
    kernels,
    main_loop::Monitor,
    periodic::{OFTEN, SELDOM},
    state::State,
};

/// The number of ended processes not yet in a snapshot above which a snapshot is made.
const MAX_ENDED: usize = 256;
/// The maximum number of stacks kept.
const MAX_STACKS: usize = 32_768;
/// The number of watched library files above which unused ones are searched for.
const MAX_LIBRARIES: usize = 64;

impl Monitor {
    /// Removes everything that is due for removal.
    pub fn forget(&mut self) {
        let ended = self.collector.sink.processes.values().filter(|known| known.ended && !known.reported).count();
        if self.periodic.often.elapsed() < OFTEN && ended <= MAX_ENDED {
            return;
        }
        self.periodic.often = Instant::now();
        self.log_losses();
        self.update_health();
        let seldom = self.periodic.seldom.elapsed() >= SELDOM;
        // Without a scrape, make a snapshot anyway: later scrapes need the last numbers.
        if ended > MAX_ENDED || (seldom && ended > 0) {
            let snapshot = self.snapshot();
            self.scrapes.observe(&snapshot);
            if let Some(display) = &mut self.display {
                display.observe(&snapshot);
            }
        }
        self.forget_allocations();
        self.forget_ended();
        if seldom {
            self.periodic.seldom = Instant::now();
            self.find_ended();
            self.forget_kernels();
            self.forget_stacks();
            self.forget_files();
            health::trim_heap();
        }
    }

    /// Logs what is missing from the numbers from now on.
    pub fn log_losses(&mut self) {
        let lost = self.lost();
        for (what, _) in lost.iter().filter(|now| now.1 > 0 && !self.periodic.lost.contains(now)) {
            self.collector.sink.notes.add(health::meaning(what).to_owned());
        }
        self.periodic.lost = lost;
    }

    /// Removes the allocations of ended processes to make room for others. The final numbers of the process are still
    /// needed.
    fn forget_allocations(&mut self) {
        let Collector { sink, recorder, .. } = &mut self.collector;
        let mut ended = HashSet::new();
        for (id, known) in sink.processes.iter_mut().filter(|(_, known)| known.ended && !known.memory_forgotten) {
            known.memory_forgotten = true;
            ended.insert(id.0);
        }
        if !ended.is_empty() {
            recorder.forget_allocations(&|image| ended.contains(&image));
        }
    }

    /// Updates the state that health checks report.
    fn update_health(&mut self) {
        let Some(trace) = &self.collector.trace else { return };
        let findings = Findings {
            libraries: trace.libraries.count() as u64,
            refused: trace.refused.as_deref(),
            functions_full: trace.functions.count() as usize >= bpf::calls::MAX_FUNCTIONS,
            lost: &self.periodic.lost,
            full: self.periodic.full.clone(),
        };
        self.scrapes.set_problem(self.periodic.check.problem(&findings, Instant::now()));
    }

    fn forget_ended(&mut self) {
        let collector = &mut self.collector;
        let reported = collector.sink.processes.iter().filter(|(_, known)| known.reported).map(|(id, _)| *id);
        let gone: HashSet<ProcessId> = reported.collect();
        if gone.is_empty() {
            return;
        }
        let is_gone = |id: ProcessId| gone.contains(&id);
        if let Some(trace) = &mut collector.trace {
            for known in gone.iter().filter_map(|id| collector.sink.processes.get(id)) {
                trace.late.forget(known.pid);
            }
        }
        collector.recorder.forget_sums(&|image| is_gone(ProcessId(image)));
        collector.sink.forget(&is_gone);
        collector.kept.forget(&is_gone);
        if let Some(pythons) = &mut collector.pythons {
            pythons.forget(&is_gone);
        }
        forget_names(collector);
    }

    /// Finds ended processes whose exit record was lost.
    fn find_ended(&mut self) {
        for known in self.collector.sink.processes.values_mut().filter(|known| !known.ended) {
            if !Path::new(&format!("/proc/{}", known.pid)).exists() {
                known.end(bpf::now());
            }
        }
    }

    fn forget_kernels(&mut self) {
        let collector = &mut self.collector;
        let room = collector.recorder.sum_rooms().kernels;
        let evicted = kernels::evict(&collector.recorder, &self.periodic.kernels, room, &mut collector.sink);
        if evicted > 0 {
            self.evicted += evicted;
            collector.sink.notes.add(format!(
                "more than {} kernels were launched: those with the fewest launches are counted as other",
                room / 4 * 3
            ));
        }
        let sums = collector.recorder.kernel_sums();
        self.periodic.kernels = sums.iter().map(|sum| ((sum.image, sum.address), sum.count)).collect();
    }

    /// Removes stacks without live allocations. If they occur again, they are sent again.
    fn forget_stacks(&mut self) {
        let collector = &mut self.collector;
        let sites = collector.recorder.sites();
        let room = collector.recorder.sum_rooms().sites as usize;
        let key = |site: &Site| (site.image, site.stack, site.python);
        let empty: HashSet<_> = sites.iter().filter(|site| site.count == 0).map(key).collect();
        if sites.len() > room / 2 {
            // Empty twice in a row: no allocation is in progress there.
            let twice = |site: &&Site| empty.contains(&key(site)) && self.periodic.empty_sites.contains(&key(site));
            for site in sites.iter().filter(twice) {
                collector.recorder.forget_site(site);
            }
        }
        if collector.sink.stacks() > MAX_STACKS {
            let live: Vec<&Site> = sites.iter().filter(|site| site.count > 0).collect();
            let mut keep: HashSet<StackId> = live.iter().map(|site| StackId(site.stack)).collect();
            for site in &live {
                keep.insert(collector.whole_stack(site.image, site.stack, site.python, site.since));
            }
            let python: HashSet<u64> = live.iter().map(|site| site.python).collect();
            let gone = collector.sink.forget_stacks(&keep);
            collector.forget_stacks(&gone, &python, &|stack| keep.contains(&stack));
            forget_names(collector);
        }
        self.periodic.empty_sites = empty;
    }

    fn forget_files(&mut self) {
        let collector = &mut self.collector;
        let known = collector.unwinding.forget_unused();
        collector.kept.files.forget_all_but(&known);
        if let Some(pythons) = &mut collector.pythons {
            pythons.forget_files(&known);
        }
        if let Some(trace) = &mut collector.trace
            && trace.libraries.remembered() > MAX_LIBRARIES
        {
            let mapped = mapped(&trace.libraries);
            trace.libraries.forget_all_but(&mapped, &mut collector.recorder);
        }
    }
}

/// Returns the libraries that any process has mapped now.
fn mapped(libraries: &Libraries) -> HashSet<(u64, u64)> {
    let mut found = HashSet::new();
    for pid in procfs::all() {
        for mapping in
            procfs::mappings(pid, ProcessId(0)).iter().filter(|mapping| libraries.wanted.wants(&mapping.path))
        {
            let place = procfs::mapped_file(pid, mapping.start, mapping.end);
            found.extend(identity(&place).map(|(identity, _)| identity));
        }
    }
    found
}

/// Lets the names of Python lines that were removed with their stacks be reported again: another process may run the same code.
fn forget_names(collector: &mut Collector<State>) {
    let Collector { sink, pythons: Some(pythons), .. } = collector else { return };
    pythons.forget_names(&|number| sink.python_names(Frame::Python(number)).is_some());
}
