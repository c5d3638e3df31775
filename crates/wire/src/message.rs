//! The messages and their encoding.

use crate::packet::{MAX_TEXT, Malformed};

/// A fixed-size field of a message.
trait Scalar: Copy + Default {
    const SIZE: usize;
    fn put(self, out: &mut [u8]);
    fn get(bytes: &[u8]) -> Self;
}

macro_rules! scalar {
    ($($type:ty),*) => {$(
        impl Scalar for $type {
            const SIZE: usize = size_of::<$type>();
            fn put(self, out: &mut [u8]) {
                out.copy_from_slice(&self.to_le_bytes());
            }
            fn get(bytes: &[u8]) -> Self {
                let mut raw = [0; size_of::<$type>()];
                raw.copy_from_slice(bytes);
                Self::from_le_bytes(raw)
            }
        }
    )*};
}

scalar!(u8, u16, u32, u64, u128);

/// Takes `count` bytes off the front of `bytes`.
fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Result<&'a [u8], Malformed> {
    let (head, tail) = bytes.split_at_checked(count).ok_or(Malformed)?;
    *bytes = tail;
    Ok(head)
}

/// Declares fixed-size messages: the struct, its tag, its size, its encoder and its decoder.
macro_rules! messages {
    ($($(#[$doc:meta])* $name:ident = $tag:literal { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
            pub struct $name {
                $($(#[$field_doc])* pub $field: $type,)*
            }

            impl $name {
                /// Bytes on the wire, tag included.
                pub const SIZE: usize = 1 $(+ size_of::<$type>())*;

                /// Writes the message to the front of `out`, which must hold at least [`Self::SIZE`] bytes.
                pub fn encode(&self, out: &mut [u8]) {
                    out[0] = $tag;
                    let mut at = 1;
                    $(
                        Scalar::put(self.$field, &mut out[at..at + size_of::<$type>()]);
                        at += size_of::<$type>();
                    )*
                    debug_assert_eq!(at, Self::SIZE);
                }

                fn decode(bytes: &mut &[u8]) -> Result<Self, Malformed> {
                    Ok(Self { $($field: Scalar::get(take(bytes, <$type as Scalar>::SIZE)?),)* })
                }
            }
        )*

        /// Any message.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Message<'a> {
            $($(#[$doc])* $name($name),)*
            /// A kernel's name: the id that later [`Kernel`] messages use, and the (mangled) text.
            Name(u32, &'a [u8]),
            /// A device's index and its name.
            Device(u32, &'a [u8]),
            /// A message for the user; [`Notice`] is its kind.
            Notice(Notice, &'a [u8]),
            /// A function that CUPTI has a callback for: its number (see [`crate::calls::function`]) and its name.
            Function(u32, &'a [u8]),
            /// A stall reason: its index, and CUPTI's name.
            StallReason(u32, &'a [u8]),
            /// Bytes of a cubin: its number, and the bytes that follow those sent before.
            CubinPart(u32, &'a [u8]),
            /// A path of NVTX ranges: its id; then the id of the path around it (4 bytes), the length of its category's name
            /// (1 byte), that name, and its own name.
            RangeName(u32, &'a [u8]),
            /// A time in which another client used CUPTI: its number in the session, which a later message may repeat.
            Pause(u32, Pause<'a>),
        }

        impl<'a> Message<'a> {
            /// Takes the next message off the front of a packet; `None` at its end.
            pub fn next(packet: &mut &'a [u8]) -> Result<Option<Self>, Malformed> {
                let Some((&tag, rest)) = packet.split_first() else { return Ok(None) };
                *packet = rest;
                let message = match tag {
                    $($tag => Message::$name($name::decode(packet)?),)*
                    TAG_NAME => {
                        let (id, text) = decode_text(packet)?;
                        Message::Name(id, text)
                    }
                    TAG_DEVICE => {
                        let (id, text) = decode_text(packet)?;
                        Message::Device(id, text)
                    }
                    TAG_NOTICE => {
                        let (code, text) = decode_text(packet)?;
                        Message::Notice(Notice::from_code(code).ok_or(Malformed)?, text)
                    }
                    TAG_FUNCTION => {
                        let (number, text) = decode_text(packet)?;
                        Message::Function(number, text)
                    }
                    TAG_STALL_REASON => {
                        let (index, text) = decode_text(packet)?;
                        Message::StallReason(index, text)
                    }
                    TAG_CUBIN_PART => {
                        let (number, bytes) = decode_text(packet)?;
                        Message::CubinPart(number, bytes)
                    }
                    TAG_RANGE_NAME => {
                        let (id, text) = decode_text(packet)?;
                        Message::RangeName(id, text)
                    }
                    TAG_PAUSE => {
                        let (number, text) = decode_text(packet)?;
                        Message::Pause(number, Pause::decode(text)?)
                    }
                    _ => return Err(Malformed),
                };
                Ok(Some(message))
            }
        }
    };
}

const TAG_NAME: u8 = 64;
const TAG_DEVICE: u8 = 65;
const TAG_NOTICE: u8 = 66;
const TAG_FUNCTION: u8 = 67;
const TAG_RANGE_NAME: u8 = 68;
const TAG_PAUSE: u8 = 69;
const TAG_STALL_REASON: u8 = 71;
const TAG_CUBIN_PART: u8 = 72;

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

/// A time in which another client used CUPTI, so that there are no records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause<'a> {
    /// Start, CLOCK_MONOTONIC.
    pub from: u64,
    /// End, CLOCK_MONOTONIC; `u64::MAX` while it lasts.
    pub to: u64,
    /// The other client, as far as known.
    pub name: &'a [u8],
}

impl<'a> Pause<'a> {
    /// Bytes before the name.
    const TIMES: usize = 16;
    /// The most bytes of a name.
    const MOST_NAME: usize = MAX_TEXT - Self::TIMES;

    fn name(&self) -> &'a [u8] {
        &self.name[..self.name.len().min(Self::MOST_NAME)]
    }

    /// Returns the size of the message on the wire.
    pub fn size(&self) -> usize {
        7 + Self::TIMES + self.name().len()
    }

    /// Writes a [`Message::Pause`]; `out` must hold [`Self::size`] bytes.
    pub fn encode(&self, number: u32, out: &mut [u8]) {
        out[0] = TAG_PAUSE;
        out[1..5].copy_from_slice(&number.to_le_bytes());
        out[5..7].copy_from_slice(&((Self::TIMES + self.name().len()) as u16).to_le_bytes());
        out[7..15].copy_from_slice(&self.from.to_le_bytes());
        out[15..23].copy_from_slice(&self.to.to_le_bytes());
        out[23..self.size()].copy_from_slice(self.name());
    }

    fn decode(mut bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (from, to) = (u64::get(take(&mut bytes, 8)?), u64::get(take(&mut bytes, 8)?));
        Ok(Self { from, to, name: bytes })
    }
}

/// Encodes a PCI address so that numbers sort like addresses.
pub fn pci_address(domain: u32, bus: u8, device: u8) -> u64 {
    u64::from(domain) << 16 | u64::from(bus) << 8 | u64::from(device)
}

/// The kind of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Notice {
    /// No usable libcupti: the text lists the locations tried.
    NoCupti = 1,
    /// Another CUPTI client is subscribed (error 39): the text names it if possible.
    OtherSubscriber = 2,
    /// A CUPTI call failed: the text contains the call and the error.
    CuptiFailed = 3,
    /// CUPTI rejected our clock; times are shifted by an offset measured once.
    ForeignClock = 4,
    /// The libcupti in use.
    Library = 5,
    /// Kernels cannot be sampled: the text is the number of the error, then the call and the error.
    NoStalls = 6,
}

impl Notice {
    fn from_code(code: u32) -> Option<Self> {
        [Self::NoCupti, Self::OtherSubscriber, Self::CuptiFailed, Self::ForeignClock, Self::Library, Self::NoStalls]
            .into_iter()
            .find(|n| *n as u32 == code)
    }
}

/// Returns the size of a text message on the wire, with the text truncated at [`MAX_TEXT`].
pub fn text_size(text: &[u8]) -> usize {
    7 + text.len().min(MAX_TEXT)
}

fn encode_text(tag: u8, id: u32, text: &[u8], out: &mut [u8]) {
    let text = &text[..text.len().min(MAX_TEXT)];
    out[0] = tag;
    out[1..5].copy_from_slice(&id.to_le_bytes());
    out[5..7].copy_from_slice(&(text.len() as u16).to_le_bytes());
    out[7..7 + text.len()].copy_from_slice(text);
}

/// Writes a [`Message::Name`]; `out` must hold [`text_size`] bytes.
pub fn encode_name(id: u32, text: &[u8], out: &mut [u8]) {
    encode_text(TAG_NAME, id, text, out);
}

/// Writes a [`Message::RangeName`]; `out` must hold [`text_size`] bytes.
pub fn encode_range_name(id: u32, text: &[u8], out: &mut [u8]) {
    encode_text(TAG_RANGE_NAME, id, text, out);
}

/// Writes a [`Message::StallReason`]; `out` must hold [`text_size`] bytes.
pub fn encode_stall_reason(index: u32, text: &[u8], out: &mut [u8]) {
    encode_text(TAG_STALL_REASON, index, text, out);
}

/// Writes a [`Message::CubinPart`] of at most [`MAX_TEXT`] bytes; `out` must hold [`text_size`] bytes.
pub fn encode_cubin_part(number: u32, bytes: &[u8], out: &mut [u8]) {
    encode_text(TAG_CUBIN_PART, number, bytes, out);
}

/// Writes a [`Message::Device`]; `out` must hold [`text_size`] bytes.
pub fn encode_device(index: u32, text: &[u8], out: &mut [u8]) {
    encode_text(TAG_DEVICE, index, text, out);
}

/// Writes a [`Message::Notice`]; `out` must hold [`text_size`] bytes.
pub fn encode_notice(notice: Notice, text: &[u8], out: &mut [u8]) {
    encode_text(TAG_NOTICE, notice as u32, text, out);
}

/// Writes a [`Message::Function`]; `out` must hold [`text_size`] bytes.
pub fn encode_function(number: u32, text: &[u8], out: &mut [u8]) {
    encode_text(TAG_FUNCTION, number, text, out);
}

fn decode_text<'a>(bytes: &mut &'a [u8]) -> Result<(u32, &'a [u8]), Malformed> {
    let id = u32::get(take(bytes, 4)?);
    let length = usize::from(u16::get(take(bytes, 2)?));
    if length > MAX_TEXT {
        return Err(Malformed);
    }
    Ok((id, take(bytes, length)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every kind of message survives the round trip, several to a packet.
    #[test]
    fn messages_round_trip() {
        let kernel =
            Kernel { correlation: 7, start: 1 << 40, end: (1 << 40) + 5, name: 3, graph_node: 9, ..Default::default() };
        let mut packet = [0; 1024];
        kernel.encode(&mut packet);
        let mut at = Kernel::SIZE;
        encode_name(3, b"_Z6matmulPf", &mut packet[at..]);
        at += text_size(b"_Z6matmulPf");
        encode_notice(Notice::NoCupti, b"no libcupti", &mut packet[at..]);
        at += text_size(b"no libcupti");
        let pause = Pause { from: 5, to: u64::MAX, name: b"torch.profiler" };
        pause.encode(2, &mut packet[at..]);
        at += pause.size();
        let captured = Captured { correlation: 8 };
        captured.encode(&mut packet[at..]);
        at += Captured::SIZE;
        let mut rest = &packet[..at];
        assert_eq!(Message::next(&mut rest), Ok(Some(Message::Kernel(kernel))));
        assert_eq!(Message::next(&mut rest), Ok(Some(Message::Name(3, b"_Z6matmulPf"))));
        assert_eq!(Message::next(&mut rest), Ok(Some(Message::Notice(Notice::NoCupti, b"no libcupti"))));
        assert_eq!(Message::next(&mut rest), Ok(Some(Message::Pause(2, pause))));
        assert_eq!(Message::next(&mut rest), Ok(Some(Message::Captured(captured))));
        assert_eq!(Message::next(&mut rest), Ok(None));
    }

    /// A packet truncated at any byte is an error, not a panic.
    #[test]
    fn truncated_packets_are_malformed() {
        let mut packet = [0; Totals::SIZE];
        Totals::default().encode(&mut packet);
        for length in 1..packet.len() {
            assert_eq!(Message::next(&mut &packet[..length]), Err(Malformed));
        }
        assert_eq!(Message::next(&mut &[255, 0, 0][..]), Err(Malformed));
    }
}
