//! The longest idle gaps of a GPU, and what the CPU did during them.
//!
//! ```text
//!   GPU        ####            ####
//!   thread 1      ===cudaMalloc===                 the gap is cudaMalloc's
//!   thread 2             ==                        and for a while that of another call
//! ```
//!
//! The profile determines the gaps; the calls that overlap them are summed as events are read. Only outermost calls
//! count: they include their nested calls.

use std::collections::BTreeMap;

use model::{
    event::{Call, FunctionId, Layer, ProcessId},
    fold::BusyTime,
    profile::Profile,
};
use serde::Serialize;

use crate::names;

/// Maximum number of gaps reported.
const GAPS: usize = 10;
/// Maximum number of calls named for each gap.
const NAMED: usize = 3;

/// An idle interval of a GPU, between its first work and its last.
#[derive(Clone, Debug, Serialize)]
pub struct Gap {
    /// The GPU's number.
    pub device: u32,
    /// The same as shown.
    #[serde(skip)]
    pub label: String,
    /// When it began, since the trace's start.
    pub at_ns: u64,
    /// How long it was.
    pub ns: u64,
    /// Of this, the time in which no thread was in a traced call: outside CUDA.
    pub outside_ns: u64,
    /// The calls that overlap it most.
    pub calls: Vec<Overlap>,
}

/// Calls of one function by one thread, in a gap.
#[derive(Clone, Debug, Serialize)]
pub struct Overlap {
    /// The function.
    pub function: String,
    /// The thread: `name/tid`.
    pub thread: String,
    /// Their total time within the gap.
    pub ns: u64,
}

/// Sums the calls in the gaps.
pub(super) struct Gaps {
    open: Vec<Open>,
    end: u64,
}

struct Open {
    device: u32,
    start: u64,
    end: u64,
    covered: BusyTime,
    calls: BTreeMap<(ProcessId, u32, FunctionId), u64>,
}

impl Gaps {
    /// Returns the gaps of a profile. A call that never returned lasts until its end.
    pub(super) fn of(profile: &Profile) -> Self {
        let all = profile.devices.iter().flat_map(|(&device, info)| info.gaps.iter().map(move |gap| (device, *gap)));
        let mut all: Vec<(u32, (u64, u64))> = all.collect();
        all.sort_by_key(|(_, (start, end))| std::cmp::Reverse(end.saturating_sub(*start)));
        let open =
            |(device, (start, end))| Open { device, start, end, covered: BusyTime::default(), calls: BTreeMap::new() };
        Self { open: all.into_iter().take(GAPS).map(open).collect(), end: profile.last_time }
    }

    pub(super) fn call(&mut self, profile: &Profile, call: &Call) {
        let counts = |id| profile.calls.functions.get(id).is_some_and(|f| f.shown && f.layer != Layer::Point);
        if call.depth > 0 || !counts(&call.function) {
            return;
        }
        let call_end = if call.end == 0 { self.end } else { call.end };
        for gap in &mut self.open {
            let (start, end) = (call.start.max(gap.start), call_end.min(gap.end));
            if start < end {
                gap.covered.add(start, end);
                let ns = gap.calls.entry((call.process, call.tid, call.function)).or_default();
                *ns = ns.saturating_add(end - start);
            }
        }
    }

    pub(super) fn finish(self, profile: &Profile) -> Vec<Gap> {
        let origin = profile.start.as_ref().map_or(0, |start| start.time);
        let gap = |mut gap: Open| {
            let ns = gap.end - gap.start;
            let mut calls: Vec<_> = gap.calls.into_iter().collect();
            calls.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
            let name = |id: FunctionId| profile.calls.functions.get(&id).map(|f| f.name.clone()).unwrap_or_default();
            Gap {
                device: gap.device,
                label: profile.device_label(gap.device).to_owned(),
                at_ns: gap.start.saturating_sub(origin),
                ns,
                outside_ns: ns.saturating_sub(gap.covered.total()),
                calls: calls
                    .into_iter()
                    .take(NAMED)
                    .map(|((process, tid, function), ns)| Overlap {
                        function: name(function),
                        thread: names::thread(profile, process, tid),
                        ns,
                    })
                    .collect(),
            }
        };
        self.open.into_iter().map(gap).collect()
    }
}

#[cfg(test)]
mod tests {
    use model::{
        event::{Event, Function},
        fold::Fold,
    };

    use super::*;

    /// Check how a gap is attributed: to calls by their overlap, to the program for the rest, and never to nested
    /// calls.
    ///
    /// ```text
    ///   gap            |----------|      100 to 200
    ///   thread 1    ======                to 140, with a call inside it
    ///   thread 2           ====           130 to 170
    ///   thread 3                    ===   after it
    ///   no call                ^^^^       170 to 200
    /// ```
    #[test]
    fn gaps_are_attributed_to_outermost_calls() {
        let mut fold = Fold::new();
        for (id, name) in [(0, "outer"), (1, "inner")] {
            let (id, layer, name) = (FunctionId(id), Layer::Library, name.into());
            fold.push(&Event::Function(Function {
                id,
                layer,
                library: "lib".into(),
                name,
                shown: true,
                ..Function::default()
            }));
        }
        let mut profile = fold.finish();
        profile.last_time = 500;
        profile.devices.entry(0).or_default().gaps = vec![(100, 200)];
        let call = |function: u32, tid: u32, depth: u8, start: u64, end: u64| Call {
            function: FunctionId(function),
            process: ProcessId(1),
            tid,
            cpu: 0,
            depth,
            nested: false,
            enclosed: false,
            start,
            end,
            result: 0,
            out: None,
            launch: None,
            launches: false,
            around: 0,
            stack: None,
            words: Vec::new(),
            payload: Vec::new(),
        };
        let mut gaps = Gaps::of(&profile);
        for call in [call(1, 1, 1, 90, 139), call(0, 1, 0, 80, 140), call(1, 2, 0, 130, 170), call(0, 3, 0, 200, 0)] {
            gaps.call(&profile, &call);
        }
        let [gap] = &gaps.finish(&profile)[..] else { panic!("one gap") };
        assert_eq!((gap.at_ns, gap.ns, gap.outside_ns), (100, 100, 30));
        let blamed: Vec<(&str, u64)> = gap.calls.iter().map(|call| (call.thread.as_str(), call.ns)).collect();
        assert_eq!(blamed, [("[unknown_process]/1", 40), ("[unknown_process]/2", 40)]);
    }
}
