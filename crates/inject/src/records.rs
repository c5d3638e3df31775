//! Converts activity records to messages.
//!
//! Records are walked with CUPTI's own function and read through the fields that have the same offset in every release.
//! A record extends to the next one. A record that is too short for its fields, points backwards or has an unrequested
//! kind is counted as invalid and never read. A record with contradictory times (an end before its start, or an end
//! without a start) is counted as invalid and not sent, because no output could place it. Records with lost or
//! unfinished times are counted and sent.

use core::ffi::{CStr, c_char};

use cupti::ids::{kind, result};
use cupti::record::{self, graph_trace, kernel, memcpy, memcpy_peer, memset};
use cupti::types::ActivityGetNextRecord;

use crate::clock::Correction;
use crate::names::{NAMES_SEEN, Named};
use crate::queue::QUEUE;
use crate::totals::{TOTALS, add};
use crate::{earlier_launches, limits};

/// A whole graph is sent as a kernel of this name ([`wire::WHOLE_GRAPH`]).
const WHOLE_GRAPH: &CStr = c"[CUDA graph]";

/// One record, decoded.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Record {
    /// A kernel; its name is still a pointer.
    Kernel(wire::Kernel, *const c_char),
    Memcpy(wire::Memcpy),
    Memset(wire::Memset),
}

impl Record {
    /// Whether its launch began before the session.
    fn is_from_before(&self) -> bool {
        let (id, graph) = match self {
            Self::Kernel(kernel, _) => (kernel.correlation, kernel.graph),
            Self::Memcpy(copy) => (copy.correlation, copy.graph),
            Self::Memset(memset) => (memset.correlation, memset.graph),
        };
        earlier_launches::has(id, graph)
    }
}

/// The meaning of a record's times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Times {
    Known(u64),
    Lost,
    Unfinished,
    Contradictory,
}

fn times(start: u64, end: u64) -> Times {
    match (start, end) {
        (0, 0) => Times::Lost,
        (_, 0) => Times::Unfinished,
        (0, _) => Times::Contradictory,
        _ => end.checked_sub(start).map_or(Times::Contradictory, Times::Known),
    }
}

/// Decodes one record; `None` for a kind that is not read or a record too short for its fields.
fn decode(bytes: &[u8]) -> Option<Record> {
    /// The bytes up to and including the last field read below.
    const KERNEL: usize = 160;
    const MEMCPY: usize = 76;
    const PEER: usize = 84;
    const MEMSET: usize = 76;
    const GRAPH: usize = 40;
    const KIND: usize = 4;
    if bytes.len() < KIND {
        return None;
    }
    let at = bytes.as_ptr();
    // SAFETY: each arm has checked that the record is as long as the fields it reads; the kind is in the first 4 bytes.
    unsafe {
        match record::KIND.read(at) {
            kind::CONCURRENT_KERNEL if bytes.len() >= KERNEL => {
                let [grid_x, grid_y, grid_z] = kernel::GRID.read(at).map(i32::cast_unsigned);
                let [block_x, block_y, block_z] = kernel::BLOCK.read(at).map(i32::cast_unsigned);
                let shared_memory = kernel::STATIC_SHARED.read(at).wrapping_add(kernel::DYNAMIC_SHARED.read(at));
                let kernel = wire::Kernel {
                    correlation: kernel::CORRELATION.read(at),
                    device: kernel::DEVICE.read(at),
                    context: kernel::CONTEXT.read(at),
                    stream: kernel::STREAM.read(at),
                    start: kernel::START.read(at),
                    end: kernel::END.read(at),
                    name: 0,
                    grid_x,
                    grid_y,
                    grid_z,
                    block_x,
                    block_y,
                    block_z,
                    registers: kernel::REGISTERS.read(at),
                    shared_memory: shared_memory.cast_unsigned(),
                    graph_node: kernel::GRAPH_NODE.read(at),
                    graph: kernel::GRAPH.read(at),
                };
                Some(Record::Kernel(kernel, kernel::NAME.read(at)))
            }
            kind::MEMCPY if bytes.len() >= MEMCPY => Some(Record::Memcpy(wire::Memcpy {
                correlation: memcpy::CORRELATION.read(at),
                peer: u32::MAX,
                graph_node: memcpy::GRAPH_NODE.read(at),
                graph: memcpy::GRAPH.read(at),
                ..copy(at)
            })),
            kind::MEMCPY2 if bytes.len() >= PEER => {
                let common = copy(at);
                let (from, to) = (memcpy_peer::SRC_DEVICE.read(at), memcpy_peer::DST_DEVICE.read(at));
                Some(Record::Memcpy(wire::Memcpy {
                    correlation: memcpy_peer::CORRELATION.read(at),
                    peer: if from == common.device { to } else { from },
                    graph_node: memcpy_peer::GRAPH_NODE.read(at),
                    graph: memcpy_peer::GRAPH.read(at),
                    ..common
                }))
            }
            kind::MEMSET if bytes.len() >= MEMSET => Some(Record::Memset(wire::Memset {
                correlation: memset::CORRELATION.read(at),
                device: memset::DEVICE.read(at),
                context: memset::CONTEXT.read(at),
                stream: memset::STREAM.read(at),
                start: memset::START.read(at),
                end: memset::END.read(at),
                bytes: memset::BYTES.read(at),
                value: memset::VALUE.read(at),
                memory: memset::MEMORY_KIND.read(at) as u8,
                graph_node: memset::GRAPH_NODE.read(at),
                graph: memset::GRAPH.read(at),
            })),
            kind::GRAPH_TRACE if bytes.len() >= GRAPH => {
                let graph = wire::Kernel {
                    correlation: graph_trace::CORRELATION.read(at),
                    device: graph_trace::DEVICE.read(at),
                    context: graph_trace::CONTEXT.read(at),
                    stream: graph_trace::STREAM.read(at),
                    start: graph_trace::START.read(at),
                    end: graph_trace::END.read(at),
                    graph: graph_trace::GRAPH.read(at),
                    ..Default::default()
                };
                Some(Record::Kernel(graph, WHOLE_GRAPH.as_ptr()))
            }
            _ => None,
        }
    }
}

