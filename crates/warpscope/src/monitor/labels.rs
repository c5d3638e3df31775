//! What identifies a process to a person: its user, its container, its command; and what its environment says about memory.

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

/// The most that is read of what a process says of itself, in bytes, and kept of its command.
const MOST_READ: u64 = 1 << 20;
const MOST_KEPT: usize = 200;
/// How long a process is waited for that does not let its memory be read, and how many of them there may be.
const PATIENCE: Duration = Duration::from_millis(50);
const MOST_STUCK: usize = 8;

/// Labels of a process; empty where unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels {
    /// By name, or by number if it has none.
    pub user: String,
    /// The short id.
    pub container: String,
    /// Its words, the first without its directory.
    pub command: String,
    /// PyTorch is configured to keep no memory for reuse.
    pub uncached: bool,
}

/// Reads the labels of a process.
pub fn read(pid: u32) -> Labels {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let uid = status.lines().find_map(|line| line.strip_prefix("Uid:")?.split_whitespace().next());
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let user = uid.map(|uid| user_name(&passwd, uid).unwrap_or(uid).to_owned()).unwrap_or_default();
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let (words, environment) = soon(move || (own_words(pid, "cmdline"), own_words(pid, "environ"))).unwrap_or_default();
    Labels {
        user,
        container: container(&groups).unwrap_or_default(),
        command: command(&words),
        uncached: uncached(&environment),
    }
}

/// What a process says of itself lies in its memory, which it can lock for as long as it likes: such a read must not hold up
/// the caller. It is made by a thread of its own, and its answer is taken if it comes soon.
fn soon<T: Send + 'static>(read: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    static READING: AtomicUsize = AtomicUsize::new(0);
    if READING.fetch_add(1, Ordering::Relaxed) >= MOST_STUCK {
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
    answer.recv_timeout(PATIENCE).ok()
}

/// What a process itself may have written: words that end with zero bytes.
fn own_words(pid: u32, file: &str) -> Vec<u8> {
    let mut words = Vec::new();
    if let Ok(file) = File::open(format!("/proc/{pid}/{file}")) {
        let _ = file.take(MOST_READ).read_to_end(&mut words);
    }
    words
}

fn command(words: &[u8]) -> String {
    let words = String::from_utf8_lossy(words);
    let (program, rest) = words.split_once('\0').unwrap_or((&words, ""));
    let program = program.rsplit('/').next().unwrap_or_default();
    let command = format!("{program} {}", rest.replace('\0', " "));
    command.trim_end().chars().take(MOST_KEPT).collect()
}

/// PyTorch looks whether the variable is there, and not what it is.
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

/// Docker, containerd, CRI-O and Podman all put 64 hexadecimal digits into the name of the control group.
fn container(groups: &str) -> Option<String> {
    let is_id = |text: &&str| text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit());
    groups.split(['/', '-', '.', ':', '\n']).find(is_id).map(|id| id[..12].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that reads that do not come to an end hold the caller up for a moment each, and a bounded number of times.
    #[test]
    fn stuck_reads_are_given_up() {
        let (release, stuck) = mpsc::channel::<()>();
        let stuck = std::sync::Arc::new(std::sync::Mutex::new(stuck));
        let begin = std::time::Instant::now();
        for _ in 0..100 {
            let stuck = stuck.clone();
            let answer = soon(move || stuck.lock().is_ok_and(|stuck| stuck.recv().is_ok()));
            assert!(answer.is_none());
        }
        let spent = begin.elapsed();
        drop(release);
        assert!(spent >= PATIENCE && spent < 30 * PATIENCE, "{spent:?} for 100 processes");
    }

    /// Check that the ids of every runtime are found, and nothing else is taken for one.
    #[test]
    fn containers() {
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

    /// Check that a command is its words, of bounded length.
    #[test]
    fn commands() {
        assert_eq!(command(b"/usr/bin/python3\0train.py\0--steps\x005\0"), "python3 train.py --steps 5");
        assert_eq!(command(b"worker\0"), "worker");
        assert_eq!(command(b""), "");
        assert_eq!(command(&[b'x'; 1000]).len(), MOST_KEPT);
    }

    /// Check that the variable is told from others.
    #[test]
    fn environments() {
        assert!(uncached(b"HOME=/root\0PYTORCH_NO_CUDA_MEMORY_CACHING=1\0"));
        assert!(!uncached(b"A=PYTORCH_NO_CUDA_MEMORY_CACHING=1\0PYTORCH_NO_CUDA_MEMORY_CACHING_X=1\0"));
    }

    /// Check that users have their names, and strangers none.
    #[test]
    fn users() {
        let passwd = "root:x:0:0:root:/root:/bin/bash\nbroken\nana:x:1000:1000::/home/ana:/bin/sh\n";
        assert_eq!(user_name(passwd, "1000"), Some("ana"));
        assert_eq!(user_name(passwd, "7"), None);
        assert!(!read(std::process::id()).user.is_empty());
        assert_eq!(read(0), Labels::default());
    }
}
