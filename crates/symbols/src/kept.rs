//! What is kept of processes while they run, so that their code can be named after they have exited.
//!
//! ```text
//!  mapping record ──> files: /proc/PID/map_files, /proc/PID/root, the path ──> an open descriptor, by build id
//!                       │                └─ the unwind tables and the search for Python read it too
//!                       └─ memory without a file ──> jits: the process's /tmp and its pid in its own namespace
//!  the end ──> resolve, file by file: symbols of the file, then of its debug file; with --lines the DWARF of either
//! ```

use std::collections::HashMap;

use model::event::{Mapping, ProcessId, SessionId};

use crate::{FileId, Files, bpf_code::BpfCode, jits::Jits};

/// Open files, and the locations of names that JIT compilers write. A copy shares the open files.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    /// The mapped files.
    pub files: Files,
    /// Cubins with line information, by session and the session's number of them.
    pub cubins: HashMap<(SessionId, u32), Vec<u8>>,
    pub(crate) jits: Jits,
    pub(crate) bpf: BpfCode,
}

impl Kept {
    /// Creates an empty store that keeps at most `most` files open.
    pub fn new(most: usize) -> Self {
        Self { files: Files::new(most), ..Self::default() }
    }

    /// Saves the names of the currently loaded eBPF programs.
    pub fn keep_bpf_programs(&mut self) {
        self.bpf = BpfCode::loaded();
    }

    /// Registers a new image, forked from another.
    pub fn forked(&mut self, image: ProcessId, pid: u32, parent: ProcessId) {
        self.jits.forked(image, pid, parent);
    }

    /// Registers a mapping of code. Returns the file, or none if it is anonymous memory or cannot be found.
    pub fn mapped(&mut self, mapping: &Mapping, pid: u32) -> Option<FileId> {
        // A memfd may be anonymous memory under another name.
        if !Files::is_file(&mapping.path) || mapping.path.starts_with("/memfd:") {
            self.jits.saw(mapping.process, pid);
        }
        self.files.mapped(mapping, pid)
    }

    /// Forgets everything kept for these images.
    pub fn forget(&mut self, ended: &dyn Fn(ProcessId) -> bool) {
        self.jits.forget(ended);
        self.files.forget_images(ended);
    }

    /// Handles the end of an image.
    pub fn died(&mut self, image: ProcessId) {
        self.jits.died(image);
    }
}