/// Reads the fields that plain and peer copies share.
///
/// # Safety
/// `at` must point to a copy record of at least 76 bytes.
unsafe fn copy(at: *const u8) -> wire::Memcpy {
    // SAFETY: the caller guarantees the bytes.
    unsafe {
        wire::Memcpy {
            device: memcpy::DEVICE.read(at),
            context: memcpy::CONTEXT.read(at),
            stream: memcpy::STREAM.read(at),
            start: memcpy::START.read(at),
            end: memcpy::END.read(at),
            bytes: memcpy::BYTES.read(at),
            kind: memcpy::COPY_KIND.read(at),
            source: memcpy::SRC_KIND.read(at),
            destination: memcpy::DST_KIND.read(at),
            ..Default::default()
        }
    }
}

/// What one buffer added to the totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    kernels: u64,
    kernel_ns: u64,
    copies: u64,
    memsets: u64,
    zero_time: u64,
    unfinished: u64,
    invalid: u64,
    nameless: u64,
    dropped_queue_full: u64,
}

impl Tally {
    /// The tally of a buffer that could not be read to its end.
    pub fn unreadable() -> Self {
        Self { invalid: 1, ..Self::default() }
    }

    /// Adds everything to the process's totals.
    pub fn add_to_totals(&self) {
        add(&TOTALS.kernels, self.kernels);
        add(&TOTALS.kernel_ns, self.kernel_ns);
        add(&TOTALS.copies, self.copies);
        add(&TOTALS.memsets, self.memsets);
        add(&TOTALS.zero_time, self.zero_time);
        add(&TOTALS.unfinished, self.unfinished);
        add(&TOTALS.invalid, self.invalid);
        add(&TOTALS.nameless, self.nameless);
        add(&TOTALS.dropped_queue_full, self.dropped_queue_full);
    }
}

/// Collects messages for the queue, so that its lock is taken once for many messages.
struct Batch {
    bytes: [u8; 4096],
    used: usize,
    records: u32,
    /// Names by address, valid for one buffer only: later the address may belong to another name.
    known: [(*const c_char, u32); 64],
    correction: Correction,
    tally: Tally,
}

impl Batch {
    fn new() -> Self {
        let known = [(core::ptr::null(), 0); 64];
        Self { bytes: [0; 4096], used: 0, records: 0, known, correction: Correction::new(), tally: Tally::default() }
    }

    fn flush(&mut self) {
        if self.used > 0 && !QUEUE.append(&self.bytes[..self.used], self.records) {
            self.tally.dropped_queue_full += u64::from(self.records);
        }
        self.used = 0;
        self.records = 0;
    }

    fn message(&mut self, size: usize, encode: impl FnOnce(&mut [u8])) {
        if self.used + size > self.bytes.len() {
            self.flush();
        }
        encode(&mut self.bytes[self.used..self.used + size]);
        self.used += size;
        self.records += 1;
    }

