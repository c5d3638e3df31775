//! Watches the wanted functions of libraries: found before the command starts, or when a process maps them; each file once.
//!
//! A library that is found only when it is mapped is watched through `/proc/PID/map_files`, which is the mapped file
//! whatever its path refers to by then, and a note says how late. A program with a static libcudart is watched itself,
//! by its symbol table.

use std::{
    collections::{HashMap, HashSet},
    fs::File,
    os::unix::fs::MetadataExt,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::bail;
use bpf::{Probe, Recorder, Watch, calls::Gather};
use model::{
    calls::Tier,
    event::{Event, FunctionId, Layer, Note},
};
use probes::{Cost, Function};

use super::{
    callbacks::has_callback,
    effort::Effort,
    file::{Identity, Stamp, known_by},
    functions::{Functions, gather},
    pausable::Pausable,
    repeats::repeats,
    wanted::{Found, INIT, Limits, Wanted},
};
use crate::process::procfs;

/// Returns what to gather at the calls of a function, given what is known of it; `None` if it is not watched.
pub type Choice = Box<dyn Fn(&str, Gather) -> Option<Gather>>;

/// The most functions that processes report and that are in no file: a process may invent names.
const MOST_ADDED: usize = 2048;

/// An inspected file.
struct Known {
    stamp: Stamp,
    owner: u32,
    /// When watching began; `None` if the file has nothing to watch.
    since: Option<u64>,
    /// Its probes, except those that can be removed for a while.
    watch: Option<Watch>,
}

/// The outcome of watching a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watching {
    /// It has been watched since this time.
    Since(u64),
    /// It has no function to watch.
    Nothing,
    /// Try again later: the files of this user have used up their time.
    Later(u32),
}

/// The libraries to watch, and those that are watched.
pub struct Libraries {
    /// What to watch.
    pub wanted: Wanted,
    choice: Choice,
    limits: Limits,
    /// For the daemon: the time spent on the files of each user.
    effort: Option<Effort>,
    /// Inspected files.
    known: HashMap<Identity, Known>,
    /// Watched functions, by the cost of their probes.
    pub costs: probes::Summary,
    /// How long attaching took.
    pub spent: Duration,
    /// For the daemon: probes that can be removed for a while, if the cost is limited.
    pub pausable: Option<Pausable>,
    /// Functions that processes report themselves are not probed.
    reported: bool,
    /// Functions that are not probed as long as processes report them.
    unprobed: Vec<Unprobed>,
    /// Functions of all files, by each of their names, if processes report calls.
    by_name: HashMap<String, Vec<Registered>>,
    /// Those that are in no file.
    added: usize,
    /// The role of each function.
    roles: HashMap<FunctionId, u8>,
}

/// Functions of a file that are not probed.
struct Unprobed {
    file: File,
    functions: Vec<(Probe, Function)>,
}

/// A function of a file.
#[derive(Clone, Debug)]
struct Registered {
    path: String,
    id: FunctionId,
    name: String,
    gather: Gather,
}

impl Libraries {
    /// Creates a set that watches nothing yet.
    pub fn new(wanted: Wanted, choice: Choice) -> Self {
        Self {
            wanted,
            choice,
            limits: Limits::TRACE,
            effort: None,
            known: HashMap::new(),
            costs: probes::Summary::default(),
            spent: Duration::ZERO,
            pausable: None,
            reported: false,
            unprobed: Vec::new(),
            by_name: HashMap::new(),
            added: 0,
            roles: HashMap::new(),
        }
    }

    /// Returns the role of a function, as in [`Gather`], if processes report calls.
    pub fn role(&self, function: FunctionId) -> u8 {
        self.roles.get(&function).copied().unwrap_or(0)
    }

    /// Whether a function is the one that initialises CUDA.
    pub fn is_init(&self, function: FunctionId) -> bool {
        self.by_name.get(INIT).is_some_and(|all| all.iter().any(|registered| registered.id == function))
    }

    /// Whether functions that processes report themselves are not probed.
    pub fn expects_reports(&self) -> bool {
        self.reported
    }

    /// Does not probe functions that processes report themselves.
    pub fn expect_reports(self) -> Self {
        Self { reported: true, ..self }
    }

