//! Initialisation, versions, errors, and function lookup.

use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::atomic::Ordering;

use super::Handle;
use super::stub::{driver, driver_stub};
use crate::gpu::context::{Context, Stream};
use crate::gpu::{answer, call, client, function, graph, init, meeting, status};
use crate::script::script;
use crate::sys;
use crate::table::{self, Table};
use crate::truth::TRUTH;

static TABLE: Table = Table {
    version: table::VERSION,
    size: size_of::<Table>() as u32,
    script,
    truth: &TRUTH,
    switches: &client::SWITCHES,
    attach: client::attach,
    alive: init::alive,
    begin: call::begin,
    end: call::end,
    function_name: function::name_of,
    take_memory: |context, bytes| {
        if let Ok(context) = Context::from_handle(context) {
            context.device.used.fetch_add(bytes, Ordering::Relaxed);
        }
    },
    context_ids: |context| Context::from_handle(context).ok().map(|c| (c.id, c.device.index)),
    stream_id,
    graph_node_id: graph::node_id,
    graph_id: |handle| graph::from_handle(handle).ok().map(|g| g.id),
    captures: crate::gpu::context::captures,
    graph_exec_id: |handle| graph::exec_from_handle(handle).ok().map(|g| g.id),
    meet_next: meeting::set_next,
};

fn stream_id(context: Handle, stream: Handle, thread: bool) -> Option<u32> {
    let context = Context::from_handle(context).ok()?;
    match (stream.is_null(), thread) {
        (true, false) => Some(context.default_stream().id()),
        (true, true) => Some(context.thread_stream().id()),
        _ => Stream::from_handle(stream).ok().map(Stream::id),
    }
}

const _: () = {
    extern "C" fn body(_flags: u32) -> u32 {
        init::init().err().unwrap_or(0)
    }
    driver_stub!(cuInit, extern "C" fn(u32) -> u32, body);
};

const _: () = {
    extern "C" fn body(version: *mut i32) -> u32 {
        answer(version, script().release.driver as i32).err().unwrap_or(0)
    }
    driver_stub!(cuDriverGetVersion, extern "C" fn(*mut i32) -> u32, body);
};

const _: () = {
    extern "C" fn body(found: *mut *const c_void, id: *const [u8; 16]) -> u32 {
        // SAFETY: the caller passes the address of a 16-byte id.
        if id.is_null() || unsafe { *id } != table::UUID {
            return status::NOT_FOUND;
        }
        answer(found, (&raw const TABLE).cast()).err().unwrap_or(0)
    }
    driver_stub!(cuGetExportTable, extern "C" fn(*mut *const c_void, *const [u8; 16]) -> u32, body);
};

/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`
const PER_THREAD: u64 = 2;

/// Returns the newest version of a driver function: `cuMemAlloc` is `cuMemAlloc_v2`.
fn look_up(name: *const c_char, flags: u64) -> Option<*mut c_void> {
    if name.is_null() {
        return None;
    }
    // SAFETY: the program passes a terminated name.
    let name = unsafe { CStr::from_ptr(name) }.to_str().ok()?;
    let library = table::libcuda();
    let thread: &[&str] = if flags & PER_THREAD != 0 { &["_v2_ptsz", "_v2_ptds", "_ptsz", "_ptds"] } else { &[] };
    let suffixes = thread.iter().chain(&["_v2", ""]);
    let addresses = suffixes.map(|suffix| {
        let name = CString::new(format!("{name}{suffix}")).unwrap_or_default();
        sys::symbol(library, &name)
    });
    addresses.into_iter().find(|address| !address.is_null())
}

const _: () = {
    extern "C" fn body(name: *const c_char, found: *mut *mut c_void, _version: i32, flags: u64) -> u32 {
        let address = look_up(name, flags);
        let outcome = answer(found, address.unwrap_or(std::ptr::null_mut()));
        if address.is_none() { status::NOT_FOUND } else { outcome.err().unwrap_or(0) }
    }
    driver_stub!(cuGetProcAddress, extern "C" fn(*const c_char, *mut *mut c_void, i32, u64) -> u32, body);
};

const _: () = {
    extern "C" fn body(
        name: *const c_char,
        found: *mut *mut c_void,
        _version: i32,
        flags: u64,
        query: *mut u32,
    ) -> u32 {
        let address = look_up(name, flags);
        if !query.is_null() {
            let missing = u32::from(address.is_none());
            let _ = answer(query, missing);
        }
        let outcome = answer(found, address.unwrap_or(std::ptr::null_mut()));
        if address.is_none() { status::NOT_FOUND } else { outcome.err().unwrap_or(0) }
    }
    driver_stub!(cuGetProcAddress_v2, extern "C" fn(*const c_char, *mut *mut c_void, i32, u64, *mut u32) -> u32, body);
};

/// Names and descriptions of the simulated driver's results.
const RESULTS: &[(u32, &CStr, &CStr)] = &[
    (0, c"CUDA_SUCCESS", c"no error"),
    (1, c"CUDA_ERROR_INVALID_VALUE", c"invalid argument"),
    (2, c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory"),
    (3, c"CUDA_ERROR_NOT_INITIALIZED", c"initialization error"),
    (4, c"CUDA_ERROR_DEINITIALIZED", c"driver shutting down"),
    (100, c"CUDA_ERROR_NO_DEVICE", c"no CUDA-capable device is detected"),
    (101, c"CUDA_ERROR_INVALID_DEVICE", c"invalid device ordinal"),
    (201, c"CUDA_ERROR_INVALID_CONTEXT", c"invalid device context"),
    (400, c"CUDA_ERROR_INVALID_HANDLE", c"invalid resource handle"),
    (401, c"CUDA_ERROR_ILLEGAL_STATE", c"the operation cannot be performed in the present state"),
    (500, c"CUDA_ERROR_NOT_FOUND", c"named symbol not found"),
    (600, c"CUDA_ERROR_NOT_READY", c"device not ready"),
    (900, c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", c"operation not permitted when stream is capturing"),
];

fn result_text(result: u32) -> Option<&'static (u32, &'static CStr, &'static CStr)> {
    RESULTS.iter().find(|(number, ..)| *number == result)
}

driver! {
    934 cuGetErrorName(result: u32, text: *mut *const c_char) => {
        answer(text, result_text(result).ok_or(status::INVALID_VALUE)?.1.as_ptr())
    };
    935 cuGetErrorString(result: u32, text: *mut *const c_char) => {
        answer(text, result_text(result).ok_or(status::INVALID_VALUE)?.2.as_ptr())
    };
}
