//! What is summed up in the kernel, read and forgotten.

use std::sync::atomic::Ordering;

use libbpf_rs::MapCore;

use crate::{
    Recorder,
    calls::{Allocation, ErrorSum, KernelSum, MemorySum, Site, Sum},
    map,
    record::Fields,
};

impl Recorder {
    /// What was summed up so far, by function.
    pub fn sums(&self) -> Vec<Sum> {
        let mut found = Vec::new();
        self.each(&self.skel.maps.sums, |key, values| found.extend(Sum::parse(key, values)));
        found
    }

    /// Failed calls by result.
    pub fn error_sums(&self) -> Vec<ErrorSum> {
        self.entries(&self.skel.maps.errors, |key, value| {
            let (image, function, code, enclosed) = (key.u32()?, key.u32()?, key.u32()?, key.u32()? != 0);
            Some(ErrorSum { image, function, code, enclosed, count: value.u64()? })
        })
    }

    /// Memory by process and space.
    pub fn memory_sums(&self) -> Vec<MemorySum> {
        self.entries(&self.skel.maps.memory_sums, |key, value| {
            Some(MemorySum {
                image: key.u32()?,
                space: key.u32()?,
                live_bytes: not_negative(value.u64()?),
                live: not_negative(value.u64()?),
                peak_bytes: not_negative(value.u64()?),
                allocations: value.u64()?,
                allocated_bytes: value.u64()?,
                frees: value.u64()?,
                failed: value.u64()?,
                failed_frees: value.u64()?,
                unknown_frees: value.u64()?,
                missed_frees: value.u64()?,
                released: value.u64()?,
                untracked: value.u64()?,
            })
        })
    }

    /// Live allocations one by one.
    pub fn allocations(&self) -> Vec<Allocation> {
        self.entries(&self.skel.maps.allocations, |key, value| {
            let (address, image) = (key.u64()?, key.u32()?);
            let (bytes, time, _place, space, _user) =
                (value.u64()?, value.u64()?, value.u64()?, value.u32()?, value.u32()?);
            let (stack, python, _image, function) = (value.u64()?, value.u64()?, value.u32()?, value.u32()?);
            Some(Allocation { image, address, bytes, time, space, function, stack, python })
        })
    }

    /// How many live allocations are in the kernel's map.
    pub fn held(&self) -> u64 {
        (0..USERS).map(|user| self.held_by_user.counter(user).load(Ordering::Relaxed)).sum()
    }

    /// Live memory by the call stack that allocated it.
    pub fn sites(&self) -> Vec<Site> {
        self.entries(&self.skel.maps.sites, |key, value| {
            let (stack, python, image, function) = (key.u64()?, key.u64()?, key.u32()?, key.u32()?);
            let (bytes, count, since) = (not_negative(value.u64()?), not_negative(value.u64()?), value.u64()?);
            Some(Site { image, function, stack, python, bytes, count, since })
        })
    }

    /// Launches by kernel; those for which there was no room have the address 0.
    pub fn kernel_sums(&self) -> Vec<KernelSum> {
        let mut sums = self.entries(&self.skel.maps.kernels, |key, value| {
            let (address, image, handle) = (key.u64()?, key.u32()?, key.u32()? != 0);
            let count = value.u64()?;
            let grid = [value.u32()?, value.u32()?, value.u32()?];
            let block = [value.u32()?, value.u32()?, value.u32()?];
            Some(KernelSum { image, address, handle, count, grid, block })
        });
        sums.extend(self.entries(&self.skel.maps.kernels_beyond, |key, value| {
            Some(KernelSum { image: key.u32()?, count: value.u64()?, ..KernelSum::default() })
        }));
        sums
    }

    /// Forgets the sums of process images that are gone.
    pub fn forget_sums(&self, gone: &dyn Fn(u32) -> bool) {
        let maps = &self.skel.maps;
        self.forget_allocations(gone);
        // Where in each map's key the image is.
        self.forget(&maps.contexts, 0, gone);
        self.forget(&maps.sums, 0, gone);
        self.forget(&maps.errors, 0, gone);
        self.forget(&maps.memory_sums, 0, gone);
        self.forget(&maps.kernels, 8, gone);
        self.forget(&maps.kernels_beyond, 0, gone);
        self.forget(&maps.sites, 16, gone);
    }

