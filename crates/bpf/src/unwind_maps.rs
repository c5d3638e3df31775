//! Writes the stack walker's maps: rows of unwind tables, and which process has which file mapped where.
//!
//! Rows are stored in shards, memory shared with the kernel. So are mappings, in one array where each image has a
//! range. A range is never changed in place while a program may be reading it: a process that maps one more file gets a
//! new range, and the old one is reused only after a delay.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    os::fd::{AsFd, AsRawFd},
    time::{Duration, Instant},
};

use libbpf_rs::{ErrorExt, MapCore, MapFlags, MapHandle, MapMut, MapType, libbpf_sys};

use crate::{
    contract::{
        bytes_of,
        types::{limit, mapping, no_shard, range, unwind_row},
    },
    shared_memory::Shared,
};

/// Rows in a shard that several files share: 2 MiB at first, then 8 MiB.
const FIRST_SHARD: usize = 1 << 18;
const SHARD: usize = 1 << 20;
const MOST_SHARDS: usize = limit::MAX_SHARDS.0 as usize;
const MOST_MAPPINGS: usize = limit::MAX_MAPPINGS.0 as usize;
/// The most mappings of one image that the walker can use: what the search in `bpf/walk.bpf.h` covers.
pub const MOST_PER_IMAGE: usize = limit::MAX_MAPPINGS_PER_IMAGE.0 as usize;
/// The most frames of a stack's user part.
pub const MOST_FRAMES: usize = limit::MAX_USER_FRAMES.0 as usize;
/// Images with more mappings than this leave room for others: a program can map code and fork until the array is full.
const MANY: u32 = 1024;
/// The delay before a range is reused: no program runs that long.
const REST: Duration = Duration::from_secs(2);

const ROW: usize = size_of::<unwind_row>();
const MAPPING: usize = size_of::<mapping>();

type Result<T> = std::result::Result<T, libbpf_rs::Error>;

/// Where the rows of a file are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    shard: u32,
    first: u32,
    count: u32,
}

/// One executable mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    /// First address.
    pub start: u64,
    /// One past the last.
    pub end: u64,
    /// An address minus this is the `pc` of a row.
    pub base: u64,
    /// The file's rows; `None` while they are not ready; `Some(None)` if there will be none.
    pub rows: Option<Option<Place>>,
}

/// The walker's maps.
#[derive(Debug)]
pub struct UnwindMaps {
    outer: MapHandle,
    ranges: MapHandle,
    mappings: Shared,
    shards: Vec<Shard>,
    /// Free ranges of `mappings`: first, length.
    free: BTreeMap<u32, u32>,
    resting: VecDeque<(Instant, u32, u32)>,
    resting_rows: VecDeque<(Instant, Place)>,
    in_use: HashMap<u32, (u32, u32)>,
    /// Images of which no new stacks are sent.
    full: HashSet<u32>,
    /// Counts updates of the walker's maps. A range may start where an earlier one did, and the walker's caches must
    /// not outlive it.
    generation: u32,
}

#[derive(Debug)]
struct Shard {
    memory: Shared,
    /// Free ranges of rows: first, length.
    free: BTreeMap<u32, u32>,
}

impl UnwindMaps {
    /// Handles are our own descriptors: opening a map by its id requires CAP_SYS_ADMIN.
    pub(crate) fn new(outer: &MapMut<'_>, mappings: &MapMut<'_>, ranges: &MapMut<'_>) -> Result<Self> {
        Ok(Self {
            outer: outer.try_into()?,
            ranges: ranges.try_into()?,
            mappings: Shared::map(mappings.as_fd(), MOST_MAPPINGS * MAPPING)?,
            shards: Vec::new(),
            free: BTreeMap::from([(0, MOST_MAPPINGS as u32)]),
            resting: VecDeque::new(),
            resting_rows: VecDeque::new(),
            in_use: HashMap::new(),
            full: HashSet::new(),
            generation: 0,
        })
    }

    /// Stores a file's rows for the walker; `rows` in their memory layout, 8 bytes each.
    pub fn add_rows(&mut self, rows: &[u8]) -> Result<Option<Place>> {
        let count = rows.len() / ROW;
        if count == 0 {
            return Ok(None);
        }
        while self.resting_rows.front().is_some_and(|(since, _)| since.elapsed() >= REST)
            && let Some((_, place)) = self.resting_rows.pop_front()
        {
            give_back(&mut self.shards[place.shard as usize].free, place.first, place.count);
        }
        let found = self.shards.iter_mut().enumerate().find_map(|(i, s)| Some((i, take(&mut s.free, count as u32)?)));
        let (index, first) = match found {
            Some(found) => found,
            None if self.shards.len() == MOST_SHARDS => return Ok(None),
            None => {
                let room = if self.shards.is_empty() { FIRST_SHARD } else { SHARD };
                let index = self.add_shard(count.max(room))?;
                let Some(first) = take(&mut self.shards[index].free, count as u32) else { return Ok(None) };
                (index, first)
            }
        };
        let memory = &mut self.shards[index].memory;
        memory.bytes(first as usize * ROW, count * ROW).copy_from_slice(&rows[..count * ROW]);
        Ok(Some(Place { shard: index as u32, first, count: count as u32 }))
    }

