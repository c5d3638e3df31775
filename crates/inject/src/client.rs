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
//!
//! - **The caller must wait** until the library has drained and unsubscribed. A uprobe could report the call, but not
//!   delay it, and Kineto makes no earlier call that would announce it. So calls are redirected ([`redirect`]). The
//!   sender does the work; the caller waits for at most 3 s, and for 30 ms if no GPU work is in flight, to see that no
//!   more records arrive.
//! - **A client has left** when it has unsubscribed or finalized CUPTI. Kineto (PyTorch 2.11, CUPTI 13.0) does neither,
//!   unless `TEARDOWN_CUPTI=1`: it stays subscribed, disables its kinds, and flushes. A client with no kind enabled, no
//!   callbacks but resource callbacks, and no call for half a second is idle. While its subscription is borrowed, its
//!   resource callbacks are forwarded. CUPTI gives it a new handle afterwards, which the wrappers translate; so slots
//!   are not restored while a client is subscribed.
//! - **Buffers go back to their owner.** Kineto would drop its records if somebody else flushed them, so nothing is
//!   flushed while a client is there, nor before it has flushed itself.
//! - **The clock** is that of the client while it is there: its own, or CUPTI's default.
//! - **A client that was there first** (error 39) is named as far as possible (CUPTI 13.0 reports no name for clients
//!   that use the first version of `cuptiSubscribe`; a mapped library then gives a hint), and the library tries again
//!   four times a second. Its subscription cannot be borrowed, because its handle is not known. A client that kept
//!   addresses from an earlier `dlsym` is not seen: it gets error 39 while warpscope records.

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
