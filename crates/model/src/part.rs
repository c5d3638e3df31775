//! Parts of a recording: what is selected is shown, and what is true comes from the whole.
//!
//! ```text
//!   recording  ---- time range ---->  whole of the range  ---- kernels, threads, ... ---->  part
//!   the cost of collecting            devices, their idle time, waits for the GPU            GPU and CPU time shown
//! ```
//!
//! A time range is the whole of what happened in it. Why a GPU was idle at its ends depends on the work before and after it,
//! so the busy and idle time of its GPUs is taken from all events ([`crate::fold::Fold::within`]). Any other selection leaves out work that kept a GPU busy and threads
//! that fed it: a GPU is not idle because its work is not shown. So a part takes the facts about its GPUs from its whole.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::profile::{DeviceInfo, GpuKey, Part, Profile};

impl Profile {
    /// Makes it a part of a whole, in the same time.
    #[must_use]
    pub fn part_of(mut self, whole: Self, filters: Vec<String>) -> Self {
        let devices = self.take_numbers(&whole);
        for (device, info) in &whole.devices {
            let own = devices.get(device).filter(|own| !own.streams.is_empty());
            let info = match own {
                None => info.without_work(),
                Some(own) => DeviceInfo { streams: own.streams.clone(), ..info.clone() },
            };
            self.devices.insert(*device, info);
        }
        (self.waits, self.launching) = (whole.waits, whole.launching);
        self.named(whole, filters, false)
    }

    /// Makes it a time range of a whole, in which `devices` were busy and idle.
    #[must_use]
    pub fn range_of(mut self, whole: Self, filters: Vec<String>, devices: BTreeMap<u32, DeviceInfo>) -> Self {
        let own = self.take_numbers(&whole);
        for (device, info) in devices {
            let streams = own.get(&device).map(|own| own.streams.clone()).unwrap_or_default();
            self.devices.insert(device, DeviceInfo { streams, ..info });
        }
        self.named(whole, filters, true)
    }

    fn named(mut self, whole: Self, filters: Vec<String>, is_range: bool) -> Self {
        self.part = Some(Part { filters, is_range, whole: Box::new(whole) });
        if let Some(note) = self.part_note() {
            self.notes.insert(0, note);
        }
        self
    }

    /// Returns everything that happened in the same time: itself, if nothing but a time range is selected.
    pub fn whole(&self) -> &Self {
        match &self.part {
            Some(part) if !part.is_range => &part.whole,
            _ => self,
        }
    }

    /// Returns the whole recording.
    pub fn recording(&self) -> &Self {
        self.part.as_ref().map_or(self, |part| part.whole.recording())
    }

    /// Whether something that happened in the same time is not selected.
    pub fn is_part(&self) -> bool {
        self.part.as_ref().is_some_and(|part| !part.is_range)
    }

    /// Returns the options that select it; none if it is a whole recording.
    pub fn filters(&self) -> &[String] {
        self.part.as_ref().map_or(&[], |part| &part.filters)
    }

    /// Returns a sentence about what is selected, if not everything.
    pub fn part_note(&self) -> Option<String> {
        let part = self.part.as_ref()?;
        let filters = part.filters.join(" ");
        Some(match part.is_range {
            true => format!("only a time range is shown: {filters}"),
            false => format!(
                "only a part is shown: {filters}; how busy GPUs were, waits for them and the cost are those of the whole"
            ),
        })
    }

