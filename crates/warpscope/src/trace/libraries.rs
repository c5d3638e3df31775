//! Which files are watched: found before the command starts, or when a process maps them; each file once.

use std::{
    collections::{HashMap, HashSet},
    fs::{self, File, OpenOptions},
    io,
    os::{
        fd::AsRawFd,
        unix::fs::{MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    time::Duration,
};

use bpf::{Probe, Recorder, Watch, calls::Gather};
use model::{
    calls::Tier,
    event::{Event, Layer, Note},
};
use probes::{Cost, Function, Selection};

use super::{
    functions::{Functions, gather},
    named::Named,
};

/// Libraries that a trace is about, whatever else is named.
const USUAL: [&str; 2] = ["libcuda", "libcudart"];

/// Functions worth watching where each probe is dear.
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

/// What to gather at the calls of a function, given what is known of it; `None` to leave it alone.
pub type Choice = Box<dyn Fn(&str, Gather) -> Option<Gather>>;

/// A file, whatever its names: device and inode.
pub type Identity = (u64, u64);

/// Changes whenever a file is written to.
pub type Stamp = (u64, i64, i64);

/// What to watch, and what is watched.
pub struct Libraries {
    selection: Selection,
    /// `--lib`: besides the usual ones.
    named: Vec<PathBuf>,
    functions: Vec<Named>,
    choice: Choice,
    /// Files that were inspected, with their last change, and since when they are watched if they have functions to watch.
    watched: HashMap<Identity, (Stamp, Option<(Watch, u64)>)>,
    /// Every name in the libraries seen, to tell of near misses.
    names: HashSet<String>,
    /// Functions that are watched, by the cost of their probes.
    pub costs: probes::Summary,
    /// How long it took to attach to them.
    pub spent: Duration,
    /// Only the most important functions are meant.
    pub shortened: bool,
}

impl Libraries {
    /// Nothing is watched yet.
    pub fn new(selection: Selection, named: Vec<PathBuf>, functions: Vec<Named>, choice: Choice) -> Self {
        Self {
            selection,
            named,
            functions,
            choice,
            watched: HashMap::new(),
            names: HashSet::new(),
            costs: probes::Summary::default(),
            spent: Duration::ZERO,
            shortened: false,
        }
    }

    /// A file with this path is one to watch.
    pub fn wants(&self, path: &str) -> bool {
        is_usual(path)
            || self.named.iter().any(|named| is(named, path))
            || self.functions.iter().any(|function| is(&function.library, path))
    }

    /// Libraries that the user named and that lie where the name says.
    pub fn given_paths(&self) -> impl Iterator<Item = &Path> {
        let named = self.named.iter().chain(self.functions.iter().map(|function| &function.library));
        named.filter(|l| l.as_os_str().as_encoded_bytes().contains(&b'/')).map(PathBuf::as_path)
    }

    /// Watches a file, unless it is watched already; returns since when it is, if it has anything to watch. It is opened at
    /// `place` and known to the user as `path`.
    pub fn watch(
        &mut self,
        place: &Path,
        path: &str,
        recorder: &mut Recorder,
        functions: &mut Functions,
        push: &mut dyn FnMut(Event),
    ) -> anyhow::Result<Option<u64>> {
        // Held from here on: a place in /proc goes with its process.
        let file = open(place)?;
        let place = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let (identity, stamp) = known_by(&file.metadata()?);
        match self.watched.get(&identity) {
            Some((known, watch)) if *known == stamp => return Ok(watch.map(|(_, since)| since)),
            // Written over in its place: its functions lie elsewhere now.
            Some((_, Some((watch, _)))) => recorder.unwatch(&[*watch]),
            Some((_, None)) | None => {}
        }
        self.watched.insert(identity, (stamp, None));
        let mut found = self.find(&place, path)?;
        found.retain(|found| found.function.site.cost != Cost::Refused);
        let mut probes = Vec::new();
        let mut chosen = Vec::new();
        for Found { function, name, shown } in found {
            let layer = if shown { Tier::of_name(&name) as u8 + 1 } else { 0 };
            let Some(gather) = (self.choice)(&name, Gather { layer, ..gather(&name) }) else { continue };
            let Some(described) = functions.add(Layer::Library, path, &name, shown) else {
                push(Event::Note(Note {
                    text: format!("not all functions of {path} are watched: there are too many"),
                }));
                break;
            };
            recorder.describe(described.id.0, gather)?;
            probes.push(Probe { offset: function.site.offset, function: described.id.0 });
            push(Event::Function(described));
            chosen.push(function);
        }
        if probes.is_empty() {
            return Ok(None);
        }
        let (watch, spent) = recorder.watch(&place, &probes)?;
        let since = bpf::now();
        self.watched.insert(identity, (stamp, Some((watch, since))));
        self.spent += spent;
        let costs = probes::summary(&chosen);
        self.costs.nop5 += costs.nop5;
        self.costs.emulated += costs.emulated;
        self.costs.stepped += costs.stepped;
        Ok(Some(since))
    }

    /// The functions of a file that are to be watched, those that cannot be probed included.
    pub fn find(&mut self, place: &Path, path: &str) -> anyhow::Result<Vec<Found>> {
        let name = path.rsplit('/').next().unwrap_or(path);
        let data = probes::open(place)?;
        let mut found = Vec::new();
        if is_usual(path) || self.named.iter().any(|named| is(named, path)) {
            let selection = self.selection.for_library(name);
            let registrations = probes::registrations(name);
            for function in probes::exported(&data)? {
                self.names.extend(function.names().map(str::to_owned));
                if let Some(name) = selection.name_of(&function).map(str::to_owned) {
                    found.push(Found { function, name, shown: true });
                } else if let Some(name) = registrations.as_ref().and_then(|r| r.name_of(&function)).map(str::to_owned)
                {
                    found.push(Found { function, name, shown: false });
                }
            }
        } else {
            // A program with a libcudart of its own in it.
            let wanted = |name: &str| is_call(name) || name == "__cudaRegisterFunction";
            for function in probes::linked(&data, wanted)? {
                let shown = is_call(&function.name);
                if !shown || self.selection.takes(&function.name) {
                    self.names.insert(function.name.clone());
                    found.push(Found { name: function.name.clone(), function, shown });
                }
            }
        }
        for named in self.functions.iter().filter(|named| is(&named.library, path)) {
            for (name, function) in named.find(&data, path)? {
                found.retain(|found| found.function.offset != function.offset);
                found.push(Found { name, function, shown: true });
            }
        }
        Ok(found)
    }

    /// Keeps only the most important functions, for kernels where each probe is dear; unless the user chose some.
    pub fn shorten(&mut self) -> anyhow::Result<()> {
        if self.selection == Selection::default() {
            self.selection = Selection::parse(&SHORT_LIST.map(str::to_owned), &[])?;
            self.shortened = true;
        }
        Ok(())
    }

    /// Patterns that match nothing in any library seen so far, with names that are near to them.
    pub fn idle_patterns(&self) -> Vec<(String, Vec<String>)> {
        // Those of the short list are not the user's.
        if self.shortened {
            return Vec::new();
        }
        let names = || self.names.iter().map(String::as_str);
        let idle = self.selection.unmatched(names().collect::<Vec<_>>());
        idle.into_iter().map(|pattern| (pattern.to_owned(), probes::near(names(), pattern))).collect()
    }

    /// Any library was seen.
    pub fn any(&self) -> bool {
        !self.names.is_empty() || self.count() > 0
    }

    /// How many files are watched.
    pub fn count(&self) -> usize {
        self.watched.values().filter(|(_, watch)| watch.is_some()).count()
    }

    /// Watches files no more that nobody has mapped.
    pub fn forget_all_but(&mut self, mapped: &HashSet<Identity>, recorder: &mut Recorder) {
        let gone = self.watched.extract_if(|identity, _| !mapped.contains(identity));
        let gone: Vec<Watch> = gone.filter_map(|(_, (_, watch))| Some(watch?.0)).collect();
        recorder.unwatch(&gone);
    }
}

/// A function to watch.
pub struct Found {
    /// Where it is.
    pub function: Function,
    /// The name to show.
    pub name: String,
    /// It was requested; others are watched for the names of kernels.
    pub shown: bool,
}

/// "; did you mean this, or that?"
pub fn did_you_mean(near: &[String]) -> String {
    if near.is_empty() { String::new() } else { format!("; did you mean {}?", near.join(" or ")) }
}

/// A function of CUDA's runtime or driver, by its name.
fn is_call(name: &str) -> bool {
    let rest = name.strip_prefix("cuda").or_else(|| name.strip_prefix("cu"));
    rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()))
}

fn is_usual(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    // Wheels may put a hash into a file's name: libcudart-9335f6a2.so.12.
    USUAL.iter().any(|l| name.strip_prefix(l).is_some_and(|r| r.starts_with(".so") || r.starts_with('-')))
}

/// A library named by its path, or by the beginning of its file name.
fn is(named: &Path, path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    match named.to_str() {
        Some(text) if !text.contains('/') => {
            name == text || name.strip_prefix(text).is_some_and(|r| r.starts_with('.'))
        }
        _ => named == Path::new(path) || fs::canonicalize(named).is_ok_and(|p| p == Path::new(path)),
    }
}

/// Opens a plain file. Others may have put something there that nobody comes back from.
fn open(place: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(place)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is no plain file")) }
}

/// Which file this is, and its last change.
pub fn identity(place: &Path) -> io::Result<(Identity, Stamp)> {
    fs::metadata(place).map(|info| known_by(&info))
}

/// What a file is known by: device and inode, and its last change.
pub fn known_by(info: &fs::Metadata) -> (Identity, Stamp) {
    ((info.dev(), info.ino()), (info.size(), info.mtime(), info.mtime_nsec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CUDA's own libraries in every spelling, what the user names, and nothing else.
    #[test]
    fn wanted() {
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
