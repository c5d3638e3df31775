//! Other clients of CUPTI in the same process, such as torch.profiler.
//!
//! CUPTI has one subscriber, one pair of buffer functions, one clock and one set of activity kinds per process. So when
//! another client comes, this library steps aside: it stops recording, keeps the caller waiting until that is done, and
//! returns when the other client has left. Clients call libcupti through import slots, or by addresses that they look up by
//! name. Both lead to the [`wrappers`], which note what the client has set up.
//!
//! ```text
//!  other client    cuptiSubscribe ...waits... enables, records, flushes ... cuptiUnsubscribe, or idle
//!  STANDING        RECORDING              | ASIDE                                        | RECORDING
//!  sender              drains, unsubscribes|  (a pause)                        subscribes, begins
//! ```
//!
//! torch.profiler stays subscribed after its first use. An idle subscription is borrowed: ours replaces it, and it is
//! restored before its owner's next call has any effect.

mod arrival;
mod modules;
mod other;
mod redirect;
mod standing;
mod watch;
mod wrappers;

pub use arrival::{has_left, occupied};
pub use other::{
    borrow, borrowed_resources, buffer_functions, forward_resource, name, restore, take_stray_kinds, timestamp,
};
pub use standing::{claim, forked, is_aside, is_recording, is_waiting, set_aside};
pub use watch::{end, watch};
