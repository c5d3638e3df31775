//! What kernels are called: learned from the calls that hand out their handles, process by process.

use std::sync::Arc;

use cuda::calls::{KernelRef, Lesson};
use rustc_hash::FxHashMap;

use crate::event::ProcessId;

/// Names by handle or host function.
#[derive(Clone, Debug, Default)]
pub struct KernelNames {
    names: FxHashMap<(ProcessId, KernelRef), Arc<str>>,
}

impl KernelNames {
    /// Takes what a call taught. A handle given out again means its new kernel from now on.
    pub fn learn(&mut self, process: ProcessId, lesson: Lesson) {
        match lesson {
            Lesson::Name { kernel, name } => {
                self.names.insert((process, kernel), name.into());
            }
            Lesson::Alias { kernel, of } => {
                if let Some(name) = self.names.get(&(process, of)).cloned() {
                    self.names.insert((process, kernel), name);
                }
            }
        }
    }

    /// The mangled name of a kernel.
    pub fn get(&self, process: ProcessId, kernel: KernelRef) -> Option<&Arc<str>> {
        self.names.get(&(process, kernel))
    }
}
