//! Communicators.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::nvtx::{Fields, Range, schema};
use super::region::{MOST_RANKS, Region, UniqueId};
use super::{Outcome, result};
use crate::cudart::call::ready;
use crate::gpu::behind;

const MAGIC: u64 = 0x7773_636f_6d6d;

/// A communicator of one member; never freed.
pub struct Communicator {
    magic: u64,
    pub region: &'static Region,
    /// Its number, the same for all members.
    pub hash: u64,
    pub rank: u32,
    pub size: u32,
    pub device: u32,
    /// It was split from another one.
    pub is_split: bool,
    calls: AtomicU64,
    groups: AtomicU64,
    splits: AtomicU64,
    /// Messages so far, by peer and side.
    messages: Mutex<HashMap<(u32, usize), u64>>,
}

impl Communicator {
    /// Joins the communicator with this id, and waits for the other members.
    pub fn join(id: &UniqueId, size: u32, rank: u32, is_split: bool) -> Outcome<&'static Self> {
        if size == 0 || size as usize > MOST_RANKS || rank >= size {
            return Err(result::INVALID_ARGUMENT);
        }
        let driver = ready().map_err(|_| result::UNHANDLED_CUDA_ERROR)?;
        let mut context = std::ptr::null_mut();
        let (0, Some((_, device))) = ((driver.cuCtxGetCurrent)(&mut context), (driver.table.context_ids)(context))
        else {
            return Err(result::UNHANDLED_CUDA_ERROR);
        };
        let region = id.open()?;
        region.join(size);
        let zero = || AtomicU64::new(0);
        let (hash, messages) = (id.hash(), Mutex::default());
        let (calls, groups, splits) = (zero(), zero(), zero());
        let own = Self { magic: MAGIC, region, hash, rank, size, device, is_split, calls, groups, splits, messages };
        Ok(Box::leak(Box::new(own)))
    }

    /// Splits it.
    pub fn split(&self, color: i32, key: i32) -> Outcome<Option<&'static Self>> {
        let number = self.splits.fetch_add(1, Ordering::Relaxed);
        let part = self.region.split(self.rank as usize, self.size as usize, number, color, key)?;
        part.map(|(id, size, rank)| Self::join(&id, size, rank, true)).transpose()
    }

    /// Returns the communicator of an `ncclComm_t`.
    pub fn of(handle: *mut c_void) -> Outcome<&'static Self> {
        // SAFETY: the program got the handle from us; communicators are never freed.
        let found = unsafe { behind::<Self>(handle) }.map_err(|_| result::INVALID_ARGUMENT)?;
        if found.magic == MAGIC { Ok(found) } else { Err(result::INVALID_ARGUMENT) }
    }

    /// Returns the `ncclComm_t`.
    pub fn handle(&'static self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    /// Describes it by NVTX: when it was created, or when it is destroyed.
    pub fn describe(&self, layout: u64) -> Range {
        let fields = Fields::of_communicator(self.hash, self.size, self.rank, self.device);
        if layout == schema::INIT_RANK { Range::ending(layout, fields) } else { Range::begin(layout, fields) }
    }

    /// Returns the number of the next operation.
    pub fn next_call(&self) -> u64 {
        self.calls.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the number of the next group of messages.
    pub fn next_group(&self) -> u64 {
        self.groups.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the number of the next message to a peer (side 0), or from it (side 1).
    pub fn next_message(&self, peer: u32, side: usize) -> u64 {
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        let next = messages.entry((peer, side)).or_default();
        *next += 1;
        *next - 1
    }
}
