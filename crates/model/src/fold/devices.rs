//! Identifies devices, and numbers them.
//!
//! Each process numbers the devices that it sees from 0, so one number can stand for different GPUs, and one GPU can have
//! different numbers. Devices are the same if their UUIDs are. Without a UUID (recordings of earlier versions) they are the
//! same if their numbers are.
//!
//! ```text
//!   rank 0, CUDA_VISIBLE_DEVICES=2   device 0  ->  GPU-8c1f...  ->  GPU 2
//!   rank 1, CUDA_VISIBLE_DEVICES=3   device 0  ->  GPU-e07a...  ->  GPU 3
//! ```

mod numbering;
mod slot;

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use self::{
    numbering::number,
    slot::{Identity, Slot},
};
use super::{
    blame::{Blame, Evidence, Feed},
    busy::{BusyTime, KEPT, TimeRange},
};
use crate::{
    event::{Device, DeviceIdentity, SessionId, Uuid},
    profile::Profile,
};

/// The maximum number of devices without a UUID, and with one: in total and of one session.
const MAX_PLAIN: usize = 128;
const MAX_KNOWN: usize = 512;
const MAX_KNOWN_OF_SESSION: u32 = 64;
/// How many devices get full precision of their busy time.
const PRECISE: usize = 16;
/// The maximum number of sessions' devices.
const MAX_PLACES: usize = 65_536;

/// All devices seen.
#[derive(Default)]
pub struct Devices {
    slots: Vec<Slot>,
    by_identity: FxHashMap<Identity, u32>,
    /// By session and the session's index.
    places: FxHashMap<(SessionId, u32), u32>,
    /// The number of slots with a UUID that each session added.
    added: FxHashMap<SessionId, u32>,
    plain: usize,
    known: usize,
    /// Devices with busy time.
    busy: usize,
    /// The time in which busy and idle time is counted.
    range: TimeRange,
    /// Parts of the time whose idle time is charged separately.
    parts: Vec<TimeRange>,
}

impl Devices {
    /// Starts with none, and counts only a part of the time.
    pub fn within(range: TimeRange) -> Self {
        Self { range, ..Self::default() }
    }

    /// Starts with none, and charges the idle time in each of some parts of the time as well.
    pub fn with_parts(parts: Vec<TimeRange>) -> Self {
        Self { parts, ..Self::default() }
    }

    /// Adds what a session reports about one of its devices. Returns its slot if work of this device was assigned to
    /// another slot before.
    pub fn describe(&mut self, device: &Device) -> Option<u32> {
        let place = (device.session, device.index);
        let before = self.places.get(&place).copied();
        // Only the first description of a device counts.
        let is_plain = |slot: u32| matches!(self.slots[slot as usize].identity, Identity::Plain(_));
        if before.is_some_and(|slot| !is_plain(slot)) || self.places.len() >= MAX_PLACES {
            return None;
        }
        let DeviceIdentity { uuid, machine_index, limits, .. } = device.identity;
        let added = self.added.get(&device.session).copied().unwrap_or(0);
        let known = uuid.is_known()
            && (self.by_identity.contains_key(&Identity::Known(uuid))
                || (self.known < MAX_KNOWN && added < MAX_KNOWN_OF_SESSION));
        let slot = if known { self.known_slot(device) } else { self.plain_slot(device.index)? };
        let description = &mut self.slots[slot as usize];
        if description.name.is_empty() {
            description.name.clone_from(&device.name);
        }
        description.machine_index = description.machine_index.or(machine_index);
        if !description.limits.is_known() {
            description.limits = limits;
        }
        self.places.insert(place, slot);
        (before.is_some_and(|before| before != slot)).then_some(slot)
    }

    /// Returns the slot of a session's device; `None` if there are too many.
    pub fn slot(&mut self, session: SessionId, index: u32) -> Option<u32> {
        if let Some(slot) = self.places.get(&(session, index)) {
            return Some(*slot);
        }
        let slot = self.plain_slot(index)?;
        if self.places.len() < MAX_PLACES {
            self.places.insert((session, index), slot);
        }
        Some(slot)
    }

    fn known_slot(&mut self, device: &Device) -> u32 {
        let DeviceIdentity { uuid, gpu, pci, machine_index, .. } = device.identity;
        let identity = Identity::Known(uuid);
        if let Some(slot) = self.by_identity.get(&identity) {
            return *slot;
        }
        self.known += 1;
        *self.added.entry(device.session).or_default() += 1;
        self.add(Slot::new(identity, if gpu.is_known() { gpu } else { uuid }, pci, machine_index))
    }

    fn plain_slot(&mut self, index: u32) -> Option<u32> {
        let identity = Identity::Plain(index);
        if let Some(slot) = self.by_identity.get(&identity) {
            return Some(*slot);
        }
        if self.plain >= MAX_PLAIN {
            return None;
        }
        self.plain += 1;
        Some(self.add(Slot::new(identity, Uuid(0), u64::MAX, None)))
    }

