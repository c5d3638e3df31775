//! The energy counters, and the file to which libcuda writes the kernels that ran. PM sampling reads it too.
//!
//! A GPU takes `watts` of idle power all the time, and more for each kernel while it runs: both are exact, in nanojoules
//! per nanosecond. The counter is updated every `energy_step`, in millijoules, rounded down.

use std::ffi::{CStr, c_char};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::sync::OnceLock;

use crate::script::{Script, script};
use crate::sys;

/// A kernel in the file: the GPU, the start, the end, and which `pm` entry of the script matches it, from 1.
const RECORD: usize = 32;

/// Notes one kernel, if the script names a file. Until it is dropped, nobody reads the file: a reader knows every kernel
/// that has started.
pub struct Noting(&'static File);

impl Noting {
    /// Begins; the kernel must start later than now.
    pub fn begin() -> Option<Self> {
        static FILE: OnceLock<Option<File>> = OnceLock::new();
        let open = || {
            let path = script().meter.as_ref()?;
            let file = OpenOptions::new().append(true).create(true).open(path);
            file.map_err(|error| eprintln!("simulated GPU: cannot write to {path}: {error}")).ok()
        };
        let file = FILE.get_or_init(open).as_ref()?;
        lock(file, libc::LOCK_SH);
        Some(Self(file))
    }

    /// Notes that a kernel runs on a GPU.
    pub fn note(self, gpu: u32, start: u64, end: u64, name: *const c_char) {
        // SAFETY: the names of kernels are never freed.
        let name = if name.is_null() { c"" } else { unsafe { CStr::from_ptr(name) } };
        let entry = script().counters_of(name.to_bytes()).map_or(0, |place| place as u64 + 1);
        let mut record = [0; RECORD];
        for (place, number) in record.chunks_exact_mut(8).zip([u64::from(gpu), start, end, entry]) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        // One write, so that processes do not mix theirs. The sums of a test show a kernel that is missing.
        let mut file = self.0;
        let _ = file.write_all(&record);
    }
}

impl Drop for Noting {
    fn drop(&mut self) {
        lock(self.0, libc::LOCK_UN);
    }
}

fn lock(file: &File, how: libc::c_int) {
    // SAFETY: a plain system call on an open file.
    unsafe { libc::flock(file.as_raw_fd(), how) };
}

/// A kernel that runs, or has run.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// The GPU.
    pub gpu: u32,
    /// When it starts.
    pub start: u64,
    /// When it ends.
    pub end: u64,
    /// The index of its entry in the script.
    pub entry: Option<usize>,
}

/// What is known of the kernels.
#[derive(Debug, Default)]
pub struct Counters {
    /// How much of the file was read.
    read: u64,
    kernels: Vec<Kernel>,
}

impl Counters {
    /// Returns the counter of a GPU.
    pub fn millijoules(&mut self, script: &Script, gpu: u32, now: u64) -> u64 {
        self.read(script);
        let updated = now - now % script.energy_step;
        let ran = |kernel: &Kernel| kernel.end.min(updated).saturating_sub(kernel.start);
        let kernels: u64 = self.kernels.iter().filter(|kernel| kernel.gpu == gpu).map(ran).sum();
        let (idle, more) = script.watts;
        (idle * updated + more * kernels) / 1_000_000
    }

    /// Returns the time, and all kernels that have started by then.
    pub fn kernels(&mut self, script: &Script) -> (u64, &[Kernel]) {
        let now = self.read(script);
        (now, &self.kernels)
    }

    /// Reads the kernels that were added to the file. Returns the time at which it knew all.
    fn read(&mut self, script: &Script) -> u64 {
        // Whoever creates the file does so before its kernel starts.
        let now = sys::now();
        let Some(mut file) = script.meter.as_ref().and_then(|path| File::open(path).ok()) else { return now };
        lock(&file, libc::LOCK_EX);
        let now = sys::now();
        let mut bytes = Vec::new();
        if file.seek(SeekFrom::Start(self.read)).and_then(|_| file.read_to_end(&mut bytes)).is_err() {
            return now;
        }
        for record in bytes.chunks_exact(RECORD) {
            let number = |at: usize| record[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
            let entry = (number(24) as usize).checked_sub(1);
            self.kernels.push(Kernel { gpu: number(0) as u32, start: number(8), end: number(16), entry });
            self.read += RECORD as u64;
        }
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The counter steps, and counts idle time and the part of each kernel that has run.
    #[test]
    fn counters_step() {
        let script = Script::parse(["watts=100:300", "energy_step=20ms"]).expect("a good script");
        let ms = 1_000_000;
        let kernel = |gpu, start, end| Kernel { gpu, start, end, entry: None };
        let kernels = vec![kernel(0, 10 * ms, 30 * ms), kernel(0, 50 * ms, 90 * ms), kernel(1, 0, 9)];
        let mut counters = Counters { read: 0, kernels };
        let mut at = |time| counters.millijoules(&script, 0, time * ms);
        assert_eq!([at(0), at(19), at(20), at(39)], [0, 0, 2_000 + 3_000, 2_000 + 3_000]);
        assert_eq!([at(60), at(100)], [6_000 + 9_000, 10_000 + 18_000]);
    }
}
