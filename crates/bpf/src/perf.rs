//! The parts of `perf_event_open` that are used.

use std::{
    fs, io,
    os::fd::{FromRawFd, OwnedFd},
};

use crate::{Error, Result};

const TYPE_SOFTWARE: u32 = 1;
const TYPE_TRACEPOINT: u32 = 2;
const TYPE_BREAKPOINT: u32 = 5;
/// `HW_BREAKPOINT_W`, `HW_BREAKPOINT_X`
const BREAKPOINT_WRITE: u32 = 2;
const BREAKPOINT_EXECUTE: u32 = 4;
const SW_CPU_CLOCK: u64 = 0;
const SW_DUMMY: u64 = 9;
const SAMPLE_TID: u64 = 1 << 1;
const SAMPLE_TIME: u64 = 1 << 2;
const SAMPLE_REGS_USER: u64 = 1 << 12;
const SAMPLE_STACK_USER: u64 = 1 << 13;
/// Reading the descriptor returns the event's count and how many of its records did not fit.
const FORMAT_LOST: u64 = 1 << 4;
const FLAG_FD_CLOEXEC: libc::c_ulong = 1 << 3;

// Bits of the flags word of `perf_event_attr`.
const EXCLUDE_KERNEL: u64 = 1 << 5;
const FREQUENCY: u64 = 1 << 10;
const MMAP: u64 = 1 << 8;
const COMM: u64 = 1 << 9;
const SAMPLE_ID_ALL: u64 = 1 << 18;
const MMAP2: u64 = 1 << 23;
const COMM_EXEC: u64 = 1 << 24;
const WATERMARK: u64 = 1 << 14;
const USE_CLOCKID: u64 = 1 << 25;
const BUILD_ID: u64 = 1 << 34;

/// `struct perf_event_attr` up to `clockid` and padding, version 5 (112 bytes).
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    bp_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clockid: i32,
    sample_regs_intr: u64,
    aux_watermark: u32,
    sample_max_stack: u16,
    reserved: u16,
}

const _: () = assert!(size_of::<Attributes>() == 112);

/// Opens an event of all processes on one CPU.
fn open(attributes: Attributes, cpu: u32) -> io::Result<OwnedFd> {
    open_for(attributes, -1, cpu as libc::c_int)
}

fn open_for(mut attributes: Attributes, tid: libc::pid_t, cpu: libc::c_int) -> io::Result<OwnedFd> {
    attributes.size = size_of::<Attributes>() as u32;
    // SAFETY: the attributes are a valid struct of the size they state; no group.
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, &raw const attributes, tid, cpu, -1, FLAG_FD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just created this descriptor, and it is not owned elsewhere.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) })
}

/// Opens a timer that fires `hz` times a second on one CPU.
pub(crate) fn cpu_clock(cpu: u32, hz: u32) -> io::Result<OwnedFd> {
    open(
        Attributes {
            kind: TYPE_SOFTWARE,
            config: SW_CPU_CLOCK,
            sample: u64::from(hz),
            flags: FREQUENCY,
            ..Default::default()
        },
        cpu,
    )
}

/// Opens a timer of one thread that fires after each `period` nanoseconds of its CPU time, with its registers (a mask of the kernel's
/// numbers) and the innermost bytes of its stack.
pub(crate) fn thread_clock(tid: u32, period: u64, registers: u64, stack: u32) -> io::Result<OwnedFd> {
    let attributes = Attributes {
        kind: TYPE_SOFTWARE,
        config: SW_CPU_CLOCK,
        sample: period,
        sample_type: SAMPLE_REGS_USER | SAMPLE_STACK_USER,
        sample_regs_user: registers,
        sample_stack_user: stack,
        ..Default::default()
    };
    open_for(attributes, tid.cast_signed(), -1)
}

/// Opens a counter of how often a thread executes the instruction at an address, or writes to the word there, by a debug register of the
/// CPU.
pub(crate) fn breakpoint(tid: u32, address: u64, write: bool) -> io::Result<OwnedFd> {
    let attributes = Attributes {
        kind: TYPE_BREAKPOINT,
        flags: EXCLUDE_KERNEL,
        bp_type: if write { BREAKPOINT_WRITE } else { BREAKPOINT_EXECUTE },
        config1: address,
        config2: if address.is_multiple_of(8) || !write { 8 } else { 4 },
        ..Default::default()
    };
    open_for(attributes, tid.cast_signed(), -1)
}

/// Opens a tracepoint to attach programs to: they run on every CPU, whichever CPU this is opened on.
pub(crate) fn tracepoint(id: u64) -> io::Result<OwnedFd> {
    open(Attributes { kind: TYPE_TRACEPOINT, config: id, sample: 1, wakeup: 1, ..Default::default() }, 0)
}

/// Opens the mapping and exec records of one CPU, on CLOCK_MONOTONIC; with build ids if the kernel supports them.
pub(crate) fn mapping_events(cpu: u32) -> io::Result<OwnedFd> {
    let attributes = Attributes {
        kind: TYPE_SOFTWARE,
        config: SW_DUMMY,
        sample: 1,
        sample_type: SAMPLE_TID | SAMPLE_TIME,
        read_format: FORMAT_LOST,
        flags: MMAP | MMAP2 | COMM | COMM_EXEC | SAMPLE_ID_ALL | USE_CLOCKID | BUILD_ID | WATERMARK,
        // Mappings are rare and needed soon: the first byte wakes the reader. Without a watermark only samples would,
        // and there are none.
        wakeup: 1,
        clockid: libc::CLOCK_MONOTONIC,
        ..Default::default()
    };
    open(attributes, cpu).or_else(|_| open(Attributes { flags: attributes.flags & !BUILD_ID, ..attributes }, cpu))
}

/// Returns how many records of an event did not fit into its ring.
pub(crate) fn lost_records(event: &OwnedFd) -> io::Result<u64> {
    let mut count_and_lost = [0_u8; 16];
    let mut file = fs::File::from(event.try_clone()?);
    io::Read::read_exact(&mut file, &mut count_and_lost)?;
    let [.., lost] = *count_and_lost.as_chunks::<8>().0 else { return Err(io::ErrorKind::UnexpectedEof.into()) };
    Ok(u64::from_ne_bytes(lost))
}

/// Returns the CPUs that are online, from a list such as `0-3,8`.
pub(crate) fn online_cpus() -> Result<Vec<u32>> {
    let path = "/sys/devices/system/cpu/online";
    let text = fs::read_to_string(path).map_err(|source| Error::Read { path: path.into(), source })?;
    Ok(parse_cpus(&text))
}

fn parse_cpus(text: &str) -> Vec<u32> {
    text.trim()
        .split(',')
        .filter_map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(first.parse().ok()?..=last.parse().ok()?)
        })
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check ranges, single CPUs and invalid lists.
    #[test]
    fn cpu_lists_are_parsed() {
        assert_eq!(parse_cpus("0-2,8\n"), [0, 1, 2, 8]);
        assert_eq!(parse_cpus("x"), Vec::<u32>::new());
    }
}
