//! Where each process has mapped CUDA, CUPTI and the injected library: who made a call is decided by its return address.

use std::{collections::HashMap, ops::Range};

use model::event::{Mapping, ProcessId};

use super::file::is_usual;
use crate::injector::INJECTOR;

/// The code and the files of interest, by process image.
#[derive(Debug, Default)]
pub struct Code {
    /// The address ranges of the injected library and CUPTI: they call CUDA too.
    own: HashMap<ProcessId, Vec<Range<u64>>>,
    /// The address ranges of the CUDA runtime.
    runtime: HashMap<ProcessId, Vec<Range<u64>>>,
    /// The paths of CUDA's libraries.
    files: HashMap<ProcessId, Vec<String>>,
    gone: Vec<ProcessId>,
}

impl Code {
    /// Handles a mapped file. CUDA's own files count only where processes report their calls.
    pub fn mapped(&mut self, mapping: &Mapping, reports: bool) {
        let name = mapping.path.rsplit('/').next().unwrap_or_default();
        if name == INJECTOR || name.starts_with("libcupti.so") {
            self.own.entry(mapping.process).or_default().push(mapping.start..mapping.end);
        }
        if reports && is_usual(&mapping.path) {
            let files = self.files.entry(mapping.process).or_default();
            if !files.contains(&mapping.path) {
                files.push(mapping.path.clone());
            }
            if name.starts_with("libcudart") {
                self.runtime.entry(mapping.process).or_default().push(mapping.start..mapping.end);
            }
        }
    }

    /// Handles a fork: the child has the mappings of its parent.
    pub fn forked(&mut self, child: ProcessId, parent: ProcessId) {
        fn copy<T: Clone>(map: &mut HashMap<ProcessId, Vec<T>>, child: ProcessId, parent: ProcessId) {
            if let Some(of_parent) = map.get(&parent).cloned() {
                map.insert(child, of_parent);
            }
        }
        copy(&mut self.own, child, parent);
        copy(&mut self.runtime, child, parent);
        copy(&mut self.files, child, parent);
    }

    /// Handles the end of a process image: it is kept until [`Code::forget_gone`].
    pub fn died(&mut self, image: ProcessId) {
        self.gone.push(image);
    }

    /// Removes ended images.
    pub fn forget_gone(&mut self) {
        for image in self.gone.drain(..) {
            self.own.remove(&image);
            self.runtime.remove(&image);
            self.files.remove(&image);
        }
    }

    /// Whether the address is in the injected library or CUPTI.
    pub fn is_own(&self, image: ProcessId, address: u64) -> bool {
        contains(&self.own, image, address)
    }

    /// Whether the address is in the CUDA runtime.
    pub fn is_runtime(&self, image: ProcessId, address: u64) -> bool {
        contains(&self.runtime, image, address)
    }

    /// Returns the paths of CUDA's libraries.
    pub fn cuda_files(&self, image: ProcessId) -> &[String] {
        self.files.get(&image).map_or(&[], Vec::as_slice)
    }
}

fn contains(code: &HashMap<ProcessId, Vec<Range<u64>>>, image: ProcessId, address: u64) -> bool {
    code.get(&image).is_some_and(|ranges| ranges.iter().any(|range| range.contains(&address)))
}
