//! Handmade records of every release.

use super::*;
use cupti::release::RELEASES;

/// A record of `kind` with a release's length, filled with a byte that no field should show.
fn blank(kind: u32, length: usize) -> Vec<u8> {
    let mut bytes = vec![0xee; length];
    bytes[..4].copy_from_slice(&kind.to_le_bytes());
    bytes
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// Every field of a kernel is read, for every release; one byte less than the fields need is rejected.
#[test]
fn kernels_of_every_release() {
    for release in RELEASES {
        let mut bytes = blank(kind::CONCURRENT_KERNEL, release.stride(kind::CONCURRENT_KERNEL).unwrap());
        put(&mut bytes, 6, &40u16.to_le_bytes());
        put(&mut bytes, 16, &1000u64.to_le_bytes());
        put(&mut bytes, 24, &1500u64.to_le_bytes());
        for (at, value) in [(40, 1u32), (44, 2), (48, 3), (52, 4), (56, 5), (60, 6), (64, 7), (68, 8), (72, 9)] {
            put(&mut bytes, at, &value.to_le_bytes());
        }
        for (at, value) in [(76, 100u32), (80, 23), (92, 77), (156, 6)] {
            put(&mut bytes, at, &value.to_le_bytes());
        }
        put(&mut bytes, 104, &0u64.to_le_bytes());
        put(&mut bytes, 144, &0x6_0000_0001u64.to_le_bytes());
        let expected = wire::Kernel {
            correlation: 77,
            device: 1,
            context: 2,
            stream: 3,
            start: 1000,
            end: 1500,
            name: 0,
            grid_x: 4,
            grid_y: 5,
            grid_z: 6,
            block_x: 7,
            block_y: 8,
            block_z: 9,
            registers: 40,
            shared_memory: 123,
            graph_node: 0x6_0000_0001,
            graph: 6,
        };
        assert_eq!(decode(&bytes), Some(Record::Kernel(expected, core::ptr::null())), "{}", release.name);
        assert_eq!(decode(&bytes[..159]), None);
    }
}

/// A whole graph is a kernel with a name of its own, in every release.
#[test]
fn whole_graphs_of_every_release() {
    assert_eq!(WHOLE_GRAPH.to_str(), Ok(wire::WHOLE_GRAPH));
    for release in RELEASES {
        let mut bytes = blank(kind::GRAPH_TRACE, release.stride(kind::GRAPH_TRACE).unwrap());
        for (at, value) in [(8, 1000u64), (16, 1500)] {
            put(&mut bytes, at, &value.to_le_bytes());
        }
        for (at, value) in [(4, 77u32), (24, 1), (28, 6), (32, 2), (36, 3)] {
            put(&mut bytes, at, &value.to_le_bytes());
        }
        let (correlation, device, context, stream, graph) = (77, 1, 2, 3, 6);
        let expected =
            wire::Kernel { correlation, device, context, stream, start: 1000, end: 1500, graph, ..Default::default() };
        assert_eq!(decode(&bytes), Some(Record::Kernel(expected, WHOLE_GRAPH.as_ptr())), "{}", release.name);
        assert_eq!(decode(&bytes[..39]), None);
    }
}

/// Copies, plain and between devices.
#[test]
fn copies_of_every_release() {
    for release in RELEASES {
        for (kind, correlation, node) in [(kind::MEMCPY, 44, 64), (kind::MEMCPY2, 60, 72)] {
            let mut bytes = blank(kind, release.stride(kind).unwrap());
            put(&mut bytes, 4, &[1, 2, 3]);
            for (at, value) in [(8, 4096u64), (16, 10), (24, 30), (node, 99)] {
                put(&mut bytes, at, &value.to_le_bytes());
            }
            for (at, value) in [(32, 0u32), (36, 5), (40, 6), (44, 0), (52, 1), (correlation, 8), (node + 8, 7)] {
                put(&mut bytes, at, &value.to_le_bytes());
            }
            let expected = wire::Memcpy {
                correlation: 8,
                device: 0,
                context: 5,
                stream: 6,
                start: 10,
                end: 30,
                bytes: 4096,
                kind: 1,
                source: 2,
                destination: 3,
                peer: if kind == kind::MEMCPY2 { 1 } else { u32::MAX },
                graph_node: 99,
                graph: 7,
            };
            assert_eq!(decode(&bytes), Some(Record::Memcpy(expected)), "{} {kind}", release.name);
            assert_eq!(decode(&bytes[..node + 11]), None);
        }
    }
}

/// Memsets and waits.
#[test]
fn memsets_and_waits_of_every_release() {
    for release in RELEASES {
        let mut bytes = blank(kind::MEMSET, release.stride(kind::MEMSET).unwrap());
        for (at, value) in [(8, 64u64), (16, 1), (24, 2), (64, 0)] {
            put(&mut bytes, at, &value.to_le_bytes());
        }
        for (at, value) in [(4, 0xabu32), (32, 1), (36, 2), (40, 3), (44, 4), (72, 0)] {
            put(&mut bytes, at, &value.to_le_bytes());
        }
        put(&mut bytes, 50, &3u16.to_le_bytes());
        let expected = wire::Memset {
            correlation: 4,
            device: 1,
            context: 2,
            stream: 3,
            start: 1,
            end: 2,
            bytes: 64,
            value: 0xab,
            memory: 3,
            ..Default::default()
        };
        assert_eq!(decode(&bytes), Some(Record::Memset(expected)), "{}", release.name);
    }
}

/// Unrequested kinds are rejected.
#[test]
fn unrequested_kinds_are_rejected() {
    assert_eq!(decode(&blank(kind::OVERHEAD, 56)), None);
    assert_eq!(decode(&[]), None);
}

/// A pair of times has four meanings.
#[test]
fn times_are_classified() {
    assert_eq!(times(5, 9), Times::Known(4));
    assert_eq!(times(5, 5), Times::Known(0));
    assert_eq!(times(0, 0), Times::Lost);
    assert_eq!(times(5, 0), Times::Unfinished);
    assert_eq!(times(0, 5), Times::Contradictory);
    assert_eq!(times(9, 5), Times::Contradictory);
}

/// Walks 80-byte records.
unsafe extern "C" fn by_eighty(buffer: *mut u8, valid: usize, record: *mut *mut u8) -> u32 {
    // SAFETY: the tests pass a buffer of `valid` bytes and a writable pointer.
    unsafe {
        let next = if (*record).is_null() { buffer } else { (*record).wrapping_add(80) };
        if next as usize + 80 > buffer as usize + valid {
            return result::MAX_LIMIT_REACHED;
        }
        *record = next;
    }
    result::SUCCESS
}

/// Never advances.
unsafe extern "C" fn stuck(buffer: *mut u8, _valid: usize, record: *mut *mut u8) -> u32 {
    // SAFETY: as above.
    unsafe { *record = buffer };
    result::SUCCESS
}

/// A record shorter than its fields is counted and not read; its neighbours are read.
#[test]
fn short_records_are_invalid() {
    let mut bytes = vec![0; 240];
    bytes[0] = kind::MEMSET as u8;
    bytes[80] = kind::CONCURRENT_KERNEL as u8;
    bytes[160] = kind::MEMSET as u8;
    // SAFETY: the length passed is that of the buffer.
    let tally = unsafe { read(by_eighty, bytes.as_mut_ptr(), bytes.len()) };
    // The queue was not prepared: both messages are dropped and counted.
    let expected = Tally { memsets: 2, zero_time: 2, invalid: 1, dropped_queue_full: 2, ..Tally::default() };
    assert_eq!(tally, expected);
}

/// A walk that does not advance ends, and an empty buffer is not an error.
#[test]
fn a_stuck_walk_ends() {
    let mut bytes = vec![0; 120];
    // SAFETY: as above.
    let tally = unsafe { read(stuck, bytes.as_mut_ptr(), bytes.len()) };
    assert_eq!(tally.invalid, 2);
    // SAFETY: no byte is valid, none is read.
    let tally = unsafe { read(by_eighty, bytes.as_mut_ptr(), 0) };
    assert_eq!(tally, Tally::default());
}
