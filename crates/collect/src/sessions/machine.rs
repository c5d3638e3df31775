//! The machine's GPUs and their numbers: as `nvidia-smi` shows them, in the order of their PCI addresses.

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use model::event::Uuid;

/// The driver's list of GPUs: a directory for each, named by its PCI address, with a file `information`.
const GPUS: &str = "/proc/driver/nvidia/gpus";

/// The most GPUs of a machine.
const MOST: usize = 128;
/// How often the list is read again, at most.
const MOST_READS: u32 = 64;
/// The most bytes read about one GPU.
const MOST_BYTES: u64 = 4096;

/// The UUIDs of the machine's GPUs by number, read when the first process reports its devices: the driver shows the
/// UUID of a GPU only once it is in use.
pub struct Machine {
    directory: PathBuf,
    gpus: Vec<Option<Uuid>>,
    /// How often the list was read.
    reads: u32,
}

impl Default for Machine {
    fn default() -> Self {
        Self::new(GPUS.into())
    }
}

impl Machine {
    fn new(directory: PathBuf) -> Self {
        Self { directory, gpus: Vec::new(), reads: 0 }
    }

    /// Returns the number of the GPU with this UUID, if the driver lists it.
    pub fn index(&mut self, uuid: Uuid) -> Option<u32> {
        if !uuid.is_known() {
            return None;
        }
        let find = |gpus: &[Option<Uuid>]| gpus.iter().position(|gpu| *gpu == Some(uuid)).map(|at| at as u32);
        find(&self.gpus).or_else(|| {
            // The first time, or a GPU that was not in use when the list was read.
            if self.reads == 0 || (self.reads < MOST_READS && self.gpus.contains(&None)) {
                self.reads += 1;
                self.gpus = list(&self.directory);
            }
            find(&self.gpus)
        })
    }
}

fn list(directory: &Path) -> Vec<Option<Uuid>> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let mut addresses: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.file_name())).take(MOST).collect();
    // `0000:3b:00.0`: of equal length, so that text sorts like numbers.
    addresses.sort();
    let uuid = |address| {
        let mut text = Vec::new();
        let file = File::open(directory.join(address).join("information")).ok()?;
        file.take(MOST_BYTES).read_to_end(&mut text).ok()?;
        let text = String::from_utf8_lossy(&text);
        Uuid::parse(text.lines().find_map(|line| line.strip_prefix("GPU UUID:"))?.trim())
    };
    addresses.into_iter().map(uuid).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that GPUs are numbered in the order of their addresses, that a GPU in use later is found later, and that
    /// a machine without the driver numbers nothing.
    #[test]
    fn gpus_are_numbered_by_address() {
        let directory = tempfile::tempdir().expect("a directory");
        let write = |address: &str, uuid: &str| {
            std::fs::create_dir_all(directory.path().join(address)).expect("a directory");
            let text = format!("Model: \t\t NVIDIA H200\nIRQ:   \t\t 16\nGPU UUID: \t {uuid}\nVideo BIOS: \t 96\n");
            std::fs::write(directory.path().join(address).join("information"), text).expect("a file");
        };
        let uuid = |last: u128| Uuid(0x5f3c_2d1e_0b6a_4d2f_9c1b_7a8e_6d5c_0000 + last);
        let mut machine = Machine::new(directory.path().to_owned());
        write("0000:db:00.0", &format!("GPU-{}", uuid(2)));
        write("0000:3b:00.0", "GPU-????????-????-????-????-????????????");
        write("0001:01:00.0", &format!("GPU-{}", uuid(3)));
        assert_eq!([1, 2, 3, 4].map(|last| machine.index(uuid(last))), [None, Some(1), Some(2), None]);
        write("0000:3b:00.0", &format!("GPU-{}", uuid(1)));
        assert_eq!([1, 2, 3, 4].map(|last| machine.index(uuid(last))), [Some(0), Some(1), Some(2), None]);
        assert_eq!(machine.index(Uuid(0)), None);
        let mut none = Machine::new(directory.path().join("none"));
        assert_eq!(none.index(uuid(1)), None);
    }
}
