//! A fake libcupti, implemented by functions of the test inside the target process.

use std::ffi::{CString, c_char, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Condvar, Mutex, OnceLock};

use cupti::callback::{CallbackData, GraphData, ResourceData};
use cupti::ids::{domain, kind, resource, result, site};
use cupti::record::{self, kernel};
use cupti::release::Release;
use cupti::types::{BufferCompletedFn, BufferRequestedFn, CallbackFn, TimestampFn};
use inject::Cupti;

/// The result of `cuptiSubscribe`.
pub static SUBSCRIBE_RESULT: AtomicU32 = AtomicU32::new(0);
/// The result of `cuptiEnableCallback` for graph nodes.
pub static NODES_RESULT: AtomicU32 = AtomicU32::new(0);
/// The result of `cuptiActivityRegisterTimestampCallback`.
pub static CLOCK_RESULT: AtomicU32 = AtomicU32::new(0);
/// The count that the next dropped-records call returns.
pub static DROPPED: AtomicUsize = AtomicUsize::new(0);
/// A buffer that the forced flush returns.
pub static AT_EXIT: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());
/// Its valid bytes.
pub static AT_EXIT_VALID: AtomicUsize = AtomicUsize::new(0);
/// If set, the forced flush requests a buffer itself and returns it with one kernel.
pub static LATE: AtomicBool = AtomicBool::new(false);

static CALLBACK: OnceLock<CallbackFn> = OnceLock::new();
static BUFFERS: OnceLock<(BufferRequestedFn, BufferCompletedFn)> = OnceLock::new();
static CLOCK: OnceLock<TimestampFn> = OnceLock::new();
static LOG: Mutex<Vec<String>> = Mutex::new(Vec::new());
static LOGGED: Condvar = Condvar::new();

fn log(line: String) {
    LOG.lock().unwrap().push(line);
    LOGGED.notify_all();
}

/// Waits until the CUPTI call `line` has been made.
pub fn wait_for(line: &str) {
    let mut log = LOG.lock().unwrap();
    while !log.iter().any(|l| l == line) {
        log = LOGGED.wait(log).unwrap();
    }
}

/// All CUPTI calls made so far.
pub fn logged() -> Vec<String> {
    LOG.lock().unwrap().clone()
}

unsafe extern "C" fn get_version(version: *mut u32) -> u32 {
    // SAFETY: the library passes a writable number.
    unsafe { *version = 130_001 };
    result::SUCCESS
}

unsafe extern "C" fn get_result_string(code: u32, text: *mut *const c_char) -> u32 {
    let name = if code == 39 { c"CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED" } else { c"CUPTI_ERROR_TEST" };
    // SAFETY: the library passes a writable pointer.
    unsafe { *text = name.as_ptr() };
    result::SUCCESS
}

unsafe extern "C" fn subscribe(handle: *mut *mut c_void, callback: CallbackFn, _user: *mut c_void) -> u32 {
    log("subscribe".into());
    CALLBACK.get_or_init(|| callback);
    // SAFETY: the library passes a writable pointer.
    unsafe { *handle = ptr::dangling_mut() };
    SUBSCRIBE_RESULT.load(SeqCst)
}

unsafe extern "C" fn subscribe_v2(
    _handle: *mut *mut c_void,
    _callback: CallbackFn,
    _user: *mut c_void,
    params: *mut cupti::types::SubscriberParams,
) -> u32 {
    // SAFETY: the library passes its parameters with room for 64 bytes of name.
    unsafe {
        assert_eq!((*params).size, 32);
        assert!((*params).old_size >= 64);
        ptr::copy_nonoverlapping(c"CUPTI for Kineto".as_ptr(), (*params).old_name, 17);
    }
    result::MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED
}

unsafe extern "C" fn unsubscribe(_handle: *mut c_void) -> u32 {
    log("unsubscribe".into());
    result::SUCCESS
}

unsafe extern "C" fn enable_callback(_on: u32, _handle: *mut c_void, domain: u32, cbid: u32) -> u32 {
    log(format!("callback {domain} {cbid}"));
    match domain {
        domain::RESOURCE => NODES_RESULT.load(SeqCst),
        _ if cbid > 800 => result::INVALID_PARAMETER,
        _ => result::SUCCESS,
    }
}

unsafe extern "C" fn register_callbacks(requested: BufferRequestedFn, completed: BufferCompletedFn) -> u32 {
    log("register buffers".into());
    BUFFERS.get_or_init(|| (requested, completed));
    result::SUCCESS
}