    fn add(&mut self, slot: Slot) -> u32 {
        let number = self.slots.len() as u32;
        self.by_identity.insert(slot.identity, number);
        self.slots.push(slot);
        number
    }

    /// Adds an interval in which a device was busy, and the launch of its work.
    #[inline]
    pub fn add_busy(&mut self, slot: u32, start: u64, end: u64, feed: Feed, evidence: &mut Evidence) {
        let Slot { busy, kernels, blame, parts, .. } = &mut self.slots[slot as usize];
        let busy = busy.get_or_insert_with(|| {
            self.busy += 1;
            let kept = if self.busy <= PRECISE { KEPT } else { KEPT / 16 };
            *kernels = BusyTime::new(kept).within(self.range);
            blame.range = self.range;
            parts.extend(self.parts.iter().map(|part| Blame::within(*part)));
            BusyTime::new(kept).within(self.range)
        });
        busy.add_marked(start, end, feed, |gap| {
            evidence.sort();
            kernels.merge();
            blame.close(gap, kernels, evidence);
            parts.iter_mut().filter(|part| part.overlaps(&gap)).for_each(|part| part.close(gap, kernels, evidence));
        });
    }

    /// Adds an interval in which a kernel ran, and its launch.
    #[inline]
    pub fn add_kernel(&mut self, slot: u32, start: u64, end: u64, feed: Feed) {
        self.slots[slot as usize].kernels.add_marked(start, end, feed, |_| {});
    }

    /// Assigns the older half of the evidence to the gaps known so far, and drops it.
    pub fn use_older_half(&mut self, evidence: &mut Evidence) {
        evidence.sort();
        let older = evidence.take_older_half();
        for Slot { busy, kernels, blame, parts, .. } in &mut self.slots {
            let Some(busy) = busy else { continue };
            busy.merge();
            kernels.merge();
            for gap in busy.open_gaps() {
                blame.assign_open(gap, kernels, &older);
                parts.iter_mut().filter(|part| part.overlaps(&gap)).for_each(|p| p.assign_open(gap, kernels, &older));
            }
        }
    }

    /// Returns the GPU of a device, which is another one if the GPU is partitioned; `None` if it is not known.
    pub fn gpu(&self, slot: u32) -> Option<Uuid> {
        self.slots.get(slot as usize).map(|slot| slot.gpu).filter(|gpu| gpu.is_known())
    }

