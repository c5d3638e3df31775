//! GPU memory (`record --memory`): driver calls that allocate and free, PyTorch's caching allocator, and Python's shutdown.
//!
//! The allocator reports each tensor at its static tracepoints `pytorch:malloc` and `pytorch:free`. They are probed
//! wherever a process maps the library. Calls that select a device or a context are not probed: PyTorch makes them all the
//! time. The device of a tensor, and so of its segment, is known from the tracepoint.
//!
//! The end is the entry of `Py_FinalizeEx`: what the interpreter frees later, it frees only because it shuts down.
//! Driver calls have the probes and records of a trace, but only on functions that allocate or free GPU memory;
//! launches keep their own stacks (`bpf::Tracing::beside`).

use std::{
    collections::HashMap,
    ffi::OsString,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use bpf::{
    HitWeight, Losses, MAX_TENSOR_POINTS, Record, Recorder, TensorChange, TensorPoint, TensorProbe, TensorRecord,
    calls::Gather,
};
use cuda::{calls::Space, memory::Action};
use elf::Budget;
use model::event::{Event, LossCause, Mapping, ProcessId, Shutdown, Tensor, TensorFreed};
use probes::{Cost, Usdt};
use text::pattern::Selection;

use crate::{
    calls::{
        file::{self, Identity, Stamp},
        libraries::Libraries,
        search,
        tracer::Tracer,
        wanted::Wanted,
    },
    collector::Collector,
    events::usdt_argument,
    flight::slow::Slow,
    process::procfs,
    sink::Sink,
    source::{Around, Source},
};

/// The library with PyTorch's allocator, and the provider of its tracepoints.
const LIBRARY: &str = "libc10_cuda";
const PROVIDER: &str = "pytorch";

/// Ends the interpreter: everything that is freed after its entry is freed because the program ends.
const SHUTDOWN: &str = "Py_FinalizeEx";

/// The most notes about files found while recording.
const MOST_NOTES: u32 = 20;

/// The probed files.
#[derive(Debug)]
struct Memory {
    /// Inspected files.
    files: HashMap<Identity, Stamp>,
    /// Files with probes.
    watched: Vec<PathBuf>,
    points: u32,
    /// The remaining number of notes: a process may map any number of files.
    notes_left: u32,
}

/// Records who allocates and frees GPU memory from now on, and how long the functions of `--on-slow` take.
pub fn record<S: Sink>(
    collector: &mut Collector<S>,
    program: &OsString,
    simulator: Option<&Path>,
    slow: &[Slow],
) -> anyhow::Result<()> {
    let trace = tracer(collector.recorder.can_watch_many(), slow.to_vec())?;
    collector.watch_calls(trace, program, simulator)?;
    let mut memory = Memory::default();
    collector.recorder.open_calls(false);
    memory.watch(search::program(program).as_deref(), simulator, &mut collector.recorder);
    collector.recorder.open_calls(true);
    collector.add(memory);
    Ok(())
}

impl Default for Memory {
    fn default() -> Self {
        Self { files: HashMap::new(), watched: Vec::new(), points: 0, notes_left: MOST_NOTES }
    }
}

impl Memory {
    /// Probes what the program is likely to load, before it runs.
    fn watch(&mut self, program: Option<&Path>, simulator: Option<&Path>, recorder: &mut Recorder) {
        let directories = search::directories(program, simulator);
        let mut files = search::files(&directories, wants);
        files.extend(program.map(Path::to_owned));
        for file in files {
            let real = std::fs::canonicalize(&file).unwrap_or(file);
            let name = real.to_string_lossy().into_owned();
            if wants(&name) {
                // A file with a matching name may be something else, such as a directory or a linker script. What cannot
                // be probed is reported when a process maps it.
                let _ = self.watch_file(&real, &name, recorder);
            }
        }
    }

    /// Probes a file, which is opened at `place` and known to the user as `path`. Returns `false` if it is known already or
    /// has nothing to probe.
    fn watch_file(&mut self, place: &Path, path: &str, recorder: &mut Recorder) -> anyhow::Result<bool> {
        // Held open from here on: a path in /proc disappears with its process.
        let file = elf::open(place)?;
        let place = procfs::open_file(&file);
        let (identity, stamp) = file::known_by(&file.metadata()?);
        if self.files.get(&identity) == Some(&stamp) {
            return Ok(false);
        }
        let data = probes::open(&place)?;
        let found = if is_allocator(path) { tensors(&probes::usdt(&data)?)? } else { shutdown(&data)? };
        let mut probes = Vec::new();
        for (offset, semaphore, point) in found {
            let number = self.points;
            if number as usize >= MAX_TENSOR_POINTS {
                bail!("more than {MAX_TENSOR_POINTS} places of PyTorch's allocators are probed already");
            }
            self.points += 1;
            recorder.describe_tensors(number, point)?;
            probes.push(TensorProbe { offset, semaphore, number });
        }
        if !probes.is_empty() {
            recorder.watch_tensors(&place, &probes)?;
            self.watched.push(path.into());
        }
        self.files.insert(identity, stamp);
        Ok(!probes.is_empty())
    }
}

impl Source for Memory {
    fn watched_files(&self) -> Option<&[PathBuf]> {
        Some(&self.watched)
    }

    fn mapped(&mut self, mapping: &Mapping, pid: u32, around: &mut dyn Around) {
        if !wants(&mapping.path) {
            return;
        }
        let recorder = around.parts().recorder;
        let place = procfs::mapped_file(procfs::in_proc(pid), mapping.start, mapping.end);
        let mut watched = self.watch_file(&place, &mapping.path, recorder);
        if watched.is_err() && !place.exists() {
            watched = self.watch_file(mapping.path.as_ref(), &mapping.path, recorder);
        }
        let late = bpf::now().saturating_sub(mapping.time) as f64 / 1e6;
        let text = match watched {
            Ok(true) if is_allocator(&mapping.path) => format!(
                "{} was probed {late:.1} ms after it was mapped: tensors allocated before that are missing",
                mapping.path
            ),
            Ok(_) => return,
            Err(error) => format!("tensors are not recorded: {}: {error:#}", mapping.path),
        };
        if self.notes_left > 0 {
            self.notes_left -= 1;
            around.note(text);
        }
    }

    fn take(&mut self, record: Record, around: &mut dyn Around) -> Option<Record> {
        let Record::Tensor(TensorRecord { image, tid, time, change }) = record else { return Some(record) };
        let process = ProcessId(image);
        let event = match change {
            TensorChange::Allocated { address, bytes, device, stack, python, cause } => {
                let stack = around.stack(image, (stack, python), Some((cause, tid)), time);
                Event::Tensor(Tensor { process, tid, time, device, address, bytes, stack })
            }
            TensorChange::Freed { address } => Event::TensorFreed(TensorFreed { process, tid, time, address }),
            TensorChange::Shutdown => Event::Shutdown(Shutdown { process, time }),
        };
        around.push(event);
        None
    }

    fn losses(&self, _: &Recorder, losses: &Losses) -> Vec<(LossCause, u64)> {
        vec![(LossCause::RingTensors, losses.tensors)]
    }
}

/// A place in a file: its offset, its semaphore, and what to read there.
type Place = (u64, Option<u64>, TensorPoint);

/// Returns the tracepoints of PyTorch's allocator.
fn tensors(all: &[Usdt]) -> anyhow::Result<Vec<Place>> {
    let mut found = Vec::new();
    for probe in all.iter().filter(|probe| probe.provider == PROVIDER) {
        let argument = |number| -> anyhow::Result<HitWeight> { usdt_argument(probe, number) };
        let point = match probe.name.as_str() {
            "malloc" => TensorPoint::Allocated { address: argument(1)?, bytes: argument(3)?, device: argument(2)? },
            "free" => TensorPoint::Freed { address: argument(1)? },
            _ => continue,
        };
        found.push((probe.offset, probe.semaphore, point));
    }
    let allocates = |(_, _, point): &Place| matches!(point, TensorPoint::Allocated { .. });
    if !found.iter().any(allocates) || found.iter().all(allocates) {
        bail!("it has no static tracepoints (USDT) pytorch:malloc and pytorch:free");
    }
    Ok(found)
}

/// Returns the entry of the function that shuts the interpreter down.
fn shutdown(data: &std::fs::File) -> anyhow::Result<Vec<Place>> {
    let found = probes::exported(data, |name| name == SHUTDOWN, &Budget::RECORDING).context("its symbols")?;
    let usable = found.iter().filter(|function| function.site.cost != Cost::Refused);
    Ok(usable.map(|function| (function.site.offset, None, TensorPoint::Shutdown)).collect())
}

fn is_allocator(path: &str) -> bool {
    file::is_named(Path::new(LIBRARY), path)
}

/// Whether a file may contain PyTorch's allocator or a Python interpreter.
fn wants(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    is_allocator(path) || name.starts_with("libpython3") || name.starts_with("python3") || name == "python"
}

/// Creates a tracer of the calls that allocate and free GPU memory, and of slow functions.
fn tracer(can_watch_many: bool, slow: Vec<Slow>) -> anyhow::Result<Tracer> {
    let named = slow.iter().filter_map(Slow::named).cloned().collect();
    let choice = Box::new(move |name: &str, gather: Gather| {
        of_memory(name, gather).or_else(|| slow.iter().any(|slow| slow.is_function(name)).then(Gather::default))
    });
    let mut libraries = Libraries::new(Wanted::new(Selection::default(), Vec::new(), named), choice);
    if !can_watch_many {
        libraries.wanted.shorten()?;
    }
    Ok(Tracer::beside_a_profile(libraries))
}

/// Returns what to gather at a function that allocates or frees GPU memory.
fn of_memory(name: &str, gather: Gather) -> Option<Gather> {
    let call = cuda::call(name)?;
    let elsewhere = [Space::Host, Space::Registered, Space::Reserved, Space::Imported];
    let on_gpu = call.space.is_some_and(|space| !elsewhere.contains(&space));
    match call.action()? {
        Action::Alloc if on_gpu => Some(Gather { stack: true, ..gather }),
        Action::Free if on_gpu => Some(gather),
        Action::ResetDevice | Action::ResetPrimary => Some(gather),
        _ => None,
    }
}
