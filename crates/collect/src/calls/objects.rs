//! Names kernels by the driver's objects behind their handles: learns where the objects have their names, and reads them.
//!
//! A layout that was learned in one process holds in others with the same file of libcuda. It is remembered for processes of the
//! same user only: a process can change its own objects and so teach a wrong layout, but not to others.
//!
//! - Known are the handles that host functions keep, those that the runtime passes to the driver for a host function,
//!   and those that were looked up by name since tracing began. Their names must be exact, so host functions are looked
//!   up in the code that registers them, and names with lambdas or anonymous namespaces, which nvcc changes in the
//!   host's code, are ignored.
//! - A `CUfunction` and a `CUkernel` are different objects, and each kind is learned separately. Launches accept both,
//!   so the kind of a handle follows from lookups and from the variables of host functions (a `cudaKernel_t` is a
//!   `CUkernel`); if it is not known, all layouts that give a name must agree, and none may give a known handle a wrong
//!   name.
//! - `cuKernelGetFunction` ties a kernel to a function: both have the same name, and two names that differ are
//!   discarded.
//! - `trace` tries again when twice as many handles are known, and at the end. `monitor` tries once for each handle,
//!   because a counter must not move from `[unknown kernel 0x...]` to a name.
//! - Otherwise handles stay unnamed: that a string in an object is *a* name does not prove that it is the name of
//!   *this* kernel.

use std::{
    collections::{HashMap, HashSet},
    fs::{self, File},
};

use cuda::calls::Object;
use elf::Budget;
use model::{
    calls::SeenHandle,
    event::{Mapping, ProcessId, Symbol},
};
use symbols::{Kept, Layout};

use super::file::{self, Identity, Stamp};
use crate::process::procfs;

/// The most files of one process that are held open.
const MOST_FILES: usize = 256;
/// The most processes and drivers that are remembered.
const MOST_PROCESSES: usize = 1024;
const MOST_DRIVERS: usize = 64;
/// How often the code of one process is searched for host functions: large libraries take a second.
const MOST_SEARCHES: u32 = 4;

/// The handles of a process.
#[derive(Clone, Debug)]
pub struct Question {
    /// Its pid.
    pub pid: u32,
    /// Its image.
    pub image: ProcessId,
    /// All handles in its calls.
    pub seen: Vec<SeenHandle>,
    /// Those without a name.
    pub unnamed: Vec<u64>,
}

/// What was learned so far.
#[derive(Debug, Default)]
pub struct Objects {
    processes: HashMap<ProcessId, Known>,
    drivers: HashMap<Driver, Layouts>,
}

/// What is known of a process.
#[derive(Debug, Default)]
struct Known {
    /// Whether the handles that it keeps were read.
    read: bool,
    /// The names of those, and of host functions.
    names: HashMap<u64, String>,
    kept: HashSet<u64>,
    searches: u32,
}

/// A file of libcuda, and a user.
type Driver = (Identity, Stamp, u32);

/// Layouts by kind of object; that of `None` was learned from handles whose kind is not known. A contradiction is remembered, too:
/// nothing is learned then.
type Layouts = HashMap<Option<Object>, Option<Layout>>;

impl Objects {
    /// Returns the names of a process's handles: at the first question all that it keeps, and those without a name whose objects
    /// lead to one. None if it has ended, or may not be read.
    pub fn names(&mut self, question: &Question, budget: &Budget) -> Vec<Symbol> {
        let Question { pid, image, .. } = *question;
        let Ok(memory) = File::open(format!("/proc/{}/mem", procfs::in_proc(pid))) else { return Vec::new() };
        let mut files = Kept::new(MOST_FILES);
        let mappings = procfs::mappings(pid, image);
        for mapping in &mappings {
            files.mapped(mapping, pid);
        }
        if self.processes.len() >= MOST_PROCESSES {
            self.processes.clear();
        }
        let known = self.processes.entry(image).or_default();
        let mut found = Vec::new();
        if !known.read {
            known.read = true;
            found = symbols::kept_handles(&mappings, &files.files, &memory, budget);
            known.keep(&found);
        }
        let kept = found.iter().filter_map(symbols::handle_kernel);
        let inexact: HashSet<u64> =
            kept.filter(|(_, name)| !symbols::is_kernels_own(name)).map(|(handle, _)| handle).collect();
        if inexact.is_empty() && question.unnamed.iter().all(|handle| known.names.contains_key(handle)) {
            return found;
        }
        known.search(&question.seen, &mappings, &files, &memory);
        let driver = driver(pid, &mappings, &mut files);
        if self.drivers.len() >= MOST_DRIVERS {
            self.drivers.clear();
        }
        let layouts = driver.map(|driver| self.drivers.entry(driver).or_default());
        let names = known.read_names(question, &inexact, layouts.unwrap_or(&mut HashMap::new()), &memory);
        known.names.extend(names.iter().filter(|(h, _)| inexact.contains(h)).map(|(h, name)| (*h, name.clone())));
        found.retain(|symbol| symbols::handle_kernel(symbol).is_none_or(|(handle, _)| !names.contains_key(&handle)));
        found.extend(names.iter().map(|(handle, name)| symbols::handle_symbol(image, *handle, name, "libcuda")));
        found
    }
}

