//! NVTX as NCCL uses it: ranges of the domain `NCCL` with payloads. Loads the library that `NVTX_INJECTION64_PATH` names, as
//! NVTX's headers do.

use std::cell::UnsafeCell;
use std::ffi::{CString, c_char, c_void};
use std::os::unix::ffi::OsStringExt;
use std::sync::OnceLock;

use crate::sys;

/// The ids of the layouts of payloads.
pub mod schema {
    pub const DESTROY: u64 = 2;
    pub const ABORT: u64 = 3;
    pub const ALL_GATHER: u64 = 4;
    pub const ALL_REDUCE: u64 = 5;
    pub const BROADCAST: u64 = 6;
    pub const REDUCE_SCATTER: u64 = 7;
    pub const REDUCE: u64 = 8;
    pub const SEND: u64 = 9;
    pub const RECEIVE: u64 = 10;
    pub const INIT_RANK: u64 = 11;
}

/// `NVTX_PAYLOAD_ENTRY_TYPE_SCHEMA_ID_STATIC_START`
const FIRST_SCHEMA: u64 = 1 << 24;
/// `NVTX_PAYLOAD_TYPE_EXT`, `NVTX_MESSAGE_TYPE_REGISTERED`
const EXTENDED: i32 = 0xDFBD_0009_u32 as i32;
const REGISTERED: i32 = 3;

/// The numbers of functions in the modules CORE2 and PAYLOAD.
const PUSH: usize = 4;
const POP: usize = 5;
const CREATE_DOMAIN: usize = 12;
const POP_PAYLOAD: usize = 4;

type Function = *const c_void;

const FUNCTIONS: usize = 64;

/// Functions that the library installs, before anything is called.
struct Installed(UnsafeCell<[Function; FUNCTIONS]>);

// SAFETY: written while the library is loaded, under `OnceLock`; read after that.
unsafe impl Sync for Installed {}

static CORE: Installed = Installed(UnsafeCell::new([std::ptr::null(); FUNCTIONS]));
static CORE2: Installed = Installed(UnsafeCell::new([std::ptr::null(); FUNCTIONS]));
static PAYLOADS: Installed = Installed(UnsafeCell::new([std::ptr::null(); FUNCTIONS]));

impl Installed {
    fn get(&self, number: usize) -> Option<Function> {
        // SAFETY: nothing is written any more.
        let function = unsafe { (*self.0.get())[number] };
        (!function.is_null()).then_some(function)
    }

    /// The addresses of the places.
    fn slots(&'static self) -> *mut *mut Function {
        let first: *mut Function = self.0.get().cast();
        // SAFETY: all are in the array.
        let slots: Vec<*mut Function> = (0..FUNCTIONS).map(|index| unsafe { first.add(index) }).collect();
        Box::leak(slots.into_boxed_slice()).as_mut_ptr()
    }
}

#[repr(C)]
struct Payload {
    schema: u64,
    size: usize,
    bytes: *const c_void,
}

/// `nvtxEventAttributes_t`
#[repr(C)]
#[derive(Default)]
struct Attributes {
    version: u16,
    size: u16,
    category: u32,
    color_type: i32,
    color: u32,
    payload_type: i32,
    count: i32,
    payload: u64,
    message_type: i32,
    message: usize,
}

#[repr(C)]
struct Callbacks {
    size: usize,
    get: extern "C" fn(u32, *mut *mut *mut Function, *mut u32) -> i32,
}

// SAFETY: immutable.
unsafe impl Sync for Callbacks {}

static CALLBACKS: Callbacks = Callbacks { size: size_of::<Callbacks>(), get: get_module };

extern "C" fn get_module(module: u32, table: *mut *mut *mut Function, size: *mut u32) -> i32 {
    let functions = match module {
        1 => &CORE,
        5 => &CORE2,
        _ => return 0,
    };
    // SAFETY: the library passes places for the answers.
    unsafe {
        table.write(functions.slots());
        size.write(16);
    }
    1
}

extern "C" fn get_table(id: u32) -> *const c_void {
    if id == 1 { (&raw const CALLBACKS).cast() } else { std::ptr::null() }
}

/// `nvtxExtModuleSegment_t`
#[repr(C)]
struct Segment {
    id: usize,
    count: usize,
    functions: *mut Function,
}

/// `nvtxExtModuleInfo_t`
#[repr(C)]
struct Module {
    version: u16,
    size: u16,
    id: u16,
    compatible: u16,
    segments: usize,
    segment: *mut Segment,
    exported: *const c_void,
    extension: *const c_void,
}

