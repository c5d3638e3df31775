//! Rust frame layouts: traits, closures, generics, iterators, a caught panic, a thread. See matrix.h for the modes.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

#[link(name = "cuda")]
unsafe extern "C" {
    fn cuInit(flags: c_uint) -> c_int;
    fn cuDevicePrimaryCtxRetain(context: *mut *mut c_void, device: c_int) -> c_int;
    fn cuCtxSetCurrent(context: *mut c_void) -> c_int;
    fn cuCtxSynchronize() -> c_int;
    fn cuModuleLoadData(module: *mut *mut c_void, image: *const c_char) -> c_int;
    fn cuModuleGetFunction(function: *mut *mut c_void, module: *mut c_void, name: *const c_char) -> c_int;
    fn cuLaunchKernel(
        function: *mut c_void,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared: c_uint,
        stream: *mut c_void,
        parameters: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> c_int;
}

static BUSY: AtomicBool = AtomicBool::new(false);
static MODULE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static LAUNCHED: AtomicU64 = AtomicU64::new(0);

const MAIN: &str = "_start;@system;main;@std;rust::main";

#[inline(never)]
fn spin() {
    for i in 0..200000 {
        black_box(i);
    }
}

#[inline(never)]
fn kernel(path: &str) -> *mut c_void {
    let name = CString::new(path).unwrap();
    let mut function = std::ptr::null_mut();
    assert_eq!(unsafe { cuModuleGetFunction(&mut function, MODULE.load(Relaxed), name.as_ptr()) }, 0);
    function
}

/// Launches, or works for a moment, without a frame of its own.
macro_rules! act {
    ($path:expr) => {
        if BUSY.load(Relaxed) {
            spin();
        } else {
            let none = std::ptr::null_mut();
            let function = kernel(&$path);
            let error = unsafe { cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, none, none.cast(), none.cast()) };
            assert_eq!(error, 0);
            LAUNCHED.fetch_add(1, Relaxed);
        }
    };
}

trait Work {
    fn work(&self, n: u64) -> u64;
}

struct Worker;

impl Work for Worker {
    #[inline(never)]
    fn work(&self, n: u64) -> u64 {
        act!(format!("{MAIN};rust::by_trait;<rust::Worker as rust::Work>::work"));
        n
    }
}

#[inline(never)]
fn by_trait(work: &dyn Work, n: u64) -> u64 {
    black_box(work).work(n) + 1
}

#[inline(never)]
fn by_closure(function: &dyn Fn(u64) -> u64) -> u64 {
    black_box(function)(3) + 1
}

#[inline(never)]
fn in_closure(n: u64) -> u64 {
    act!(format!("{MAIN};rust::by_closure;rust::main::{{{{closure}}}};rust::in_closure"));
    n + 1
}

#[inline(never)]
fn recursion(depth: u64) -> u64 {
    if depth > 0 {
        return black_box(recursion(depth - 1)) + 1;
    }
    act!(format!("{MAIN};rust::recursion*51"));
    0
}

struct Guard;

impl Drop for Guard {
    #[inline(never)]
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        act!(format!("{MAIN};rust::panics;<rust::Guard as core::ops::drop::Drop>::drop"));
    }
}

#[inline(never)]
fn panics(n: u64) {
    let _guard = Guard;
    // Removes the panic hook, which would print.
    std::panic::resume_unwind(Box::new(black_box(n)));
}

#[inline(never)]
fn on_thread() {
    act!("@system;@std;rust::on_thread".to_owned());
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let amount: f64 = arguments[2].parse().unwrap();
    let busy = arguments[1] == "busy";
    BUSY.store(busy, Relaxed);
    let (mut context, mut module) = (std::ptr::null_mut(), std::ptr::null_mut());
    if !busy {
        unsafe {
            assert_eq!(cuInit(0), 0);
            assert_eq!(cuDevicePrimaryCtxRetain(&mut context, 0), 0);
            assert_eq!(cuCtxSetCurrent(context), 0);
            assert_eq!(cuModuleLoadData(&mut module, c"".as_ptr()), 0);
        }
        MODULE.store(module, Relaxed);
    }
    let begin = Instant::now();
    let mut round = 0.0;
    let shared = AtomicPtr::new(context);
    while if busy { begin.elapsed() < Duration::from_secs_f64(amount) } else { round < amount } {
        round += 1.0;
        black_box(by_trait(&Worker, 1));
        black_box(by_closure(&|n| in_closure(n) + 1));
        black_box(recursion(50));
        let _ = black_box(std::panic::catch_unwind(|| panics(1)));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                if !busy {
                    unsafe { cuCtxSetCurrent(shared.load(Relaxed)) };
                }
                on_thread();
                black_box(());
            });
        });
    }
    if !busy {
        unsafe { cuCtxSynchronize() };
    }
    println!("launched {}", LAUNCHED.load(Relaxed));
}
