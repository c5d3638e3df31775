//! Findings about GPU memory.

use model::memory::Use;
use text::units::{bytes, time};

use super::finding::{Evidence, Finding, Kind, share};
use crate::memory::DeviceMemory;

/// A smaller peak fits into every GPU.
const LEAST_BYTES: u64 = 64 << 20;

/// A line that holds a smaller share of the peak is not worth a change.
const HELD: f64 = 0.1;

/// Which line holds most of the memory of the process that uses most.
pub fn peak(all: &[DeviceMemory]) -> Option<Finding> {
    let memory = all.first().filter(|memory| memory.peak.in_use_bytes >= LEAST_BYTES)?;
    let peak = &memory.peak;
    let line = peak.lines.iter().find(|line| line.what != Use::Cached && line.place.is_some())?;
    let held = share(line.bytes, peak.in_use_bytes);
    if held < HELD {
        return None;
    }
    let place = line.place.clone()?;
    let advice = match line.what {
        Use::Tensor => {
            "free these tensors before the peak, recompute them (torch.utils.checkpoint), or use smaller batches or types"
        }
        _ => "free this memory before the peak, or allocate less",
    };
    Some(Finding {
        kind: Kind::MemoryPeak,
        title: format!(
            "memory of GPU {} peaks at {} after {}: {:.0} % allocated by {}",
            memory.label,
            bytes(peak.in_use_bytes),
            time(peak.at_ns),
            100.0 * held,
            place.short()
        ),
        evidence: vec![
            Evidence::bytes("of this line", line.bytes),
            Evidence::bytes("tensors", peak.tensor_bytes),
            Evidence::bytes("other allocations", peak.other_bytes),
            Evidence::bytes("cached but free", peak.cached_bytes),
        ],
        place: Some(place),
        advice: advice.into(),
        share: 0.0,
        gain: None,
    })
}
