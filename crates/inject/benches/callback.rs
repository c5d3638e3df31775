//! The cost of the library per launch, without CUPTI and without a probe on the marker: `cargo bench -p inject`.
//!
//! Prints nanoseconds per launch (enter and exit of a runtime call and of the driver call inside it), per callback, and per
//! record read. Each is the best of several rounds.

use std::ffi::c_void;
use std::hint::black_box;
use std::ptr;
use std::time::Instant;

use cupti::callback::CallbackData;
use cupti::ids::{domain, result, site};
use cupti::types::{BufferCompletedFn, BufferRequestedFn, CallbackFn};
use inject::{Cupti, Found, buffers, callbacks};

unsafe extern "C" fn subscribe(handle: *mut *mut c_void, _callback: CallbackFn, _user: *mut c_void) -> u32 {
    // SAFETY: the library passes a writable pointer.
    unsafe { *handle = ptr::dangling_mut() };
    0
}
unsafe extern "C" fn number(value: *mut u32) -> u32 {
    // SAFETY: the library passes a writable number.
    unsafe { *value = 130_001 };
    0
}
unsafe extern "C" fn handle(_: *mut c_void) -> u32 {
    0
}
unsafe extern "C" fn enable_callback(_: u32, _: *mut c_void, _: u32, _: u32) -> u32 {
    0
}
unsafe extern "C" fn register(_: BufferRequestedFn, _: BufferCompletedFn) -> u32 {
    0
}
unsafe extern "C" fn switch(_: u32) -> u32 {
    0
}
unsafe extern "C" fn dropped(_: *mut c_void, _: u32, count: *mut usize) -> u32 {
    // SAFETY: the library passes a writable number.
    unsafe { *count = 0 };
    0
}
/// Walks kernel records of CUDA 13.0.
unsafe extern "C" fn next_record(buffer: *mut u8, valid: usize, next: *mut *mut u8) -> u32 {
    // SAFETY: the library passes a writable pointer; the walk stays within the buffer.
    unsafe {
        let at = if (*next).is_null() { buffer } else { (*next).wrapping_add(216) };
        if at as usize + 216 > buffer as usize + valid {
            return result::MAX_LIMIT_REACHED;
        }
        *next = at;
    }
    0
}

fn best(rounds: u32, count: u32, mut body: impl FnMut(u32)) -> f64 {
    let mut best = f64::MAX;
    let mut id = 0;
    for _ in 0..rounds {
        let start = Instant::now();
        for _ in 0..count {
            id += 1;
            body(id);
        }
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(count));
    }
    best
}

fn main() {
    let mut pair = [0; 2];
    // SAFETY: `pair` holds two descriptors.
    assert_eq!(unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0, pair.as_mut_ptr()) }, 0);
    std::thread::spawn(move || {
        let mut packet = vec![0u8; wire::MAX_PACKET];
        // SAFETY: the length passed is that of the buffer.
        while unsafe { libc::recv(pair[1], packet.as_mut_ptr().cast(), packet.len(), 0) } > 0 {}
    });
    let cupti = Cupti {
        get_version: number,
        subscribe,
        unsubscribe: handle,
        enable_callback,
        register_callbacks: register,
        next_record,
        dropped_records: dropped,
        enable: switch,
        disable: switch,
        flush_all: switch,
        get_result_string: None,
        subscribe_v2: None,
        register_timestamp: None,
        set_thread_id_type: None,
        get_timestamp: None,
        get_stream_id: None,
        get_graph_node_id: None,
        get_graph_id: None,
        get_graph_exec_id: None,
        enable_domain: None,
        get_callback_name: None,
        enable_all_domains: None,
        finalize: None,
        pc_sampling: None,
        range_profiler: None,
    };
    inject::start(pair[0], Found::Library(Box::new(cupti), "none".into()), 13000);

    let outcome = 0;
    let mut data = CallbackData {
        site: site::ENTER,
        function_name: ptr::null(),
        params: ptr::null(),
        return_value: &outcome,
        symbol_name: ptr::null(),
        context: ptr::null_mut(),
        context_uid: 1,
        correlation_data: ptr::null_mut(),
        correlation_id: 0,
    };
    let mut call = |id, domain, cbid, site| {
        data.correlation_id = id;
        data.site = site;
        // SAFETY: the data is what CUPTI would pass.
        unsafe { callbacks::on_api(ptr::null_mut(), domain, cbid, black_box((&raw const data).cast())) };
    };
    let launch = best(20, 500_000, |id| {
        call(id, domain::RUNTIME, 211, site::ENTER);
        call(id, domain::DRIVER, 307, site::ENTER);
        call(id, domain::DRIVER, 307, site::EXIT);
        call(id, domain::RUNTIME, 211, site::EXIT);
    });
    let enter = best(20, 500_000, |id| call(id, domain::DRIVER, 307, site::ENTER));

    let record = best(20, 20, |_| {
        let (mut buffer, mut size, mut most) = (ptr::null_mut(), 0, 0);
        // SAFETY: the pointers are writable; the records written are within the buffer.
        unsafe {
            buffers::on_requested(&mut buffer, &mut size, &mut most);
            for index in 0..size / 216 {
                let at = buffer.add(index * 216);
                cupti::record::KIND.write(at, 10);
                cupti::record::kernel::START.write(at, 5);
                cupti::record::kernel::END.write(at, 9);
                cupti::record::kernel::NAME.write(at, c"_Z6matmulPf".as_ptr());
            }
            buffers::on_completed(ptr::null_mut(), 0, buffer, size, size);
        }
    }) / ((1 << 20) as f64 / 216.0);

    println!("a launch, four callbacks and the marker: {launch:.1} ns");
    println!("a first enter with the marker:           {enter:.1} ns");
    println!("a kernel record read and queued:         {record:.1} ns");
}