impl Known {
    fn keep(&mut self, handles: &[Symbol]) {
        for (handle, name) in handles.iter().filter_map(symbols::handle_kernel) {
            self.kept.insert(handle);
            self.names.insert(handle, name.to_owned());
        }
    }

    /// Finds the names of the host functions that handles stand for.
    fn search(&mut self, seen: &[SeenHandle], mappings: &[Mapping], files: &Kept, memory: &File) {
        let handles: HashSet<u64> = seen.iter().map(|seen| seen.handle).collect();
        let wanted = seen.iter().filter(|seen| seen.name.is_none()).filter_map(|seen| seen.same_as);
        let wanted = wanted.filter(|address| !handles.contains(address) && !self.names.contains_key(address));
        let addresses: HashSet<u64> = wanted.collect();
        let names = addresses.len() + self.names.len() + seen.iter().filter(|seen| seen.name.is_some()).count();
        if !addresses.is_empty() && names >= Layout::FEWEST && self.searches < MOST_SEARCHES {
            self.searches += 1;
            self.names.extend(symbols::registered_kernels(mappings, &files.files, memory, &addresses));
        }
    }

    /// Returns the name of a handle, as it is in the module, if it is known without the driver's object.
    fn name<'a>(&'a self, seen: &'a SeenHandle, by_handle: &HashMap<u64, &'a SeenHandle>) -> Option<&'a str> {
        let direct =
            |seen: &'a SeenHandle| seen.name.as_deref().or_else(|| Some(self.names.get(&seen.handle)?.as_str()));
        direct(seen).or_else(|| {
            let same = seen.same_as?;
            self.names.get(&same).map(String::as_str).or_else(|| direct(by_handle.get(&same)?))
        })
    }

    fn kind(&self, seen: &SeenHandle) -> Option<Object> {
        // The variable of a host function is a cudaKernel_t.
        seen.object.or_else(|| self.kept.contains(&seen.handle).then_some(Object::Kernel))
    }

    /// Learns layouts, and returns the names of the handles without one, and of those that have the host's name for their kernel.
    fn read_names(
        &self,
        question: &Question,
        inexact: &HashSet<u64>,
        layouts: &mut Layouts,
        memory: &File,
    ) -> HashMap<u64, String> {
        let by_handle: HashMap<u64, &SeenHandle> = question.seen.iter().map(|seen| (seen.handle, seen)).collect();
        let seen = question.seen.iter().filter_map(|seen| {
            let name = self.name(seen, &by_handle)?;
            Some((seen.handle, (self.kind(seen), name)))
        });
        let kept = self.kept.iter().filter_map(|handle| {
            let name = self.names.get(handle)?.as_str();
            Some((*handle, (Some(Object::Kernel), name)))
        });
        // What a call revealed is newer than what was read.
        let named: Named<'_> = kept.chain(seen).collect();
        let mut wanted: HashSet<u64> = question.unnamed.iter().copied().collect();
        // The kernel for which a function was looked up has its name, too.
        let looked_up = question.seen.iter().filter(|seen| wanted.contains(&seen.handle));
        let kernels: Vec<u64> =
            looked_up.filter_map(|seen| seen.same_as).filter(|same| by_handle.contains_key(same)).collect();
        wanted.extend(kernels);
        wanted.retain(|handle| !named.contains_key(handle));
        wanted.extend(inexact);
        let mut proven = named.clone();
        proven.retain(|_, (_, name)| symbols::is_kernels_own(name));
        let mut usable = learn(layouts, &proven, memory);
        let all = question.seen.iter().map(|seen| seen.handle).chain(wanted.iter().copied());
        usable.guess(all, &proven, memory);
        let kind = |handle: u64| match by_handle.get(&handle) {
            Some(seen) => Some(self.kind(seen)),
            None => inexact.contains(&handle).then_some(Some(Object::Kernel)),
        };
        let read = |handle: u64| usable.name(handle, kind(handle)?, memory);
        let mut names = wanted.iter().filter_map(|handle| Some((*handle, read(*handle)?))).collect();
        for seen in &question.seen {
            agree(&mut names, seen, &wanted, &proven);
        }
        names
    }
}

/// The kinds and names of handles.
type Named<'a> = HashMap<u64, (Option<Object>, &'a str)>;

/// The layouts that hold in a process.
struct Usable(Vec<UsableLayout>);

