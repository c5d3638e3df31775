//! Numbers everything that can be called: library functions, driver requests, tracepoints.

use std::collections::HashMap;

use bpf::calls::{Dims, Gather, Launches, Memory, Payload, SyscallRecord};
use cuda::{
    calls::{self, DimsPlace, Role, Way},
    ioctls::{self, Device},
    memory::Action,
    results,
};
use model::event::{Function, FunctionId, Layer};

/// The most numbers for functions that are not in `cuda`'s tables, where each name has one number: files may invent
/// names, and numbers are never reused.
const MOST_UNKNOWN: usize = 4096;
/// The most requests with numbers of their own. The driver has some hundreds, but a program may make any request of any file
/// that is named like a device; those beyond have one number.
const MOST_REQUESTS: usize = 4096;

/// Assigns numbers, and remembers the names that have been reported.
#[derive(Debug, Default)]
pub struct Functions {
    next: u32,
    requests: HashMap<(String, u32, u32), FunctionId>,
    /// The number of those beyond the limit.
    other_requests: Option<FunctionId>,
    /// Numbers by name, if each name has one number.
    names: Option<HashMap<String, FunctionId>>,
    unknown: usize,
}

impl Functions {
    /// Gives functions with the same name in several files one number.
    pub fn by_name() -> Self {
        Self { names: Some(HashMap::new()), ..Self::default() }
    }

    /// Returns how many there are.
    pub fn count(&self) -> u32 {
        self.next
    }

    /// Adds a function; `None` if the BPF programs cannot distinguish more.
    pub fn add(&mut self, layer: Layer, library: &str, name: &str, shown: bool) -> Option<Function> {
        if let Some(id) = self.names.as_ref().and_then(|names| names.get(name)) {
            return Some(Function {
                id: *id,
                layer,
                library: library.into(),
                name: name.into(),
                shown,
                ..Function::default()
            });
        }
        let id = FunctionId(self.next);
        if layer != Layer::Driver && self.next as usize >= bpf::calls::MAX_FUNCTIONS {
            return None;
        }
        if let Some(names) = &mut self.names {
            let unknown = calls::call(name).is_none();
            if unknown && self.unknown >= MOST_UNKNOWN {
                return None;
            }
            self.unknown += usize::from(unknown);
            names.insert(name.into(), id);
        }
        self.next += 1;
        Some(Function { id, layer, library: library.into(), name: name.into(), shown, ..Function::default() })
    }

    /// Returns the number of a device request made by a system call, and its description if it is new.
    pub fn request(&mut self, call: &SyscallRecord) -> (FunctionId, Option<Function>) {
        let request = if call.number == IOCTL { call.words[0] as u32 } else { 0 };
        let number = if opens(call.number) { OPEN } else { call.number };
        let key = (call.device.clone(), number, request);
        if let Some(id) = self.requests.get(&key) {
            return (*id, None);
        }
        let full = self.requests.len() >= MOST_REQUESTS;
        if let Some(id) = self.other_requests.filter(|_| full) {
            return (id, None);
        }
        let (device, name) = match full {
            true => (ioctls::OTHERS, ioctls::OTHERS.to_owned()),
            false => (call.device.as_str(), request_name(call)),
        };
        let function = self.add(Layer::Driver, device, &name, true).expect("requests need no room in the kernel");
        if full {
            self.other_requests = Some(function.id);
        } else {
            self.requests.insert(key, function.id);
        }
        (function.id, Some(function))
    }
}

const OPEN: u32 = 2;
const CLOSE: u32 = 3;
const MMAP: u32 = 9;
const IOCTL: u32 = 16;
const OPENAT: u32 = 257;
const OPENAT2: u32 = 437;

/// Whether this is one of the system calls that open a file.
fn opens(number: u32) -> bool {
    matches!(number, OPEN | OPENAT | OPENAT2)
}