    /// Probes the functions that a process does not report. Without `reported`, it reports none: from now on, all
    /// functions are probed.
    pub fn probe_unreported(
        &mut self,
        reported: Option<&HashSet<&str>>,
        recorder: &mut Recorder,
    ) -> anyhow::Result<()> {
        self.reported &= reported.is_some();
        let is_reported =
            |function: &Function| reported.is_some_and(|names| function.names().any(|n| names.contains(n)));
        for Unprobed { file, functions } in &mut self.unprobed {
            let (probes, chosen): (Vec<_>, Vec<_>) =
                functions.extract_if(.., |(_, function)| !is_reported(function)).unzip();
            if !probes.is_empty() {
                let place = procfs::open_file(file);
                let (_, spent) = recorder.watch(&place, &probes)?;
                self.spent += spent;
                self.costs.add(&probes::summary(&chosen));
            }
        }
        self.unprobed.retain(|unprobed| !unprobed.functions.is_empty());
        Ok(())
    }

    /// Returns the number, the name and the properties of a function that a process reports; `None` if it is not traced.
    /// `mapped` are the libraries that the process has mapped. A function that is in no file, such as one of a statically
    /// linked runtime without symbols, is added.
    pub fn reported_function(
        &mut self,
        name: &str,
        mapped: &[String],
        functions: &mut Functions,
        push: &mut dyn FnMut(Event),
    ) -> Option<(FunctionId, String, Gather)> {
        if let Some(all) = self.by_name.get(name) {
            let found = all.iter().find(|registered| mapped.contains(&registered.path)).or(all.last())?;
            return Some((found.id, found.name.clone(), found.gather));
        }
        if self.added >= MOST_ADDED {
            return None;
        }
        let library = if name.starts_with("cuda") { "libcudart" } else { "libcuda" };
        let file = format!("{library}.so");
        let shown = probes::for_library(&self.wanted.selection, &file).takes(name);
        if !shown && !probes::registrations(&file).is_some_and(|registrations| registrations.takes(name)) {
            return None;
        }
        let layer = if shown { Tier::of_name(name) as u8 + 1 } else { 0 };
        let gather = (self.choice)(name, Gather { layer, ..gather(name) })?;
        let function = functions.add(Layer::Library, library, name, shown)?;
        let registered = Registered { path: library.into(), id: function.id, name: name.into(), gather };
        self.by_name.insert(name.into(), vec![registered]);
        self.added += 1;
        let id = function.id;
        push(Event::Function(function));
        Some((id, name.into(), gather))
    }

    /// Applies the limits of a daemon that watches files of other users.
    pub fn for_daemon(self) -> Self {
        Self { limits: Limits::DAEMON, effort: Some(Effort::new(Instant::now())), ..self }
    }

    /// Makes the probes removable that do not need every call.
    pub fn pausable(self) -> Self {
        Self { pausable: Some(Pausable::default()), ..self }
    }

    /// Whether a file of this user may be inspected now.
    pub fn has_time_for(&mut self, owner: u32) -> bool {
        self.effort.as_mut().is_none_or(|effort| effort.allows(owner, Instant::now()))
    }

    /// Watches a file, unless it is already watched. It is opened at `place`; the user knows it as `path`.
    pub fn watch(
        &mut self,
        place: &Path,
        path: &str,
        recorder: &mut Recorder,
        functions: &mut Functions,
        push: &mut dyn FnMut(Event),
    ) -> anyhow::Result<Watching> {
        let file = elf::open(place)?;
        let info = file.metadata()?;
        let (identity, stamp) = known_by(&info);
        match self.known.get(&identity) {
            Some(known) if known.stamp == stamp => {
                return Ok(known.since.map_or(Watching::Nothing, Watching::Since));
            }
            // The file was overwritten in place: its functions have moved.
            Some(known) => {
                recorder.unwatch(known.watch.as_slice());
                if let Some(pausable) = &mut self.pausable {
                    pausable.forget(|other| *other == identity, recorder);
                }
            }
            None => {}
        }
        let owner = info.uid();
        self.known.remove(&identity);
        self.check_room(owner)?;
        if !self.has_time_for(owner) {
            return Ok(Watching::Later(owner));
        }
        let begun = Instant::now();
        self.known.insert(identity, Known { stamp, owner, since: None, watch: None });
        let watch = self.inspect(&file, path, recorder, functions, push);
        if let Some(effort) = &mut self.effort {
            effort.spend(owner, begun.elapsed(), Instant::now());
        }
        let Some((watch, since)) = watch? else { return Ok(Watching::Nothing) };
        self.known.insert(identity, Known { stamp, owner, since: Some(since), watch });
        Ok(Watching::Since(since))
    }

