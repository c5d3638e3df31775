//! The private table through which the fake libcudart and libcupti reach the GPU's state in the fake libcuda.
//!
//! The real libraries do the same with `cuGetExportTable`. All fakes are links of one static library, so plain Rust
//! types are used here; version and size reject a library of another build.

use std::ffi::{c_char, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use cupti::callback::{CallbackData, ResourceData};
use cupti::ids::domain;

use crate::activity::Activity;
use crate::gpu::meeting::Meet;
use crate::script::Script;
use crate::sys;
use crate::truth::Truth;

/// The table's id for `cuGetExportTable`.
pub const UUID: [u8; 16] = *b"warpscope-sim-01";
/// Increased when the table changes.
pub const VERSION: u32 = 4;

/// Callback ids below this can be enabled.
pub const MAX_CBID: u32 = 1024;

/// The callbacks and activity kinds that the CUPTI client has enabled. Stored in libcuda, so that a call without
/// enabled callbacks costs one load; written by libcupti.
#[derive(Debug)]
pub struct Switches {
    driver: [AtomicU64; MAX_CBID as usize / 64],
    runtime: [AtomicU64; MAX_CBID as usize / 64],
    resource: AtomicU64,
    kinds: AtomicU64,
    /// Threads that are submitting work.
    submitting: AtomicU32,
}

/// A thread that is submitting work, until it is dropped.
pub struct Submitting<'a>(&'a AtomicU32);

impl Drop for Submitting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Switches {
    /// Creates switches with everything off.
    pub const fn new() -> Self {
        Self {
            driver: [const { AtomicU64::new(0) }; MAX_CBID as usize / 64],
            runtime: [const { AtomicU64::new(0) }; MAX_CBID as usize / 64],
            resource: AtomicU64::new(0),
            kinds: AtomicU64::new(0),
            submitting: AtomicU32::new(0),
        }
    }

    fn words(&self, of: u32) -> &[AtomicU64] {
        match of {
            domain::DRIVER => &self.driver,
            domain::RUNTIME => &self.runtime,
            domain::RESOURCE => std::slice::from_ref(&self.resource),
            _ => &[],
        }
    }

    /// Whether a callback is enabled.
    #[inline]
    pub fn callback(&self, of: u32, cbid: u32) -> bool {
        self.words(of).get(cbid as usize / 64).is_some_and(|w| w.load(Ordering::Relaxed) & (1 << (cbid % 64)) != 0)
    }

    /// Switches one callback; false if there is no such id.
    pub fn set_callback(&self, of: u32, cbid: u32, on: bool) -> bool {
        let Some(word) = self.words(of).get(cbid as usize / 64) else { return false };
        set_bit(word, cbid % 64, on);
        true
    }

    /// Switches a whole domain. Id 0 is unused.
    pub fn set_domain(&self, of: u32, on: bool) {
        for (at, word) in self.words(of).iter().enumerate() {
            let all = if at == 0 { !1 } else { !0 };
            word.store(if on { all } else { 0 }, Ordering::Relaxed);
        }
    }

    /// Whether an activity kind is enabled.
    #[inline]
    pub fn kind(&self, kind: u32) -> bool {
        self.kinds.load(Ordering::Relaxed) & (1 << kind) != 0
    }

    /// Begins to submit work.
    pub fn submit(&self) -> Submitting<'_> {
        self.submitting.fetch_add(1, Ordering::SeqCst);
        Submitting(&self.submitting)
    }

    /// Ends the process if a thread submits work.
    pub fn require_quiet(&self, what: &str) {
        if self.submitting.load(Ordering::SeqCst) != 0 {
            eprintln!("simulated CUPTI: {what} while a thread submitted work");
            std::process::abort();
        }
    }

    /// Switches an activity kind below 64. CUPTI 13.0 crashes now and then if work is submitted meanwhile; here it
    /// always does.
    pub fn set_kind(&self, kind: u32, on: bool) {
        if self.kind(kind) != on {
            self.require_quiet(&format!("activity kind {kind} was switched"));
        }
        set_bit(&self.kinds, kind, on);
    }

    /// Switches all activity kinds off, between two submissions.
    pub fn clear_kinds(&self) {
        for kind in (0..64).filter(|kind| self.kind(*kind)) {
            self.set_kind(kind, false);
        }
    }
}

impl Default for Switches {
    fn default() -> Self {
        Self::new()
    }
}

