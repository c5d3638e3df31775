//! The simulated GPU's own account of what happened (`truth=FILE` in its script).

use serde_json::Value;

use super::{
    Scene,
    scene::{lost, number},
};

/// The sum over all processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Truth {
    /// Processes that wrote their account.
    pub processes: u64,
    /// Calls that put work on a GPU.
    pub launched: u64,
    /// Launches that were only captured into a graph.
    pub captured: u64,
    /// Calls that failed.
    pub failed: u64,
    pub kernels: u64,
    pub copies: u64,
    pub memsets: u64,
    pub waits: u64,
    /// Kernels, copies and memsets, some of which may have been dropped.
    pub produced: u64,
    /// Dropped records.
    pub dropped: u64,
    pub zero_time: u64,
    pub unfinished: u64,
    pub kernel_ns: u64,
}

impl Truth {
    /// Reads the account of a run.
    pub fn of(scene: &Scene, file: &str) -> Self {
        let mut sum = Self::default();
        for line in scene.read(file).lines() {
            let process: Value = serde_json::from_str(line).expect("the account is JSON");
            let (launched, produced, delivered) = (&process["launched"], &process["produced"], &process["delivered"]);
            sum.processes += 1;
            sum.launched +=
                ["kernel", "copy", "memset", "graph"].map(|kind| number(launched, kind)).iter().sum::<u64>();
            sum.captured += number(&process, "captured");
            sum.failed += number(&process, "failed");
            sum.kernels += number(delivered, "kernel");
            sum.copies += number(delivered, "copy");
            sum.memsets += number(delivered, "memset");
            sum.waits += number(&process, "waits");
            sum.produced += ["kernel", "copy", "memset"].map(|kind| number(produced, kind)).iter().sum::<u64>();
            sum.dropped += number(&process, "dropped");
            sum.zero_time += number(&process, "zero_time");
            sum.unfinished += number(&process, "unfinished");
            sum.kernel_ns += number(&process, "kernel_ns");
        }
        sum
    }

    /// Kernels, copies and memsets delivered.
    pub fn delivered(&self) -> u64 {
        self.kernels + self.copies + self.memsets
    }

    /// Asserts that a report has the same numbers. Only for launches of one activity each, so not for graphs.
    #[track_caller]
    pub fn agrees(&self, report: &Value) {
        let expected = [
            ("launches", self.launched + self.failed),
            ("kernels", self.kernels),
            ("copies", self.copies),
            ("memsets", self.memsets),
            ("host_waits", self.waits + number(report, "copy_waits")),
            ("matched", self.delivered()),
            ("unmatched_activities", 0),
            ("pending_launches", self.produced - self.delivered()),
            ("failed_launches", self.failed),
            ("captured_launches", 0),
            ("zero_time", self.zero_time),
            ("unfinished", self.unfinished),
            ("kernel_time_ns", self.kernel_ns),
            ("stacks_missing", 0),
            ("sessions_cut_off", 0),
        ];
        let reported: Vec<(&str, u64)> = expected.iter().map(|&(key, _)| (key, number(report, key))).collect();
        assert_eq!(reported, expected, "{}", report["lost"]);
        assert_eq!(number(&report["lost"], "cupti_dropped"), self.dropped);
        assert_eq!(lost(report), self.dropped, "{}", report["lost"]);
    }
}
