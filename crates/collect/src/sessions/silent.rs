//! Processes that loaded CUDA and reported no GPU activity, and why.
//!
//! The reason is known in one of two places. The injected library reports it through its marker ([`wire::Refusal`]). If
//! it was not even loaded, facts about the process are read from `/proc` when the process maps libcuda, since it may
//! have exited by the end. The process can block these reads indefinitely, for example if its memory or file system is
//! served by a program of its own, so they run on threads that nothing waits for.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufRead, BufReader, Read},
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    thread,
};

use model::event::{Event, Mapping, Note, ProcessId};
use wire::Refusal;

use crate::injector::INJECTOR;

/// The most processes inspected, and the most reported individually.
const MOST: usize = 4096;
const MOST_NOTES: usize = 16;
/// The kernel's limits on the environment that a program starts with, and on each entry.
const MOST_ENVIRONMENT: u64 = 6 << 20;
const LONGEST_ENTRY: u64 = 128 << 10;

/// The reason if nothing outside the process prevents the library from being loaded.
const NOT_LOADED: &str = "libcuda did not load the injected library: the program never called cuInit, or it changed CUDA_INJECTION64_PATH, or it had no descriptors left";

/// CUDA processes without a session so far.
#[derive(Debug)]
pub struct Silent {
    /// The injected library, as the command's environment names it; absent if warpscope attaches to running processes.
    library: Option<PathBuf>,
    /// Processes that warpscope attaches to. Their reasons are reported elsewhere.
    attached: Vec<u32>,
    processes: BTreeMap<ProcessId, Found>,
    connected: std::collections::BTreeSet<ProcessId>,
}

#[derive(Debug)]
struct Found {
    pid: u32,
    /// It mapped the injected library.
    injected: bool,
    refusal: Option<(Refusal, u32)>,
    /// Empty until a thread has read it.
    outside: Arc<OnceLock<Outside>>,
}

/// Facts about a process from `/proc`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Outside {
    /// It exited before it could be inspected.
    gone: bool,
    /// `CUDA_INJECTION64_PATH` in its initial environment.
    variable: Option<Vec<u8>>,
    /// Whether the library's path leads to the library in the file system of the process.
    visible: bool,
    /// Whether its root or its mounts differ from ours.
    elsewhere: bool,
    /// Its real and effective user differ.
    set_user: bool,
    /// Limits on its address space, in bytes, and on its open files.
    memory: Option<u64>,
    files: Option<u64>,
}

impl Silent {
    /// Creates the set of processes whose environment should name this library.
    pub fn new(library: &Path) -> Self {
        Self { library: Some(library.to_owned()), ..Self::attached(&[]) }
    }

    /// Creates the set of processes other than those that warpscope attaches to.
    pub fn attached(pids: &[u32]) -> Self {
        Self { library: None, attached: pids.to_vec(), processes: BTreeMap::new(), connected: Default::default() }
    }

    /// Handles a file mapped by a process.
    pub fn mapped(&mut self, mapping: &Mapping, pid: u32) {
        let name = mapping.path.rsplit('/').next().unwrap_or_default();
        if name.starts_with("libcuda.so") {
            if self.processes.len() < MOST && !self.processes.contains_key(&mapping.process) {
                let outside = self.library.as_ref().map(|library| Outside::read(pid, library)).unwrap_or_default();
                let found = Found { pid, injected: false, refusal: None, outside };
                self.processes.insert(mapping.process, found);
            }
        } else if name == INJECTOR
            && let Some(found) = self.processes.get_mut(&mapping.process)
        {
            found.injected = true;
        }
    }

    /// Handles the library's report of why it does nothing in a process.
    pub fn refused(&mut self, process: ProcessId, pid: u32, refusal: Refusal, error: u32) {
        let known = self.processes.contains_key(&process);
        if !known && self.processes.len() >= MOST {
            return;
        }
        let new = || Found { pid, injected: true, refusal: None, outside: Arc::default() };
        self.processes.entry(process).or_insert_with(new).refusal = Some((refusal, error));
    }

    /// Notes that a process has a session: it is not silent.
    pub fn connected(&mut self, process: ProcessId) {
        self.connected.insert(process);
    }

    /// Ends the recording: reports why each silent process is silent. `rejected_peers` are the processes whose connections
    /// were rejected, and their users.
    pub fn finish(&mut self, rejected_peers: &[(u32, u32)], push: &mut dyn FnMut(Event)) {
        let silent: Vec<&Found> = self
            .processes
            .iter()
            .filter(|(process, found)| !self.connected.contains(process) && !self.attached.contains(&found.pid))
            .map(|(_, found)| found)
            .collect();
        for found in silent.iter().take(MOST_NOTES) {
            let rejected_user = rejected_peers.iter().find(|(pid, _)| *pid == found.pid).map(|(_, uid)| *uid);
            let why = match &self.library {
                Some(library) => found.why(rejected_user, library),
                None => "it was started after warpscope attached; record it with -p".into(),
            };
            push(Event::Note(Note { text: format!("no GPU activity from process {}: {why}", found.pid) }));
        }
        if silent.len() > MOST_NOTES {
            let text = format!("no GPU activity from {} more CUDA processes", silent.len() - MOST_NOTES);
            push(Event::Note(Note { text }));
        }
    }
}

