//! Selects the files to watch: found before the command starts, or when a process maps them; each file once.

use std::{
    collections::{HashMap, HashSet},
    fs::{self, File, OpenOptions},
    io,
    os::{
        fd::AsRawFd,
        unix::fs::{MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::bail;
use bpf::{Probe, Recorder, Watch, calls::Gather};
use elf::Budget;
use model::{
    calls::Tier,
    event::{Event, FunctionId, Layer, Note},
};
use probes::{Cost, Function};
use text::pattern::Selection;

use super::{
    callbacks::has_callback,
    effort::Effort,
    functions::{Functions, gather},
    named::Named,
};

/// Libraries that are always traced, in addition to those that the user names.
const USUAL: [&str; 2] = ["libcuda", "libcudart"];

/// The functions to watch if each probe is expensive.
const SHORT_LIST: [&str; 16] = [
    "cudaLaunchKernel",
    "cudaLaunchKernelExC",
    "cudaMalloc",
    "cudaFree",
    "cudaMemcpy",
    "cudaMemcpyAsync",
    "cudaStreamSynchronize",
    "cudaDeviceSynchronize",
    "cuLaunchKernel",
    "cuLaunchKernelEx",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuStreamSynchronize",
    "cuCtxSynchronize",
];

/// Returns what to gather at the calls of a function, given what is known of it; `None` if it is not watched.
pub type Choice = Box<dyn Fn(&str, Gather) -> Option<Gather>>;

/// Identifies a file regardless of its names: device and inode.
pub type Identity = (u64, u64);

/// Changes whenever a file is written.
pub type Stamp = (u64, i64, i64);

/// Limits on watched files, so that no file and no user can use up the room of all.
#[derive(Clone, Copy, Debug)]
struct Limits {
    budget: Budget,
    /// Functions of one file that are not in `cuda`'s tables.
    unknown_functions: usize,
    /// Files watched at a time, and those of them that belong to one user other than root.
    files: usize,
    files_of_user: usize,
}

impl Limits {
    /// For a trace, where the user decides what runs.
    const TRACE: Limits =
        Limits { budget: Budget::RECORDING, unknown_functions: 16_384, files: usize::MAX, files_of_user: usize::MAX };
    /// For the daemon. The largest libcuda has some 700 functions that are not in the tables.
    const DAEMON: Limits = Limits { budget: Budget::DAEMON, unknown_functions: 1024, files: 256, files_of_user: 64 };
}

/// The most functions that processes report and that are in no file: a process may invent names.
const MOST_ADDED: usize = 2048;

/// The function that initialises CUDA. It is always probed if processes report their calls: those that do not are found by
/// it.
const INIT: &str = "cuInit";

/// The most names kept for suggestions.
const MOST_NAMES: usize = 1 << 18;

/// An inspected file.
struct Known {
    stamp: Stamp,
    owner: u32,
    /// When watching began; `None` if the file has nothing to watch.
    watch: Option<(Watch, u64)>,
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

/// What to watch, and what is watched.
pub struct Libraries {
    selection: Selection,
    /// `--lib`: in addition to the default ones.
    named: Vec<PathBuf>,
    functions: Vec<Named>,
    choice: Choice,
    limits: Limits,
    /// For the daemon: the time spent on the files of each user.
    effort: Option<Effort>,
    /// Inspected files.
    known: HashMap<Identity, Known>,
    /// Names in these files, for suggestions if a pattern of the user matches nothing.
    names: HashSet<String>,
    /// Watched functions, by the cost of their probes.
    pub costs: probes::Summary,
    /// How long attaching took.
    pub spent: Duration,
    /// Only the most important functions are watched.
    pub shortened: bool,
    any: bool,
    /// Functions of the last file that did not fit.
    refused: usize,
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
    pub fn new(selection: Selection, named: Vec<PathBuf>, functions: Vec<Named>, choice: Choice) -> Self {
        Self {
            selection,
            named,
            functions,
            choice,
            limits: Limits::TRACE,
            effort: None,
            known: HashMap::new(),
            names: HashSet::new(),
            costs: probes::Summary::default(),
            spent: Duration::ZERO,
            shortened: false,
            any: false,
            refused: 0,
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
                let place = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
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
        let shown = probes::for_library(&self.selection, &file).takes(name);
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

    /// Whether a file of this user may be inspected now.
    pub fn has_time_for(&mut self, owner: u32) -> bool {
        self.effort.as_mut().is_none_or(|effort| effort.allows(owner, Instant::now()))
    }

    /// Whether a file with this path should be watched.
    pub fn wants(&self, path: &str) -> bool {
        is_usual(path)
            || self.named.iter().any(|named| is(named, path))
            || self.functions.iter().any(|function| is(&function.library, path))
    }

    /// Returns the libraries that the user named by an existing path.
    pub fn given_paths(&self) -> impl Iterator<Item = &Path> {
        let named = self.named.iter().chain(self.functions.iter().map(|function| &function.library));
        named.filter(|l| l.as_os_str().as_encoded_bytes().contains(&b'/')).map(PathBuf::as_path)
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
        let file = open(place)?;
        let info = file.metadata()?;
        let (identity, stamp) = known_by(&info);
        match self.known.get(&identity) {
            Some(known) if known.stamp == stamp => {
                return Ok(known.watch.map_or(Watching::Nothing, |(_, since)| Watching::Since(since)));
            }
            // The file was overwritten in place: its functions have moved.
            Some(Known { watch: Some((watch, _)), .. }) => recorder.unwatch(&[*watch]),
            Some(_) | None => {}
        }
        let owner = info.uid();
        self.known.remove(&identity);
        self.check_room(owner)?;
        if !self.has_time_for(owner) {
            return Ok(Watching::Later(owner));
        }
        let begun = Instant::now();
        self.known.insert(identity, Known { stamp, owner, watch: None });
        let watch = self.inspect(&file, path, recorder, functions, push);
        if let Some(effort) = &mut self.effort {
            effort.spend(owner, begun.elapsed(), Instant::now());
        }
        let Some((watch, since)) = watch? else { return Ok(Watching::Nothing) };
        self.known.insert(identity, Known { stamp, owner, watch: Some((watch, since)) });
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
    ) -> anyhow::Result<Option<(Watch, u64)>> {
        let mut found = self.find(file, path)?;
        found.retain(|found| found.function.site.cost != Cost::Refused);
        let mut unknown = self.limits.unknown_functions;
        let mut probes = Vec::new();
        let mut chosen = Vec::new();
        let mut unprobed = Vec::new();
        let mut refused = std::mem::take(&mut self.refused);
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
            let probe = Probe { offset: function.site.offset, function: described.id.0 };
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
            probes.push(probe);
            chosen.push(function);
        }
        if !unprobed.is_empty() {
            self.unprobed.push(Unprobed { file: file.try_clone()?, functions: unprobed });
        }
        if refused > 0 {
            let text = format!("{refused} functions of {path} are not probed: too many functions");
            push(Event::Note(Note { text }));
        }
        if probes.is_empty() {
            return Ok(None);
        }
        // By descriptor: a path in /proc disappears with its process.
        let place = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let (watch, spent) = recorder.watch(&place, &probes)?;
        let since = bpf::now();
        self.spent += spent;
        self.costs.add(&probes::summary(&chosen));
        Ok(Some((watch, since)))
    }

    /// Rejects another file if there are too many. It is tried again the next time it is mapped.
    fn check_room(&self, owner: u32) -> anyhow::Result<()> {
        let Limits { files, files_of_user, .. } = self.limits;
        if self.count() >= files {
            bail!("the limit of {files} libraries is reached");
        }
        let of_owner = self.known.values().filter(|known| known.watch.is_some() && known.owner == owner).count();
        if owner != 0 && of_owner >= files_of_user {
            bail!("the limit of {files_of_user} libraries of user {owner} is reached");
        }
        Ok(())
    }

    /// Returns the functions of a file to watch, including those that cannot be probed.
    pub fn find(&mut self, file: &File, path: &str) -> anyhow::Result<Vec<Found>> {
        let name = path.rsplit('/').next().unwrap_or(path);
        self.refused = 0;
        let budget = self.limits.budget;
        let mut found = Vec::new();
        if is_usual(path) || self.named.iter().any(|named| is(named, path)) {
            self.any = true;
            let selection = probes::for_library(&self.selection, name);
            let registrations = probes::registrations(name);
            // Names that are not selected are needed for suggestions if a pattern matches nothing.
            let keep = self.selection.has_patterns() && !self.shortened;
            let reported = self.reported;
            let hidden =
                |name: &str| registrations.as_ref().is_some_and(|r| r.takes(name)) || (reported && name == INIT);
            let meant = |name: &str| selection.takes(name) || hidden(name);
            // Beyond the limit the code of a function is not read: a file may invent hundreds of thousands. Some
            // functions have several names.
            let most = self.limits.unknown_functions.saturating_mul(4);
            let mut unknown = 0;
            let wanted = |name: &str| {
                if !meant(name) {
                    return keep;
                }
                let known = cuda::call(name).is_some();
                unknown += usize::from(!known);
                known || unknown <= most
            };
            let exported = probes::exported(file, wanted, &budget)?;
            self.refused = unknown.saturating_sub(most);
            for function in exported {
                let room = if keep { MOST_NAMES.saturating_sub(self.names.len()) } else { 0 };
                self.names.extend(function.names().take(room).map(str::to_owned));
                let chosen = selection.first_selected(function.names()).map(|name| (name.to_owned(), true));
                let unseen = || function.names().find(|name| hidden(name)).map(|name| (name.to_owned(), false));
                if let Some((name, shown)) = chosen.or_else(unseen) {
                    found.push(Found { function, name, shown });
                }
            }
        } else {
            // A program with a statically linked libcudart.
            let wanted = |name: &str| is_call(name) || name == "__cudaRegisterFunction";
            for function in probes::linked(file, wanted, &budget)? {
                let shown = is_call(&function.name);
                if !shown || self.selection.takes(&function.name) {
                    if self.names.len() < MOST_NAMES {
                        self.names.insert(function.name.clone());
                    }
                    found.push(Found { name: function.name.clone(), function, shown });
                }
            }
        }
        for named in self.functions.iter().filter(|named| is(&named.library, path)) {
            for (name, function) in named.find(file, path, &budget)? {
                found.retain(|found| found.function.offset != function.offset);
                found.push(Found { name, function, shown: true });
            }
        }
        // A program without a statically linked libcudart is not a CUDA library.
        self.any |= !found.is_empty();
        Ok(found)
    }

    /// Keeps only the most important functions, for kernels where each probe is expensive, unless the user chose some.
    pub fn shorten(&mut self) -> anyhow::Result<()> {
        if self.selection == Selection::default() {
            self.selection = Selection::parse(&SHORT_LIST.map(str::to_owned), &[])?;
            self.shortened = true;
        }
        Ok(())
    }

    /// Returns the patterns that match nothing in any library seen so far, with similar names.
    pub fn unmatched_patterns(&self) -> Vec<(String, Vec<String>)> {
        // The patterns of the short list are not the user's.
        if self.shortened {
            return Vec::new();
        }
        let names = || self.names.iter().map(String::as_str);
        let idle = self.selection.unmatched(names().collect::<Vec<_>>());
        idle.into_iter().map(|pattern| (pattern.to_owned(), text::near(names(), pattern))).collect()
    }

    /// Whether any library was seen.
    pub fn any(&self) -> bool {
        self.any
    }

    /// Returns the number of watched files.
    pub fn count(&self) -> usize {
        self.known.values().filter(|known| known.watch.is_some()).count()
    }

    /// Returns the number of remembered files, watched or not.
    pub fn remembered(&self) -> usize {
        self.known.len()
    }

    /// Stops watching files that no process has mapped.
    pub fn forget_all_but(&mut self, mapped: &HashSet<Identity>, recorder: &mut Recorder) {
        let gone = self.known.extract_if(|identity, _| !mapped.contains(identity));
        let gone: Vec<Watch> = gone.filter_map(|(_, known)| Some(known.watch?.0)).collect();
        recorder.unwatch(&gone);
    }
}

/// A function to watch.
pub struct Found {
    /// Where it is.
    pub function: Function,
    /// The name to show.
    pub name: String,
    /// The user selected it; other functions are watched for the names of kernels.
    pub shown: bool,
}

/// Whether the name is that of a CUDA runtime or driver function.
fn is_call(name: &str) -> bool {
    let rest = name.strip_prefix("cuda").or_else(|| name.strip_prefix("cu"));
    rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()))
}

/// Whether it is one of CUDA's libraries.
pub fn is_usual(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    // Wheels may put a hash into a file's name: libcudart-9335f6a2.so.12.
    USUAL.iter().any(|l| name.strip_prefix(l).is_some_and(|r| r.starts_with(".so") || r.starts_with('-')))
}

/// Whether `path` is a library named by its path or by the beginning of its file name.
pub fn is(named: &Path, path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    match named.to_str() {
        Some(text) if !text.contains('/') => {
            name == text || name.strip_prefix(text).is_some_and(|r| r.starts_with('.'))
        }
        _ => named == Path::new(path) || fs::canonicalize(named).is_ok_and(|p| p == Path::new(path)),
    }
}

/// Opens a regular file. Another user may have put something at this path that blocks on open.
pub fn open(place: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(place)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is not a regular file")) }
}

/// Returns the identity of a file and its last change.
pub fn identity(place: &Path) -> io::Result<(Identity, Stamp)> {
    fs::metadata(place).map(|info| known_by(&info))
}

/// Returns the identity of a file (device and inode) and its last change.
pub fn known_by(info: &fs::Metadata) -> (Identity, Stamp) {
    ((info.dev(), info.ino()), (info.size(), info.mtime(), info.mtime_nsec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that CUDA's libraries are selected in every spelling, as are those the user names, and nothing else.
    #[test]
    fn only_cuda_and_named_libraries_are_selected() {
        let libraries = Libraries::new(
            Selection::default(),
            vec!["libnccl".into(), "/opt/my.so".into()],
            Vec::new(),
            Box::new(|_, gather| Some(gather)),
        );
        for path in ["/usr/lib/libcuda.so.1", "/x/libcudart-9335f6a2.so.12", "/y/libnccl.so.2", "/opt/my.so"] {
            assert!(libraries.wants(path), "{path}");
        }
        for path in ["/usr/lib/libcudadebugger.so.1", "/usr/lib/libcudnn.so.9", "/usr/lib/my.so", "[vdso]"] {
            assert!(!libraries.wants(path), "{path}");
        }
    }
}