fn request_name(call: &SyscallRecord) -> String {
    match call.number {
        CLOSE => "close".into(),
        MMAP => "mmap".into(),
        number if opens(number) => "open".into(),
        _ => ioctls::ioctl(Device::from_path(&call.device).unwrap_or(Device::Other), call.words[0] as u32).into_owned(),
    }
}

/// Returns what to gather at the calls of a library function. An unknown function may have any arguments: its six
/// register arguments are gathered.
pub fn gather(name: &str) -> Gather {
    let mut gather = Gather { words: 6, status: results::can_fail(name), ..Gather::default() };
    let Some(call) = calls::call(name) else { return gather };
    let capture = call.capture();
    gather.words = capture.words;
    gather.out = capture.out;
    gather.payload = capture.payload.map(|payload| match payload {
        calls::Payload::Text { word } => Payload::Text(word),
        calls::Payload::Bytes { word, length } => Payload::Bytes(word, length),
    });
    gather.role = if call.role == Role::Other { 0 } else { call.role as u8 + 1 };
    if let Some(sums) = call.sums() {
        gather.bytes = sums.bytes;
        gather.shift = sums.shift;
        gather.class = match sums.direction {
            Some(Way::Word(word)) => Some(word),
            _ => None,
        };
    }
    gather.memory = call.action().map_or(Memory::None, memory);
    gather.group = call.space.map_or(0, |space| space.group() as u8);
    gather.submits = matches!(call.role, Role::Launch | Role::GraphLaunch | Role::Copy | Role::Set);
    gather.space = call.space.map_or(0, |space| space as u8);
    gather.names_kernels = call.names_kernels();
    gather.launches = call.launches().map(|launches| Launches {
        word: launches.word,
        handle: launches.handle,
        dims: match launches.dims {
            None => Dims::None,
            Some(DimsPlace::Packed(word)) => Dims::Packed(word),
            Some(DimsPlace::Words(word)) => Dims::Words(word),
            Some(DimsPlace::Payload) => Dims::Payload,
        },
    });
    gather
}

fn memory(action: Action) -> Memory {
    match action {
        Action::Alloc => Memory::Alloc,
        Action::Free => Memory::Free,
        Action::SetDevice => Memory::SetDevice,
        Action::SetContext => Memory::SetContext,
        Action::PushContext => Memory::PushContext,
        Action::PopContext => Memory::PopContext,
        Action::CreateContext => Memory::CreateContext,
        Action::DestroyContext => Memory::DestroyContext,
        Action::RetainPrimary => Memory::RetainPrimary,
        Action::ReleasePrimary => Memory::ReleasePrimary,
        Action::ResetPrimary => Memory::ResetPrimary,
        Action::ResetDevice => Memory::ResetDevice,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that requests that a program invents have one number from a limit on, that it is described once, and that known ones
    /// keep theirs.
    #[test]
    fn invented_requests_share_a_number() {
        let mut functions = Functions::default();
        let mut request = |device: &str, number: u64| {
            let device = device.to_owned();
            functions.request(&SyscallRecord {
                number: IOCTL,
                words: [number, 0, 0],
                device,
                ..SyscallRecord::default()
            })
        };
        let (first, described) = request("nvidiactl", 0);
        assert!(described.is_some_and(|function| function.name == "ioctl 0x0"));
        for number in 1..MOST_REQUESTS as u64 {
            assert!(request("nvidiactl", number).1.is_some(), "{number}");
        }
        let (others, described) = request("nvidiactl", 1 << 20);
        let described = described.expect("a description");
        assert_eq!((described.name.as_str(), described.library.as_str()), ("[others]", "[others]"));
        for device in ["nvidiactl", "nvidia-invented"] {
            assert_eq!(request(device, 1 << 21), (others, None));
        }
        assert_eq!((request("nvidiactl", 0), functions.count() as usize), ((first, None), MOST_REQUESTS + 1));
    }
}