impl Found {
    fn why(&self, rejected_user: Option<u32>, library: &Path) -> String {
        if let Some(uid) = rejected_user {
            return format!(
                "it runs as user {uid}, and only the command's user and root may report; run the command as that user"
            );
        }
        if let Some((refusal, error)) = self.refusal {
            return refusal_sentence(refusal, error);
        }
        if self.injected {
            return "the injected library was loaded but never connected; the process was probably killed at once"
                .into();
        }
        let expected = Some(library.as_os_str().as_bytes());
        let Some(outside) = self.outside.get().filter(|outside| !outside.gone) else {
            return format!("{NOT_LOADED} (the process exited before it could be inspected)");
        };
        if outside.set_user {
            refusal_sentence(Refusal::Secure, 0)
        } else if outside.variable.is_none() {
            "CUDA_INJECTION64_PATH is not in its environment: the program that started it removed the variable".into()
        } else if outside.variable.as_deref() != expected {
            "CUDA_INJECTION64_PATH in its environment was replaced by the program that started it".into()
        } else if !outside.visible && outside.elsewhere {
            format!(
                "it runs in a chroot or mount namespace in which {} is not visible; record inside it, or set TMPDIR to a directory that is visible there",
                library.display()
            )
        } else if !outside.visible {
            format!("its user cannot reach {}", library.display())
        } else {
            let mut limits = String::new();
            if let Some(files) = outside.files {
                limits.push_str(&format!(" (its limit is {files})"));
            }
            if let Some(memory) = outside.memory {
                limits.push_str(&format!(", or too little memory (its limit is {} MiB)", memory >> 20));
            }
            format!("{NOT_LOADED}{limits}")
        }
    }
}

/// Explains a refusal to the user.
pub fn refusal_sentence(refusal: Refusal, error: u32) -> String {
    let system = std::io::Error::from_raw_os_error(error.cast_signed());
    match refusal {
        Refusal::Seccomp => "it runs under a seccomp filter of its own, which may kill it for system calls that it does not make itself; record it without the filter".into(),
        Refusal::Socket if [libc::EMFILE, libc::ENFILE].contains(&error.cast_signed()) => {
            "it had no descriptors left for a socket; raise its limit (ulimit -n)".into()
        }
        Refusal::Socket => format!("it could not create a socket ({system})"),
        Refusal::Connect if error.cast_signed() == libc::ENOENT => {
            "it runs in a chroot or mount namespace in which warpscope's socket is not visible; record inside it".into()
        }
        Refusal::Connect => format!("it could not connect to warpscope ({system})"),
        Refusal::Peer => "it runs in a user namespace in which warpscope's user is unknown, so it does not trust warpscope's socket; record inside the namespace, or map root into it".into(),
        Refusal::Memory => format!("it had no memory for 128 MiB of buffers ({system}); raise its limit on address space (ulimit -v)"),
        Refusal::Exit => "the injected library could not register its exit handler".into(),
        Refusal::Thread => format!("it could not start a thread ({system}); raise its limits on processes and memory (ulimit -u, ulimit -v)"),
        Refusal::Secure => "it gained privileges (set-user-id or file capabilities), so CUDA_INJECTION64_PATH is ignored".into(),
        Refusal::Busy => "another warpscope is recording it".into(),
        Refusal::NoAddress => format!("{} is not in its environment: the program removed the variable", wire::SOCKET_VARIABLE),
    }
}

impl Outside {
    /// Starts reading the facts.
    fn read(pid: u32, library: &Path) -> Arc<OnceLock<Self>> {
        let (outside, library) = (Arc::<OnceLock<Self>>::default(), library.to_owned());
        let result = Arc::clone(&outside);
        // If no thread can be started, there are no facts.
        let _ = thread::Builder::new().name("examine".into()).spawn(move || result.set(Self::of(pid, &library)));
        outside
    }

    fn of(pid: u32, library: &Path) -> Self {
        let proc = PathBuf::from(format!("/proc/{pid}"));
        let status = || fs::read_to_string(proc.join("status")).unwrap_or_default();
        let set_user = has_set_user(&status());
        let variable = File::open(proc.join("environ")).ok().and_then(injected_path);
        let link = |pid: &str, name: &str| fs::read_link(format!("/proc/{pid}/{name}")).ok();
        let own = |name| link("self", name) == link(&pid.to_string(), name);
        let inside = proc.join("root").join(library.strip_prefix("/").unwrap_or(library));
        let same = |a: fs::Metadata, b: fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
        let visible = fs::metadata(inside).is_ok_and(|seen| fs::metadata(library).is_ok_and(|ours| same(seen, ours)));
        let limits = fs::read_to_string(proc.join("limits")).unwrap_or_default();
        let elsewhere = !(own("root") && own("ns/mnt"));
        // Last: the files of a process that is exiting are empty.
        if !has_memory(&status()) {
            return Self { gone: true, ..Self::default() };
        }
        Self {
            gone: false,
            variable,
            visible,
            elsewhere,
            set_user,
            memory: limit(&limits, "Max address space"),
            files: limit(&limits, "Max open files"),
        }
    }
}

