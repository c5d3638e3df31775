//! NVTX: ranges and marks with which the program annotates itself, on request (`record --nvtx`), and what NCCL says about its
//! communicators, always.
//!
//! NVTX 3 is a header in the program, NVTX 2 a shared library. At the first call, both load the library that
//! `NVTX_INJECTION64_PATH` names and call [`InitializeInjectionNvtx2`], which replaces the functions of their tables.
//!
//! ```text
//!   push "step" -> push "forward" -> launch -> pop -> pop
//!   path 1: step     path 2: step/forward      the launch is reported with path 2, each pop with its path and times
//! ```
//!
//! [`text`] and [`label`] read names, [`registry`] keeps what the program registers, [`ranges`] keeps the open ranges and reports,
//! [`nccl`] reads the arguments of NCCL's calls. Without a request, NVTX's functions are replaced once NCCL creates its domain: other
//! programs pay nothing.

mod label;
mod nccl;
mod ranges;
mod registry;
mod text;

use core::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::Mutex;

pub use self::ranges::on_launch;
use self::{
    label::{Attributes, Label},
    ranges::{end_range, pop_range, push_range, set_mark, start_range},
    registry::{create, name_category, register},
    text::Name,
};
use crate::{environment, lifecycle};

/// The table of callbacks (`NVTX_ETID_CALLBACKS`), and its modules: the functions without domains, and those with.
const CALLBACKS: u32 = 1;
const CORE: c_uint = 1;
const CORE2: c_uint = 5;

/// Returns the functions of a module: a table of their addresses, and its size. 0 if there is no such module.
type GetModule = unsafe extern "C" fn(c_uint, *mut *mut *mut *const c_void, *mut c_uint) -> c_int;

/// `NvtxExportTableCallbacks`.
#[repr(C)]
struct ExportTable {
    size: usize,
    get: Option<GetModule>,
}

/// Called by NVTX at its first use. Always returns 1, which means success: without a request nothing is replaced.
///
/// # Safety
/// `get_table` must be null or the function that NVTX passes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn InitializeInjectionNvtx2(
    get_table: Option<unsafe extern "C" fn(u32) -> *const c_void>,
) -> c_int {
    lifecycle::guarded((), || {
        // SAFETY: as the caller guarantees; the table is static, and its size says which fields it has.
        let table =
            unsafe { get_table.map(|get| get(CALLBACKS).cast::<ExportTable>()).and_then(|table| table.as_ref()) };
        let Some(get) = table.filter(|table| table.size >= size_of::<ExportTable>()).and_then(|table| table.get) else {
            return;
        };
        if environment::variable(wire::NVTX_VARIABLE).is_none() {
            remember(get);
            // SAFETY: the function has the type that NVTX declares for its number.
            unsafe { replace(get, CORE2, &[(12, create_only_nccl as *const c_void)]) };
            return;
        }
        ranges::activate();
        // SAFETY: each function has the type that NVTX declares for its number.
        unsafe {
            replace(
                get,
                CORE,
                &[
                    (1, mark_ex as *const c_void),
                    (2, mark_a as *const c_void),
                    (3, mark_w as *const c_void),
                    (4, start_ex as *const c_void),
                    (5, start_a as *const c_void),
                    (6, start_w as *const c_void),
                    (7, end as *const c_void),
                    (8, push_ex as *const c_void),
                    (9, push_a as *const c_void),
                    (10, push_w as *const c_void),
                    (11, pop as *const c_void),
                    (12, name_category_a as *const c_void),
                    (13, name_category_w as *const c_void),
                ],
            );
            replace(
                get,
                CORE2,
                &[
                    (1, domain_mark_ex as *const c_void),
                    (2, domain_start_ex as *const c_void),
                    (3, domain_end as *const c_void),
                    (4, domain_push_ex as *const c_void),
                    (5, domain_pop as *const c_void),
                    (8, domain_name_category_a as *const c_void),
                    (9, domain_name_category_w as *const c_void),
                    (10, register_a as *const c_void),
                    (11, register_w as *const c_void),
                    (12, create_a as *const c_void),
                    (13, create_w as *const c_void),
                ],
            );
        }
    });
    1
}

/// The users of NVTX so far: each library has tables of its own.
static USERS: Mutex<Vec<GetModule>> = Mutex::new(Vec::new());
/// The most of them.
const MOST_USERS: usize = 64;

fn remember(get: GetModule) {
    if let Some(mut users) = registry::lock(&USERS)
        && users.len() < MOST_USERS
        && users.try_reserve(1).is_ok()
    {
        users.push(get);
    }
}

/// NCCL has created its domain: the ranges of all libraries so far are inspected from now on, of which one is NCCL.
fn watch_nccl() {
    nccl::loaded(nccl::HANDLE);
    let Some(mut users) = registry::lock(&USERS) else { return };
    for get in users.drain(..) {
        // SAFETY: the function has the type that NVTX declares for its number.
        unsafe { replace(get, CORE2, &[(4, push_nccl as *const c_void)]) };
    }
}

/// `nvtxExtModuleSegment_t`: a part of an extension's functions.
#[repr(C)]
struct Segment {
    id: usize,
    count: usize,
    functions: *mut *const c_void,
}

/// `nvtxExtModuleInfo_t`.
#[repr(C)]
pub struct ExtensionModule {
    version: u16,
    size: u16,
    id: u16,
    compatible: u16,
    segments: usize,
    segment: *const Segment,
}

