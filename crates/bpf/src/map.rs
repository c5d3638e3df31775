//! Reads whole maps: many entries with one system call.

use std::{io, os::fd::AsRawFd};

use libbpf_rs::{MapCore, MapType, libbpf_sys};

/// Entries requested at a time; more if a bucket of the map is larger.
const BATCH: u32 = 512;

/// How often the lock of a bucket may be refused in a row.
const MOST_REFUSALS: u32 = 64;

/// Passes every entry, key and value, to `entry`. A per-CPU map has the values one after another, each padded to 8
/// bytes. Entries added or removed meanwhile may be left out; those that stay are passed once. After an error, entries
/// are missing.
pub(crate) fn each(map: &impl MapCore, mut entry: impl FnMut(&[u8], &[u8])) -> io::Result<()> {
    let key_size = map.key_size() as usize;
    let value_size = match map.map_type() {
        MapType::PercpuHash | MapType::LruPercpuHash => {
            let cpus = libbpf_rs::num_possible_cpus().map_err(io::Error::other)?;
            map.value_size().next_multiple_of(8) as usize * cpus
        }
        _ => map.value_size() as usize,
    };
    let mut room = BATCH;
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    // The position in the map: for a hash map the number of a bucket.
    let (mut from, mut to) = ([0_u8; 8], [0_u8; 8]);
    let mut first = true;
    let mut refusals = 0;
    loop {
        keys.resize(room as usize * key_size, 0);
        values.resize(room as usize * value_size, 0);
        let mut count = room;
        let begin = if first { std::ptr::null_mut() } else { from.as_mut_ptr().cast() };
        // SAFETY: the buffers have room for `count` entries, and the positions for the kernel's 4 bytes.
        let result = unsafe {
            libbpf_sys::bpf_map_lookup_batch(
                map.as_fd().as_raw_fd(),
                begin,
                to.as_mut_ptr().cast(),
                keys.as_mut_ptr().cast(),
                values.as_mut_ptr().cast(),
                &raw mut count,
                std::ptr::null(),
            )
        };
        let refused = matches!(-result, libc::EBUSY | libc::EDEADLK | libc::ETIMEDOUT);
        match -result {
            // A refused lock also ends a batch that has been read up to there.
            error if error == 0 || error == libc::ENOENT || refused => {
                for i in 0..count as usize {
                    entry(&keys[i * key_size..][..key_size], &values[i * value_size..][..value_size]);
                }
                if error == libc::ENOENT {
                    return Ok(());
                }
                refusals = if refused && count == 0 { refusals + 1 } else { 0 };
                if refusals > MOST_REFUSALS {
                    return Err(io::Error::from_raw_os_error(error));
                }
                from = to;
                first = false;
            }
            libc::ENOSPC => room = room.saturating_mul(2),
            libc::EINTR | libc::EAGAIN => {}
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::HashMap,
        sync::atomic::{AtomicBool, Ordering},
        thread,
    };

    use libbpf_rs::{MapFlags, MapHandle};

    use super::*;

    fn map(kind: MapType, key_size: u32, entries: u32) -> MapHandle {
        let options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as _,
            ..Default::default()
        };
        MapHandle::create(kind, Some("each"), key_size, 8, entries, &options).expect("root may make maps")
    }

    /// Check that entries that stay are passed exactly once while others are added and removed.
    #[test]
    fn stable_entries_of_a_changing_map_are_read_once() {
        const STAY: u32 = 5_000;
        let map = map(MapType::Hash, 4, 4 * STAY);
        for key in 0..STAY {
            map.update(&key.to_ne_bytes(), &u64::from(key).to_ne_bytes(), MapFlags::ANY).expect("room");
        }
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    for key in STAY..2 * STAY {
                        map.update(&key.to_ne_bytes(), &[0; 8], MapFlags::ANY).expect("room");
                        map.delete(&key.to_ne_bytes()).expect("it is there");
                    }
                }
            });
            for _ in 0..200 {
                let mut seen = HashMap::<u32, u32>::new();
                let read = each(&map, |key, value| {
                    let key = u32::from_ne_bytes(key.try_into().expect("4 bytes"));
                    if key < STAY {
                        assert_eq!(value, u64::from(key).to_ne_bytes());
                        *seen.entry(key).or_default() += 1;
                    }
                });
                let whole = seen.len() == STAY as usize && seen.values().all(|times| *times == 1);
                if read.is_err() || !whole {
                    done.store(true, Ordering::Relaxed);
                    panic!("{read:?}, {} of {STAY} entries", seen.len());
                }
            }
            done.store(true, Ordering::Relaxed);
        });
    }

    /// Check that an unreadable map is an error, and not an empty one.
    #[test]
    fn an_unreadable_map_is_an_error() {
        let queue = map(MapType::Queue, 0, 8);
        assert!(each(&queue, |_, _| panic!("an entry")).is_err());
    }
}
