//! The libraries that hand work over, each watched once for all processes.
//!
//! Any file can have the name and the functions of such a library. To inspect one takes time, and to watch it takes descriptors and
//! probes, whose removal takes tens of milliseconds. So there are limits, for each process and in all. At a limit, libraries that no
//! process uses any more make room.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
    thread::JoinHandle,
    time::Instant,
};

use bpf::{Recorder, Watch};
use model::{
    budget::Budget,
    event::{Mapping, ProcessId},
};
use symbols::{FileId, Files};

use super::{
    engine::{self, Engine},
    places::Places,
    pools::{self, Pools},
};
use crate::calls::file;

/// Libraries of PyTorch that are watched: for a process, and in all. A process has one.
const ENGINES: (u64, u64) = (16, 256);
/// Libraries of XLA. To search one takes up to a second.
const POOLS: (u64, u64) = (4, 8);
/// Microseconds to search libraries.
const TIME: (u64, u64) = (5_000_000, 20_000_000);

/// What a library contains.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// PyTorch's engine.
    Engine,
    /// XLA's thread pools.
    Pools,
}

impl What {
    /// Returns what a file with this path contains, by its name.
    pub fn of(path: &str) -> Option<Self> {
        let is = |name: &str| file::is_named(Path::new(name), path);
        let pools = || pools::LIBRARIES.into_iter().any(is).then_some(Self::Pools);
        is(engine::LIBRARY).then_some(Self::Engine).or_else(pools)
    }
}

/// All libraries.
pub struct Libraries {
    all: HashMap<FileId, Library>,
    engines: Budget,
    pools: Budget,
    time: Budget,
    /// Each piece of work is watched.
    pub work: bool,
    /// The forward code is found, too.
    forward: bool,
    /// Removes the probes of libraries that made room.
    removal: Option<JoinHandle<()>>,
}

struct Library {
    what: What,
    found: Option<Found>,
    watch: Watch,
    /// The process that mapped it first.
    process: ProcessId,
}

enum Found {
    Engine(Engine),
    Pools(Pools),
}

impl Libraries {
    /// Creates an empty set. With `forward`, the forward code that made each piece of work is found, too.
    pub fn new(forward: bool) -> Self {
        Self {
            all: HashMap::new(),
            engines: Budget::new(ENGINES.0, ENGINES.1),
            pools: Budget::new(POOLS.0, POOLS.1),
            time: Budget::new(TIME.0, TIME.1),
            work: forward,
            forward,
            removal: None,
        }
    }

    /// Returns how often a library was not watched because there were too many.
    pub fn refused(&self) -> u64 {
        self.engines.refused() + self.pools.refused() + self.time.refused()
    }

    /// Returns where a mapping of a library has the functions; `None` if there are none.
    pub fn places(&self, id: FileId, start: u64, offset: u64) -> Option<Places> {
        match self.all.get(&id)?.found.as_ref()? {
            Found::Engine(engine) => engine.places(start, offset),
            Found::Pools(pools) => pools.places(start, offset),
        }
    }

    /// Watches a library, if it is new. Returns what prevents it. `used` returns the libraries of running processes.
    pub fn watch(
        &mut self,
        (id, what): (FileId, What),
        mapping: &Mapping,
        files: &Files,
        recorder: &mut Recorder,
        used: &dyn Fn() -> HashSet<FileId>,
    ) -> Option<String> {
        let process = mapping.process;
        if self.all.contains_key(&id) || !self.time.take(process, 0) || !self.has_room(what, process, recorder, used) {
            return None;
        }
        let (begun, watch) = (Instant::now(), recorder.new_watch());
        let (mut problem, mut note) = (None, None);
        let found = match what {
            What::Engine => self.engine(id, watch, files, recorder).map(|(engine, numbered)| {
                if !numbered {
                    let why = "does not export the function that numbers nodes";
                    note = Some(format!("forward lines are not shown: {} {why}", mapping.path));
                }
                Found::Engine(engine)
            }),
            What::Pools => find_pools(id, watch, files, recorder).map(Found::Pools),
        };
        let found = found.map_err(|why| problem = Some(why)).ok();
        self.all.insert(id, Library { what, found, watch, process });
        self.time.spend(process, begun.elapsed().as_micros() as u64);
        let whose = match what {
            What::Engine => "the work of PyTorch's autograd appears",
            What::Pools => "the tasks of XLA appear",
        };
        let refused =
            problem.map(|why| format!("{whose} under its own threads: {} cannot be probed: {why}", mapping.path));
        refused.or(note)
    }

    /// Finds and watches an engine. Returns whether its nodes are numbered, if that was requested.
    fn engine(
        &self,
        id: FileId,
        watch: Watch,
        files: &Files,
        recorder: &mut Recorder,
    ) -> Result<(Engine, bool), String> {
        let engine = files.open(id).and_then(Engine::find).ok_or("its functions were not found")?;
        let mut probe = || {
            if self.work {
                engine.watch_work(watch, recorder)?;
            }
            let numbered = !self.forward || engine.watch_forward(watch, recorder)?;
            engine.watch_calls(watch, recorder)?;
            Ok(numbered)
        };
        let numbered = probe().map_err(|error: bpf::Error| error.to_string())?;
        Ok((engine, numbered))
    }

    /// Watches each piece of work of all engines from now on.
    pub fn watch_work(&mut self, recorder: &mut Recorder) -> Option<String> {
        self.work = true;
        let mut engines = self.all.values().filter_map(|library| match &library.found {
            Some(Found::Engine(engine)) => Some((engine, library.watch)),
            _ => None,
        });
        engines.find_map(|(engine, watch)| engine.watch_work(watch, recorder).err()).map(|error| error.to_string())
    }

    /// Takes the room for another library; unused ones are removed if there is none.
    fn has_room(
        &mut self,
        what: What,
        process: ProcessId,
        recorder: &mut Recorder,
        used: &dyn Fn() -> HashSet<FileId>,
    ) -> bool {
        let is_removing = self.removal.as_ref().is_some_and(|removal| !removal.is_finished());
        if self.budget(what).is_full(process, 1) && !is_removing {
            let used = used();
            let unused: Vec<Library> =
                self.all.extract_if(|id, library| library.what == what && !used.contains(id)).map(|(_, l)| l).collect();
            for library in &unused {
                self.budget(what).give_back(library.process, 1);
            }
            let watches: Vec<Watch> = unused.iter().map(|library| library.watch).collect();
            self.removal = recorder.unwatch(&watches);
        }
        self.budget(what).take(process, 1)
    }

    fn budget(&mut self, what: What) -> &mut Budget {
        match what {
            What::Engine => &mut self.engines,
            What::Pools => &mut self.pools,
        }
    }
}

fn find_pools(id: FileId, watch: Watch, files: &Files, recorder: &mut Recorder) -> Result<Pools, String> {
    let pools = files.open(id).ok_or("it cannot be read").and_then(Pools::find)?;
    pools.watch(watch, recorder).map_err(|error| error.to_string())?;
    Ok(pools)
}