/// Returns the value of `CUDA_INJECTION64_PATH` in a process's `environ`. A process can give its environment any length
/// (`PR_SET_MM_MAP`), so neither all of it nor a long entry is kept.
fn injected_path(environ: impl Read) -> Option<Vec<u8>> {
    let mut entries = BufReader::new(environ.take(MOST_ENVIRONMENT));
    let mut entry = Vec::new();
    while entries.by_ref().take(LONGEST_ENTRY).read_until(0, &mut entry).ok()? > 0 {
        if let Some(path) = entry.strip_prefix(b"CUDA_INJECTION64_PATH=") {
            return Some(path.strip_suffix(b"\0").unwrap_or(path).to_vec());
        }
        entry.clear();
    }
    None
}

/// Whether a process has not begun to exit, by its `status`.
fn has_memory(status: &str) -> bool {
    status.lines().any(|line| line.starts_with("VmSize:"))
}

/// Whether a process's real and effective user differ, by its `status`.
fn has_set_user(status: &str) -> bool {
    ["Uid:", "Gid:"].into_iter().any(|key| {
        let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
        let ids: Vec<&str> = line.split_whitespace().collect();
        ids.len() > 1 && ids[0] != ids[1]
    })
}

/// Returns the soft limit with this name in a process's `limits`, if there is one.
fn limit(limits: &str, name: &str) -> Option<u64> {
    limits.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(outside: Outside) -> Found {
        let outside = Arc::new(OnceLock::from(outside));
        Found { pid: 7, injected: false, refusal: None, outside }
    }

    /// Check that the first obstacle is the reason: without the variable it does not matter what is visible.
    #[test]
    fn the_first_obstacle_is_the_reason() {
        let library = Path::new("/x/lib.so");
        let variable = Some(b"/x/lib.so".to_vec());
        let why = |outside| found(outside).why(None, library);
        assert!(why(Outside { gone: true, ..Outside::default() }).contains("exited before it could be inspected"));
        assert!(why(Outside::default()).contains("not in its environment"));
        assert!(why(Outside { variable: Some(b"/other".to_vec()), ..Outside::default() }).contains("was replaced"));
        let hidden = Outside { variable: variable.clone(), elsewhere: true, ..Outside::default() };
        assert!(why(hidden).contains("mount namespace in which /x/lib.so is not visible"));
        let rest = Outside { variable, visible: true, files: Some(64), ..Outside::default() };
        assert!(why(rest).contains(
            "never called cuInit, or it changed CUDA_INJECTION64_PATH, or it had no descriptors left (its limit is 64)"
        ));
        let mut refused = found(Outside::default());
        refused.refusal = Some((Refusal::Seccomp, 0));
        assert!(refused.why(None, library).contains("seccomp filter"));
        assert!(refused.why(Some(5), library).contains("runs as user 5"));
    }

    /// Check that a process that has exited and was not waited for is gone: its environment reads as empty.
    #[test]
    fn exited_processes_are_gone() {
        let mut child = std::process::Command::new("true").spawn().expect("a process");
        let status = format!("/proc/{}/status", child.id());
        while has_memory(&fs::read_to_string(&status).expect("a process that is not waited for")) {
            thread::yield_now();
        }
        assert!(Outside::of(child.id(), Path::new("/x/lib.so")).gone);
        child.wait().expect("our child");
        assert!(!Outside::of(std::process::id(), Path::new("/x/lib.so")).gone);
    }

    /// Check that the variable is found, and that an environment without end is not read to its end: a process can give
    /// its own any length.
    #[test]
    fn environments_are_bounded() {
        assert_eq!(injected_path(&b"A=1\0CUDA_INJECTION64_PATH=/x\0B=2\0"[..]).as_deref(), Some(&b"/x"[..]));
        assert_eq!(injected_path(std::io::repeat(b'x')), None);
    }

    /// Check that limits and users are parsed in the kernel's format.
    #[test]
    fn limits_and_users_are_parsed() {
        let limits = "Max address space         unlimited            unlimited            bytes     \n\
                      Max open files            1024                 4096                 files     \n";
        assert_eq!((limit(limits, "Max address space"), limit(limits, "Max open files")), (None, Some(1024)));
        assert!(has_set_user("Name:\tx\nUid:\t1000\t0\t0\t0\nGid:\t5\t5\t5\t5\n"));
        assert!(!has_set_user("Name:\tx\nUid:\t0\t0\t0\t0\nGid:\t5\t5\t5\t5\n"));
    }
}
