//! Events named by the user (`--event`): watched wherever a process maps them, counted by stack.

mod places;
pub mod spec;

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use bpf::{HitKey, HitProbe, HitRecord, HitSum, MAX_HIT_POINTS, Recorder, WAIT_REASONS};
use model::event::{
    Counter, CounterId, CounterPoint, Event, Hits, Mapping, Note, OFF_CPU, PointId, ProcessId, StackId, Unit,
};

use crate::{
    calls::{
        file::{self, Identity, Stamp},
        search,
    },
    process::procfs,
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

impl Events {
    /// Announces the events, and the time off the CPU if it is recorded; nothing is watched yet.
    pub fn new(specs: Vec<Spec>, off_cpu: bool, push: &mut dyn FnMut(Event)) -> Self {
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
    pub fn watch(
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

    /// Returns the files with watched places.
    pub fn watched_files(&self) -> &[PathBuf] {
        &self.watched
    }

    /// Handles a file mapped by a process: watches the events that can occur in it from now on.
    pub fn mapped(&mut self, mapping: &Mapping, pid: u32, recorder: &mut Recorder, push: &mut dyn FnMut(Event)) {
        if !self.wants(&mapping.path) {
            return;
        }
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

    /// Handles a new key, or a hit that did not fit into the kernel's map. Its stack has the id `stack`.
    pub fn hit(&mut self, hit: &HitRecord, stack: StackId, push: &mut dyn FnMut(Event)) {
        if hit.sum.count > 0 {
            push(hits(&hit.key, stack, hit.sum));
        } else {
            self.keys.entry(hit.key).or_insert((stack, HitSum::default()));
        }
    }

    /// Returns the stack of an announced key.
    pub fn stack(&self, key: &HitKey) -> Option<StackId> {
        self.keys.get(key).map(|(stack, _)| *stack)
    }

    /// Handles the current sum of a key: passes on what was added since the last call.
    pub fn sum(&mut self, key: HitKey, stack: StackId, sum: HitSum, push: &mut dyn FnMut(Event)) {
        let (stack, passed_on) = self.keys.entry(key).or_insert((stack, HitSum::default()));
        let new = HitSum {
            count: sum.count.saturating_sub(passed_on.count),
            weight: sum.weight.saturating_sub(passed_on.weight),
            outside: sum.outside.saturating_sub(passed_on.outside),
        };
        if new != HitSum::default() {
            *passed_on = sum;
            push(hits(&key, *stack, new));
        }
    }

    /// Reports the events that were never watched.
    pub fn finish(&self, push: &mut dyn FnMut(Event)) {
        for watched in self.specs.iter().filter(|watched| watched.places == 0) {
            let Some(library) = watched.spec.kind.library() else { continue };
            let why = match &watched.refusal {
                Some(refusal) => refusal.clone(),
                None => format!("no process loaded a file called {}", library.display()),
            };
            push(Event::Note(Note { text: format!("event {} was not recorded: {why}", watched.spec.name) }));
        }
    }
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
