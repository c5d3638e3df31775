//! Reads the state of processes that were running before the recording from /proc.

use std::{
    fs::{self, File},
    io::Read as _,
    os::fd::AsRawFd,
    path::PathBuf,
    sync::OnceLock,
};

use model::event::{Event, Mapping, Origin, Process, ProcessId, Thread};

/// Whether `/proc` shows the processes of our own pid namespace, with the ids that we see. After `unshare --pid` it may
/// still be that of another namespace.
pub fn proc_is_own() -> bool {
    static OWN: OnceLock<bool> = OnceLock::new();
    let own = || fs::read_link("/proc/self").is_ok_and(|link| link.as_os_str() == &*std::process::id().to_string());
    *OWN.get_or_init(own)
}

/// The error message if [`proc_is_own`] is false.
pub const FOREIGN_PROC: &str = "/proc belongs to another pid namespace: files are looked up by their path only, and names may be missing; mount this namespace's /proc (unshare --mount-proc)";

/// Returns the id of a process in `/proc`; 0, which no process has, if it is unknown.
pub fn in_proc(pid: u32) -> u32 {
    if proc_is_own() { pid } else { 0 }
}

/// Returns a name of a file that a process has mapped at these addresses: of the file itself, whatever is at its path by now,
/// and in any container.
pub fn mapped_file(pid: u32, start: u64, end: u64) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/map_files/{start:x}-{end:x}"))
}

/// Returns a name of an open file itself, whatever is at its path by now.
pub fn open_file(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Returns the short name of a process; `None` if there is no such process.
pub fn comm(pid: u32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/comm")).ok().map(|comm| comm.trim_end().to_owned())
}

/// Whether the process exists and one of its threads is running. A zombie is listed until its parent has waited for it.
pub fn runs(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.filter_map(|thread| fs::read(thread.path().join("stat")).ok()).any(|stat| {
        // `4711 (name) S ...`: the name may contain anything.
        let state = stat.iter().rposition(|byte| *byte == b')').and_then(|at| stat.get(at + 2));
        state.is_some_and(|state| !b"ZX".contains(state))
    })
}

/// Whether the first thread of a process is exiting, or is gone.
pub fn is_exiting(pid: u32) -> bool {
    /// `PF_EXITING` of Linux.
    const EXITING: u32 = 4;
    let stat = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    // `4711 (name) S ...`: the name may contain anything. The flags are the 9th field.
    let fields = stat.rsplit(|byte| *byte == b')').next().and_then(|fields| std::str::from_utf8(fields).ok());
    let flags = fields.and_then(|fields| fields.split_whitespace().nth(6)?.parse::<u32>().ok());
    flags.is_none_or(|flags| flags & EXITING != 0)
}

/// Whether a process has mapped libcuda.
pub fn has_cuda(pid: u32) -> bool {
    let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    let is_libcuda = |line: &str| line.rsplit('/').next().is_some_and(|name| name.starts_with("libcuda.so"));
    String::from_utf8_lossy(&maps).lines().any(is_libcuda)
}

/// Whether a process has mapped libcuda or NCCL, or PyTorch's CUDA library, which may contain NCCL.
pub fn has_gpu_library(pid: u32) -> bool {
    const NAMES: [&str; 3] = ["libcuda.so", "libnccl.so", "libtorch_cuda.so"];
    let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    let is_one =
        |line: &str| line.rsplit('/').next().is_some_and(|name| NAMES.iter().any(|library| name.starts_with(library)));
    String::from_utf8_lossy(&maps).lines().any(is_one)
}

/// Returns the process that has started a process.
pub fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    // `4711 (name) S 1 ...`: the name may contain anything.
    let after = stat.iter().rposition(|byte| *byte == b')')? + 1;
    std::str::from_utf8(stat.get(after..)?).ok()?.split_whitespace().nth(1)?.parse().ok()
}

/// Returns the CPU time of a process in nanoseconds.
pub fn cpu_ns(pid: u32) -> Option<u64> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    // `4711 (name) S ...`: the name may contain anything. The times are the 14th and 15th field, in ticks.
    let after = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let fields = std::str::from_utf8(stat.get(after..)?).ok()?.split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).map(|field| field.parse::<u64>().unwrap_or(0)).sum();
    // SAFETY: only reads a setting of the system.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    ticks.checked_mul(1_000_000_000)?.checked_div(u64::try_from(per_second).ok()?)
}

