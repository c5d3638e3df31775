//! One known function: everything that follows from the kinds of its arguments.

use std::fmt;

use super::args::{Arg, Dims, Kind, places};
use super::capture::{Capture, DimsPlace, Launches, Payload, Sums, Way};
use super::role::{Role, Space};
use super::values::{Captured, Direction, Facts, Field, KernelRef, NameFact, Object, Value};
use crate::results;

/// A function and its properties.
pub struct Call {
    /// Its name, without suffixes unless a version has its own line.
    pub name: &'static str,
    /// Its purpose.
    pub role: Role,
    /// The kind of memory it allocates or frees.
    pub space: Option<Space>,
    pub(super) direction: Option<Direction>,
    pub(super) args: &'static [Arg],
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Call {
    /// Returns what to capture.
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

    /// Returns the arguments by name, in order, with a struct's members in its place. Omits what was not captured, and
    /// the result of a call that failed.
    pub fn decode(&self, captured: &Captured<'_>) -> Vec<Field> {
        self.read(captured).flatten().flatten().map(|(_, field)| field).collect()
    }

    /// Returns what the call did.
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
                    // The first one counts: a result comes before any other argument, and so does what is freed or
                    // registered.
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

    /// Returns the kernel name that a successful call reveals.
    pub fn reveals(&self, captured: &Captured<'_>) -> Option<NameFact> {
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
            (Some(kernel), _, Some(name)) => Some(NameFact::Name { kernel, name }),
            (Some(kernel), Some(of), None) => Some(NameFact::Alias { kernel, of }),
            (None, Some(kernel), Some(name)) if !makes_kernels => Some(NameFact::Name { kernel, name }),
            _ => None,
        }
    }

    /// Returns the kernel handles of a successful call and the kinds of their objects; `None` where either kind is accepted.
    pub fn objects(&self, captured: &Captured<'_>) -> Vec<(u64, Option<Object>)> {
        if self.failed(captured) {
            return Vec::new();
        }
        let fields = self.read(captured).flatten().flatten();
        let object = |(kind, field): (Kind, Field)| match (kind, field.value) {
            (Kind::Out(Kind::Kernel), Value::Handle(handle)) => Some((handle, Some(self.returns()))),
            (Kind::Kernel, Value::Handle(handle)) => {
                Some((handle, self.name.starts_with("cuKernel").then_some(Object::Kernel)))
            }
            _ => None,
        };
        fields.filter_map(object).filter(|(handle, _)| *handle != 0).collect()
    }

    /// Returns the kind of object that it returns, if it returns one.
    fn returns(&self) -> Object {
        match self.name {
            "cuModuleGetFunction" | "cuKernelGetFunction" | "cudaGetFuncBySymbol" => Object::Function,
            _ => Object::Kernel,
        }
    }

    /// Whether its calls are summed; [`Facts`] are not needed for others.
    pub fn is_summed(&self) -> bool {
        let by_role = [Role::Alloc, Role::Free, Role::Copy, Role::Set, Role::Launch, Role::GraphLaunch];
        by_role.contains(&self.role) || self.args.iter().any(|(_, kind)| kind.counts())
    }

    /// Whether its calls can reveal kernel names: it returns a kernel, or takes a kernel's name.
    pub fn names_kernels(&self) -> bool {
        let any = |matches: fn(&Kind) -> bool| self.args.iter().any(|(_, kind)| matches(kind));
        any(|kind| matches!(kind, Kind::Out(Kind::Kernel)))
            || any(|kind| matches!(kind, Kind::Text)) && any(|kind| matches!(kind, Kind::Kernel | Kind::HostStub))
    }

    /// Returns where a launch has its kernel; `None` for other calls.
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

    /// Returns how a BPF program can sum the bytes itself. `None` if there are no bytes, or if the words do not contain
    /// them. The role determines what the bytes are: some functions that are neither copy nor allocation have them too.
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

    /// Returns the fields of each argument: one, or those of a struct; `None` if it was not captured.
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

    /// Whether the call's result was captured, if it has one.
    fn answered(&self, captured: &Captured<'_>) -> bool {
        captured.out.is_some() || !self.args.iter().any(|(_, kind)| matches!(kind, Kind::Out(_)))
    }

    fn failed(&self, captured: &Captured<'_>) -> bool {
        results::is_error(self.name, captured.result as u32)
    }
}

/// Returns a value as a factor of the bytes.
fn factor(kind: Kind, value: &Value) -> Option<u64> {
    let (Value::Bytes(number) | Value::Unsigned(number)) = *value else { return None };
    match kind {
        Kind::Elements(shift) => number.checked_mul(1 << shift),
        Kind::Layers => Some(number.max(1)),
        _ => Some(number),
    }
}

/// Returns a C string, up to its NUL or to the end of the captured bytes.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