struct UsableLayout {
    kind: Option<Object>,
    layout: Layout,
    /// Whether it gives a known handle of another kind a wrong name.
    misleads: bool,
}

/// Learns layouts from handles with names, and returns those that none of these contradicts.
fn learn(layouts: &mut Layouts, named: &Named<'_>, memory: &File) -> Usable {
    for kind in [Some(Object::Function), Some(Object::Kernel), None] {
        let of_kind = named.iter().filter(|(_, (of, _))| *of == kind);
        let of_kind: Vec<_> = of_kind.map(|(handle, (_, name))| (*handle, *name)).collect();
        if let Some(learned) = Layout::learn(memory, &of_kind) {
            let before = layouts.entry(kind).or_insert_with(|| Some(learned.clone()));
            *before = before.as_ref().and_then(|before| before.and(&learned));
        }
    }
    let usable = layouts.iter().filter_map(|(kind, layout)| {
        let (kind, layout, mut misleads) = (*kind, layout.clone()?, false);
        for (handle, (of, name)) in named {
            match layout.name(memory, *handle) {
                Some(read) if read == *name => {}
                _ if *of == kind => return None,
                Some(_) => misleads = true,
                None => {}
            }
        }
        Some(UsableLayout { kind, layout, misleads })
    });
    Usable(usable.collect())
}

impl Usable {
    /// Adds the usual layout if the objects have it, and no known name contradicts it.
    fn guess(&mut self, handles: impl Iterator<Item = u64>, named: &Named<'_>, memory: &File) {
        let Some(layout) = Layout::usual(memory, handles) else { return };
        let right =
            |(handle, (_, name)): (&u64, &(_, &str))| layout.name(memory, *handle).is_none_or(|read| read == *name);
        if named.iter().all(right) {
            self.0.push(UsableLayout { kind: None, layout, misleads: false });
        }
    }

    /// Reads the name of a handle. If it is not known whether its object is of the same kind, the layout must not be misleading,
    /// and all layouts that give a name must agree.
    fn name(&self, handle: u64, kind: Option<Object>, memory: &File) -> Option<String> {
        let fits = |usable: &&UsableLayout| match (usable.kind, kind) {
            (Some(one), Some(other)) => one == other,
            _ => !usable.misleads,
        };
        let mut names = self.0.iter().filter(fits).filter_map(|usable| usable.layout.name(memory, handle));
        let first = names.next()?;
        names.all(|name| name == first).then_some(first)
    }
}

/// A function and the kernel for which it was looked up have one name: it passes to the one that has none, and two that differ are
/// both wrong.
fn agree(names: &mut HashMap<u64, String>, seen: &SeenHandle, wanted: &HashSet<u64>, named: &Named<'_>) {
    let Some(same) = seen.same_as else { return };
    let name = |handle: u64| match named.get(&handle) {
        Some((_, name)) => Some((*name).to_owned()),
        None => names.get(&handle).cloned(),
    };
    match (name(seen.handle), name(same)) {
        (Some(one), Some(other)) if one != other => {
            names.remove(&seen.handle);
            names.remove(&same);
        }
        (Some(name), None) if wanted.contains(&same) => drop(names.insert(same, name)),
        (None, Some(name)) if wanted.contains(&seen.handle) => drop(names.insert(seen.handle, name)),
        _ => {}
    }
}

