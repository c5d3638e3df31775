//! Writes activity records.

use cupti::ids::{kind, memory_kind};
use cupti::record::{KIND, graph_trace, kernel, memcpy, memcpy_peer, memset, synchronization};
use cupti::release::Release;

use super::clock;
use crate::activity::{Activity, Copied, Detail};

/// How a record's times are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// Unchanged.
    Known,
    /// Lost: start = end = 0.
    Zero,
    /// Still running: end = 0.
    Unfinished,
}

/// Returns the times of a record, on the client's clock.
fn times(activity: &Activity, times: Times) -> [u64; 2] {
    match times {
        Times::Known => [clock::convert(activity.start), clock::convert(activity.end)],
        Times::Zero => [0, 0],
        Times::Unfinished => [clock::convert(activity.start), 0],
    }
}

/// Returns the length of a record in a release; 0 for a kind that the simulated CUPTI does not deliver.
pub fn stride(release: &Release, kind: u32) -> usize {
    release.stride(kind).unwrap_or(0)
}

/// Writes a record.
///
/// # Safety
/// `to` must be valid for the release's stride of the activity's kind, and zeroed.
pub unsafe fn write(to: *mut u8, activity: &Activity, shown: Times) {
    let distance = if matches!(activity.detail, Detail::Kernel { .. }) { clock::next_distance() } else { 0 };
    let shift = |time: u64| if time == 0 { 0 } else { time.wrapping_add(distance) };
    let [start, end] = times(activity, shown).map(shift);
    let a = activity;
    // SAFETY: every field is within the stride by the offsets of the cupti crate.
    unsafe {
        KIND.write(to, a.detail.kind());
        match a.detail {
            Detail::Kernel { name, grid, block, shared, cooperative, grid_id } => {
                kernel::REGISTERS.write(to, 32);
                kernel::START.write(to, start);
                kernel::END.write(to, end);
                kernel::COMPLETED.write(to, end);
                kernel::DEVICE.write(to, a.device);
                kernel::CONTEXT.write(to, a.context);
                kernel::STREAM.write(to, a.stream);
                kernel::GRID.write(to, grid.map(|d| d as i32));
                kernel::BLOCK.write(to, block.map(|d| d as i32));
                kernel::DYNAMIC_SHARED.write(to, shared as i32);
                kernel::CORRELATION.write(to, a.correlation);
                kernel::GRID_ID.write(to, grid_id as i64);
                kernel::NAME.write(to, name);
                kernel::LAUNCH_TYPE.write(to, u8::from(cooperative));
                kernel::GRAPH_NODE.write(to, a.node);
                kernel::GRAPH.write(to, a.graph);
            }
            Detail::Copy(copy) => {
                copied(to, a, copy, [start, end]);
                memcpy::CORRELATION.write(to, a.correlation);
                memcpy::GRAPH_NODE.write(to, a.node);
                memcpy::GRAPH.write(to, a.graph);
            }
            Detail::Peer { copy, from, to: device } => {
                copied(to, a, copy, [start, end]);
                memcpy_peer::SRC_DEVICE.write(to, from);
                memcpy_peer::DST_DEVICE.write(to, device);
                memcpy_peer::CORRELATION.write(to, a.correlation);
                memcpy_peer::GRAPH_NODE.write(to, a.node);
                memcpy_peer::GRAPH.write(to, a.graph);
            }
            Detail::Memset { value, bytes, memory } => {
                memset::VALUE.write(to, value);
                memset::BYTES.write(to, bytes);
                memset::START.write(to, start);
                memset::END.write(to, end);
                memset::DEVICE.write(to, a.device);
                memset::CONTEXT.write(to, a.context);
                memset::STREAM.write(to, a.stream);
                memset::CORRELATION.write(to, a.correlation);
                memset::MEMORY_KIND.write(to, u16::from(memory));
                memset::GRAPH_NODE.write(to, a.node);
                memset::GRAPH.write(to, a.graph);
            }
            Detail::Graph => {
                graph_trace::CORRELATION.write(to, a.correlation);
                graph_trace::START.write(to, start);
                graph_trace::END.write(to, end);
                graph_trace::DEVICE.write(to, a.device);
                graph_trace::GRAPH.write(to, a.graph);
                graph_trace::CONTEXT.write(to, a.context);
                graph_trace::STREAM.write(to, a.stream);
            }
            Detail::Sync { kind, event } => {
                synchronization::TYPE.write(to, kind);
                synchronization::START.write(to, start);
                synchronization::END.write(to, end);
                synchronization::CORRELATION.write(to, a.correlation);
                synchronization::CONTEXT.write(to, a.context);
                synchronization::STREAM.write(to, a.stream);
                synchronization::EVENT.write(to, event);
            }
        }
    }
}

/// Writes the fields shared by both kinds of copies.
///
/// # Safety
/// As for [`write`].
unsafe fn copied(to: *mut u8, a: &Activity, copy: Copied, [start, end]: [u64; 2]) {
    // SAFETY: as in `write`.
    unsafe {
        memcpy::COPY_KIND.write(to, copy.kind);
        memcpy::SRC_KIND.write(to, copy.src.max(memory_kind::PAGEABLE));
        memcpy::DST_KIND.write(to, copy.dst.max(memory_kind::PAGEABLE));
        memcpy::FLAGS.write(to, u8::from(copy.asynchronous));
        memcpy::BYTES.write(to, copy.bytes);
        memcpy::START.write(to, start);
        memcpy::END.write(to, end);
        memcpy::DEVICE.write(to, a.device);
        memcpy::CONTEXT.write(to, a.context);
        memcpy::STREAM.write(to, a.stream);
    }
}

/// Whether the kind exists in CUPTI. The simulated one delivers only a few.
pub fn exists(activity_kind: u32) -> bool {
    // 3 serialises kernels; warpscope must not request it, but other clients may.
    (kind::MEMCPY..=56).contains(&activity_kind)
}