    /// Returns the GPUs on which work ran.
    pub fn gpus(&self) -> impl Iterator<Item = Uuid> + '_ {
        self.slots.iter().filter(|slot| !slot.streams.is_empty()).map(|slot| slot.gpu)
    }

    /// Adds a stream of a device, as (session, context, stream).
    pub fn add_stream(&mut self, slot: u32, stream: (SessionId, u32, u32)) {
        self.slots[slot as usize].streams.insert(stream);
    }

    /// Numbers the devices and adds them to the profile. Returns the number of each slot.
    pub fn number(mut self, profile: &mut Profile, evidence: &mut Evidence) -> Vec<u32> {
        evidence.sort();
        let start = profile.start.as_ref().map(|start| start.time);
        let whole = (start, profile.end.map_or(profile.last_time, |end| end.time));
        let streams = self.slots.iter().flat_map(|slot| slot.streams.iter());
        let users: BTreeSet<SessionId> = streams.map(|(session, ..)| *session).collect();
        for ((session, _), slot) in &self.places {
            self.slots[*slot as usize].used |= users.contains(session);
        }
        let (numbering, names) = number(&self.slots);
        let numbers: Vec<u32> = names.iter().map(|(number, _)| *number).collect();
        for (slot, (number, label)) in self.slots.into_iter().zip(names) {
            profile.devices.insert(number, slot.info(label, whole, evidence));
        }
        profile.numbering = numbering;
        let place = |(place, slot): ((SessionId, u32), u32)| (place, numbers[slot as usize]);
        profile.device_numbers = self.places.into_iter().map(place).collect();
        numbers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Numbering;

    fn device(session: u32, index: u32, uuid: u128) -> Device {
        at(session, index, DeviceIdentity { uuid: Uuid(uuid), gpu: Uuid(uuid), ..DeviceIdentity::default() })
    }

    fn at(session: u32, index: u32, identity: DeviceIdentity) -> Device {
        Device { session: SessionId(session), index, name: String::new(), identity }
    }

    /// Adds the devices, each with work of a length of its own, and returns number, label and busy time of each.
    fn numbered(devices: &[Device]) -> (Numbering, Vec<(u32, String, u64)>) {
        let mut all = Devices::default();
        for (device, at) in devices.iter().zip(1_u64..) {
            all.describe(device);
            let slot = all.slot(device.session, device.index).expect("there are few");
            all.add_busy(slot, 1_000 * at, 1_000 * at + 10 * at, Feed::default(), &mut Evidence::default());
            all.add_stream(slot, (device.session, 1, 7));
        }
        let mut profile = Profile::default();
        all.number(&mut profile, &mut Evidence::default());
        let numbered = profile.devices.iter().map(|(number, info)| (*number, info.label.clone(), info.busy_ns));
        (profile.numbering, numbered.collect())
    }

    fn expected(rows: &[(u32, &str, u64)]) -> Vec<(u32, String, u64)> {
        rows.iter().map(|(number, label, busy)| (*number, (*label).to_owned(), *busy)).collect()
    }

    /// Check that the same index in two sessions is two devices if the UUIDs differ, and that two indices are one device
    /// if they do not.
    #[test]
    fn devices_are_distinguished_by_uuid() {
        let (numbering, rows) = numbered(&[device(0, 0, 9), device(1, 0, 5), device(2, 3, 9)]);
        assert_eq!(numbering, Numbering::Uuid);
        assert_eq!(rows, expected(&[(0, "0", 20), (1, "1", 40)]));
    }

    /// Check that devices without UUIDs keep the numbers of the processes.
    #[test]
    fn without_uuids_the_index_counts() {
        let (numbering, rows) = numbered(&[device(0, 3, 0), device(1, 3, 0), device(1, 1, 0)]);
        assert_eq!(numbering, Numbering::Process);
        assert_eq!(rows, expected(&[(1, "1", 30), (3, "3", 30)]));
    }

    /// Check the order of PCI addresses, and that the machine's numbers are used if all are known and distinct.
    #[test]
    fn numbers_follow_the_machine() {
        let gpu = |session, uuid, pci, machine_index| {
            at(
                session,
                0,
                DeviceIdentity { uuid: Uuid(uuid), gpu: Uuid(uuid), pci, machine_index, ..DeviceIdentity::default() },
            )
        };
        let (numbering, rows) = numbered(&[gpu(0, 1, 80, None), gpu(1, 2, 10, None)]);
        assert_eq!((numbering, rows), (Numbering::Pci, expected(&[(0, "0", 20), (1, "1", 10)])));
        let (numbering, rows) = numbered(&[gpu(0, 1, 10, Some(6)), gpu(1, 2, 80, Some(4))]);
        assert_eq!((numbering, rows), (Numbering::Machine, expected(&[(4, "4", 20), (6, "6", 10)])));
        for wrong in [Some(6), None, Some(5_000)] {
            let (numbering, rows) = numbered(&[gpu(0, 1, 80, Some(6)), gpu(1, 2, 10, wrong)]);
            assert_eq!((numbering, rows), (Numbering::Machine, expected(&[(6, "6", 10), (7, "7", 20)])));
        }
    }

    /// Check that GPUs of a process that uses none come after those of processes that do.
    #[test]
    fn unused_gpus_come_last() {
        let mut all = Devices::default();
        for (session, uuid) in [(0, 1), (1, 2), (1, 3)] {
            all.describe(&device(session, uuid as u32, uuid));
        }
        all.add_stream(1, (SessionId(1), 1, 7));
        let mut profile = Profile::default();
        all.number(&mut profile, &mut Evidence::default());
        let uuids: Vec<&str> = profile.devices.values().map(|device| &device.uuid[39..]).collect();
        assert_eq!(uuids, ["2", "3", "1"]);
    }

    /// Check that instances of a GPU are separate devices with the number of their GPU.
    #[test]
    fn instances_have_their_own_numbers() {
        let instance = |session, uuid| {
            let identity = DeviceIdentity {
                uuid: Uuid(uuid),
                gpu: Uuid(7),
                pci: 8,
                machine_index: Some(1),
                ..DeviceIdentity::default()
            };
            at(session, 0, identity)
        };
        let whole = at(
            2,
            0,
            DeviceIdentity { uuid: Uuid(3), gpu: Uuid(3), pci: 9, machine_index: Some(0), ..DeviceIdentity::default() },
        );
        let (numbering, rows) = numbered(&[instance(0, 72), instance(1, 71), whole]);
        assert_eq!(numbering, Numbering::Machine);
        assert_eq!(rows, expected(&[(0, "0", 30), (2, "1:0", 20), (3, "1:1", 10)]));
    }

    /// Check that sessions cannot use up all devices, and that a device is described only once.
    #[test]
    fn hostile_descriptions_are_bounded() {
        let mut all = Devices::default();
        for session in 0..100 {
            for index in 0..1_000 {
                all.describe(&device(session, index, (u128::from(session) << 32) | (u128::from(index) + 1)));
                all.describe(&device(session, index, u128::from(index) + 77));
            }
        }
        assert!(all.known <= MAX_KNOWN && all.plain <= MAX_PLAIN && all.places.len() <= MAX_PLACES);
        let mut profile = Profile::default();
        all.number(&mut profile, &mut Evidence::default());
        assert_eq!(profile.devices.len(), MAX_KNOWN + MAX_PLAIN);
    }
}
