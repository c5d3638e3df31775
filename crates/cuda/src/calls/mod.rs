//! The functions worth knowing: what to capture of a call, and what the captured words mean.
//!
//! A function is one line of a table in `tables/`, written like its declaration. Everything else follows from the kinds of its
//! arguments: where they lie, how they are shown, how many bytes the call moves, which kernel it launches.
//!
//! Where a symbol's signature differs between releases, its line stops before the first argument that does.

mod args;
mod inquiry;
mod payload;
mod structs;
mod tables;
mod values;

use std::{collections::HashMap, fmt, sync::LazyLock};

use args::{Arg, Dims, Kind, places};
pub use inquiry::is_inquiry;
pub use values::{Captured, Direction, Facts, Field, KernelRef, Lesson, Value};

use crate::results;

/// What a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Takes memory, or address space, in a [`Space`].
    Alloc,
    /// Gives it back.
    Free,
    /// Moves bytes.
    Copy,
    /// Fills bytes.
    Set,
    /// Launches one kernel.
    Launch,
    /// Launches a whole graph.
    GraphLaunch,
    /// Puts a function of the host into a stream.
    HostFunction,
    /// Waits on the CPU for the GPU.
    Synchronize,
    /// About streams, capture included.
    Stream,
    /// About events.
    Event,
    /// Builds and destroys graphs.
    Graph,
    /// About devices and contexts.
    Context,
    /// About code: modules, libraries, functions.
    Module,
    /// Anything else.
    Other,
}

/// What kind of memory an [`Role::Alloc`] takes. A free says where its function belongs, and the address tells which allocation
/// it ends: `cudaFree` ends [`Space::Device`] and [`Space::Managed`] ones alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Space {
    /// Device memory, from a pool or not.
    Device,
    /// Memory that moves between host and devices.
    Managed,
    /// Pinned host memory.
    Host,
    /// Host memory that was there already, pinned.
    Registered,
    /// Device memory laid out for textures, known by a handle.
    Array,
    /// Device memory without an address, known by a handle.
    Physical,
    /// Physical memory given an address: not memory of its own.
    Mapped,
    /// Addresses without memory.
    Reserved,
    /// Another process's memory: not of its own either.
    Imported,
}

impl Space {
    /// All of them, in the order of their numbers.
    pub const ALL: [Space; 9] = [
        Space::Device,
        Space::Managed,
        Space::Host,
        Space::Registered,
        Space::Array,
        Space::Physical,
        Space::Mapped,
        Space::Reserved,
        Space::Imported,
    ];

    /// As summaries name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Managed => "managed",
            Self::Host => "host",
            Self::Registered => "registered",
            Self::Array => "array",
            Self::Physical => "physical",
            Self::Mapped => "mapped",
            Self::Reserved => "reserved",
            Self::Imported => "imported",
        }
    }
}

/// What a probe should take of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capture {
    /// How many words, from the first.
    pub words: u8,
    /// The word with the pointer behind which the answer, 8 bytes, lies at return. The pointer may be null.
    pub out: Option<u8>,
    /// Bytes to read at entry.
    pub payload: Option<Payload>,
}

/// Bytes behind one pointer argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// A C string.
    Text {
        /// The word with the pointer.
        word: u8,
    },
    /// A struct.
    Bytes {
        /// The word with the pointer.
        word: u8,
        /// The struct's size: at most 256.
        length: u16,
    },
}

/// How to sum a call's bytes from its words alone, as a probe in the kernel can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sums {
    /// The words whose product, shifted left, is the number of bytes. The first is always there.
    pub bytes: [Option<u8>; 2],
    /// Bits to shift the product left by.
    pub shift: u8,
    /// Which way the bytes go, if the call is a copy.
    pub direction: Option<Way>,
}

/// How a launch says what it launches, as a probe in the kernel can read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launches {
    /// The word that says which kernel.
    pub word: u8,
    /// It is a handle, not the address of a host function.
    pub handle: bool,
    /// Where grid and block are, if the call has them.
    pub dims: Option<DimsPlace>,
}

/// Where the dimensions of a launch are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DimsPlace {
    /// Four words from this one on: x and y of the grid, z of the grid, and the same of the block.
    Packed(u8),
    /// Six words from this one on.
    Words(u8),
    /// The first 24 bytes of the payload.
    Payload,
}

/// Where a copy's direction comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The low 32 bits of this word, a `cudaMemcpyKind`: see [`Direction`].
    Word(u8),
    /// The function.
    Fixed(Direction),
}

/// A function and what is known of it.
pub struct Call {
    /// Its name, without suffixes unless a version has its own line.
    pub name: &'static str,
    /// What it is for.
    pub role: Role,
    /// What memory it takes or gives back.
    pub space: Option<Space>,
    direction: Option<Direction>,
    args: &'static [Arg],
}