    /// Takes the numbers of the GPUs from the whole: those of a part alone may differ. Returns its own GPUs by these numbers.
    fn take_numbers(&mut self, whole: &Self) -> FxHashMap<u32, DeviceInfo> {
        let own = std::mem::replace(&mut self.device_numbers, whole.device_numbers.clone());
        let same = |(place, own): (_, u32)| Some((own, *whole.device_numbers.get(&place)?));
        let numbers: FxHashMap<u32, u32> = own.into_iter().filter_map(same).collect();
        let number = |own: u32| numbers.get(&own).copied().unwrap_or(own);
        self.numbering = whole.numbering;
        let renumbered = |(key, weight): (GpuKey, _)| (GpuKey { device: number(key.device), ..key }, weight);
        self.gpu = std::mem::take(&mut self.gpu).into_iter().map(renumbered).collect();
        let renumbered = |((device, kernel), shapes): ((u32, u32), _)| ((number(device), kernel), shapes);
        self.shapes = std::mem::take(&mut self.shapes).into_iter().map(renumbered).collect();
        std::mem::take(&mut self.devices).into_iter().map(|(own, info)| (number(own), info)).collect()
    }
}

impl DeviceInfo {
    /// Returns what the device is, without what it did.
    fn without_work(&self) -> Self {
        let Self { label, uuid, gpu_uuid, name, limits, .. } = self.clone();
        Self { label, uuid, gpu_uuid, name, limits, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        event::{ProcessId, SessionId},
        idle::Phase,
        profile::{CpuWeight, GpuWeight, What},
    };

    /// A profile in which a session's only device has a number, some work and some busy time.
    fn profile(number: u32, busy_ns: u64, sessions: &[(u32, u32)]) -> Profile {
        let mut profile = Profile::default();
        for &(session, number) in sessions {
            profile.device_numbers.insert((SessionId(session), 0), number);
            profile.devices.insert(number, DeviceInfo { label: number.to_string(), ..DeviceInfo::default() });
        }
        let device = profile.devices.get_mut(&number).expect("it exists");
        (device.busy_ns, device.streams) = (busy_ns, [(SessionId(2), 1, 7)].into());
        device.idle.ns[Phase::Between as usize] = 100 - busy_ns;
        let key = GpuKey {
            process: ProcessId(1),
            stack: None,
            capture: None,
            what: What::Kernel(0),
            device: number,
            stream: 7,
            range: 0,
        };
        profile.gpu.insert(key, GpuWeight { count: 1, ns: busy_ns, ..GpuWeight::default() });
        profile.waits = CpuWeight { count: busy_ns, ns: busy_ns };
        profile
    }

    /// Check that a part has the numbers, the busy and the idle time of the whole's GPUs, and its own work; and that a
    /// time range keeps its own facts.
    #[test]
    fn parts_have_the_facts_of_the_whole() {
        // The session's GPU is 1 in the whole, and would be 0 without the other session.
        let whole = || profile(1, 75, &[(1, 0), (2, 1)]);
        let part = profile(0, 5, &[(2, 0)]).part_of(whole(), vec!["--pid 7".into()]);
        assert!(part.is_part() && part.filters() == ["--pid 7"] && part.notes[0].contains("--pid 7"));
        let devices: Vec<(u32, u64, u64)> =
            part.devices.iter().map(|(n, info)| (*n, info.busy_ns, info.idle.of(Phase::Between))).collect();
        assert_eq!(devices, [(0, 0, 0), (1, 75, 25)]);
        assert_eq!(part.gpu.iter().map(|(key, weight)| (key.device, weight.ns)).collect::<Vec<_>>(), [(1, 5)]);
        assert_eq!((part.waits.ns, part.device(SessionId(2), 0)), (75, 1));

        // The range's GPUs have the numbers of the whole.
        let devices = profile(1, 5, &[(1, 0), (2, 1)]).devices;
        let range = profile(0, 9, &[(2, 0)]).range_of(whole(), vec!["--to 1s".into()], devices);
        assert!(!range.is_part() && range.devices[&1].busy_ns == 5 && range.whole().waits.ns == 9);
        let part = profile(0, 2, &[(2, 0)]).part_of(range, vec!["--tid 1".into(), "--to 1s".into()]);
        assert_eq!((part.devices[&1].busy_ns, part.recording().waits.ns), (5, 75));
    }
}
