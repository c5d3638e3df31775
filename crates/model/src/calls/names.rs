//! What kernels are called: learned from the calls that hand out their handles, process by process.

use std::sync::Arc;

use cuda::calls::{KernelRef, Lesson};
use rustc_hash::FxHashMap;

use super::captured;
use crate::event::{Call, ProcessId};

/// Names by handle or host function.
#[derive(Clone, Debug, Default)]
pub struct KernelNames {
    names: FxHashMap<(ProcessId, KernelRef), Arc<str>>,
    /// Every name that was ever learned, and how a person reads it.
    texts: FxHashMap<Arc<str>, Arc<str>>,
    readable: Option<fn(&str) -> String>,
}

impl KernelNames {
    /// No names yet; each is made readable when it is learned.
    pub fn read_by(readable: fn(&str) -> String) -> Self {
        Self { readable: Some(readable), ..Self::default() }
    }

    /// The names with which to go through the same events again: what a handle means is learned anew, since it may be
    /// given out twice. How names read stays, and so do host functions, which mean one kernel for good.
    pub fn again(&self) -> Self {
        let stays = |(_, kernel): &(ProcessId, KernelRef)| matches!(kernel, KernelRef::HostStub(_));
        let names = self.names.iter().filter(|(key, _)| stays(key)).map(|(key, name)| (*key, name.clone())).collect();
        Self { names, texts: self.texts.clone(), readable: self.readable }
    }

    /// Takes what a call taught. A handle given out again means its new kernel from now on.
    pub fn learn(&mut self, process: ProcessId, lesson: Lesson) {
        match lesson {
            Lesson::Name { kernel, name } => {
                let name = self.intern(&name);
                self.names.insert((process, kernel), name);
            }
            Lesson::Alias { kernel, of } => {
                if let Some(name) = self.get(process, of).cloned() {
                    self.names.insert((process, kernel), name);
                }
            }
        }
    }

    /// Takes what a call taught, if it returned and succeeded.
    pub fn learn_from(&mut self, function: &cuda::Call, call: &Call) {
        if call.end != 0
            && let Some(lesson) = function.teaches(&captured(call))
        {
            self.learn(call.process, lesson);
        }
    }

    /// Forgets what these processes called their kernels.
    pub fn forget(&mut self, gone: &dyn Fn(ProcessId) -> bool) {
        self.names.retain(|(process, _), _| !gone(*process));
        // A name is in the list of texts twice, as itself and as its own text, unless it was made readable.
        let own = if self.readable.is_some() { 1 } else { 2 };
        self.texts.retain(|name, _| Arc::strong_count(name) > own);
    }

    /// How many kernels have names.
    pub fn count(&self) -> usize {
        self.names.len()
    }

    /// Names the kernel that a host function stands for.
    pub fn name_stub(&mut self, process: ProcessId, address: u64, name: &str) {
        self.learn(process, Lesson::Name { kernel: KernelRef::HostStub(address), name: name.to_owned() });
    }

    /// Makes all names readable.
    pub fn make_readable(&mut self, readable: fn(&str) -> String) {
        self.readable = Some(readable);
        for (name, text) in &mut self.texts {
            *text = readable(name).into();
        }
    }

    /// The mangled name of a kernel. Since CUDA 12.1 a handle may stand where a host function would.
    pub fn get(&self, process: ProcessId, kernel: KernelRef) -> Option<&Arc<str>> {
        let handle = match kernel {
            KernelRef::HostStub(address) => KernelRef::Handle(address),
            KernelRef::Handle(_) => kernel,
        };
        self.names.get(&(process, kernel)).or_else(|| self.names.get(&(process, handle)))
    }

    /// The name of a kernel as a person reads it.
    pub fn text(&self, process: ProcessId, kernel: KernelRef) -> Option<&Arc<str>> {
        let name = self.get(process, kernel)?;
        Some(self.texts.get(name).unwrap_or(name))
    }

    fn intern(&mut self, name: &str) -> Arc<str> {
        if let Some((name, _)) = self.texts.get_key_value(name) {
            return name.clone();
        }
        let text = self.readable.map(|readable| readable(name).into());
        let name: Arc<str> = name.into();
        self.texts.insert(name.clone(), text.unwrap_or_else(|| name.clone()));
        name
    }
}