/// The function with this name. Suffixes for versions (`_v2`) and for the per-thread default stream (`_ptsz`, `_ptds`) fall
/// away, unless that version's signature is one of its own.
pub fn call(name: &str) -> Option<&'static Call> {
    static BY_NAME: LazyLock<HashMap<&str, &Call>> = LazyLock::new(|| all().map(|call| (call.name, call)).collect());
    let stream = name.strip_suffix("_ptsz").or(name.strip_suffix("_ptds")).unwrap_or(name);
    let version = stream.rsplit_once("_v").filter(|(_, digits)| is_number(digits)).map_or(stream, |(base, _)| base);
    [name, stream, version].into_iter().find_map(|name| BY_NAME.get(name).copied())
}

/// Every function known.
pub fn all() -> impl Iterator<Item = &'static Call> {
    tables::ALL.iter().copied().flatten()
}

fn is_number(digits: &str) -> bool {
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Call {
    /// What to capture.
    pub fn capture(&self) -> Capture {
        let mut capture = Capture { words: 0, out: None, payload: None };
        for (&(_, kind), place) in places(self.args) {
            let word = place.first();
            capture.words = place.words().iter().fold(capture.words, |words, &word| words.max(word + 1));
            match kind {
                Kind::Out(_) => capture.out = capture.out.or(Some(word)),
                Kind::Text => capture.payload = Some(Payload::Text { word }),
                Kind::Struct(layout) => capture.payload = Some(Payload::Bytes { word, length: layout.length() }),
                _ => {}
            }
        }
        capture
    }

    /// The arguments by name, in their order, a struct's members in its place. What was not captured is left out, and so is the
    /// answer of a call that failed.
    pub fn decode(&self, captured: &Captured<'_>) -> Vec<Field> {
        self.read(captured).flatten().flatten().map(|(_, field)| field).collect()
    }

    /// What the call did.
    pub fn facts(&self, captured: &Captured<'_>) -> Facts {
        let mut facts = Facts { direction: self.direction, ..Facts::default() };
        let mut product = Some(1u64);
        let mut counted = false;
        let mut address = None;
        for (&(_, kind), read) in self.args.iter().zip(self.read(captured)) {
            if kind.counts() && read.is_none() {
                product = None;
            }
            for (kind, Field { value, .. }) in read.into_iter().flatten() {
                if kind.counts() {
                    counted = true;
                    product = product.and_then(|product| product.checked_mul(factor(kind, &value)?));
                }
                match (kind, value) {
                    (Kind::Way, Value::Direction(direction)) => facts.direction = Some(direction),
                    (Kind::Stream, Value::Stream(stream)) => facts.stream = Some(stream),
                    (Kind::Grid(_), Value::Dims(dims)) => facts.grid = Some(dims),
                    (Kind::Block(_), Value::Dims(dims)) => facts.block = Some(dims),
                    (Kind::Shared | Kind::ShortShared, Value::Bytes(bytes)) => facts.shared = Some(bytes),
                    (Kind::Kernel, Value::Handle(handle)) => facts.kernel = Some(KernelRef::Handle(handle)),
                    (Kind::HostStub, Value::Pointer(stub)) => facts.kernel = Some(KernelRef::HostStub(stub)),
                    // The first one: an answer comes before any other argument, and what is freed or registered does too.
                    (Kind::Out(_) | Kind::Pointer | Kind::Handle, Value::Pointer(at) | Value::Handle(at)) => {
                        address.get_or_insert(at);
                    }
                    _ => {}
                }
            }
        }
        facts.bytes = product.filter(|_| counted);
        if self.space.is_some() && self.answered(captured) && !self.failed(captured) {
            facts.address = address.filter(|&address| address != 0);
        }
        facts
    }

    /// What the call teaches about kernels' names, once it has succeeded.
    pub fn teaches(&self, captured: &Captured<'_>) -> Option<Lesson> {
        if self.failed(captured) {
            return None;
        }
        let (mut answer, mut given, mut text) = (None, None, None);
        for (kind, Field { value, .. }) in self.read(captured).flatten().flatten() {
            match (kind, value) {
                (Kind::Out(Kind::Kernel), Value::Handle(handle)) => answer = Some(KernelRef::Handle(handle)),
                (Kind::Kernel, Value::Handle(handle)) => given = Some(KernelRef::Handle(handle)),
                (Kind::HostStub, Value::Pointer(stub)) => given = Some(KernelRef::HostStub(stub)),
                (Kind::Text, Value::Text(name)) => text = Some(name),
                _ => {}
            }
        }
        let makes_kernels = self.args.iter().any(|(_, kind)| matches!(kind, Kind::Out(Kind::Kernel)));
        match (answer, given, text) {
            (Some(kernel), _, Some(name)) => Some(Lesson::Name { kernel, name }),
            (Some(kernel), Some(of), None) => Some(Lesson::Alias { kernel, of }),
            (None, Some(kernel), Some(name)) if !makes_kernels => Some(Lesson::Name { kernel, name }),
            _ => None,
        }
    }

    /// What its calls did is summed up; of others nobody asks for [`Facts`].
    pub fn is_summed(&self) -> bool {
        let by_role = [Role::Alloc, Role::Free, Role::Copy, Role::Set, Role::Launch, Role::GraphLaunch];
        by_role.contains(&self.role) || self.args.iter().any(|(_, kind)| kind.counts())
    }

    /// Its calls can teach names: it gives out a kernel, or is told a kernel's name.
    pub fn can_teach(&self) -> bool {
        let any = |wanted: fn(&Kind) -> bool| self.args.iter().any(|(_, kind)| wanted(kind));
        any(|kind| matches!(kind, Kind::Out(Kind::Kernel)))
            || any(|kind| matches!(kind, Kind::Text)) && any(|kind| matches!(kind, Kind::Kernel | Kind::HostStub))
    }

    /// How a launch says which kernel it launches; `None` for other calls.
    pub fn launches(&self) -> Option<Launches> {
        if self.role != Role::Launch {
            return None;
        }
        let (mut kernel, mut dims) = (None, None);
        for (&(_, kind), place) in places(self.args) {
            match kind {
                Kind::Kernel => kernel = Some((place.first(), true)),
                Kind::HostStub => kernel = Some((place.first(), false)),
                Kind::Grid(Dims::Packed) => dims = Some(DimsPlace::Packed(place.first())),
                Kind::Grid(Dims::Loose) => dims = Some(DimsPlace::Words(place.first())),
                Kind::Struct(_) => dims = Some(DimsPlace::Payload),
                _ => {}
            }
        }
        kernel.map(|(word, handle)| Launches { word, handle, dims })
    }

    /// How a probe can sum the bytes by itself. `None` where there are none, or where words do not tell them. The role says
    /// what the bytes are: some functions that are neither copy nor allocation have them too.
    pub fn sums(&self) -> Option<Sums> {
        let mut sums = Sums { bytes: [None; 2], shift: 0, direction: self.direction.map(Way::Fixed) };
        let mut factors = 0;
        for (&(_, kind), place) in places(self.args) {
            match kind {
                Kind::Way => sums.direction = Some(Way::Word(place.first())),
                Kind::Bytes | Kind::Rows | Kind::Elements(_) => {
                    *sums.bytes.get_mut(factors)? = Some(place.first());
                    factors += 1;
                    if let Kind::Elements(shift) = kind {
                        sums.shift = shift;
                    }
                }
                _ if kind.counts() => return None,
                _ => {}
            }
        }
        (factors > 0).then_some(sums)
    }

    /// For each argument its fields: one, or those of a struct; `None` where nothing was captured of it.
    fn read<'a>(&'a self, captured: &'a Captured<'a>) -> impl Iterator<Item = Option<Vec<(Kind, Field)>>> + 'a {
        places(self.args).map(move |(&(name, kind), place)| {
            let word = |at: u8| captured.words.get(usize::from(at)).copied();
            let value = match kind {
                Kind::Out(answer) => answer.value(&[captured.out.filter(|_| !self.failed(captured))?])?,
                Kind::Text if !captured.payload.is_empty() => Value::Text(text(captured.payload)),
                Kind::Struct(layout) => return layout.fields(captured.payload, word(place.first() + 1)),
                _ => {
                    let words: Vec<u64> = place.words().iter().map_while(|&at| word(at)).collect();
                    if words.len() < place.words().len() {
                        return None;
                    }
                    kind.value(&words)?
                }
            };
            Some(vec![(kind, Field { name, value })])
        })
    }

    /// Whether the answer that the call should give was captured, if it gives one.
    fn answered(&self, captured: &Captured<'_>) -> bool {
        captured.out.is_some() || !self.args.iter().any(|(_, kind)| matches!(kind, Kind::Out(_)))
    }

    fn failed(&self, captured: &Captured<'_>) -> bool {
        results::is_error(self.name, captured.result as u32)
    }
}

/// A value as a factor of the bytes.
fn factor(kind: Kind, value: &Value) -> Option<u64> {
    let (Value::Bytes(number) | Value::Unsigned(number)) = *value else { return None };
    match kind {
        Kind::Elements(shift) => number.checked_mul(1 << shift),
        Kind::Layers => Some(number.max(1)),
        _ => Some(number),
    }
}

/// A C string, up to its NUL or to the end of what was captured.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
mod tests;
