//! Reads and removes the sums in the kernel.

use std::sync::atomic::Ordering;

use libbpf_rs::MapCore;

use crate::{
    Recorder,
    calls::{Allocation, ErrorSum, KernelSum, MemorySum, Site, Sum},
    contract::{
        Plain, bytes_of, read,
        types::{
            allocation, allocation_key, context_key, error_key, kernel_key, kernel_sum, limit, memory_key, memory_sum,
            site, site_key, sum_key,
        },
    },
};

const USERS: usize = limit::USERS.0 as usize;

impl Recorder {
    /// Returns the call sums so far, by function.
    pub fn sums(&self) -> Vec<Sum> {
        let mut found = Vec::new();
        self.each(&self.skel.maps.sums, |key, values| found.extend(Sum::parse(key, values)));
        found
    }

    /// Returns failed calls by result.
    pub fn error_sums(&self) -> Vec<ErrorSum> {
        let sum = |(key, count): (error_key, u64)| ErrorSum {
            image: key.image,
            function: key.function,
            code: key.code,
            enclosed: key.enclosed != 0,
            count,
        };
        self.entries(&self.skel.maps.errors).into_iter().map(sum).collect()
    }

    /// Returns memory by process and space.
    pub fn memory_sums(&self) -> Vec<MemorySum> {
        let sum = |(key, sum): (memory_key, memory_sum)| MemorySum {
            image: key.image,
            space: key.space,
            live_bytes: not_negative(sum.live_bytes),
            live: not_negative(sum.live),
            peak_bytes: not_negative(sum.peak_bytes),
            allocations: sum.allocations,
            allocated_bytes: sum.allocated_bytes,
            frees: sum.frees,
            failed: sum.failed,
            failed_frees: sum.failed_frees,
            unknown_frees: sum.unknown_frees,
            missed_frees: sum.missed_frees,
            released: sum.released,
            untracked: sum.untracked,
        };
        self.entries(&self.skel.maps.memory_sums).into_iter().map(sum).collect()
    }

    /// Returns the live allocations one by one.
    pub fn allocations(&self) -> Vec<Allocation> {
        let live = |(key, live): (allocation_key, allocation)| Allocation {
            image: key.image,
            address: key.address,
            bytes: live.bytes,
            time: live.time,
            space: live.space,
            function: live.site.function,
            stack: live.site.stack,
            python: live.site.python,
        };
        self.entries(&self.skel.maps.allocations).into_iter().map(live).collect()
    }

    /// Returns how many live allocations are in the kernel's map.
    pub fn held(&self) -> u64 {
        (0..USERS).map(|user| self.held_by_user.counter(user).load(Ordering::Relaxed)).sum()
    }

    /// Returns live memory by the call stack that allocated it.
    pub fn sites(&self) -> Vec<Site> {
        let live = |(key, live): (site_key, site)| Site {
            image: key.image,
            function: key.function,
            stack: key.stack,
            python: key.python,
            bytes: not_negative(live.bytes),
            count: not_negative(live.count),
            since: live.since,
        };
        self.entries(&self.skel.maps.sites).into_iter().map(live).collect()
    }

    /// Returns launches by kernel; those that did not fit have the address 0.
    pub fn kernel_sums(&self) -> Vec<KernelSum> {
        let sum = |(key, sum): (kernel_key, kernel_sum)| KernelSum {
            image: key.image,
            address: key.address,
            handle: key.handle != 0,
            count: sum.count,
            grid: sum.shape.grid,
            block: sum.shape.block,
        };
        let beyond = |(image, count): (u32, u64)| KernelSum { image, count, ..KernelSum::default() };
        let maps = &self.skel.maps;
        let known = self.entries(&maps.kernels).into_iter().map(sum);
        known.chain(self.entries(&maps.kernels_beyond).into_iter().map(beyond)).collect()
    }

    /// Removes the sums of ended process images.
    pub fn forget_sums(&self, gone: &dyn Fn(u32) -> bool) {
        let maps = &self.skel.maps;
        self.forget_allocations(gone);
        self.forget(&maps.contexts, |key: &context_key| gone(key.image));
        self.forget(&maps.sums, |key: &sum_key| gone(key.image));
        self.forget(&maps.errors, |key: &error_key| gone(key.image));
        self.forget(&maps.memory_sums, |key: &memory_key| gone(key.image));
        self.forget(&maps.kernels, |key: &kernel_key| gone(key.image));
        self.forget(&maps.kernels_beyond, |image: &u32| gone(*image));
        self.forget(&maps.sites, |key: &site_key| gone(key.image));
    }

    /// Removes the live allocations of ended process images, and releases their users' shares. Their totals stay in the
    /// sums.
    pub fn forget_allocations(&self, gone: &dyn Fn(u32) -> bool) {
        // The map of allocations is large, and most ended processes have none in it.
        if !self.memory_sums().iter().any(|sum| sum.live > 0 && gone(sum.image)) {
            return;
        }
        for (key, live) in self.entries::<allocation_key, allocation>(&self.skel.maps.allocations) {
            if gone(key.image) && self.skel.maps.allocations.delete(bytes_of(&key)).is_ok() {
                self.held_by_user.counter(live.user as usize % USERS).fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Removes the launches of one kernel; returns how many there were.
    pub fn forget_kernel(&self, kernel: &KernelSum) -> u64 {
        let key = kernel_key { address: kernel.address, image: kernel.image, handle: kernel.handle.into() };
        let last = self.skel.maps.kernels.lookup_and_delete(bytes_of(&key)).ok().flatten();
        last.and_then(|value| read::<kernel_sum>(&value)).map_or(0, |sum| sum.count)
    }

    /// Removes a call stack without live allocations.
    pub fn forget_site(&self, site: &Site) {
        let key = site_key { stack: site.stack, python: site.python, image: site.image, function: site.function };
        let _ = self.skel.maps.sites.delete(bytes_of(&key));
    }

    /// Removes stacks from the set of those already sent: the next time they occur, they are sent again.
    pub fn forget_stacks(&self, native: &[u64], python: &[u64]) {
        for (map, ids) in [(&self.skel.maps.stacks_sent, native), (&self.skel.maps.python_stacks_sent, python)] {
            for id in ids {
                let _ = map.delete(&id.to_ne_bytes());
            }
        }
    }

    /// Returns the capacity of each map of sums.
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
    /// Deletes the entries whose key is `gone`.
    fn forget<K: Plain>(&self, map: &impl MapCore, gone: impl Fn(&K) -> bool) {
        let mut keys = Vec::new();
        self.each(map, |key, _| keys.extend(read::<K>(key).filter(&gone)));
        for key in keys {
            let _ = map.delete(bytes_of(&key));
        }
    }
}

/// The capacity of each map.
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

/// A sum that two CPUs change at once may briefly be negative.
fn not_negative(sum: i64) -> u64 {
    sum.try_into().unwrap_or(0)
}