    /// Removes a file's rows: no image has it mapped.
    pub fn remove_rows(&mut self, place: Place) {
        self.resting_rows.push_back((Instant::now(), place));
    }

    /// Returns a file's rows in their memory layout.
    pub fn rows(&self, place: Place) -> &[u8] {
        self.shards[place.shard as usize].memory.read(place.first as usize * ROW, place.count as usize * ROW)
    }

    fn add_shard(&mut self, rows: usize) -> Result<usize> {
        let options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as _,
            map_flags: libbpf_sys::BPF_F_INNER_MAP | libbpf_sys::BPF_F_MMAPABLE,
            ..Default::default()
        };
        let map = MapHandle::create(MapType::Array, Some("rows"), 4, ROW as u32, rows as u32, &options)
            .context("cannot create a map for unwind rows")?;
        let memory = Shared::map(map.as_fd(), rows * ROW)?;
        let index = self.shards.len();
        let fd = map.as_fd().as_raw_fd();
        self.outer.update(&(index as u32).to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY)?;
        self.shards.push(Shard { memory, free: BTreeMap::from([(0, rows as u32)]) });
        Ok(index)
    }

    /// Sets the mappings of an image, sorted by start. Mappings beyond [`MOST_PER_IMAGE`] are left out: walks end there. Returns
    /// false if there is no room at the moment: until a later call succeeds, the image's stacks arrive as raw memory.
    pub fn set(&mut self, image: u32, codes: &[Code]) -> Result<bool> {
        let codes = &codes[..codes.len().min(MOST_PER_IMAGE)];
        let Some(first) = self.take_range(codes.len() as u32) else { return Ok(false) };
        for (i, code) in codes.iter().enumerate() {
            let place = match code.rows {
                None => Place { shard: no_shard::SHARD_PENDING.0, first: 0, count: 0 },
                Some(None) => Place { shard: no_shard::SHARD_NONE.0, first: 0, count: 0 },
                Some(Some(place)) => place,
            };
            let (Code { start, end, base, .. }, Place { shard, first: first_row, count }) = (*code, place);
            let value = mapping { start, end, base, shard, first: first_row, count, pad: 0 };
            self.mappings.bytes((first as usize + i) * MAPPING, MAPPING).copy_from_slice(bytes_of(&value));
        }
        self.generation = self.generation.wrapping_add(1).max(1);
        let full = u32::from(self.full.contains(&image));
        let value = range { first, count: codes.len() as u32, generation: self.generation, full };
        self.ranges.update(&image.to_ne_bytes(), bytes_of(&value), MapFlags::ANY)?;
        if let Some((first, count)) = self.in_use.insert(image, (first, codes.len() as u32)) {
            self.resting.push_back((Instant::now(), first, count));
        }
        Ok(true)
    }

    /// Sends no new stacks of an image from its next update on. Returns whether that is new.
    pub fn set_full(&mut self, image: u32) -> bool {
        self.full.insert(image)
    }

    /// Removes an ended image.
    pub fn forget(&mut self, image: u32) {
        self.full.remove(&image);
        if let Some((first, count)) = self.in_use.remove(&image) {
            self.resting.push_back((Instant::now(), first, count));
        }
        // A forked child without mappings of its own has still inherited an entry.
        let _ = self.ranges.delete(&image.to_ne_bytes());
    }

    /// Allocates a range for the mappings of an image.
    fn take_range(&mut self, count: u32) -> Option<u32> {
        while let Some((since, first, count)) = self.resting.front().copied() {
            if since.elapsed() < REST {
                break;
            }
            self.resting.pop_front();
            give_back(&mut self.free, first, count);
        }
        let left = self.free.values().sum::<u32>().saturating_sub(count);
        if count > MANY && left < MOST_MAPPINGS as u32 / 2 {
            return None;
        }
        take(&mut self.free, count)
    }
}

/// Allocates a range from the free ones, first fit.
fn take(free: &mut BTreeMap<u32, u32>, count: u32) -> Option<u32> {
    let (first, length) = free.iter().find(|(_, length)| **length >= count).map(|(f, l)| (*f, *l))?;
    free.remove(&first);
    if length > count {
        free.insert(first + count, length - count);
    }
    Some(first)
}

/// Adds a range to the free ones and joins it with its neighbours.
fn give_back(free: &mut BTreeMap<u32, u32>, mut first: u32, mut count: u32) {
    if count == 0 {
        return;
    }
    if let Some((before, length)) = free.range(..first).next_back().map(|(f, l)| (*f, *l))
        && before + length == first
    {
        free.remove(&before);
        first = before;
        count += length;
    }
    if let Some(length) = free.remove(&(first + count)) {
        count += length;
    }
    free.insert(first, count);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that freed ranges join with their neighbours on both sides.
    #[test]
    fn freed_ranges_join_their_neighbours() {
        let mut free = BTreeMap::from([(0, 4), (8, 4)]);
        give_back(&mut free, 4, 4);
        assert_eq!(free, BTreeMap::from([(0, 12)]));
        give_back(&mut free, 20, 2);
        give_back(&mut free, 12, 0);
        assert_eq!(free, BTreeMap::from([(0, 12), (20, 2)]));
        assert_eq!(take(&mut free, 10), Some(0));
        assert_eq!(take(&mut free, 3), None);
        assert_eq!(free, BTreeMap::from([(10, 2), (20, 2)]));
    }
}