/// Walks records of CUDA 13.0.
unsafe extern "C" fn next_record(buffer: *mut u8, valid: usize, next: *mut *mut u8) -> u32 {
    // SAFETY: the buffer was filled by this module.
    unsafe {
        let at = if (*next).is_null() { buffer } else { (*next).add(stride(record::KIND.read(*next))) };
        if at as usize >= buffer as usize + valid {
            return result::MAX_LIMIT_REACHED;
        }
        *next = at;
    }
    result::SUCCESS
}

fn stride(kind: u32) -> usize {
    Release::named("13.0").unwrap().stride(kind).unwrap()
}

unsafe extern "C" fn dropped_records(_context: *mut c_void, _stream: u32, count: *mut usize) -> u32 {
    // SAFETY: the library passes a writable number.
    unsafe { *count = DROPPED.swap(0, SeqCst) };
    result::SUCCESS
}

unsafe extern "C" fn enable(kind: u32) -> u32 {
    log(format!("enable {kind}"));
    if kind == kind::MEMCPY2 { 33 } else { result::SUCCESS }
}

unsafe extern "C" fn disable(kind: u32) -> u32 {
    log(format!("disable {kind}"));
    result::SUCCESS
}

unsafe extern "C" fn flush_all(force: u32) -> u32 {
    if force == 1 {
        log("forced flush".into());
        let buffer = AT_EXIT.swap(ptr::null_mut(), SeqCst);
        if !buffer.is_null() {
            complete(buffer, AT_EXIT_VALID.load(SeqCst));
        }
        if LATE.load(SeqCst) {
            let (buffer, _) = request();
            complete(buffer, put_kernel(buffer, 1, name("late"), 5, 6));
        }
    }
    result::SUCCESS
}

unsafe extern "C" fn register_timestamp(clock: TimestampFn) -> u32 {
    log("clock".into());
    CLOCK.get_or_init(|| clock);
    CLOCK_RESULT.load(SeqCst)
}

unsafe extern "C" fn set_thread_id_type(kind: u32) -> u32 {
    log(format!("thread ids {kind}"));
    result::SUCCESS
}

/// An hour ahead of the library's clock.
unsafe extern "C" fn get_timestamp(time: *mut u64) -> u32 {
    // SAFETY: the library passes a writable number, and has registered its clock.
    unsafe { *time = CLOCK.get().unwrap()() + 3_600_000_000_000 };
    result::SUCCESS
}

/// A node's handle is its id.
unsafe extern "C" fn get_graph_node_id(node: *mut c_void, id: *mut u64) -> u32 {
    // SAFETY: the library passes a writable number.
    unsafe { *id = node.addr() as u64 };
    result::SUCCESS
}

/// A graph's handle is its id.
unsafe extern "C" fn get_graph_id(graph: *mut c_void, id: *mut u32) -> u32 {
    // SAFETY: the library passes a writable number.
    unsafe { *id = graph.addr() as u32 };
    result::SUCCESS
}

/// The table of fake functions.
pub fn functions() -> Cupti {
    Cupti {
        get_version,
        subscribe,
        unsubscribe,
        enable_callback,
        register_callbacks,
        next_record,
        dropped_records,
        enable,
        disable,
        flush_all,
        get_result_string: Some(get_result_string),
        subscribe_v2: Some(subscribe_v2),
        register_timestamp: Some(register_timestamp),
        set_thread_id_type: Some(set_thread_id_type),
        get_timestamp: Some(get_timestamp),
        get_stream_id: None,
        get_graph_node_id: Some(get_graph_node_id),
        get_graph_id: Some(get_graph_id),
        get_graph_exec_id: Some(get_graph_id),
        enable_domain: None,
        get_callback_name: None,
        pc_sampling: None,
        range_profiler: None,
        enable_all_domains: None,
        finalize: None,
    }
}

fn call(domain: u32, cbid: u32, site: u32, correlation_id: u32, outcome: u32) {
    let data = CallbackData {
        site,
        function_name: ptr::null(),
        params: ptr::null(),
        return_value: &outcome,
        symbol_name: ptr::null(),
        context: ptr::null_mut(),
        context_uid: 1,
        correlation_data: ptr::null_mut(),
        correlation_id,
    };
    // SAFETY: the callback is the library's, and gets what CUPTI would pass.
    unsafe { CALLBACK.get().unwrap()(ptr::null_mut(), domain, cbid, (&raw const data).cast()) };
}

