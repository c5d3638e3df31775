//! A process, held by a handle, and what `/proc` says about it, within limits.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read},
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::fs::{MetadataExt, OpenOptionsExt},
    },
    ptr,
};

/// A process has a few thousand mappings at most; 16 MiB of text are 160,000.
const MAX_MAPS: u64 = 16 << 20;
const MAX_STATUS: u64 = 1 << 16;
/// More threads are not inspected.
const MAX_THREADS: usize = 4096;
/// More open files are not inspected.
const MAX_FILES: usize = 1 << 20;
/// The kernel passes some 20 pairs.
const MAX_VECTOR: u64 = 1 << 12;

/// A process. Its number may be given to another process when it has ended, but what is held here stays its own.
#[derive(Debug)]
pub(crate) struct Process {
    pub pid: u32,
    /// A pidfd.
    handle: OwnedFd,
    /// `/proc/PID`: when the process has ended, nothing is found in it.
    directory: File,
}

impl Process {
    pub fn open(pid: u32) -> io::Result<Self> {
        // SAFETY: only takes numbers.
        let handle = descriptor(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
        let directory = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_PATH | libc::O_DIRECTORY)
            .open(format!("/proc/{pid}"))?;
        // Signal 0 only checks that the process exists. So it had this number when the directory was opened.
        let (number, nothing) = (handle.as_raw_fd(), ptr::null::<libc::siginfo_t>());
        // SAFETY: there is no information to read.
        let result = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, number, 0, nothing, 0) };
        if result == 0 { Ok(Process { pid, handle, directory }) } else { Err(io::Error::last_os_error()) }
    }

    /// Returns its handle.
    pub fn into_handle(self) -> OwnedFd {
        self.handle
    }

    /// Returns the path of a file in its `/proc` directory.
    pub fn path(&self, name: &str) -> String {
        format!("/proc/self/fd/{}/{name}", self.directory.as_raw_fd())
    }

    pub fn status(&self) -> io::Result<Status> {
        text(&self.path("status"), MAX_STATUS).map(|text| Status::parse(&text))
    }

    pub fn thread_status(&self, tid: u32) -> io::Result<Status> {
        text(&self.path(&format!("task/{tid}/status")), MAX_STATUS).map(|text| Status::parse(&text))
    }

    /// Opens the memory of a thread. If the thread executes another program, this stays the old memory.
    pub fn memory(&self, tid: u32) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).open(self.path(&format!("task/{tid}/mem")))
    }

    /// Returns whether its program gave it more privileges than its caller has (`AT_SECURE`), such as set-user-id.
    pub fn is_privileged(&self) -> io::Result<bool> {
        let mut bytes = Vec::new();
        File::open(self.path("auxv"))?.take(MAX_VECTOR).read_to_end(&mut bytes)?;
        let words: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        let secure = words.as_chunks::<2>().0.iter().any(|[kind, value]| *kind == libc::AT_SECURE && *value != 0);
        // A 32-bit program has pairs of 32-bit words.
        Ok(secure || words.contains(&(1 << 32 | libc::AT_SECURE)))
    }

    /// Returns the threads, the first one first.
    pub fn threads(&self) -> io::Result<Vec<u32>> {
        let entries = fs::read_dir(self.path("task"))?;
        Ok(entries.flatten().take(MAX_THREADS).filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
    }

    /// Returns the system call in which a thread waits.
    pub fn system_call(&self, tid: u32) -> Option<SystemCall> {
        SystemCall::parse(&text(&self.path(&format!("task/{tid}/syscall")), 4096).ok()?)
    }

    /// Returns all mappings, by address.
    pub fn mappings(&self) -> io::Result<Vec<Mapping>> {
        let text = text(&self.path("maps"), MAX_MAPS)?;
        Ok(text.lines().filter_map(Mapping::parse).collect())
    }

    /// Opens the file of a mapping for reading: the very file, also if its path has been replaced or is in another mount
    /// namespace.
    pub fn mapped(&self, mapping: &Mapping) -> Option<File> {
        let very = self.path(&format!("map_files/{:x}-{:x}", mapping.start, mapping.end));
        elf::open(very).or_else(|_| elf::open(self.path(&format!("root{}", mapping.name)))).ok()
    }

    /// Returns the number of an open memory file with this name.
    pub fn memory_file(&self, name: &str) -> io::Result<Option<u64>> {
        let link = memory_link(name);
        let found = fs::read_dir(self.path("fd"))?.flatten().take(MAX_FILES).find_map(|entry| {
            let same = fs::read_link(entry.path()).is_ok_and(|found| found.as_os_str() == link.as_str());
            same.then(|| entry.file_name().to_str()?.parse().ok()).flatten()
        });
        Ok(found)
    }

    /// Takes the memory file that the process has just created: empty, writable, and with this name. Returns nothing if
    /// the number means another file, which must not be touched: threads of the process can replace it at any time.
    ///
    /// The descriptor is duplicated. Opening `/proc/PID/fd/NUMBER` instead would open, with the rights of this process,
    /// whatever file it then refers to, such as an `O_PATH` descriptor's, which gives the target no rights.
    pub fn take_memory_file(&self, number: u64, name: &str) -> io::Result<Option<File>> {
        let Ok(number) = i32::try_from(number) else { return Ok(None) };
        // SAFETY: only takes numbers.
        let taken = unsafe { libc::syscall(libc::SYS_pidfd_getfd, self.handle.as_raw_fd(), number, 0) };
        let file = match descriptor(taken) {
            Err(error) if error.raw_os_error() == Some(libc::EBADF) => return Ok(None),
            file => File::from(file?),
        };
        // SAFETY: only takes numbers.
        let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
        let writable = flags >= 0 && flags & libc::O_PATH == 0 && flags & libc::O_ACCMODE == libc::O_RDWR;
        let info = file.metadata()?;
        let empty = info.is_file() && info.nlink() == 0 && info.len() == 0;
        let link = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        let ours = link.as_os_str() == memory_link(name).as_str() && info.dev() == memory_files()?;
        Ok((writable && empty && ours).then_some(file))
    }
}

/// What the link of a memory file says.
fn memory_link(name: &str) -> String {
    format!("/memfd:{name} (deleted)")
}

/// Returns the device of all memory files: a file system of the kernel that nobody can mount. A file there has no path, and
/// reading and writing it never waits for another process.
fn memory_files() -> io::Result<u64> {
    // SAFETY: the name ends in 0.
    let file = descriptor(unsafe { libc::memfd_create(c"attach".as_ptr(), libc::MFD_CLOEXEC) }.into())?;
    Ok(File::from(file).metadata()?.dev())
}

fn descriptor(result: libc::c_long) -> io::Result<OwnedFd> {
    match i32::try_from(result) {
        // SAFETY: a new descriptor that nothing else owns.
        Ok(number) if number >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(number) }),
        _ => Err(io::Error::last_os_error()),
    }
}

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

/// The system call in which a thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SystemCall {
    pub number: i64,
    pub arguments: [u64; 6],
}

impl SystemCall {
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
