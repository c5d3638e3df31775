//! Threads of pools that wait for work: they have nothing to do, and nothing waits for them.
//!
//! A pool's thread is recognised by where it waits, in one of two ways:
//!
//! | rule | example |
//! | --- | --- |
//! | the innermost function outside the C and C++ libraries is one in which a pool waits | `blas_thread_server` |
//! | outside these, all functions are of a library that only runs pools: its own may have no names | `libgomp.so.1` |
//!
//! In Python, the innermost functions are those of the pool. A pool's thread that waits while it works has the functions of
//! its task below those of the pool, and is not idle.

use model::event::{FrameKind, NamedFrame};
use text::short::split_place;

use crate::names;

/// The reason of such a wait.
pub const WORK: &str = "[waiting for work]";

/// Native functions in which pools wait for work: the end of the name, without templates and parameters.
const FUNCTIONS: [&str; 16] = [
    // OpenBLAS
    "blas_thread_server",
    // PyTorch
    "c10::ThreadPool::main_loop",
    "c10::TaskThreadPool::main_loop",
    "torch::autograd::ReadyQueue::pop",
    "caffe2::ThreadPool::WorkersPool::Worker::ThreadFunc",
    // pthreadpool (XNNPACK, QNNPACK)
    "wait_for_new_command",
    // Eigen, XLA and TensorFlow
    "WaitForWork",
    // Rayon, Tokio
    "rayon_core::sleep::Sleep::sleep",
    "rayon_core::registry::WorkerThread::wait_until_cold",
    "tokio::runtime::blocking::pool::Inner::run",
    // Go
    "runtime.findRunnable",
    "runtime.stopm",
    "runtime.mPark",
    // Java
    "WorkerThread::run",
    "GangWorker::loop",
    "CompileQueue::get",
];

/// Functions of threads that are no pool's, though they may wait as these do: for what they have pools do.
const CALLERS: [&str; 2] = ["main", "torch::autograd::Engine::execute"];

/// Libraries whose threads do nothing but the work of others: the start of the file name. Those of OpenMP wait in functions
/// such as `gomp_team_barrier_wait_end` and `__kmp_fork_barrier`; the thread whose work they share waits there too, below
/// its own functions.
const LIBRARIES: [&str; 7] =
    ["libgomp", "libomp.so", "libiomp5", "libopenblas", "libscipy_openblas", "libtbb", "libmkl_tbb"];

/// Python functions of pools, with the end of their file's path. Below them are only functions of [`PYTHON_QUEUES`].
const PYTHON: [(&str, &str); 5] = [
    ("_worker", "concurrent/futures/thread.py"),
    ("_process_worker", "concurrent/futures/process.py"),
    ("worker", "multiprocessing/pool.py"),
    ("_worker_loop", "torch/utils/data/_utils/worker.py"),
    ("_pin_memory_loop", "torch/utils/data/_utils/pin_memory.py"),
];

/// Files whose functions take work from queues.
const PYTHON_QUEUES: [&str; 6] = [
    "/queue.py",
    "/threading.py",
    "multiprocessing/queues.py",
    "multiprocessing/connection.py",
    "multiprocessing/synchronize.py",
    "torch/utils/data/_utils/pin_memory.py",
];

/// Libraries through which everything waits: the start of the file name.
const SYSTEM: [&str; 8] = ["libc.so", "libc-", "libpthread", "libstdc++", "libc++", "ld-linux", "linux-vdso", "[vdso]"];

/// Whether a stack, outermost frame first, is that of a pool's thread without work.
pub fn is_idle(stack: &[NamedFrame]) -> bool {
    // What started a thread, or gave it work, is not what it does.
    let own = stack.iter().rposition(|frame| names::is_start(&frame.name)).map_or(0, |at| at + 1);
    let stack = &stack[own..];
    if stack.iter().any(|frame| frame.kind == FrameKind::Python) {
        return is_idle_python(stack);
    }
    let is_system = |frame: &NamedFrame| SYSTEM.iter().any(|start| file(frame).starts_with(start));
    let mut own = stack.iter().rev().filter(|frame| frame.kind == FrameKind::Native && !is_system(frame));
    let Some(innermost) = own.next() else { return false };
    let of_pool = |frame: &NamedFrame| LIBRARIES.iter().any(|start| file(frame).starts_with(start));
    if of_pool(innermost) && own.all(of_pool) {
        return true;
    }
    is_one_of(&FUNCTIONS, &innermost.name) && !stack.iter().any(|frame| is_one_of(&CALLERS, &frame.name))
}

