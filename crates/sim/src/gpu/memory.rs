//! Memory: device allocations are host memory whose pages are allocated when touched.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::Ordering;
use std::sync::{PoisonError, RwLock};

use cupti::ids::{copy_kind, memory_kind};

use super::device::Device;
use super::{Outcome, status};
use crate::script::script;

#[derive(Clone, Copy, Debug)]
struct Allocation {
    size: usize,
    kind: u8,
    device: &'static Device,
    /// The id of its context.
    context: u32,
}

impl Allocation {
    /// Frees the memory; it must no longer be in the table.
    fn release(self, address: usize) {
        if self.kind != memory_kind::PINNED {
            self.device.used.fetch_sub(self.size as u64, Ordering::Relaxed);
        }
        release(address, self.size);
    }
}

/// All allocations by address.
static ALLOCATIONS: RwLock<BTreeMap<usize, Allocation>> = RwLock::new(BTreeMap::new());

/// Allocations from this size on are separate mappings, whose pages cost nothing until touched.
const MAPPED: usize = 64 << 10;

fn reserve(size: usize) -> Option<usize> {
    let mut address = std::ptr::null_mut();
    if size < MAPPED {
        // SAFETY: a fresh allocation, aligned as the driver aligns; `address` is valid.
        let failed = unsafe { libc::posix_memalign(&mut address, 256, size) } != 0;
        return (!failed).then(|| address.expose_provenance());
    }
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a fresh anonymous mapping touches nothing that exists.
    address = unsafe { libc::mmap(address, size, access, flags, -1, 0) };
    (address != libc::MAP_FAILED).then(|| address.expose_provenance())
}

fn release(address: usize, size: usize) {
    let memory = std::ptr::with_exposed_provenance_mut(address);
    if size < MAPPED {
        // SAFETY: `reserve` got it from the allocator, and the table of allocations has just forgotten it.
        unsafe { libc::free(memory) };
    } else {
        // SAFETY: `reserve` mapped it with this size, and the table of allocations has just forgotten it.
        unsafe { libc::munmap(memory, size) };
    }
}

/// Allocates memory of a kind ([`memory_kind`]) in a context of a device; pinned memory belongs to the host.
pub fn allocate(device: &'static Device, context: u32, kind: u8, size: usize) -> Result<usize, u32> {
    if size == 0 {
        return Err(status::INVALID_VALUE);
    }
    if kind != memory_kind::PINNED {
        // In one step: what does not fit must not make another thread's allocation fail.
        let fits = |used: u64| used.checked_add(size as u64).filter(|used| *used <= script().memory);
        let taken = device.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        taken.map_err(|_| status::OUT_OF_MEMORY)?;
    }
    let address = reserve(size).ok_or(status::OUT_OF_MEMORY)?;
    let mut allocations = ALLOCATIONS.write().unwrap_or_else(PoisonError::into_inner);
    allocations.insert(address, Allocation { size, kind, device, context });
    Ok(address)
}

/// Frees an allocation; address 0 is ignored.
pub fn free(address: usize) -> Outcome {
    if address == 0 {
        return Ok(());
    }
    let removed = ALLOCATIONS.write().unwrap_or_else(PoisonError::into_inner).remove(&address);
    removed.ok_or(status::INVALID_VALUE)?.release(address);
    Ok(())
}

/// Frees everything allocated in a context, when it ends.
pub fn free_all(context: u32) {
    let mut allocations = ALLOCATIONS.write().unwrap_or_else(PoisonError::into_inner);
    allocations.retain(|&address, allocation| {
        let stays = allocation.context != context;
        if !stays {
            allocation.release(address);
        }
        stays
    });
}

/// Returns the kind of memory at `address` and its device, if `bytes` from there are in one allocation.
fn find(address: usize, bytes: usize) -> Option<(u8, u32)> {
    let allocations = ALLOCATIONS.read().unwrap_or_else(PoisonError::into_inner);
    let (&base, found) = allocations.range(..=address).next_back()?;
    (address - base + bytes <= found.size).then_some((found.kind, found.device.index))
}

