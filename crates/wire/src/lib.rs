//! The protocol between the injected library and warpscope.
//!
//! The library connects to a Unix socket of type `SOCK_SEQPACKET`, so a packet arrives whole or not at all. A packet is
//! one or more messages, at most [`MAX_PACKET`] bytes; a message is a tag byte and its fields, little-endian, without
//! padding. The first message of a connection is [`Hello`]; the last, if the process exits normally, is [`SessionEnd`].
//!
//! The reader trusts nothing: any truncated or unknown message is a [`Malformed`] error, never a panic.

#![no_std]

pub mod calls;
mod encoding;
pub mod known;
pub mod launches;
mod message;
pub mod nccl;
mod packet;
mod refusal;
mod stall_sampling;
mod text;

pub use message::*;
pub use packet::*;
pub use refusal::*;
pub use stall_sampling::StallSampling;
pub use text::{
    Notice, Pause, encode_cubin_part, encode_device, encode_function, encode_name, encode_notice, encode_range_name,
    encode_stall_reason, text_size,
};

/// Increased when a message changes. Both sides come from one binary, so there is no negotiation: another version is
/// rejected.
pub const VERSION: u16 = 10;

/// The answer to [`Hello`] once warpscope is ready to walk this process's stacks: one packet of one byte, with the
/// descriptors of the memories described in [`known`] and [`launches`]. The library waits for it ([`WELCOME_PATIENCE_MS`] at most) before
/// the first launch, and then continues without it.
pub const WELCOME: u8 = 1;

/// Sent by warpscope when it stops recording while the process continues: one packet of one byte. The library then
/// flushes, sends the remaining messages and [`SessionEnd`], and does nothing more.
pub const FINISH: u8 = 2;

/// Sent by warpscope when it has taken its end of the connection from a process that it attached to: one packet of one byte.
/// The library then closes its copy of that end, so that it notices when warpscope dies.
pub const TAKEN: u8 = 3;

/// How long the library waits for [`WELCOME`], which usually comes after a millisecond. On a busy machine warpscope may
/// have to wait for a CPU; without it the first stacks are not walked completely, and the first traced calls are missed.
pub const WELCOME_PATIENCE_MS: i32 = 2000;

/// In the environment of a command if API calls are traced. The library then sends a [`Function`] for each function that
/// CUPTI has a callback for, and [`FunctionsEnd`]. The welcome then also has the memory described in [`calls`].
pub const CALLS_VARIABLE: &str = "WARPSCOPE_CALLS";

/// The environment variables with the rank of a process in a distributed program and, where there is one, its rank on the
/// machine. The first rank that is set counts: `torchrun` may run below Slurm.
pub const RANK_VARIABLES: [(&str, &str); 4] = [
    ("RANK", "LOCAL_RANK"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PMI_RANK", "MPI_LOCALRANKID"),
    ("SLURM_PROCID", "SLURM_LOCALID"),
];

/// In the environment of a command whose NVTX ranges are recorded.
pub const NVTX_VARIABLE: &str = "WARPSCOPE_NVTX";

/// In the environment of a command whose kernels are sampled: [`StallSampling`].
pub const STALLS_VARIABLE: &str = "WARPSCOPE_STALLS";

/// In the environment of a command some of whose launches are measured with hardware counters: a part of the names of their
/// kernels, empty for all.
pub const LIMITS_VARIABLE: &str = "WARPSCOPE_LIMITS";

/// What a [`Notice::NoStalls`] begins with if kernels are sampled, but not one at a time as requested.
pub const NOT_SERIALISED: &str = "continuous";

/// The most bytes of a cubin that is sent, and of all cubins of a process.
pub const MOST_CUBIN: usize = 8 << 20;
/// See [`MOST_CUBIN`].
pub const MOST_CUBINS: usize = 32 << 20;

/// Set in the environment of processes that use the Multi-Process Service (MPS).
pub const MPS_VARIABLE: &str = "CUDA_MPS_PIPE_DIRECTORY";

/// The environment variable with the path of the socket.
pub const SOCKET_VARIABLE: &str = "WARPSCOPE_SOCKET";

/// The number of seccomp filters that warpscope itself runs under, in the environment of a command if there are any. A
/// command with no more than these may make the same system calls.
pub const FILTERS_VARIABLE: &str = "WARPSCOPE_SECCOMP_FILTERS";

/// In the environment of a command whose graphs are recorded as wholes, without their nodes.
pub const GRAPH_LEVEL_VARIABLE: &str = "WARPSCOPE_GRAPH_LEVEL";

/// The name of the kernel that stands for a whole graph.
pub const WHOLE_GRAPH: &str = "[CUDA graph]";

/// The environment variable with the budget of `record --max-overhead`, in percent of the program's time.
pub const MAX_OVERHEAD_VARIABLE: &str = "WARPSCOPE_MAX_OVERHEAD";

/// The environment variable that fixes what is sampled, for tests: `RATE,SHARE`. Stacks of one launch in 2^RATE are
/// taken, and GPU work is recorded during one part in 2^SHARE of the time.
pub const SAMPLING_VARIABLE: &str = "WARPSCOPE_SAMPLING";

/// The marker's second argument has the kind of work in its lowest bits and, from this bit on, the logarithm to base 2 of
/// the number of launches that the stack stands for.
pub const RATE_SHIFT: u32 = 8;

/// The kind of work with which the library marks a graph node that was created outside launch-class calls. The marker's
/// first argument is then a number that [`NodeCreated`] refers to.
pub const WORK_NODE: u32 = 5;

/// The marker function's symbol in the injected library: `extern "C" fn(correlation: u32, work: u32, session: u64,
/// stack: u64)`. Its first instruction is a 5-byte nop. `stack` is the id of the stack if the library recognised it
/// (see [`known`]), otherwise 0.
pub const MARKER_SYMBOL: &str = "warpscope_launch_marker";