    /// Forgets the live allocations of process images that are gone, and returns their users' shares. What they amounted
    /// to stays in the sums.
    pub fn forget_allocations(&self, gone: &dyn Fn(u32) -> bool) {
        // The map of allocations is large, and empty of most processes that have ended.
        if !self.memory_sums().iter().any(|sum| sum.live > 0 && gone(sum.image)) {
            return;
        }
        let mut keys = Vec::new();
        self.each(&self.skel.maps.allocations, |key, value| {
            let image = Fields::new(&key[8..]).u32();
            if image.is_some_and(gone) {
                keys.push((key.to_vec(), Fields::new(&value[ALLOCATION_USER..]).u32().unwrap_or(0)));
            }
        });
        for (key, user) in keys {
            if self.skel.maps.allocations.delete(&key).is_ok() {
                self.held_by_user.counter(user as usize % USERS).fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Forgets the launches of one kernel; returns how many there were.
    pub fn forget_kernel(&self, kernel: &KernelSum) -> u64 {
        let mut key = kernel.address.to_ne_bytes().to_vec();
        key.extend(kernel.image.to_ne_bytes());
        key.extend(u32::from(kernel.handle).to_ne_bytes());
        let last = self.skel.maps.kernels.lookup_and_delete(&key).ok().flatten();
        last.and_then(|value| Fields::new(&value).u64()).unwrap_or(0)
    }

    /// Forgets a call stack under which nothing is live.
    pub fn forget_site(&self, site: &Site) {
        let mut key = site.stack.to_ne_bytes().to_vec();
        key.extend(site.python.to_ne_bytes());
        key.extend(site.image.to_ne_bytes());
        key.extend(site.function.to_ne_bytes());
        let _ = self.skel.maps.sites.delete(&key);
    }

    /// Forgets that these stacks were sent: the next time they are met, they are sent again.
    pub fn forget_stacks(&self, native: &[u64], python: &[u64]) {
        for (map, ids) in [(&self.skel.maps.stacks_sent, native), (&self.skel.maps.python_stacks_sent, python)] {
            for id in ids {
                let _ = map.delete(&id.to_ne_bytes());
            }
        }
    }

    /// The room that each map of sums has, by name.
    pub fn sum_rooms(&self) -> SumRooms {
        let maps = &self.skel.maps;
        SumRooms {
            calls: maps.sums.max_entries().into(),
            errors: maps.errors.max_entries().into(),
            memory: maps.memory_sums.max_entries().into(),
            allocations: maps.allocations.max_entries().into(),
            sites: maps.sites.max_entries().into(),
            kernels: maps.kernels.max_entries().into(),
        }
    }
}

impl Recorder {
    /// Hands over every entry of a map. A read that fails is counted in [`Losses::unread`](crate::Losses::unread).
    pub(crate) fn each(&self, map: &impl MapCore, entry: impl FnMut(&[u8], &[u8])) {
        if map::each(map, entry).is_err() {
            self.unread.set(self.unread.get() + 1);
        }
    }

    fn entries<T>(&self, map: &impl MapCore, read: impl Fn(&mut Fields<'_>, &mut Fields<'_>) -> Option<T>) -> Vec<T> {
        let mut found = Vec::new();
        self.each(map, |key, value| found.extend(read(&mut Fields::new(key), &mut Fields::new(value))));
        found
    }

    /// Deletes the entries of images that are gone; the image is at `at` in the key.
    fn forget(&self, map: &impl MapCore, at: usize, gone: &dyn Fn(u32) -> bool) {
        let mut keys = Vec::new();
        self.each(map, |key, _| {
            let image = key.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_ne_bytes);
            if image.is_some_and(gone) {
                keys.push(key.to_vec());
            }
        });
        for key in keys {
            let _ = map.delete(&key);
        }
    }
}

/// How many entries each map can have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SumRooms {
    /// Of [`Recorder::sums`].
    pub calls: u64,
    /// Of [`Recorder::error_sums`].
    pub errors: u64,
    /// Of [`Recorder::memory_sums`].
    pub memory: u64,
    /// Allocations that can be live at a time.
    pub allocations: u64,
    /// Of [`Recorder::sites`].
    pub sites: u64,
    /// Of [`Recorder::kernel_sums`].
    pub kernels: u64,
}

/// Users that are told apart, as in `bpf/shared.h`.
pub(crate) const USERS: usize = 1024;
/// Where `struct allocation` has its user.
const ALLOCATION_USER: usize = 28;

/// A sum that two CPUs change at once may be seen below zero for a moment.
fn not_negative(sum: u64) -> u64 {
    if sum.cast_signed() < 0 { 0 } else { sum }
}
