//! The library that the CUDA driver loads into the profiled program, through `CUDA_INJECTION64_PATH`, or that warpscope
//! loads into a running process.
//!
//! It runs inside other people's jobs, so it never prints, blocks, panics, exits or grows without bound; where it
//! cannot keep up it drops and counts. Its parts, in the order of the data flow:
//!
//! ```text
//!  API call  -> callbacks (ENTER) -> marker            a uprobe walks the stack there
//!            -> waits -> queue                         the duration of calls that wait for the GPU
//!            -> calls -> shared memory                 every call, if calls are traced
//!            -> nodes -> queue                         the calls that created the nodes of graphs
//!  CUPTI     -> buffers -> records -> names, queue     activity becomes messages in a bounded queue
//!            -> cubins, stalls -> queue                samples of instructions, if requested
//!            -> limits -> queue                        hardware counters of single launches, if requested
//!  sender    -> socket                                 our only thread: flushes CUPTI, sends, counts, ends the session
//!  cuInit    -> entry -> connect, start -> setup -> subscription, sender
//!  others    -> client -> sender                     another client of CUPTI comes: the session pauses until it has left
//!  attaching -> entry -> sender -> setup -> subscription
//! ```
//!
//! All state is static and never freed: callbacks may arrive at any time, from any thread, even while the process
//! exits.
//!
//! The library is linked with `nodelete`, because CUPTI, `atexit` and `atfork` keep pointers into it. Whatever C calls
//! is wrapped in `guarded`, which catches panics and restores errno. With `--max-overhead`, a launch without a stack
//! takes the lock of the queue or of its thread's table of counts; no other launch takes a lock.
//!
//! | resource | limit | beyond it |
//! | --- | --- | --- |
//! | buffers for CUPTI | 32 of 1 MiB, 512 of 64 KiB | refused and counted ([`buffers`] has the exception) |
//! | queue to the socket | 2,048 packets of 32 KiB | the record is dropped and counted |
//! | kernel names | 65,536 names, 16 MiB | the kernel has no name, and is counted |
//! | memory for traced calls | 60 MiB: 16 rings of 2 MiB, 112 of 256 KiB | the call is dropped and counted |
//! | waiting at a closed gate | 0.2 s | the launch continues |
//! | connecting | 2 s, only while the backlog is full | no session |
//! | waiting for the welcome, in `cuInit` | 2 s, usually 1 ms | continues without |
//! | waiting at exit | 2 s without progress, 10 s in total | the session counts as cut off |

mod budget;
pub mod buffers;
pub mod callbacks;
mod calls;
mod channel;
mod client;
mod clock;
mod connect;
mod cost;
mod counting;
mod cubins;
mod driver;
mod earlier_launches;
mod entry;
mod environment;
mod gate;
mod kinds;
mod known_stacks;
mod launches;
mod launches_in_flight;
mod library;
pub mod lifecycle;
mod limiter;
mod limits;
mod marker;
mod names;
mod nodes;
mod notices;
mod nvtx;
mod pauses;
mod python;
mod queue;
mod quirks;
mod random;
mod rank;
mod records;
mod sampling;
mod search;
mod sender;
mod setup;
mod shared;
mod stalls;
mod start;
mod subscription;
mod sys;
mod totals;
mod waits;
mod wakeup;

pub use connect::{Refused, connect, peer_is_trusted};
pub use entry::{InitializeInjection, warpscope_attach};
pub use library::Cupti;
pub use marker::warpscope_launch_marker;
pub use nvtx::InitializeInjectionNvtx2;
pub use setup::Found;
pub use start::start;
