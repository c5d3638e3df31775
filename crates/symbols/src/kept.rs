//! What is kept of processes while they run, so that their code can be named when they have gone.

use model::event::{Mapping, ProcessId};

use crate::{FileId, Files, bpf_code::BpfCode, jits::Jits};

/// Handles to files, and ways to the names that JIT compilers write.
#[derive(Debug, Default)]
pub struct Kept {
    /// The files that were mapped.
    pub files: Files,
    pub(crate) jits: Jits,
    pub(crate) bpf: BpfCode,
}

impl Kept {
    /// Keeps nothing yet; at most `most` files will be held open.
    pub fn new(most: usize) -> Self {
        Self { files: Files::new(most), ..Self::default() }
    }

    /// Keeps the names of the eBPF programs that are loaded now.
    pub fn keep_bpf_programs(&mut self) {
        self.bpf = BpfCode::loaded();
    }

    /// A new image, forked from another.
    pub fn forked(&mut self, image: ProcessId, pid: u32, parent: ProcessId) {
        self.jits.forked(image, pid, parent);
    }

    /// Something was mapped as code: the file, or none if it is bare memory or cannot be found.
    pub fn mapped(&mut self, mapping: &Mapping, pid: u32) -> Option<FileId> {
        // A file in memory may be bare memory under another name.
        if !Files::is_file(&mapping.path) || mapping.path.starts_with("/memfd:") {
            self.jits.saw(mapping.process, pid);
        }
        self.files.mapped(mapping, pid)
    }

    /// Forgets all that is kept for the names of these images.
    pub fn forget(&mut self, gone: &dyn Fn(ProcessId) -> bool) {
        self.jits.forget(gone);
        self.files.forget_images(gone);
    }

    /// An image is gone.
    pub fn died(&mut self, image: ProcessId) {
        self.jits.died(image);
    }
}