/// Returns the base and size of the allocation around an address.
pub fn range_of(address: usize) -> Option<(usize, usize)> {
    let allocations = ALLOCATIONS.read().unwrap_or_else(PoisonError::into_inner);
    let (&base, found) = allocations.range(..=address).next_back()?;
    (address - base < found.size).then_some((base, found.size))
}

/// Returns the device of an address, or none for host memory.
pub fn device_of(address: usize) -> Option<u32> {
    find(address, 1).filter(|(kind, _)| *kind != memory_kind::PINNED).map(|(_, device)| device)
}

/// Returns the kind of memory at one end of a copy.
fn kind_at(address: usize, bytes: usize) -> u8 {
    find(address, bytes).map_or(memory_kind::PAGEABLE, |(kind, _)| kind)
}

fn is_device(kind: u8) -> bool {
    matches!(kind, memory_kind::DEVICE | memory_kind::MANAGED)
}

/// Classifies a copy: returns its [`copy_kind`] and the kinds of memory at both ends.
///
/// `expected` is the kind that the function's name implies; a pointer that does not match is an error.
pub fn classify(dst: usize, src: usize, bytes: usize, expected: Option<u8>) -> Result<(u8, u8, u8), u32> {
    let (to, from) = (kind_at(dst, bytes), kind_at(src, bytes));
    let actual = match (is_device(from), is_device(to)) {
        (false, true) => copy_kind::HTOD,
        (true, false) => copy_kind::DTOH,
        (true, true) => copy_kind::DTOD,
        (false, false) => copy_kind::HTOH,
    };
    let managed = from == memory_kind::MANAGED || to == memory_kind::MANAGED;
    match expected {
        Some(expected) if expected != actual && !managed => Err(status::INVALID_VALUE),
        Some(expected) => Ok((expected, from, to)),
        None => Ok((actual, from, to)),
    }
}

/// Performs the copy.
pub fn copy(dst: usize, src: usize, bytes: usize) {
    let (to, from) = (std::ptr::with_exposed_provenance_mut::<u8>(dst), std::ptr::with_exposed_provenance::<u8>(src));
    // SAFETY: device ends were looked up; host ends are the program's own, as with the real API.
    unsafe { std::ptr::copy(from, to, bytes) };
}

/// Checks a memset's target and returns its kind of memory.
pub fn target(dst: usize, bytes: usize) -> Result<u8, u32> {
    find(dst, bytes).map(|(kind, _)| kind).ok_or(status::INVALID_VALUE)
}

/// Performs a memset: `count` values of `width` bytes (1, 2 or 4).
pub fn set(dst: usize, value: u32, width: usize, count: usize) {
    let to = std::ptr::with_exposed_provenance_mut::<c_void>(dst);
    if width == 1 {
        // SAFETY: the target was looked up.
        unsafe { libc::memset(to, value as i32, count) };
        return;
    }
    let value = value.to_le_bytes();
    for at in 0..count {
        // SAFETY: the target was looked up and holds `count * width` bytes.
        unsafe { std::ptr::copy_nonoverlapping(value.as_ptr(), to.cast::<u8>().add(at * width), width) };
    }
}

#[cfg(test)]
mod tests {
    use super::super::device;
    use super::*;

    /// Check that an allocation that does not fit never makes one of another thread fail: it
    /// must not be added to the memory in use, even for a moment.
    #[test]
    fn failed_allocations_do_not_disturb_others() {
        device::create();
        let device = device::device(0).expect("a device");
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    assert!(allocate(device, 1, memory_kind::DEVICE, 1 << 50).is_err());
                }
            });
            let all =
                (0..100_000).all(|_| allocate(device, 1, memory_kind::DEVICE, 64).is_ok_and(|at| free(at).is_ok()));
            done.store(true, Ordering::Relaxed);
            assert!(all, "64 bytes always fit");
        });
    }
}