fn is_idle_python(stack: &[NamedFrame]) -> bool {
    let mut frames = stack.iter().rev().filter(|frame| frame.kind == FrameKind::Python);
    let is_queue = |frame: &&NamedFrame| PYTHON_QUEUES.iter().any(|end| frame.module.ends_with(end));
    let is_pool = |frame: &NamedFrame| {
        let function = split_place(&frame.name).0;
        PYTHON.iter().any(|(name, end)| function == *name && frame.module.ends_with(end))
    };
    frames.find(|frame| is_pool(frame) || !is_queue(frame)).is_some_and(is_pool)
}

/// Returns the name of a frame's file.
fn file(frame: &NamedFrame) -> &str {
    frame.module.rsplit('/').next().unwrap_or(&frame.module)
}

/// Whether a function is one of these, by its demangled name.
fn is_one_of(functions: &[&str], name: &str) -> bool {
    let plain = without_templates(name);
    let is =
        |function: &str| plain.strip_suffix(function).is_some_and(|before| before.is_empty() || before.ends_with("::"));
    functions.iter().any(|function| is(function))
}

/// Removes template arguments and parameters: `a::B<c>::f(int)` becomes `a::B::f`.
fn without_templates(name: &str) -> String {
    let mut depth = 0_usize;
    let mut plain = String::with_capacity(name.len());
    for letter in name.chars() {
        match letter {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            '(' if depth == 0 && !plain.is_empty() => break,
            _ if depth == 0 => plain.push(letter),
            _ => {}
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn native(frames: &[(&str, &str)]) -> bool {
        let frame = |(name, module): &(&str, &str)| NamedFrame {
            kind: if module.ends_with(".py") { FrameKind::Python } else { FrameKind::Native },
            name: (*name).into(),
            module: (*module).into(),
        };
        is_idle(&frames.iter().map(frame).collect::<Vec<_>>())
    }

    /// Check that threads without work are recognised by the function or the library in which they wait.
    #[test]
    fn idle_threads_are_recognised() {
        let started = ("start_thread", "libc.so.6");
        let waits = ("pthread_cond_wait", "libc.so.6");
        for pool in [
            ("blas_thread_server", "libopenblas64_p-r0.so"),
            ("gomp_team_barrier_wait_end", "libgomp.so.1.0.0"),
            ("[libgomp.so.1.0.0]", "/usr/lib/libgomp.so.1.0.0"),
            ("[libscipy_openblas64_-ff651d7f.so]", "libscipy_openblas64_-ff651d7f.so"),
            ("__kmp_suspend_64<false, true>", "libiomp5.so"),
            ("c10::ThreadPool::main_loop(unsigned long)", "libc10.so"),
            ("Eigen::ThreadPoolTempl<tsl::thread::EigenEnvironment>::WaitForWork(Eigen::EventCount::Waiter*)", "x.so"),
            ("torch::autograd::ReadyQueue::pop()", "libtorch_cpu.so"),
        ] {
            assert!(native(&[started, pool, waits]), "{pool:?}");
        }
        assert!(native(&[("_worker (thread.py:81)", "/usr/lib/python3.12/concurrent/futures/thread.py")]));
        let queue = [
            ("worker (pool.py:114)", "/usr/lib/python3.12/multiprocessing/pool.py"),
            ("get (queues.py:364)", "/usr/lib/python3.12/multiprocessing/queues.py"),
            ("sem_wait", "libc.so.6"),
        ];
        assert!(native(&queue));
    }

    /// Check that threads that wait in their own code, or while they work for a pool, are not idle.
    #[test]
    fn threads_that_work_are_not_idle() {
        let started = ("start_thread", "libc.so.6");
        let waits = ("pthread_cond_wait", "libc.so.6");
        assert!(!native(&[started, ("worker", "app"), waits]) && !native(&[started, waits]) && !native(&[]));
        assert!(!native(&[started, ("blas_thread_server", "libopenblas.so"), ("load", "app"), waits]));
        let barrier = ("gomp_team_barrier_wait_end", "libgomp.so.1");
        assert!(!native(&[("main", "app"), ("GOMP_parallel", "libgomp.so.1"), barrier, waits]), "it shares its work");
        assert!(
            !native(&[("gomp_thread_start", "libgomp.so.1"), ("work", "app"), barrier, waits]),
            "others work longer"
        );
        let pop = ("torch::autograd::ReadyQueue::pop()", "libtorch_cpu.so");
        assert!(!native(&[("main", "app"), pop, waits]), "it waits for its gradients");
        let task = [
            ("_worker (thread.py:92)", "/usr/lib/python3.12/concurrent/futures/thread.py"),
            ("run (thread.py:59)", "/usr/lib/python3.12/concurrent/futures/thread.py"),
            ("fetch (data.py:5)", "/home/me/data.py"),
            ("get (queue.py:171)", "/usr/lib/python3.12/queue.py"),
        ];
        assert!(!native(&task) && !native(&task[2..]));
    }
}
