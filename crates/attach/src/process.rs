//! Reads what `/proc` says about a process, within limits.

use std::{
    fs::{self, File},
    io::{self, Read},
};

/// A process has a few thousand mappings at most; 16 MiB of text are 160,000.
const MAX_MAPS: u64 = 16 << 20;
const MAX_STATUS: u64 = 1 << 16;
/// More threads are not inspected.
const MAX_THREADS: usize = 4096;
/// More open files are not inspected.
const MAX_FILES: usize = 1 << 20;

/// What the status of a thread says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Status {
    /// `R`, `S`, `D`, `T`, `t`, `Z`, ...
    pub state: char,
    pub parent: u32,
    pub tracer: u32,
    pub seccomp: u32,
    pub shadow_stack: bool,
    /// Signals that wait for the thread or the process.
    pub pending: u64,
    pub blocked: u64,
}

impl Status {
    pub fn of_process(pid: u32) -> io::Result<Self> {
        text(&format!("/proc/{pid}/status"), MAX_STATUS).map(|text| Self::parse(&text))
    }

    pub fn of_thread(pid: u32, tid: u32) -> io::Result<Self> {
        text(&format!("/proc/{pid}/task/{tid}/status"), MAX_STATUS).map(|text| Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let mut status = Status::default();
        for line in text.lines() {
            let Some((name, value)) = line.split_once(':') else { continue };
            let value = value.trim();
            let number = || value.parse().unwrap_or(0);
            let set = || u64::from_str_radix(value, 16).unwrap_or(0);
            match name {
                "State" => status.state = value.chars().next().unwrap_or_default(),
                "PPid" => status.parent = number(),
                "TracerPid" => status.tracer = number(),
                "Seccomp" => status.seccomp = number(),
                "x86_Thread_features" => status.shadow_stack = value.split(' ').any(|feature| feature == "shstk"),
                "SigPnd" | "ShdPnd" => status.pending |= set(),
                "SigBlk" => status.blocked = set(),
                _ => {}
            }
        }
        status
    }
}

/// Returns the threads, the first one first.
pub(crate) fn threads(pid: u32) -> io::Result<Vec<u32>> {
    let entries = fs::read_dir(format!("/proc/{pid}/task"))?;
    Ok(entries.flatten().take(MAX_THREADS).filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

/// The system call in which a thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SystemCall {
    pub number: i64,
    pub arguments: [u64; 6],
}

impl SystemCall {
    pub fn of_thread(pid: u32, tid: u32) -> Option<Self> {
        Self::parse(&text(&format!("/proc/{pid}/task/{tid}/syscall"), 4096).ok()?)
    }

    /// Parses `NUMBER ARGUMENT... SP PC`; a thread outside a system call has `running` or -1.
    fn parse(text: &str) -> Option<Self> {
        let mut fields = text.split_whitespace();
        let number = fields.next()?.parse().ok().filter(|number| *number >= 0)?;
        let mut arguments = [0; 6];
        for argument in &mut arguments {
            *argument = u64::from_str_radix(fields.next()?.strip_prefix("0x")?, 16).ok()?;
        }
        Some(SystemCall { number, arguments })
    }
}

/// Returns the number of an open memory file with this name.
pub(crate) fn memory_file(pid: u32, name: &str) -> io::Result<Option<u64>> {
    let link = format!("/memfd:{name} (deleted)");
    let found = fs::read_dir(format!("/proc/{pid}/fd"))?.flatten().take(MAX_FILES).find_map(|entry| {
        let same = fs::read_link(entry.path()).is_ok_and(|found| found.as_os_str() == link.as_str());
        same.then(|| entry.file_name().to_str()?.parse().ok()).flatten()
    });
    Ok(found)
}

/// A mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub start: u64,
    pub end: u64,
    pub offset: u64,
    pub writable: bool,
    pub executable: bool,
    pub shared: bool,
    pub name: String,
}

impl Mapping {
    pub fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// Returns the last part of its path.
    pub fn file_name(&self) -> &str {
        self.name.rsplit('/').next().unwrap_or_default()
    }

    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.splitn(6, ' ');
        let (start, end) = fields.next()?.split_once('-')?;
        let rights = fields.next()?.as_bytes();
        let offset = fields.next()?;
        let name = fields.nth(2).unwrap_or_default().trim_start();
        let number = |text| u64::from_str_radix(text, 16).ok();
        Some(Mapping {
            start: number(start)?,
            end: number(end)?,
            offset: number(offset)?,
            writable: *rights.get(1)? == b'w',
            executable: *rights.get(2)? == b'x',
            shared: *rights.get(3)? == b's',
            name: name.to_owned(),
        })
    }
}

/// Returns all mappings, by address.
pub(crate) fn mappings(pid: u32) -> io::Result<Vec<Mapping>> {
    let text = text(&format!("/proc/{pid}/maps"), MAX_MAPS)?;
    Ok(text.lines().filter_map(Mapping::parse).collect())
}

fn text(path: &str, limit: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that mappings are parsed, also with spaces in the path and with nonsense.
    #[test]
    fn mappings_are_parsed() {
        let line = "7f00-7f80 r-xp 00000010 fd:01 42                         /a b/libc.so.6";
        let mapping = Mapping::parse(line).expect("a mapping");
        assert_eq!((mapping.start, mapping.end, mapping.offset), (0x7f00, 0x7f80, 0x10));
        assert!(mapping.executable && !mapping.writable && !mapping.shared);
        assert_eq!((mapping.name.as_str(), mapping.file_name()), ("/a b/libc.so.6", "libc.so.6"));
        for nonsense in ["", "-", "x-y r-xp 0 0 0", "1-2 r"] {
            assert_eq!(Mapping::parse(nonsense), None);
        }
    }

    /// Check that system calls are parsed, and that a running thread has none.
    #[test]
    fn system_calls_are_parsed() {
        let call = SystemCall::parse("202 0x7f 0x80 0x0 0x10 0x0 0xffffffff 0x7ffd 0x7f01\n").expect("a system call");
        assert_eq!(call, SystemCall { number: 202, arguments: [0x7f, 0x80, 0, 0x10, 0, 0xffff_ffff] });
        for nothing in ["", "running\n", "-1 0x7ffd 0x7f01\n", "202 0x7f\n", "202 7f 1 1 1 1 1"] {
            assert_eq!(SystemCall::parse(nothing), None);
        }
    }

    /// Check that a status is parsed.
    #[test]
    fn status_is_parsed() {
        let text = "State:\tS (sleeping)\nPPid:\t3\nTracerPid:\t7\nSigPnd:\t0000000000000001\nShdPnd:\t0000000000000100\n\
                    Seccomp:\t2\nx86_Thread_features:\tshstk \n";
        let status = Status::parse(text);
        assert_eq!((status.state, status.parent, status.tracer, status.seccomp), ('S', 3, 7, 2));
        assert_eq!(status.pending, 0x101);
        assert!(status.shadow_stack);
    }
}