/// Returns NCCL's domain; `None` if nobody wants its ranges.
fn domain() -> Option<usize> {
    static DOMAIN: OnceLock<Option<usize>> = OnceLock::new();
    *DOMAIN.get_or_init(|| {
        let path = std::env::var_os("NVTX_INJECTION64_PATH").filter(|path| !path.is_empty())?;
        let library = sys::open(&CString::new(path.into_vec()).ok()?);
        if library.is_null() {
            return None;
        }
        let begin = sys::symbol(library, c"InitializeInjectionNvtx2");
        if begin.is_null() {
            return None;
        }
        // SAFETY: NVTX defines the type of this symbol.
        let begin: extern "C" fn(extern "C" fn(u32) -> *const c_void) -> i32 = unsafe { std::mem::transmute(begin) };
        if begin(get_table) != 1 {
            return None;
        }
        let extend = sys::symbol(library, c"InitializeInjectionNvtxExtension");
        if !extend.is_null() {
            let segment =
                Box::leak(Box::new(Segment { id: 0, count: FUNCTIONS - 1, functions: PAYLOADS.0.get().cast() }));
            let nothing = std::ptr::null();
            let module = Module {
                version: 3,
                size: size_of::<Module>() as u16,
                id: 2,
                compatible: 259,
                segments: 1,
                segment,
                exported: nothing,
                extension: nothing,
            };
            // SAFETY: NVTX defines the type of this symbol.
            let extend: extern "C" fn(*const Module) -> i32 = unsafe { std::mem::transmute(extend) };
            extend(Box::leak(Box::new(module)));
        }
        let create = CORE2.get(CREATE_DOMAIN)?;
        // SAFETY: NVTX defines the types of its functions.
        let create: extern "C" fn(*const c_char) -> usize = unsafe { std::mem::transmute(create) };
        Some(create(c"NCCL".as_ptr()))
    })
}

/// A range around a call, from now until it is dropped.
pub struct Range {
    domain: Option<usize>,
    /// What its end says: layout and fields.
    end: Option<(u64, Fields)>,
}

/// The fields of a payload: at most three words.
#[derive(Clone, Copy)]
pub struct Fields {
    pub words: [u64; 3],
    pub size: usize,
}

impl Fields {
    /// Of an operation: the communicator, bytes, and its other fields of 32 bits.
    pub fn of_call(communicator: u64, bytes: u64, others: &[i32]) -> Self {
        let pair = others.iter().take(2).enumerate();
        let word = pair.fold(0, |word, (place, other)| word | u64::from(other.cast_unsigned()) << (32 * place));
        // As in C: padded to the largest field.
        Self { words: [communicator, bytes, word], size: if others.is_empty() { 16 } else { 24 } }
    }

    /// Of a communicator: its size, the rank and the device.
    pub fn of_communicator(communicator: u64, size: u32, rank: u32, device: u32) -> Self {
        Self { words: [communicator, u64::from(size) | u64::from(rank) << 32, device.into()], size: 24 }
    }
}

impl Range {
    /// Begins a range that says what is called.
    pub fn begin(schema: u64, fields: Fields) -> Self {
        Self::push(Some((schema, fields)), None)
    }

    /// Begins a range that says what has been done when it ends.
    pub fn ending(schema: u64, fields: Fields) -> Self {
        Self::push(None, Some((schema, fields)))
    }

    fn push(begin: Option<(u64, Fields)>, end: Option<(u64, Fields)>) -> Self {
        let domain = domain();
        if let (Some(domain), Some(push)) = (domain, CORE2.get(PUSH)) {
            let size = size_of::<Attributes>() as u16;
            let mut attributes = Attributes { version: 3, size, message_type: REGISTERED, ..Attributes::default() };
            let payload = begin.as_ref().map(|(schema, fields)| payload(*schema, fields));
            if let Some(payload) = &payload {
                (attributes.payload_type, attributes.count) = (EXTENDED, 1);
                attributes.payload = std::ptr::from_ref(payload).expose_provenance() as u64;
            }
            // SAFETY: NVTX defines the types of its functions.
            let push: extern "C" fn(usize, *const Attributes) -> i32 = unsafe { std::mem::transmute(push) };
            push(domain, &attributes);
        }
        Self { domain, end }
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        let Some(domain) = self.domain else { return };
        if let (Some((schema, fields)), Some(pop)) = (&self.end, PAYLOADS.get(POP_PAYLOAD)) {
            let payload = payload(*schema, fields);
            // SAFETY: as above.
            let pop: extern "C" fn(usize, *const Payload, usize) -> i32 = unsafe { std::mem::transmute(pop) };
            pop(domain, &payload, 1);
        } else if let Some(pop) = CORE2.get(POP) {
            // SAFETY: as above.
            let pop: extern "C" fn(usize) -> i32 = unsafe { std::mem::transmute(pop) };
            pop(domain);
        }
    }
}

fn payload(schema: u64, fields: &Fields) -> Payload {
    Payload { schema: FIRST_SCHEMA + schema, size: fields.size, bytes: fields.words.as_ptr().cast() }
}
