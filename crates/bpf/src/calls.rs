//! Function calls: what to gather, and what the programs report.

mod gather;
mod records;
mod totals;

pub use gather::{CALL_PAYLOAD, CALL_WORDS, Dims, Gather, Launches, MAX_FUNCTIONS, Memory, Payload};
pub use records::{CallRecord, PointRecord, SwitchRecord, SyscallRecord};
pub use totals::{Allocation, ErrorSum, KernelSum, MemorySum, Site, Sum};