    /// Reads a file and attaches to its functions; returns the start time, unless there are none.
    fn inspect(
        &mut self,
        file: &File,
        path: &str,
        recorder: &mut Recorder,
        functions: &mut Functions,
        push: &mut dyn FnMut(Event),
    ) -> anyhow::Result<Option<(Option<Watch>, u64)>> {
        let mut found = self.wanted.find(file, path, &self.limits, self.reported)?;
        found.retain(|found| found.function.site.cost != Cost::Refused);
        let mut unknown = self.limits.unknown_functions;
        let (mut probes, mut removable) = (Vec::new(), Vec::new());
        let mut chosen = Vec::new();
        let mut unprobed = Vec::new();
        let mut refused = std::mem::take(&mut self.wanted.refused);
        for Found { function, name, shown } in found {
            let layer = if shown { Tier::of_name(&name) as u8 + 1 } else { 0 };
            let Some(gather) = (self.choice)(&name, Gather { layer, ..gather(&name) }) else { continue };
            let room = cuda::call(&name).is_some() || unknown > 0;
            let Some(described) = functions.add(Layer::Library, path, &name, shown).filter(|_| room) else {
                refused += 1;
                continue;
            };
            unknown -= usize::from(cuda::call(&name).is_none());
            recorder.describe(described.id.0, gather)?;
            let offset = function.site.offset;
            let repeats = repeats(file, path, &name, &gather, offset);
            let probe = Probe { offset, function: described.id.0, repeats };
            let (id, own) = (described.id, function.names().any(has_callback));
            push(Event::Function(described));
            if self.reported {
                self.roles.insert(id, gather.role);
                for alias in function.names() {
                    let registered = Registered { path: path.into(), id, name: name.clone(), gather };
                    self.by_name.entry(alias.into()).or_default().push(registered);
                }
            }
            if self.reported && own {
                unprobed.push((probe, function));
                continue;
            }
            let removes = self.pausable.is_some() && Pausable::takes(&gather);
            if removes { &mut removable } else { &mut probes }.push(probe);
            chosen.push(function);
        }
        if !unprobed.is_empty() {
            self.unprobed.push(Unprobed { file: file.try_clone()?, functions: unprobed });
        }
        if refused > 0 {
            let text = format!("{refused} functions of {path} are not probed: too many functions");
            push(Event::Note(Note { text }));
        }
        if chosen.is_empty() {
            return Ok(None);
        }
        if let Some(pausable) = self.pausable.as_mut().filter(|_| !removable.is_empty()) {
            let (identity, _) = known_by(&file.metadata()?);
            self.spent += pausable.add(identity, file, removable, recorder)?;
        }
        let mut watch = None;
        if !probes.is_empty() {
            // By descriptor: a path in /proc disappears with its process.
            let place = procfs::open_file(file);
            let (watched, spent) = recorder.watch(&place, &probes)?;
            watch = Some(watched);
            self.spent += spent;
        }
        let since = bpf::now();
        self.costs.add(&probes::summary(&chosen));
        Ok(Some((watch, since)))
    }

    /// Rejects another file if there are too many. It is tried again the next time it is mapped.
    fn check_room(&self, owner: u32) -> anyhow::Result<()> {
        let Limits { files, files_of_user, .. } = self.limits;
        if self.count() >= files {
            bail!("the limit of {files} libraries is reached");
        }
        let of_owner = self.known.values().filter(|known| known.since.is_some() && known.owner == owner).count();
        if owner != 0 && of_owner >= files_of_user {
            bail!("the limit of {files_of_user} libraries of user {owner} is reached");
        }
        Ok(())
    }

    /// Returns the number of watched files.
    pub fn count(&self) -> usize {
        self.known.values().filter(|known| known.since.is_some()).count()
    }

    /// Returns the number of remembered files, watched or not.
    pub fn remembered(&self) -> usize {
        self.known.len()
    }

    /// Stops watching files that no process has mapped.
    pub fn forget_all_but(&mut self, mapped: &HashSet<Identity>, recorder: &mut Recorder) {
        let gone = self.known.extract_if(|identity, _| !mapped.contains(identity));
        let gone: Vec<Watch> = gone.filter_map(|(_, known)| known.watch).collect();
        recorder.unwatch(&gone);
        if let Some(pausable) = &mut self.pausable {
            pausable.forget(|identity| !mapped.contains(identity), recorder);
        }
    }
}