/// The extension for payloads, and the number of its function that ends a range with one.
const PAYLOADS: u16 = 2;
const POP_WITH_PAYLOAD: usize = 4;

/// Called by NVTX at the first use of an extension. Always returns 1, which means success.
///
/// # Safety
/// `module` must be null or what NVTX passes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn InitializeInjectionNvtxExtension(module: *const ExtensionModule) -> c_int {
    lifecycle::guarded((), || {
        // SAFETY: as the caller guarantees.
        let Some(module) = (unsafe { module.as_ref() }) else { return };
        let is_whole = usize::from(module.size) >= size_of::<ExtensionModule>();
        if !is_whole || module.id != PAYLOADS || module.segments == 0 {
            return;
        }
        // SAFETY: there is at least one segment.
        let Some(segment) = (unsafe { module.segment.as_ref() }) else { return };
        if segment.count > POP_WITH_PAYLOAD && !segment.functions.is_null() {
            // SAFETY: the segment has this many functions; this one has the type that NVTX declares for it.
            unsafe { *segment.functions.add(POP_WITH_PAYLOAD) = pop_with_payload as *const c_void };
        }
    });
    1
}

/// Replaces functions of a module, as far as its table has them.
///
/// # Safety
/// `get` must be NVTX's function, and each function of the type that NVTX declares for its number.
unsafe fn replace(get: GetModule, module: c_uint, functions: &[(usize, *const c_void)]) {
    let (mut table, mut size) = (core::ptr::null_mut::<*mut *const c_void>(), 0);
    // SAFETY: both are writable. On success the table has `size` entries, each null or the address of a function.
    unsafe {
        if get(module, &raw mut table, &raw mut size) == 0 || table.is_null() {
            return;
        }
        for &(number, function) in functions.iter().filter(|(number, _)| *number < size as usize) {
            if let Some(slot) = table.add(number).read().as_mut() {
                *slot = function;
            }
        }
    }
}

/// Declares the functions that replace NVTX's. They have the types that NVTX declares for them, and the safety
/// requirements of [`Name`] and [`Label`].
macro_rules! functions {
    ($($name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)? { $($body:tt)* })*) => {$(
        #[allow(unused_unsafe, reason = "some take no pointers")]
        unsafe extern "C" fn $name($($argument: $type),*) $(-> $result)? {
            // SAFETY: NVTX's caller guarantees that texts and attributes are valid.
            unsafe { $($body)* }
        }
    )*};
}

functions! {
    mark_ex(attributes: *const Attributes) { set_mark(Label::read(0, attributes)) }
    mark_a(text: *const c_char) { set_mark(Name::text(text).into()) }
    mark_w(text: *const u32) { set_mark(Name::wide(text).into()) }
    start_ex(attributes: *const Attributes) -> u64 { start_range(Label::read(0, attributes)) }
    start_a(text: *const c_char) -> u64 { start_range(Name::text(text).into()) }
    start_w(text: *const u32) -> u64 { start_range(Name::wide(text).into()) }
    end(id: u64) { end_range(id) }
    push_ex(attributes: *const Attributes) -> c_int { push_range(Label::read(0, attributes)) }
    push_a(text: *const c_char) -> c_int { push_range(Name::text(text).into()) }
    push_w(text: *const u32) -> c_int { push_range(Name::wide(text).into()) }
    pop() -> c_int { pop_range(0) }
    name_category_a(category: u32, text: *const c_char) { name_category(0, category, &Name::text(text)) }
    name_category_w(category: u32, text: *const u32) { name_category(0, category, &Name::wide(text)) }
    domain_mark_ex(domain: usize, attributes: *const Attributes) { set_mark(Label::read(domain, attributes)) }
    domain_start_ex(domain: usize, attributes: *const Attributes) -> u64 {
        start_range(Label::read(domain, attributes))
    }
    domain_end(_domain: usize, id: u64) { end_range(id) }
    domain_push_ex(domain: usize, attributes: *const Attributes) -> c_int {
        nccl::begun(domain, attributes);
        push_range(Label::read(domain, attributes))
    }
    push_nccl(domain: usize, attributes: *const Attributes) -> c_int {
        nccl::begun(domain, attributes);
        0
    }
    pop_with_payload(domain: usize, payloads: *const nccl::Payload, count: usize) -> c_int {
        nccl::ended(domain, payloads, count);
        if ranges::is_active() { pop_range(domain) } else { -1 }
    }
    domain_pop(domain: usize) -> c_int { pop_range(domain) }
    domain_name_category_a(domain: usize, category: u32, text: *const c_char) {
        name_category(domain, category, &Name::text(text))
    }
    domain_name_category_w(domain: usize, category: u32, text: *const u32) {
        name_category(domain, category, &Name::wide(text))
    }
    register_a(_domain: usize, text: *const c_char) -> usize { register(&Name::text(text)) }
    register_w(_domain: usize, text: *const u32) -> usize { register(&Name::wide(text)) }
    create_a(text: *const c_char) -> usize {
        let name = Name::text(text);
        let domain = create(&name);
        if name.as_bytes() == nccl::DOMAIN {
            nccl::loaded(domain);
        }
        domain
    }
    create_only_nccl(text: *const c_char) -> usize {
        if Name::text(text).as_bytes() != nccl::DOMAIN {
            return nccl::OTHER;
        }
        watch_nccl();
        nccl::HANDLE
    }
    create_w(text: *const u32) -> usize { create(&Name::wide(text)) }
}
