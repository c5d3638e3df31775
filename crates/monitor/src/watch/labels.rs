//! Process labels for users: user, container, command; and what the environment says about memory.

use std::{
    fs::{self, File},
    io::Read,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

/// The maximum number of bytes read from a file that a process controls, and of characters kept of its command.
const MAX_READ: u64 = 1 << 20;
const MAX_KEPT: usize = 200;
/// How long to wait for a process that blocks reads of its memory, and how many such reads may be pending.
const TIMEOUT: Duration = Duration::from_millis(50);
const MAX_STUCK: usize = 8;

/// Labels of a process; empty where unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels {
    /// By name, or by number if it has no name.
    pub user: String,
    /// The short id.
    pub container: String,
    /// The command line, the program without its directory.
    pub command: String,
    /// PyTorch's caching allocator is disabled.
    pub uncached: bool,
}

/// Reads the labels of a process.
pub fn read(pid: u32) -> Labels {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let uid = status.lines().find_map(|line| line.strip_prefix("Uid:")?.split_whitespace().next());
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let user = uid.map(|uid| user_name(&passwd, uid).unwrap_or(uid).to_owned()).unwrap_or_default();
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let (words, environment) =
        with_timeout(move || (read_words(pid, "cmdline"), read_words(pid, "environ"))).unwrap_or_default();
    Labels {
        user,
        container: container(&groups).unwrap_or_default(),
        command: command(&words),
        uncached: uncached(&environment),
    }
}

/// Runs a read that the target process can block: the data is in its memory, which it can lock for any length of time.
/// The read runs on its own thread, and its result is used if it arrives in time.
fn with_timeout<T: Send + 'static>(read: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    static READING: AtomicUsize = AtomicUsize::new(0);
    if READING.fetch_add(1, Ordering::Relaxed) >= MAX_STUCK {
        READING.fetch_sub(1, Ordering::Relaxed);
        return None;
    }
    let (send, answer) = mpsc::sync_channel(1);
    let reader = move || {
        collect::command::priority::restore();
        let _ = send.send(read());
        READING.fetch_sub(1, Ordering::Relaxed);
    };
    if thread::Builder::new().name("read-process".into()).spawn(reader).is_err() {
        READING.fetch_sub(1, Ordering::Relaxed);
        return None;
    }
    answer.recv_timeout(TIMEOUT).ok()
}

/// Reads a file whose contents the process controls: words terminated by zero bytes.
fn read_words(pid: u32, file: &str) -> Vec<u8> {
    let mut words = Vec::new();
    if let Ok(file) = File::open(format!("/proc/{pid}/{file}")) {
        let _ = file.take(MAX_READ).read_to_end(&mut words);
    }
    words
}

fn command(words: &[u8]) -> String {
    let words = String::from_utf8_lossy(words);
    let (program, rest) = words.split_once('\0').unwrap_or((&words, ""));
    let program = program.rsplit('/').next().unwrap_or_default();
    let command = format!("{program} {}", rest.replace('\0', " "));
    command.trim_end().chars().take(MAX_KEPT).collect()
}

/// PyTorch checks only whether the variable is set, not its value.
fn uncached(environment: &[u8]) -> bool {
    environment.split(|byte| *byte == 0).any(|variable| variable.starts_with(b"PYTORCH_NO_CUDA_MEMORY_CACHING="))
}

/// `name:password:uid:...`
fn user_name<'a>(passwd: &'a str, uid: &str) -> Option<&'a str> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == uid).then_some(name)
    })
}

/// Docker, containerd, CRI-O and Podman all put 64 hexadecimal digits into the cgroup name.
fn container(groups: &str) -> Option<String> {
    let is_id = |text: &&str| text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit());
    groups.split(['/', '-', '.', ':', '\n']).find(is_id).map(|id| id[..12].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that reads that never finish delay the caller briefly and a bounded number of times.
    #[test]
    fn stuck_reads_time_out() {
        let (release, stuck) = mpsc::channel::<()>();
        let stuck = std::sync::Arc::new(std::sync::Mutex::new(stuck));
        let begin = std::time::Instant::now();
        for _ in 0..100 {
            let stuck = stuck.clone();
            let answer = with_timeout(move || stuck.lock().is_ok_and(|stuck| stuck.recv().is_ok()));
            assert!(answer.is_none());
        }
        let spent = begin.elapsed();
        drop(release);
        assert!(spent >= TIMEOUT && spent < 30 * TIMEOUT, "{spent:?} for 100 processes");
    }

    /// Check that the ids of every runtime are found, and that nothing else is mistaken for one.
    #[test]
    fn container_ids_are_found() {
        let id = "0123456789abcdef".repeat(4);
        for group in [
            format!("0::/docker/{id}\n"),
            format!("0::/system.slice/docker-{id}.scope\n"),
            format!("1:name=systemd:/\n0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{id}.scope\n"),
            format!("0::/machine.slice/libpod-{id}.scope/container\n"),
        ] {
            assert_eq!(container(&group).as_deref(), Some("0123456789ab"), "{group}");
        }
        assert_eq!(container("0::/user.slice/user-1000.slice/session-2.scope\n"), None);
    }

    /// Check that a command has its arguments and a bounded length.
    #[test]
    fn commands_are_bounded() {
        assert_eq!(command(b"/usr/bin/python3\0train.py\0--steps\x005\0"), "python3 train.py --steps 5");
        assert_eq!(command(b"worker\0"), "worker");
        assert_eq!(command(b""), "");
        assert_eq!(command(&[b'x'; 1000]).len(), MAX_KEPT);
    }

    /// Check that the variable is distinguished from others.
    #[test]
    fn the_caching_variable_is_recognised() {
        assert!(uncached(b"HOME=/root\0PYTORCH_NO_CUDA_MEMORY_CACHING=1\0"));
        assert!(!uncached(b"A=PYTORCH_NO_CUDA_MEMORY_CACHING=1\0PYTORCH_NO_CUDA_MEMORY_CACHING_X=1\0"));
    }

    /// Check that known users are shown by name, and that unknown users have none.
    #[test]
    fn users_are_shown_by_name() {
        let passwd = "root:x:0:0:root:/root:/bin/bash\nbroken\nana:x:1000:1000::/home/ana:/bin/sh\n";
        assert_eq!(user_name(passwd, "1000"), Some("ana"));
        assert_eq!(user_name(passwd, "7"), None);
        assert!(!read(std::process::id()).user.is_empty());
        assert_eq!(read(0), Labels::default());
    }
}
