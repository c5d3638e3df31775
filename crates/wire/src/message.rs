//! The messages.

use crate::encoding::{Scalar, messages, take};
use crate::packet::Malformed;
use crate::text::{self, Notice, Pause};

messages! {
    /// Opens a connection.
    Hello = 1 {
        /// [`crate::VERSION`].
        version: u16,
        /// The process id in the process's own namespace; in a container it differs from the pid outside.
        pid: u32,
        /// A random number, chosen when the library starts; every marker carries it, so it links launches to this
        /// connection.
        session: u64,
        /// The version from `cuptiGetVersion`; 0 if CUPTI is not usable.
        cupti: u32,
        /// The version from `cuDriverGetVersion`.
        driver: u32,
        /// Nanoseconds to add to a record's time to get CLOCK_MONOTONIC; 0 if CUPTI accepted our clock.
        clock_offset: u64,
    }

    /// One kernel on the GPU.
    Kernel = 2 {
        /// Links the record to its launch.
        correlation: u32,
        /// Device index.
        device: u32,
        /// Context id.
        context: u32,
        /// Stream id.
        stream: u32,
        /// Start, nanoseconds; 0 with `end` 0 if the time was lost.
        start: u64,
        /// End; 0 if the kernel had not finished at a forced flush.
        end: u64,
        /// Id of a [`Message::Name`] sent before; 0 if the name table was full.
        name: u32,
        /// Blocks in x.
        grid_x: u32,
        /// Blocks in y.
        grid_y: u32,
        /// Blocks in z.
        grid_z: u32,
        /// Threads in x.
        block_x: u32,
        /// Threads in y.
        block_y: u32,
        /// Threads in z.
        block_z: u32,
        /// Registers per thread.
        registers: u16,
        /// Static and dynamic shared memory, bytes.
        shared_memory: u32,
        /// The graph node of this kernel, 0 outside graphs.
        graph_node: u64,
        /// The graph, 0 outside graphs.
        graph: u32,
    }

    /// One copy.
    Memcpy = 3 {
        /// Links the record to its call.
        correlation: u32,
        /// Device index.
        device: u32,
        /// Context id.
        context: u32,
        /// Stream id.
        stream: u32,
        /// Start, nanoseconds.
        start: u64,
        /// End, nanoseconds.
        end: u64,
        /// Bytes copied.
        bytes: u64,
        /// `CUpti_ActivityMemcpyKind`.
        kind: u8,
        /// Memory kind of the source.
        source: u8,
        /// Memory kind of the destination.
        destination: u8,
        /// The other device of a peer copy, otherwise `u32::MAX`.
        peer: u32,
        /// The graph node, 0 outside graphs.
        graph_node: u64,
        /// The graph, 0 outside graphs.
        graph: u32,
    }

    /// One memset.
    Memset = 4 {
        /// Links the record to its call.
        correlation: u32,
        /// Device index.
        device: u32,
        /// Context id.
        context: u32,
        /// Stream id.
        stream: u32,
        /// Start, nanoseconds.
        start: u64,
        /// End, nanoseconds.
        end: u64,
        /// Bytes set.
        bytes: u64,
        /// The value.
        value: u32,
        /// Memory kind.
        memory: u8,
        /// The graph node, 0 outside graphs.
        graph_node: u64,
        /// The graph, 0 outside graphs.
        graph: u32,
    }

    /// The host waited for the GPU.
    Sync = 5 {
        /// Links the record to its call.
        correlation: u32,
        /// `CUpti_ActivitySynchronizationType`.
        kind: u32,
        /// Context id.
        context: u32,
        /// Stream id, `u32::MAX` if none.
        stream: u32,
        /// Event id, `u32::MAX` if none.
        event: u32,
        /// Start, nanoseconds.
        start: u64,
        /// End, nanoseconds.
        end: u64,
    }

    /// A launch-class call returned an error: it has no activity.
    Failed = 6 {
        /// The call's correlation id.
        correlation: u32,
        /// Its `CUresult` or `cudaError_t`.
        code: u32,
    }

    /// A launch-class call on a capturing stream became a graph node: it has no activity.
    Captured = 9 {
        /// The call's correlation id.
        correlation: u32,
    }

    /// A launch-class call that succeeded without submitting work to the GPU: it has no activity.
    Empty = 12 {
        /// The call's correlation id.
        correlation: u32,
    }

    /// A node of a graph was created: a kernel, copy or memset.
    NodeCreated = 17 {
        /// The node's id; the upper half is the graph's.
        node: u64,
        /// The correlation id of the launch-class call that created it, or the number of its own marker.
        mark: u32,
        /// 1 if it has its own marker ([`crate::WORK_NODE`]); 0 if a launch-class call created it.
        own: u8,
    }

    /// A node got the contents of another: it was cloned, or updated from the node of another graph.
    NodeCopied = 18 {
        /// The node.
        node: u64,
        /// The node that it was copied from.
        original: u64,
        /// When, CLOCK_MONOTONIC.
        time: u64,
    }

    /// A graph, or an executable one, is about to be destroyed.
    GraphDestroyed = 19 {
        /// Its id.
        graph: u32,
    }

    /// All functions have been sent, if calls are traced.
    FunctionsEnd = 20 {
        /// 1 if calls will be written to the memory of [`crate::calls`]; 0 if CUPTI cannot report them.
        reported: u8,
    }

    /// What a device is. Sent before its [`Message::Device`], and both before the first record of the session.
    DeviceId = 21 {
        /// Its index in the process.
        index: u32,
        /// Its UUID, the first byte most significant: that of the instance, if the GPU is partitioned (MIG). 0 if unknown.
        uuid: u128,
        /// The UUID of the GPU that it is an instance of; equal to `uuid` if the GPU is not partitioned. 0 if unknown.
        gpu: u128,
        /// Its PCI address, see [`pci_address`]; `u64::MAX` if unknown.
        pci: u64,
        /// Its compute capability.
        major: u8,
        /// See `major`.
        minor: u8,
        /// Its multiprocessors; 0 if unknown, as all that follow.
        multiprocessors: u32,
        /// The most threads of a multiprocessor.
        threads: u32,
        /// The most blocks of a multiprocessor.
        blocks: u32,
        /// Registers of a multiprocessor.
        registers: u32,
        /// Bytes of shared memory of a multiprocessor.
        shared_memory: u32,
        /// Bytes of shared memory that the system reserves for each block.
        reserved_shared_memory: u32,
    }

    /// The place of the process in a distributed program, by its environment. Sent once, if anything is known.
    Rank = 30 {
        /// Its rank; `u32::MAX` if it has none.
        rank: u32,
        /// Its rank on this machine; `u32::MAX` if unknown.
        local: u32,
        /// Index into [`crate::RANK_VARIABLES`].
        source: u8,
        /// 1 if it uses the Multi-Process Service (MPS).
        mps: u8,
    }

    /// An NVTX range ended, or a mark was set.
    Range = 31 {
        /// Id of a [`Message::RangeName`] sent before.
        path: u32,
        /// The thread that ended it.
        tid: u32,
        /// Start, nanoseconds.
        start: u64,
        /// End, nanoseconds.
        end: u64,
        /// 1 for a mark.
        mark: u8,
    }

    /// A launch-class call began within an NVTX range. Sent before the call's activity.
    RangedLaunch = 32 {
        /// The call's correlation id.
        correlation: u32,
        /// The innermost range: id of a [`Message::RangeName`] sent before.
        path: u32,
    }

    /// The process became a member of a communicator (NCCL).
    Communicator = 36 {
        /// The communicator: the same number in all its members.
        id: u64,
        /// The communicator that it was split from; 0 if there is none.
        parent: u64,
        /// The number of its members; 0 if unknown.
        size: u32,
        /// The number of this member, from 0.
        rank: u32,
    }

    /// A thread calls an operation of a communicator.
    CommunicatorCall = 37 {
        /// The communicator.
        communicator: u64,
        /// How many such calls were before it: collective operations count together, sends and receives by peer.
        number: u64,
        /// The size that is passed.
        bytes: u64,
        /// When.
        time: u64,
        /// The thread.
        tid: u32,
        /// The root, or the peer of a send or a receive; `u32::MAX` for others.
        peer: u32,
        /// The operation, a number of [`crate::nccl`].
        operation: u8,
    }

    /// What a hardware counter counted while a launch's kernel ran alone.
    KernelCounter = 38 {
        /// The correlation id of the launch.
        correlation: u32,
        /// The metric, a place in `cupti::limits::METRICS`.
        metric: u8,
        /// Its value, the bits of an `f64`.
        value: u64,
    }

    /// How launches were measured; each message replaces the last.
    LimitTotals = 39 {
        /// Launches that were measured.
        measured: u64,
        /// Measured launches that did not run alone: nothing is sent of them.
        disturbed: u64,
        /// Measured launches whose values CUPTI did not return.
        lost: u64,
        /// Launches that were not measured because their stream was being captured.
        captured: u64,
        /// Launches of communication kernels, which are never measured.
        communication: u64,
        /// Time that all this took in the program's threads, in nanoseconds.
        took: u64,
    }

    /// Samples of an instruction with a stall reason, since the last message for the same.
    StallSamples = 33 {
        /// The number of its cubin.
        cubin: u32,
        /// Its function: id of a [`Message::Name`] sent before.
        function: u32,
        /// Its offset in the function.
        offset: u64,
        /// The reason: index of a [`Message::StallReason`] sent before.
        reason: u32,
        /// Samples.
        count: u32,
        /// The correlation id of the launch; 0 unless kernels are serialised.
        correlation: u32,
    }

    /// All bytes of a cubin have been sent.
    CubinEnd = 34 {
        /// Its number.
        number: u32,
        /// Its size. If fewer bytes arrived, some were dropped.
        size: u32,
    }

    /// What was counted while kernels were sampled; each message replaces the last.
    StallTotals = 35 {
        /// Samples in the program's kernels.
        samples: u64,
        /// Samples in other kernels.
        other_kernels: u64,
        /// Samples that the hardware dropped.
        dropped: u64,
        /// Samples that did not fit into the queue or the name table.
        unsent: u64,
        /// How often the hardware buffer was full.
        full: u64,
        /// Contexts that were sampled.
        contexts: u32,
        /// Contexts that could not be sampled.
        refused: u32,
        /// Bytes of each context's hardware buffer.
        buffer: u64,
        /// The most bytes of device memory that a context had less after sampling was enabled; 0 if unknown.
        memory: u64,
        /// The logarithm to base 2 of the cycles between two samples.
        period: u32,
        /// Cubins with line information that were not sent.
        cubins_refused: u32,
        /// 1 if kernels are serialised, and samples identify their launch.
        serialised: u8,
    }

    /// Totals since the start of the process, sent occasionally; each message replaces the last.
    Totals = 7 {
        /// Markers called.
        launches: u64,
        /// Kernel records that CUPTI delivered.
        kernels: u64,
        /// Their time in nanoseconds, if both times were known.
        kernel_ns: u64,
        /// Copy records.
        copies: u64,
        /// Memset records.
        memsets: u64,
        /// Synchronisation records.
        syncs: u64,
        /// Records that CUPTI reported as dropped.
        dropped_by_cupti: u64,
        /// Records dropped because the queue to warpscope was full.
        dropped_queue_full: u64,
        /// Records whose time was lost (start and end 0).
        zero_time: u64,
        /// Records not finished at the last flush (end 0).
        unfinished: u64,
        /// Records with contradictory fields or an unsupported length.
        invalid: u64,
        /// Kernels sent without a name because the name table was full.
        nameless: u64,
        /// Buffer requests from CUPTI that were refused.
        buffers_refused: u64,
        /// Launches neither recorded nor counted, because the queue to warpscope was full.
        dropped_launches: u64,
        /// Launch-class calls that returned an error.
        failed: u64,
    }

    /// A launch-class call began whose stack is not taken, because stacks are sampled.
    Unmarked = 14 {
        /// The call's correlation id.
        correlation: u32,
        /// The kind of work, as the marker's second argument.
        work: u8,
        /// The thread.
        tid: u32,
        /// A time not after the call, CLOCK_MONOTONIC.
        time: u64,
    }

    /// Launches that were counted instead of recorded, since the last such message.
    Counted = 15 {
        /// The kind of work.
        work: u8,
        /// Id of a [`Message::Name`] sent before; 0 without a name.
        name: u32,
        /// Launches.
        count: u64,
    }

    /// How much was recorded; each message replaces the last.
    Sampling = 16 {
        /// Time in which records were on.
        recorded_ns: u64,
        /// Time since the session began.
        whole_ns: u64,
    }

    /// The cost of the session so far; each message replaces the last.
    Cost = 13 {
        /// CPU time of the process since the session began.
        process_ns: u64,
        /// Time in the library's callbacks, estimated from a sample of them.
        callbacks_ns: u64,
        /// Of that, the time in which stacks were taken.
        stacks_ns: u64,
        /// CPU time of the library's thread.
        sender_ns: u64,
    }

    /// The process exits normally: all its records were flushed.
    SessionEnd = 8 {
        /// The process id as in [`Hello`].
        pid: u32,
    }
}

/// Encodes a PCI address so that numbers sort like addresses.
pub fn pci_address(domain: u32, bus: u8, device: u8) -> u64 {
    u64::from(domain) << 16 | u64::from(bus) << 8 | u64::from(device)
}