    /// Returns the number of a kernel's name; `None` if the name is new and the queue is full.
    ///
    /// # Safety
    /// `name` must be null or point to a C string.
    unsafe fn name(&mut self, name: *const c_char) -> Option<u32> {
        if name.is_null() {
            return Some(0);
        }
        // Names are usually at least eight bytes apart.
        let slot = (name as usize >> 3) % self.known.len();
        if self.known[slot].0 == name {
            return Some(self.known[slot].1);
        }
        // SAFETY: the caller guarantees the string; no byte past its end or past the longest text is read.
        let text = unsafe { core::slice::from_raw_parts(name.cast(), libc::strnlen(name, wire::MAX_TEXT)) };
        match NAMES_SEEN.intern(text, |message| QUEUE.append(message, 0)) {
            Named::Id(id) => {
                self.known[slot] = (name, id);
                Some(id)
            }
            Named::Full => Some(0),
            Named::Unsent => None,
        }
    }

    /// Counts a record's times; false if the record must not be sent.
    fn times(&mut self, start: u64, end: u64, is_kernel: bool) -> bool {
        match times(start, end) {
            Times::Known(ns) if is_kernel => self.tally.kernel_ns += ns,
            Times::Known(_) => {}
            Times::Lost => self.tally.zero_time += 1,
            Times::Unfinished => self.tally.unfinished += 1,
            Times::Contradictory => self.tally.invalid += 1,
        }
        times(start, end) != Times::Contradictory
    }

    /// Queues one record.
    ///
    /// # Safety
    /// A kernel's name must be null or point to a C string.
    unsafe fn record(&mut self, bytes: &[u8]) {
        match decode(bytes) {
            None => self.tally.invalid += 1,
            Some(record) if record.is_from_before() => {}
            // SAFETY: the caller guarantees the name.
            Some(Record::Kernel(kernel, name)) if unsafe { limits::is_separator(kernel.correlation, name) } => {}
            Some(Record::Kernel(mut kernel, name)) => {
                self.tally.kernels += 1;
                self.correction.apply(&mut kernel.start, &mut kernel.end);
                if !self.times(kernel.start, kernel.end, true) {
                    return;
                }
                // SAFETY: the caller guarantees the name.
                let Some(name) = (unsafe { self.name(name) }) else {
                    self.tally.dropped_queue_full += 1;
                    return;
                };
                kernel.name = name;
                self.tally.nameless += u64::from(name == 0);
                self.message(wire::Kernel::SIZE, |out| kernel.encode(out));
            }
            Some(Record::Memcpy(mut copy)) => {
                self.tally.copies += 1;
                self.correction.apply(&mut copy.start, &mut copy.end);
                if self.times(copy.start, copy.end, false) {
                    self.message(wire::Memcpy::SIZE, |out| copy.encode(out));
                }
            }
            Some(Record::Memset(mut memset)) => {
                self.tally.memsets += 1;
                self.correction.apply(&mut memset.start, &mut memset.end);
                if self.times(memset.start, memset.end, false) {
                    self.message(wire::Memset::SIZE, |out| memset.encode(out));
                }
            }
        }
    }
}

/// Reads a returned buffer to its end, queues its records and returns its tally.
///
/// # Safety
/// `buffer` must hold `valid` readable bytes of records in the format of `next_record`.
pub unsafe fn read(next_record: ActivityGetNextRecord, buffer: *mut u8, valid: usize) -> Tally {
    let mut batch = Batch::new();
    let end = buffer as usize + valid;
    let mut current = core::ptr::null_mut();
    // SAFETY: the caller guarantees the buffer; null requests the first record.
    let mut outcome = unsafe { next_record(buffer, valid, &mut current) };
    let mut least = buffer as usize;
    while outcome == result::SUCCESS {
        let at = current as usize;
        if at < least || at >= end {
            outcome = result::INVALID_PARAMETER;
            break;
        }
        let mut next = current;
        // SAFETY: as above; `current` is the record CUPTI named last.
        outcome = unsafe { next_record(buffer, valid, &mut next) };
        let beyond = next as usize;
        let stop = if outcome == result::SUCCESS && beyond > at && beyond < end { beyond } else { end };
        // SAFETY: the bytes from `at` to `stop` are within the buffer's valid part, and nothing writes to it now.
        unsafe { batch.record(core::slice::from_raw_parts(current, stop - at)) };
        least = at + 1;
        current = next;
    }
    if outcome != result::MAX_LIMIT_REACHED && valid > 0 {
        batch.tally.invalid += 1;
    }
    batch.flush();
    batch.tally
}

#[cfg(test)]
mod tests;
