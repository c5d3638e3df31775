//! Names of kernels, learned from the calls that return their handles, process by process.
//!
//! A program may have its handles from a time before the trace. A launch by host function contains the driver's launch of the
//! same kernel by handle, so the handle has the name of the host function:
//!
//! ```text
//!   cudaLaunchKernel(host function)   [=================]
//!     cuLaunchKernel(handle)               [========]
//! ```
//!
//! A trace needs this if it began between the two.

use std::sync::Arc;

use cuda::calls::{KernelRef, Lesson};
use rustc_hash::FxHashMap;

use super::facts::captured;
use crate::event::{Call, ProcessId};

/// Names by handle or host function.
#[derive(Clone, Debug, Default)]
pub struct KernelNames {
    names: FxHashMap<(ProcessId, KernelRef), Arc<str>>,
    /// Every name that was ever learned, and its display form.
    texts: FxHashMap<Arc<str>, Arc<str>>,
    readable: Option<fn(&str) -> String>,
    /// Host functions by handle, from nested launches; `None` if a handle had several.
    stubs: FxHashMap<(ProcessId, KernelRef), Option<KernelRef>>,
    /// The last nested launch of each thread: when the call around it began, and its kernel.
    nested: FxHashMap<(ProcessId, u32), (u64, KernelRef)>,
}

impl KernelNames {
    /// Starts without names; `readable` converts each name when it is learned.
    pub fn read_by(readable: fn(&str) -> String) -> Self {
        Self { readable: Some(readable), ..Self::default() }
    }

    /// Returns the names to use when reading the same events again. Handles are learned again, since one may be
    /// assigned twice. Display names stay, and so do host functions, which stand for the same kernel permanently.
    pub fn again(&self) -> Self {
        let stays = |(_, kernel): &(ProcessId, KernelRef)| matches!(kernel, KernelRef::HostStub(_));
        let names = self.names.iter().filter(|(key, _)| stays(key)).map(|(key, name)| (*key, name.clone())).collect();
        let (texts, stubs) = (self.texts.clone(), self.stubs.clone());
        Self { names, texts, readable: self.readable, stubs, nested: FxHashMap::default() }
    }

    /// Learns from a call. A reused handle stands for its new kernel from now on.
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

    /// Learns from a call if it returned and succeeded.
    pub fn learn_from(&mut self, function: &cuda::Call, call: &Call) {
        if call.end != 0
            && let Some(lesson) = function.teaches(&captured(call))
        {
            self.learn(call.process, lesson);
        }
    }

    /// Learns the handle of a host function from a launch and the launch nested in it, which arrives first.
    pub(super) fn learn_from_launch(&mut self, call: &Call, kernel: KernelRef) {
        let thread = (call.process, call.tid);
        if call.nested {
            self.nested.insert(thread, (call.around, kernel));
        } else if let Some((around, handle)) = self.nested.remove(&thread)
            && around == call.start
        {
            let stub = self.stubs.entry((call.process, handle)).or_insert(Some(kernel));
            *stub = stub.filter(|stub| *stub == kernel);
        }
    }

    /// Removes the kernel names of these processes.
    pub fn forget(&mut self, gone: &dyn Fn(ProcessId) -> bool) {
        self.stubs.retain(|(process, _), _| !gone(*process));
        self.nested.retain(|(process, _), _| !gone(*process));
        self.names.retain(|(process, _), _| !gone(*process));
        // A name that was not converted for display is its own text and is stored twice.
        let own = if self.readable.is_some() { 1 } else { 2 };
        self.texts.retain(|name, _| Arc::strong_count(name) > own);
    }

    /// Returns the number of kernels that have names.
    pub fn count(&self) -> usize {
        self.names.len()
    }

    /// Names the kernel of a host function, or of a handle that one keeps.
    pub fn name_stub(&mut self, process: ProcessId, address: u64, name: &str) {
        self.learn(process, Lesson::Name { kernel: KernelRef::HostStub(address), name: name.to_owned() });
    }

    /// Converts all names for display.
    pub fn make_readable(&mut self, readable: fn(&str) -> String) {
        self.readable = Some(readable);
        for (name, text) in &mut self.texts {
            *text = readable(name).into();
        }
    }

    /// Returns the mangled name of a kernel. Since CUDA 12.1 a handle may be passed in place of a host function, and a handle
    /// that a host function keeps stands for its kernel as permanently as the function does.
    pub fn get(&self, process: ProcessId, kernel: KernelRef) -> Option<&Arc<str>> {
        let either = |kernel| {
            let other = match kernel {
                KernelRef::HostStub(address) => KernelRef::Handle(address),
                KernelRef::Handle(handle) => KernelRef::HostStub(handle),
            };
            self.names.get(&(process, kernel)).or_else(|| self.names.get(&(process, other)))
        };
        either(kernel).or_else(|| either((*self.stubs.get(&(process, kernel))?)?))
    }

    /// Returns the display name of a kernel.
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