/// Returns the libcuda of a process, and its user. `None` if the process has several users: another one may have started it.
fn driver(pid: u32, mappings: &[Mapping], files: &mut Kept) -> Option<Driver> {
    let is_driver =
        |mapping: &&Mapping| mapping.path.rsplit('/').next().is_some_and(|name| name.starts_with("libcuda.so"));
    let mapping = mappings.iter().find(is_driver)?;
    let id = files.mapped(mapping, pid)?;
    let (identity, stamp) = file::known_by(&files.files.open(id)?.metadata().ok()?);
    let status = fs::read_to_string(format!("/proc/{}/status", procfs::in_proc(pid))).ok()?;
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    let mut users = users.split_whitespace().filter_map(|user| user.parse::<u32>().ok());
    let user = users.next()?;
    users.all(|other| other == user).then_some((identity, stamp, user))
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    /// Returns the address of an object of this process with pointers to these texts.
    fn object(texts: &[(usize, &'static CStr)]) -> u64 {
        let words = Box::leak(Box::new([0_u64; 128]));
        for (at, text) in texts {
            words[at / 8] = text.as_ptr().addr() as u64;
        }
        std::ptr::from_mut(words).expose_provenance() as u64
    }

    const NAMES: [&CStr; 3] = [c"first_kernel", c"second_kernel", c"third_kernel"];

    /// Check that a layout that gives a handle of another kind a wrong name is applied to its own kind only, and that one that is
    /// contradicted by a handle of its own kind is not applied at all.
    #[test]
    fn misleading_layouts_are_confined() {
        let memory = File::open("/proc/self/mem").expect("our own memory");
        let text = |name: &'static CStr| name.to_str().expect("ASCII");
        let functions = NAMES.map(|name| (object(&[(0x48, name)]), (Some(Object::Function), text(name))));
        let kernels =
            NAMES.map(|name| (object(&[(0x28, name), (0x48, c"some_module")]), (Some(Object::Kernel), text(name))));
        let unknown = object(&[(0x48, c"fourth_kernel")]);
        let name = |layouts: &mut Layouts, named: &[_], kind| {
            learn(layouts, &named.iter().copied().collect(), &memory).name(unknown, kind, &memory)
        };
        let (mut layouts, found) = (Layouts::new(), Some("fourth_kernel".to_owned()));
        assert_eq!(name(&mut layouts, &functions, None), found);
        let both = [functions, kernels].concat();
        assert_eq!(name(&mut layouts, &both, None), None, "it may be a kernel");
        assert_eq!(name(&mut layouts, &both, Some(Object::Function)), found);
        assert_eq!(name(&mut layouts, &both, Some(Object::Kernel)), None);
        assert_eq!(name(&mut layouts, &[], Some(Object::Function)), found, "remembered");
        let wrong = [(unknown, (Some(Object::Function), "another_kernel"))];
        assert_eq!(name(&mut layouts, &wrong, Some(Object::Function)), None, "contradicted");
        // Another layout of the same driver: nothing is learned any more.
        let others = NAMES.map(|name| (object(&[(0x50, name)]), (Some(Object::Function), text(name))));
        assert_eq!(name(&mut layouts, &others, Some(Object::Function)), None);
        assert_eq!(name(&mut layouts, &functions, Some(Object::Function)), None);
    }

    /// Check that names of lambdas, which are others in the host's code, neither teach nor contradict, and are replaced: with a
    /// layout that must be learned, and with the usual one.
    #[test]
    fn host_names_of_lambdas_prove_nothing() {
        let memory = File::open("/proc/self/mem").expect("our own memory");
        let (host, device) = ("_Z5applyIZ4callvEUnvhdl0_0_EvT_", c"_Z5applyIZ4callvEUlvE_EvT_");
        for (at, own) in [(0x48, &NAMES[..]), (8, &[])] {
            let begins = |object: u64| {
                // SAFETY: it is an object of this test.
                unsafe { *std::ptr::with_exposed_provenance_mut::<u64>(object as usize) = 2 };
                object
            };
            let kept: Vec<_> = own.iter().map(|name| (begins(object(&[(at, name)])), *name)).collect();
            let mut known = Known { read: true, ..Known::default() };
            let named = kept.iter().map(|(handle, name)| (*handle, name.to_str().expect("ASCII").to_owned()));
            let lambda = begins(object(&[(at, device)]));
            known.names = named.chain([(lambda, host.to_owned())]).collect();
            known.kept = known.names.keys().copied().collect();
            let unnamed =
                [c"fourth_kernel", c"fifth_kernel", c"sixth_kernel"].map(|name| begins(object(&[(at, name)])));
            let seen = unnamed.map(|handle| SeenHandle { handle, object: None, name: None, same_as: None });
            let question = Question { pid: 0, image: ProcessId(0), seen: seen.to_vec(), unnamed: unnamed.to_vec() };
            let names = known.read_names(&question, &[lambda].into(), &mut Layouts::new(), &memory);
            let read = [unnamed[0], lambda].map(|handle| names.get(&handle).map(String::as_str));
            assert_eq!(read, [Some("fourth_kernel"), device.to_str().ok()], "{at}");
            assert_eq!(names.len(), 4);
        }
    }

    /// Check that a function and its kernel share a name, and that two that differ are both discarded.
    #[test]
    fn functions_and_kernels_agree() {
        let seen = SeenHandle { handle: 1, object: None, name: None, same_as: Some(2) };
        let agreed = |names: &[(u64, &str)]| {
            let mut names: HashMap<u64, String> =
                names.iter().map(|(handle, name)| (*handle, (*name).into())).collect();
            agree(&mut names, &seen, &[1, 2].into(), &HashMap::new());
            [1, 2].map(|handle| names.get(&handle).cloned())
        };
        let both = [Some("gemm".to_owned()), Some("gemm".to_owned())];
        assert_eq!((agreed(&[(1, "gemm")]), agreed(&[(2, "gemm")])), (both.clone(), both.clone()));
        assert_eq!(agreed(&[(1, "gemm"), (2, "gemm")]), both);
        assert_eq!((agreed(&[(1, "gemm"), (2, "sum")]), agreed(&[])), ([None, None], [None, None]));
    }
}
