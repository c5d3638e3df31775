//! Events named by the user (`--event`): watched wherever a process maps them, counted by stack.

mod places;
pub mod spec;

use std::{
    collections::HashMap,
    ffi::OsString,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use bpf::{HitKey, HitProbe, HitRecord, HitSum, Losses, MAX_HIT_POINTS, Record, Recorder, WAIT_REASONS};
use model::event::{
    Counter, CounterId, CounterPoint, Event, Hits, LossCause, Mapping, Note, OFF_CPU, PointId, ProcessId, StackId,
    Unit, Wait,
};

use crate::{
    calls::{
        file::{self, Identity, Stamp},
        search,
    },
    collector::Collector,
    process::procfs,
    sink::Sink,
    source::{Around, Parts, Source},
};
use places::Place;
pub(crate) use places::usdt_argument;
use spec::{Kind, Spec, Weight};

/// The most notes about files found while recording.
const MOST_NOTES: u32 = 50;

/// The events of a recording in progress.
pub struct Events {
    specs: Vec<Watched>,
    points: u32,
    /// Inspected files.
    files: HashMap<Identity, Stamp>,
    /// Those of them with watched places.
    watched: Vec<PathBuf>,
    /// The remaining number of notes: a process may map any number of files.
    notes_left: u32,
    /// The stack of each key, and how much of its sum has been passed on.
    keys: HashMap<HitKey, (StackId, HitSum)>,
}

struct Watched {
    spec: Spec,
    /// The number of watched places.
    places: usize,
    /// Why a file with a matching name has no places.
    refusal: Option<String>,
}

/// Counts these events from now on, and adds up the time off the CPU.
pub fn count<S: Sink>(
    collector: &mut Collector<S>,
    specs: Vec<Spec>,
    off_cpu: bool,
    program: &OsString,
    simulator: Option<&Path>,
) -> anyhow::Result<()> {
    if specs.is_empty() && !off_cpu {
        return Ok(());
    }
    let Parts { recorder, sink, .. } = collector.parts();
    let push = &mut |event| sink.push(&event);
    let mut events = Events::new(specs, off_cpu, push);
    events.watch(search::program(program).as_deref(), simulator, recorder, push)?;
    collector.add(events);
    Ok(())
}

impl Events {
    /// Announces the events, and the time off the CPU if it is recorded; nothing is watched yet.
    fn new(specs: Vec<Spec>, off_cpu: bool, push: &mut dyn FnMut(Event)) -> Self {
        for (spec, id) in specs.iter().zip(0..) {
            push(Event::Counter(Counter {
                id: CounterId(id),
                name: spec.name.clone(),
                source: spec.source.clone(),
                weight: spec.weight.as_ref().map_or(String::new(), Weight::to_string),
                unit: spec.unit,
            }));
        }
        let points = if off_cpu { declare_waits(CounterId(specs.len() as u32), push) } else { 0 };
        let specs = specs.into_iter().map(|spec| Watched { spec, places: 0, refusal: None }).collect();
        Self { specs, points, files: HashMap::new(), watched: Vec::new(), notes_left: MOST_NOTES, keys: HashMap::new() }
    }

    /// Watches what exists before the command starts: tracepoints, files by path, and libraries on the loader's search
    /// path. An event that can certainly never occur is rejected.
    fn watch(
        &mut self,
        program: Option<&Path>,
        simulator: Option<&Path>,
        recorder: &mut Recorder,
        push: &mut dyn FnMut(Event),
    ) -> anyhow::Result<()> {
        for index in 0..self.specs.len() {
            self.watch_tracepoint(index, recorder, push)?;
        }
        let named: Vec<PathBuf> = self.specs.iter().filter_map(|w| w.spec.kind.library().cloned()).collect();
        let mut files: Vec<PathBuf> = Vec::new();
        for path in named.iter().filter(|path| path.as_os_str().as_encoded_bytes().contains(&b'/')) {
            if !path.is_file() {
                bail!("--event: there is no file {}", path.display());
            }
            files.push(path.clone());
        }
        let wants = |name: &str| named.iter().any(|library| file::is_named(library, name));
        files.extend(search::files(&search::directories(program, simulator), wants));
        files.extend(search::cached_libraries(wants));
        files.extend(program.map(Path::to_owned));
        for file in files {
            let real = std::fs::canonicalize(&file).unwrap_or(file);
            // A file with a matching name may be something else, such as a linker script.
            let _ = self.watch_file(&real, &real.to_string_lossy(), recorder, push);
        }
        for watched in &self.specs {
            if watched.places == 0
                && let Some(refusal) = &watched.refusal
            {
                bail!("--event {}: {refusal}", watched.spec.source);
            }
        }
        Ok(())
    }

    /// Watches the events that can occur in a file mapped by a process from now on.
    fn watch_mapped(&mut self, mapping: &Mapping, pid: u32, recorder: &mut Recorder, push: &mut dyn FnMut(Event)) {
        let place = procfs::mapped_file(pid, mapping.start, mapping.end);
        let before: Vec<usize> = self.specs.iter().map(|watched| watched.places).collect();
        let mut watched = self.watch_file(&place, &mapping.path, recorder, push);
        if watched.is_err() && !place.exists() {
            watched = self.watch_file(mapping.path.as_ref(), &mapping.path, recorder, push);
        }
        let late = bpf::now().saturating_sub(mapping.time) as f64 / 1e6;
        let late_ones = self.specs.iter().zip(before).filter(|(watched, before)| watched.places > *before);
        let late = late_ones.map(|(watched, _)| {
            format!(
                "event {}: {} was probed {late:.1} ms after it was mapped: hits before that are missing",
                watched.spec.name, mapping.path
            )
        });
        let failed = watched.err().map(|error| format!("{} is not probed: {error:#}", mapping.path));
        for text in late.chain(failed).take(self.notes_left as usize) {
            self.notes_left -= 1;
            push(Event::Note(Note { text }));
        }
    }

    fn wants(&self, path: &str) -> bool {
        let mut libraries = self.specs.iter().filter_map(|watched| watched.spec.kind.library());
        libraries.any(|library| file::is_named(library, path))
    }

    /// Watches every event that can occur in a file, which is opened at `place` and known to the user as `path`.
    fn watch_file(
        &mut self,
        place: &Path,
        path: &str,
        recorder: &mut Recorder,
        push: &mut dyn FnMut(Event),
    ) -> anyhow::Result<()> {
        if !self.wants(path) {
            return Ok(());
        }
        // Held open from here on: a path in /proc disappears with its process.
        let file = elf::open(place)?;
        let place = procfs::open_file(&file);
        let (identity, stamp) = file::known_by(&file.metadata()?);
        if self.files.insert(identity, stamp) == Some(stamp) {
            return Ok(());
        }
        let mut probes = Vec::new();
        for index in 0..self.specs.len() {
            let watched = &mut self.specs[index];
            if !watched.spec.kind.library().is_some_and(|library| file::is_named(library, path)) {
                continue;
            }
            match places::in_file(&watched.spec, &place, path) {
                // A matching file that cannot be parsed, such as a 32-bit one, is a less useful reason than one that
                // can.
                Err(refusal) if watched.refusal.is_none() || refusal.downcast_ref::<probes::Error>().is_none() => {
                    watched.refusal = Some(format!("{refusal:#}"));
                }
                Err(_) => {}
                Ok(found) => {
                    watched.places += found.len();
                    for place in found {
                        probes.push(self.add(index, &place, path, recorder, push)?);
                    }
                }
            }
        }
        if probes.is_empty() {
            return Ok(());
        }
        self.watched.push(path.into());
        recorder.watch_hits(&place, &probes).with_context(|| format!("cannot probe {path}"))
    }

    /// Assigns a number to a place.
    fn add(
        &mut self,
        index: usize,
        place: &Place,
        path: &str,
        recorder: &Recorder,
        push: &mut dyn FnMut(Event),
    ) -> anyhow::Result<HitProbe> {
        let number = self.number(index, &place.function, path, push)?;
        recorder.describe_hits(number, place.point)?;
        let Place { offset, returns, semaphore, .. } = *place;
        Ok(HitProbe { offset, point: number, returns, semaphore })
    }

    fn number(&mut self, index: usize, function: &str, file: &str, push: &mut dyn FnMut(Event)) -> anyhow::Result<u32> {
        let number = self.points;
        if number as usize >= MAX_HIT_POINTS {
            bail!("the events have more than {MAX_HIT_POINTS} locations in total: select fewer functions");
        }
        self.points += 1;
        push(Event::CounterPoint(CounterPoint {
            id: PointId(number),
            counter: CounterId(index as u32),
            function: function.to_owned(),
            file: file.to_owned(),
        }));
        Ok(number)
    }

    fn watch_tracepoint(
        &mut self,
        index: usize,
        recorder: &mut Recorder,
        push: &mut dyn FnMut(Event),
    ) -> anyhow::Result<()> {
        let Spec { kind, weight, source, .. } = &self.specs[index].spec;
        let Kind::Tracepoint { group, name } = kind else { return Ok(()) };
        let (id, point) =
            places::in_kernel(group, name, weight.as_ref()).with_context(|| format!("--event {source}"))?;
        let number = self.number(index, "", "", push)?;
        recorder.describe_hits(number, point)?;
        recorder.watch_hits_at(id, number)?;
        self.specs[index].places += 1;
        Ok(())
    }

    /// Handles a new key, or a hit that did not fit into the kernel's map.
    fn hit(&mut self, hit: &HitRecord, around: &mut dyn Around) {
        let stack = stack(&hit.key, hit.time, around);
        if hit.sum.count > 0 {
            around.push(hits(&hit.key, stack, hit.sum));
        } else {
            self.keys.entry(hit.key).or_insert((stack, HitSum::default()));
        }
    }

    /// Passes on what was added to the sums since the last call. A key that has not been announced yet is deferred, unless this
    /// is the last call.
    fn sums(&mut self, last: bool, around: &mut dyn Around) {
        for (key, sum) in around.parts().recorder.hit_sums() {
            if last && !self.keys.contains_key(&key) {
                self.keys.insert(key, (stack(&key, bpf::now(), around), HitSum::default()));
            }
            let Some((stack, passed_on)) = self.keys.get_mut(&key) else { continue };
            let new = HitSum {
                count: sum.count.saturating_sub(passed_on.count),
                weight: sum.weight.saturating_sub(passed_on.weight),
                outside: sum.outside.saturating_sub(passed_on.outside),
            };
            if new != HitSum::default() {
                *passed_on = sum;
                around.push(hits(&key, *stack, new));
            }
        }
    }

    /// Reports the events that were never watched.
    fn note_unwatched(&self, around: &mut dyn Around) {
        for watched in self.specs.iter().filter(|watched| watched.places == 0) {
            let Some(library) = watched.spec.kind.library() else { continue };
            let why = match &watched.refusal {
                Some(refusal) => refusal.clone(),
                None => format!("no process loaded a file called {}", library.display()),
            };
            around.note(format!("event {} was not recorded: {why}", watched.spec.name));
        }
    }
}

impl Source for Events {
    fn watched_files(&self) -> Option<&[PathBuf]> {
        Some(&self.watched)
    }

    fn mapped(&mut self, mapping: &Mapping, pid: u32, around: &mut dyn Around) {
        if self.wants(&mapping.path) {
            let Parts { recorder, sink, .. } = around.parts();
            self.watch_mapped(mapping, procfs::in_proc(pid), recorder, &mut |event| sink.push(&event));
        }
    }

    fn take(&mut self, record: Record, around: &mut dyn Around) -> Option<Record> {
        match record {
            Record::Hit(hit) => self.hit(&hit, around),
            Record::Wait(wait) => {
                let stack = stack(&wait.key, wait.time, around);
                let (process, reason) = (ProcessId(wait.key.image), PointId(wait.key.point));
                around.push(Event::Wait(Wait {
                    process,
                    tid: wait.tid,
                    start: wait.time,
                    end: wait.end,
                    stack,
                    reason,
                }));
            }
            other => return Some(other),
        }
        None
    }

    fn each_second(&mut self, around: &mut dyn Around) {
        self.sums(false, around);
    }

    fn stop(&mut self, around: &mut dyn Around) {
        if let Err(error) = around.parts().recorder.end_waits() {
            around.note(format!("threads that still waited at the end are missing: {error}"));
        }
    }

    fn finish(&mut self, around: &mut dyn Around) {
        self.sums(true, around);
        self.note_unwatched(around);
    }

    fn losses(&self, recorder: &Recorder, losses: &Losses) -> Vec<(LossCause, u64)> {
        vec![(LossCause::Hits, losses.hits + recorder.hits_missed()), (LossCause::RingWaits, losses.waits)]
    }
}

fn stack(key: &HitKey, time: u64, around: &mut dyn Around) -> StackId {
    around.stack(key.image, (key.stack, key.python), None, time)
}

/// Declares the time off the CPU, with a place for each reason; returns their number.
fn declare_waits(id: CounterId, push: &mut dyn FnMut(Event)) -> u32 {
    let text = || OFF_CPU.to_owned();
    push(Event::Counter(Counter { id, name: text(), source: text(), weight: "time".into(), unit: Unit::Ns }));
    for (reason, number) in WAIT_REASONS.iter().zip(0..) {
        let function = (*reason).to_owned();
        push(Event::CounterPoint(CounterPoint { id: PointId(number), counter: id, function, file: String::new() }));
    }
    WAIT_REASONS.len() as u32
}

fn hits(key: &HitKey, stack: StackId, sum: HitSum) -> Event {
    let HitSum { count, weight, outside } = sum;
    Event::Hits(Hits { point: PointId(key.point), process: ProcessId(key.image), stack, count, weight, outside })
}