/// Calls `cudaLaunchKernel`, and `cuLaunchKernel` inside it, with the results of each.
pub fn launch(id: u32, runtime: u32, driver: u32) {
    launch_around(id, (runtime, driver), || {});
}

/// The same, with `inside` run within the inner call.
pub fn launch_around(id: u32, (runtime, driver): (u32, u32), inside: impl FnOnce()) {
    call(domain::RUNTIME, 211, site::ENTER, id, 0);
    call(domain::DRIVER, 307, site::ENTER, id, 0);
    inside();
    call(domain::DRIVER, 307, site::EXIT, id, driver);
    call(domain::RUNTIME, 211, site::EXIT, id, runtime);
}

/// Calls `cudaStreamSynchronize`, and `cuStreamSynchronize` inside it, with the result of both.
pub fn synchronize(id: u32, outcome: u32) {
    call(domain::RUNTIME, 131, site::ENTER, id, 0);
    call(domain::DRIVER, 126, site::ENTER, id, 0);
    call(domain::DRIVER, 126, site::EXIT, id, outcome);
    call(domain::RUNTIME, 131, site::EXIT, id, outcome);
}

/// Calls `cuGraphLaunch`, with `inside` run within it.
pub fn graph_launch(id: u32, inside: impl FnOnce()) {
    call(domain::DRIVER, 514, site::ENTER, id, 0);
    inside();
    call(domain::DRIVER, 514, site::EXIT, id, 0);
}

/// Calls `cuGraphInstantiateWithFlags`, with `inside` run within it.
pub fn instantiate(id: u32, inside: impl FnOnce()) {
    call(domain::DRIVER, 643, site::ENTER, id, 0);
    inside();
    call(domain::DRIVER, 643, site::EXIT, id, 0);
}

/// Reports that a graph got a node, new or copied from another graph.
pub fn node(cbid: u32) {
    resource(cbid, ptr::null_mut());
}

/// Reports an event of a graph: its node and the node's type, the node that it was copied from, and the graph.
pub fn graph_event(cbid: u32, (node, kind): (usize, u32), original: usize, graph: usize) {
    let handle = ptr::without_provenance_mut::<c_void>;
    let mut data = GraphData {
        graph: handle(graph),
        original_graph: ptr::null_mut(),
        node: handle(node),
        original_node: handle(original),
        node_type: kind,
        dependency: ptr::null_mut(),
        exec: handle(graph),
    };
    resource(cbid, (&raw mut data).cast());
}

fn resource(cbid: u32, descriptor: *mut c_void) {
    let data = ResourceData { context: ptr::null_mut(), stream: ptr::null_mut(), descriptor };
    // SAFETY: the callback is the library's, and gets what CUPTI would pass.
    unsafe { CALLBACK.get().unwrap()(ptr::null_mut(), domain::RESOURCE, cbid, (&raw const data).cast()) };
}

/// Reports that a node was created.
pub fn node_created() {
    node(resource::GRAPH_NODE_CREATED);
}

/// Requests a buffer from the library.
pub fn request() -> (*mut u8, usize) {
    let (mut buffer, mut size, mut most) = (ptr::null_mut(), 0, 7);
    // SAFETY: all three are writable.
    unsafe { BUFFERS.get().unwrap().0(&mut buffer, &mut size, &mut most) };
    assert_eq!(most, 0);
    (buffer, size)
}

/// Returns a buffer.
pub fn complete(buffer: *mut u8, valid: usize) {
    // SAFETY: the buffer is from `request`.
    unsafe { BUFFERS.get().unwrap().1(ptr::null_mut(), 0, buffer, 1 << 20, valid) };
}

/// Writes a kernel record; returns its length.
pub fn put_kernel(at: *mut u8, id: u32, name: *const c_char, start: u64, end: u64) -> usize {
    let stride = stride(kind::CONCURRENT_KERNEL);
    // SAFETY: the tests write within their buffers.
    unsafe {
        ptr::write_bytes(at, 0, stride);
        record::KIND.write(at, kind::CONCURRENT_KERNEL);
        kernel::CORRELATION.write(at, id);
        kernel::NAME.write(at, name);
        kernel::START.write(at, start);
        kernel::END.write(at, end);
    }
    stride
}

/// A C string that is never freed.
pub fn name(text: &str) -> *const c_char {
    CString::new(text).unwrap().into_raw()
}