/// Returns all processes.
pub fn all() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Pushes the process and its threads. If it has exited since, `last` is its name.
pub fn describe(pid: u32, image: ProcessId, time: u64, last: &str, mut push: impl FnMut(Event)) {
    let comm = comm(pid).unwrap_or_else(|| last.to_owned());
    push(Event::Process(Process { id: image, parent: ProcessId(0), origin: Origin::Found, pid, time, comm }));
    for entry in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let Some(tid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let Ok(comm) = fs::read_to_string(entry.path().join("comm")) else { continue };
        push(Event::Thread(Thread { process: image, tid, comm: comm.trim_end().to_owned() }));
    }
}

/// Returns the threads of a process in its own pid namespace: the ids that they know themselves by, and their ids here. Those of a
/// process in our namespace have one id each, and are left out.
pub fn inner_threads(pid: u32) -> Vec<(u32, u32)> {
    let tasks = fs::read_dir(format!("/proc/{}/task", in_proc(pid))).into_iter().flatten().flatten();
    let status = |task: fs::DirEntry| fs::read_to_string(task.path().join("status")).ok();
    tasks.map_while(status).map_while(|status| inner_thread(&status)).collect()
}

/// `NSpid:  4711  3  1`: the ids in our namespace and in each one within, down to the thread's own.
fn inner_thread(status: &str) -> Option<(u32, u32)> {
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    let mut ids = ids.split_whitespace().map_while(|id| id.parse().ok());
    let outer = ids.next()?;
    Some((ids.last()?, outer))
}

/// Returns its executable mappings. They are assumed to be as old as the process.
pub fn mappings(pid: u32, image: ProcessId) -> Vec<Mapping> {
    read_mappings(pid, image, u64::MAX)
}

/// The same, but only as many as most programs have: any number of processes may ask for it.
pub fn first_mappings(pid: u32, image: ProcessId) -> Vec<Mapping> {
    read_mappings(pid, image, 512 << 10)
}

fn read_mappings(pid: u32, image: ProcessId, most: u64) -> Vec<Mapping> {
    let mut maps = Vec::new();
    let read = File::open(format!("/proc/{pid}/maps")).and_then(|file| file.take(most).read_to_end(&mut maps));
    if read.is_err() {
        return Vec::new();
    }
    // Not a part of a line.
    maps.truncate(maps.iter().rposition(|byte| *byte == b'\n').unwrap_or(0));
    String::from_utf8_lossy(&maps).lines().filter_map(|line| mapping(line, image)).collect()
}

/// `7f00-7f10 r-xp 00001000 08:01 1234   /usr/lib/libc.so.6`
fn mapping(line: &str, process: ProcessId) -> Option<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let (start, end) = (hex(start)?, hex(end)?);
    if !fields.next()?.contains('x') {
        return None;
    }
    let offset = hex(fields.next()?)?;
    let path = fields.nth(2).unwrap_or_default().trim_start().trim_end_matches(" (deleted)").to_owned();
    Some(Mapping { process, time: 0, start, end, offset, path, build_id: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that only executable mappings are returned, names may contain blanks, and invalid lines are ignored.
    #[test]
    fn only_executable_mappings_are_parsed() {
        let parse = |line| mapping(line, ProcessId(1)).map(|m| (m.start, m.end, m.offset, m.path));
        let line = "7f00-7f10 r-xp 00001000 08:01 1234                       /usr/lib/a b.so";
        assert_eq!(parse(line), Some((0x7f00, 0x7f10, 0x1000, "/usr/lib/a b.so".into())));
        assert_eq!(parse("10-20 r-xp 00000000 00:00 0 "), Some((0x10, 0x20, 0, String::new())));
        assert_eq!(parse("10-20 rw-p 00000000 00:00 0 [heap]"), None);
        assert_eq!(parse("garbage"), None);
    }

    /// Check that a thread of another namespace has two ids, and one of ours is left out.
    #[test]
    fn ids_of_nested_namespaces_are_parsed() {
        assert_eq!(inner_thread("Name:\ta\nNSpid:\t4711\t30\t1\nNSpgid:\t1\n"), Some((1, 4711)));
        assert_eq!(inner_thread("NSpid:\t4711\n"), None);
        assert_eq!(inner_threads(std::process::id()), []);
    }

    /// Check that the current process is found.
    #[test]
    fn the_current_process_is_found() {
        let pid = std::process::id();
        assert!(comm(pid).is_some() && runs(pid));
        assert!(!runs(u32::MAX));
        assert!(mappings(pid, ProcessId(1)).iter().any(|m| m.path.contains("libc")));
    }
}