fn set_bit(word: &AtomicU64, bit: u32, on: bool) {
    if on {
        word.fetch_or(1 << bit, Ordering::Relaxed);
    } else {
        word.fetch_and(!(1 << bit), Ordering::Relaxed);
    }
}

/// libcupti's functions that libcuda calls.
#[derive(Debug)]
#[repr(C)]
pub struct Hooks {
    /// An API call's enter or exit: domain, callback id.
    pub api: fn(u32, u32, &CallbackData),
    /// A resource event: callback id.
    pub resource: fn(u32, &ResourceData),
    /// An operation of an enabled kind.
    pub activity: fn(&Activity),
    /// A module was loaded: its cubin.
    pub module: fn(&[u8]),
}

/// One API call in progress, on its caller's stack.
#[derive(Debug)]
#[repr(C)]
pub struct Call {
    /// [`domain::DRIVER`] or [`domain::RUNTIME`].
    pub domain: u32,
    /// The callback id; 0 for a function without callbacks.
    pub cbid: u32,
    /// The function's name.
    pub name: *const c_char,
    /// The parameters.
    pub params: *const c_void,
    /// The kernel's name on launches, or null.
    pub symbol: *const c_char,
    /// The result, once known.
    pub result: u32,
    /// The call's id.
    pub correlation: u32,
    /// The id of the enclosing call, or 0.
    pub outer: u32,
    /// The subscriber's eight bytes.
    pub data: u64,
}

/// The table.
#[derive(Debug)]
#[repr(C)]
pub struct Table {
    /// [`VERSION`].
    pub version: u32,
    /// `size_of::<Table>()`.
    pub size: u32,
    /// The script.
    pub script: fn() -> &'static Script,
    /// The counters.
    pub truth: &'static Truth,
    /// The switches.
    pub switches: &'static Switches,
    /// Installs libcupti's hooks; false if another libcupti has installed its own.
    pub attach: fn(&'static Hooks) -> bool,
    /// False in a child forked after `cuInit`.
    pub alive: fn() -> bool,
    /// Begins an API call. Sets a result and returns false if the script makes it fail.
    pub begin: fn(&mut Call) -> bool,
    /// Ends it.
    pub end: fn(&mut Call),
    /// Returns the kernel's name of a `CUfunction`.
    pub function_name: fn(*mut c_void) -> *const c_char,
    /// Context id and device of a `CUcontext`.
    pub context_ids: fn(*mut c_void) -> Option<(u32, u32)>,
    /// Adds to the memory that is in use on the device of a `CUcontext`, wrapping.
    pub take_memory: fn(*mut c_void, u64),
    /// Id of a `CUstream` in a context; the flag says whether the null stream is the per-thread one.
    pub stream_id: fn(*mut c_void, *mut c_void, bool) -> Option<u32>,
    /// Id of a `CUgraphNode`.
    pub graph_node_id: fn(*mut c_void) -> Option<u64>,
    /// Id of a `CUgraph`.
    pub graph_id: fn(*mut c_void) -> Option<u32>,
    /// How many streams are being captured.
    pub captures: fn() -> u32,
    /// Id of a `CUgraphExec`.
    pub graph_exec_id: fn(*mut c_void) -> Option<u32>,
    /// Makes the next kernel that this thread launches end when this says.
    pub meet_next: fn(Meet),
}

/// Returns the handle of the process's libcuda, or null.
pub fn libcuda() -> *mut c_void {
    sys::open(c"libcuda.so.1")
}

/// Returns the table of the process's libcuda, if it is the fake one.
pub fn table() -> Option<&'static Table> {
    static TABLE: OnceLock<Option<&'static Table>> = OnceLock::new();
    *TABLE.get_or_init(|| {
        let library = libcuda();
        if library.is_null() {
            return None;
        }
        let export = sys::symbol(library, c"cuGetExportTable");
        if export.is_null() {
            return None;
        }
        // SAFETY: cuGetExportTable has this type in every libcuda.
        let export: unsafe extern "C" fn(*mut *const c_void, *const u8) -> u32 = unsafe { std::mem::transmute(export) };
        let mut found: *const c_void = std::ptr::null();
        // SAFETY: both pointers are valid for the call.
        if unsafe { export(&mut found, UUID.as_ptr()) } != 0 || found.is_null() {
            return None;
        }
        // SAFETY: only the fake libcuda knows our id; the first two words are the same in every version of the table.
        let table = unsafe { &*found.cast::<Table>() };
        (table.version == VERSION && table.size as usize == size_of::<Table>()).then_some(table)
    })
}
