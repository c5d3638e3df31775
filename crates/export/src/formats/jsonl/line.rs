//! The lines of a `.jsonl` file: one variant for each type, with its fields.

use model::{
    event::{DumpReason, LossCause, Origin, ProcessId, SessionId, Unit},
    gpu_counters::CounterUnit,
    ledger::Ledger,
};
use serde::Serialize;

/// A metric of a GPU's counters.
#[derive(Serialize)]
pub(super) struct CounterValue {
    pub metric: &'static str,
    pub value: f64,
    pub unit: CounterUnit,
}

/// A line; its type is the name of the variant in lower case. Launches, their returns and the GPU's work are so frequent that
/// they are written without a serializer.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(super) enum Line<'a> {
    Process {
        ts_ns: u64,
        pid: u32,
        process: ProcessId,
        parent: ProcessId,
        origin: &'static str,
        comm: &'a str,
    },
    Thread {
        pid: u32,
        tid: u32,
        process: ProcessId,
        comm: &'a str,
    },
    Exit {
        ts_ns: u64,
        pid: u32,
        process: ProcessId,
    },
    Stack {
        stack: u64,
        frames: Vec<String>,
    },
    Sample {
        ts_ns: u64,
        pid: u32,
        tid: u32,
        cpu: u32,
        stack: u64,
        weight_ns: u64,
        /// It is in warpscope's own code: no graph or total contains it.
        #[serde(skip_serializing_if = "is_zero")]
        own: bool,
    },
    Event {
        event: &'a str,
        source: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        weight: Option<&'a str>,
        unit: Unit,
    },
    Hits {
        event: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        function: Option<&'a str>,
        pid: u32,
        stack: u64,
        count: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        weight: Option<u64>,
    },
    Session {
        session: SessionId,
        pid: u32,
        process: ProcessId,
        cupti: u32,
        driver: u32,
    },
    Rank {
        session: SessionId,
        pid: u32,
        process: ProcessId,
        #[serde(skip_serializing_if = "Option::is_none")]
        rank: Option<u32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        local_rank: Option<u32>,
        #[serde(skip_serializing_if = "str::is_empty")]
        variable: &'a str,
        mps: bool,
    },
    Range {
        ts_ns: u64,
        dur_ns: u64,
        pid: u32,
        tid: u32,
        session: SessionId,
        path: Vec<&'a str>,
        #[serde(skip_serializing_if = "str::is_empty")]
        category: &'a str,
        mark: bool,
    },
    Device {
        session: SessionId,
        device: u32,
        #[serde(skip_serializing_if = "str::is_empty")]
        uuid: &'a str,
        #[serde(skip_serializing_if = "str::is_empty")]
        gpu_uuid: &'a str,
        /// The session's own number.
        index: u32,
        name: &'a str,
    },
    Failed {
        session: SessionId,
        correlation: u32,
        code: u32,
    },
    Captured {
        session: SessionId,
        correlation: u32,
    },
    Empty {
        session: SessionId,
        correlation: u32,
    },
    Sync {
        ts_ns: u64,
        dur_ns: u64,
        pid: u32,
        session: SessionId,
        correlation: u32,
        kind: &'static str,
        context: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        stream: Option<u32>,
    },
    Wait {
        ts_ns: u64,
        dur_ns: u64,
        pid: u32,
        tid: u32,
        reason: &'a str,
        stack: u64,
    },
    Tensor {
        ts_ns: u64,
        pid: u32,
        tid: u32,
        device: u32,
        address: u64,
        bytes: u64,
        stack: u64,
    },
    Shutdown {
        ts_ns: u64,
        pid: u32,
    },
    TensorFreed {
        ts_ns: u64,
        pid: u32,
        tid: u32,
        address: u64,
    },
    StallSamples {
        pid: u32,
        session: SessionId,
        /// Of the launch, if kernels were serialised.
        #[serde(skip_serializing_if = "is_zero")]
        correlation: u32,
        function: &'a str,
        offset: u64,
        /// Outermost first.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        lines: Vec<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        instruction: Option<&'a str>,
        reason: &'a str,
        count: u64,
    },
    Gpm {
        ts_ns: u64,
        dur_ns: u64,
        gpu: String,
        values: Vec<CounterValue>,
    },
    Pm {
        ts_ns: u64,
        dur_ns: u64,
        gpu: &'a str,
        values: Vec<CounterValue>,
    },
    Energy {
        ts_ns: u64,
        gpu: String,
        millijoules: u64,
    },
    Pause {
        ts_ns: u64,
        dur_ns: u64,
        pid: u32,
        client: &'a str,
    },
    Loss {
        cause: LossCause,
        count: u64,
    },
    Dump {
        ts_ns: u64,
        from_ns: u64,
        reason: DumpReason,
        text: &'a str,
        window_ns: u64,
        discarded: u64,
        full: bool,
    },
    Note {
        text: &'a str,
    },
    End {
        ts_ns: u64,
        status: Option<i32>,
    },
    Ledger(&'a Ledger),
}

fn is_zero<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}

/// How a process came into being.
pub(super) fn origin(origin: Origin) -> &'static str {
    match origin {
        Origin::Found => "found",
        Origin::Fork => "fork",
        Origin::Exec => "exec",
    }
}
