//! The energy counters, and the file to which libcuda writes the kernels that ran.
//!
//! A GPU takes `watts` of idle power all the time, and more for each kernel while it runs: both are exact, in nanojoules
//! per nanosecond. The counter is updated every `energy_step`, in millijoules, rounded down.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::sync::OnceLock;

use crate::script::{Script, script};

/// A kernel in the file: the GPU, the start and the end.
const RECORD: usize = 24;

/// Notes that a kernel runs on a GPU, if the script names a file.
pub fn note(gpu: u32, start: u64, end: u64) {
    static FILE: OnceLock<Option<File>> = OnceLock::new();
    let open = || {
        let path = script().meter.as_ref()?;
        let file = OpenOptions::new().append(true).create(true).open(path);
        file.map_err(|error| eprintln!("simulated GPU: cannot write to {path}: {error}")).ok()
    };
    if let Some(mut file) = FILE.get_or_init(open).as_ref() {
        let mut record = [0; RECORD];
        for (place, number) in record.chunks_exact_mut(8).zip([u64::from(gpu), start, end]) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        // One write, so that processes do not mix theirs. The sums of a test show a kernel that is missing.
        let _ = file.write_all(&record);
    }
}

/// What is known of the kernels.
#[derive(Debug, Default)]
pub struct Counters {
    /// How much of the file was read.
    read: u64,
    kernels: Vec<(u32, u64, u64)>,
}

impl Counters {
    /// Returns the counter of a GPU.
    pub fn millijoules(&mut self, script: &Script, gpu: u32, now: u64) -> u64 {
        self.read(script);
        let updated = now - now % script.energy_step;
        let ran = |&(_, start, end): &(u32, u64, u64)| end.min(updated).saturating_sub(start);
        let kernels: u64 = self.kernels.iter().filter(|kernel| kernel.0 == gpu).map(ran).sum();
        let (idle, more) = script.watts;
        (idle * updated + more * kernels) / 1_000_000
    }

    /// Reads the kernels that were added to the file.
    fn read(&mut self, script: &Script) {
        let Some(mut file) = script.meter.as_ref().and_then(|path| File::open(path).ok()) else { return };
        let mut bytes = Vec::new();
        if file.seek(SeekFrom::Start(self.read)).and_then(|_| file.read_to_end(&mut bytes)).is_err() {
            return;
        }
        for record in bytes.chunks_exact(RECORD) {
            let number = |at: usize| record[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
            self.kernels.push((number(0) as u32, number(8), number(16)));
            self.read += RECORD as u64;
        }
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
        let mut counters = Counters { read: 0, kernels: vec![(0, 10 * ms, 30 * ms), (0, 50 * ms, 90 * ms), (1, 0, 9)] };
        let mut at = |time| counters.millijoules(&script, 0, time * ms);
        assert_eq!([at(0), at(19), at(20), at(39)], [0, 0, 2_000 + 3_000, 2_000 + 3_000]);
        assert_eq!([at(60), at(100)], [6_000 + 9_000, 10_000 + 18_000]);
    }
}
