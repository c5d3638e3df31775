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
//! A trace needs this if it began between the two. Likewise a function has the name of the kernel that it was looked up for,
//! also if that one gets its name later.
//!
//! The name of any other handle may be read from the driver's object behind it: [`KernelNames::seen`] returns what is needed.

use std::sync::Arc;

use cuda::calls::{KernelRef, NameFact, Object};
use rustc_hash::{FxHashMap, FxHashSet};

use super::facts::captured;
use crate::event::{Call, ProcessId};

/// A kernel's handle that a call contained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenHandle {
    /// Its value: the address of an object.
    pub handle: u64,
    /// The object's kind, if known.
    pub object: Option<Object>,
    /// The kernel's name as the program passed it to the driver.
    pub name: Option<Arc<str>>,
    /// Another handle of the same kernel, or its host function.
    pub same_as: Option<u64>,
}

/// Names by handle or host function.
#[derive(Clone, Debug, Default)]
pub struct KernelNames {
    names: FxHashMap<(ProcessId, KernelRef), Arc<str>>,
    /// Every name that was ever learned, and its display form.
    texts: FxHashMap<Arc<str>, Arc<str>>,
    readable: Option<fn(&str) -> String>,
    /// The host function or the other handle that a handle stands for, from nested launches and lookups; `None` if it had
    /// several.
    same: FxHashMap<(ProcessId, KernelRef), Option<KernelRef>>,
    /// The kinds of the objects behind handles; `None` if not known.
    objects: FxHashMap<(ProcessId, u64), Option<Object>>,
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
    pub fn for_second_pass(&self) -> Self {
        let stays = |(_, kernel): &(ProcessId, KernelRef)| matches!(kernel, KernelRef::HostStub(_));
        let names = self.names.iter().filter(|(key, _)| stays(key)).map(|(key, name)| (*key, name.clone())).collect();
        Self { names, texts: self.texts.clone(), readable: self.readable, same: self.same.clone(), ..Self::default() }
    }

    /// Learns from a call. A reused handle stands for its new kernel from now on.
    pub fn learn(&mut self, process: ProcessId, fact: NameFact) {
        match fact {
            NameFact::Name { kernel, name } => {
                let name = self.intern(&name);
                self.names.insert((process, kernel), name);
            }
            NameFact::Alias { kernel, of } => {
                self.link(process, kernel, of);
                if let Some(name) = self.get(process, of).cloned() {
                    self.names.insert((process, kernel), name);
                }
            }
        }
    }

    /// Learns from a call if it returned and succeeded.
    pub fn learn_from(&mut self, function: &cuda::Call, call: &Call) {
        if call.end != 0
            && let Some(fact) = function.reveals(&captured(call))
        {
            self.learn(call.process, fact);
        }
    }

    /// Learns the handle of a host function from a launch and the launch nested in it, which arrives first. There may be three
    /// of them: `__cudaLaunchKernel` calls `cudaLaunchKernel`.
    pub(super) fn learn_from_launch(&mut self, call: &Call, kernel: KernelRef) {
        let thread = (call.process, call.tid);
        if let Some((around, handle)) = self.nested.remove(&thread)
            && around == call.start
        {
            self.link(call.process, handle, kernel);
        }
        if call.nested {
            self.nested.insert(thread, (call.around, kernel));
            if let KernelRef::Handle(handle) = kernel {
                self.objects.entry((call.process, handle)).or_default();
            }
        }
    }

    /// Learns that two stand for the same kernel.
    fn link(&mut self, process: ProcessId, kernel: KernelRef, of: KernelRef) {
        if address(kernel) != address(of) {
            let same = self.same.entry((process, kernel)).or_insert(Some(of));
            *same = same.filter(|same| *same == of);
        }
    }

    /// Learns the kinds of the objects behind the handles in a call.
    pub fn learn_objects(&mut self, function: &cuda::Call, call: &Call) {
        if call.end != 0 {
            for (handle, object) in function.objects(&captured(call)) {
                let known = self.objects.entry((call.process, handle)).or_default();
                *known = object.or(*known);
            }
        }
    }

    /// Returns the handles of a process, at most this many: those that calls contained, and those in `launched`.
    pub fn seen(&self, process: ProcessId, launched: impl Iterator<Item = u64>, most: usize) -> Vec<SeenHandle> {
        let of_process = self.objects.keys().filter(|(of, _)| *of == process).map(|(_, handle)| *handle);
        let handles: FxHashSet<u64> = launched.chain(of_process).take(most).collect();
        let seen = handles.into_iter().map(|handle| {
            let kernel = KernelRef::Handle(handle);
            let same = self.same.get(&(process, kernel));
            // A name that came from another handle or a host function may be that of the host function.
            let name = self.names.get(&(process, kernel)).filter(|_| same.is_none()).cloned();
            let object = self.objects.get(&(process, handle)).copied().flatten();
            SeenHandle { handle, object, name, same_as: same.copied().flatten().map(address) }
        });
        seen.collect()
    }

    /// Returns the handles in lookups that have no name and do not stand for another.
    pub(super) fn unnamed(&self) -> impl Iterator<Item = (ProcessId, u64)> {
        let unnamed = |(process, handle): (ProcessId, u64)| {
            let kernel = KernelRef::Handle(handle);
            !self.same.contains_key(&(process, kernel)) && self.get(process, kernel).is_none()
        };
        self.objects.keys().copied().filter(move |seen| unnamed(*seen))
    }

    /// Removes the kernel names of these processes.
    pub fn forget(&mut self, gone: &dyn Fn(ProcessId) -> bool) {
        self.same.retain(|(process, _), _| !gone(*process));
        self.objects.retain(|(process, _), _| !gone(*process));
        self.nested.retain(|(process, _), _| !gone(*process));
        self.names.retain(|(process, _), _| !gone(*process));
        // A name that was not converted for display is its own text and is stored twice.
        let own = if self.readable.is_some() { 1 } else { 2 };
        self.texts.retain(|name, _| Arc::strong_count(name) > own);
    }

    /// Returns the number of kernels that are kept.
    pub fn count(&self) -> usize {
        self.names.len().max(self.same.len()).max(self.objects.len())
    }

    /// Names the kernel of a host function, or of a handle that one keeps.
    pub fn name_stub(&mut self, process: ProcessId, address: u64, name: &str) {
        self.learn(process, NameFact::Name { kernel: KernelRef::HostStub(address), name: name.to_owned() });
    }

    /// Returns all names, mangled.
    pub fn mangled(&self) -> impl Iterator<Item = &str> {
        self.texts.keys().map(|name| &**name)
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
        let same = |kernel| *self.same.get(&(process, kernel))?;
        let named = |kernel| either(kernel).or_else(|| either(same(kernel)?));
        named(kernel).or_else(|| named(same(kernel)?))
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

/// Returns the value of a handle, or the address of a host function.
fn address(kernel: KernelRef) -> u64 {
    match kernel {
        KernelRef::Handle(address) | KernelRef::HostStub(address) => address,
    }
}
