//! Starts a session.
//!
//! The driver loads this library inside `cuInit`, before any launch: everything is set up there. In a process that already
//! runs ([`attach`]), the sender does it, because it may take long, and recording begins between two launches.
//!
//! In a running process the entry creates a pair of sockets and the sender, and returns the number of one end.
//! warpscope copies that end, attaches its probe to the marker, and answers the hello once the unwind tables are
//! compiled. Only then does the sender subscribe. It waits for launches that began before
//! ([`crate::launches_in_flight`]), and then enables records and markers together, behind the gate; at the end it
//! disables them together. So each launch has both its marker and its records, or neither. Thread-local state carries
//! the session's id, because the end of a call that is under way when a session ends is not reported.

use wire::Refusal;

use crate::connect::Refused;
use crate::notices::Notices;
use crate::queue::QUEUE;
use crate::sender::{self, Role};
use crate::setup::{Found, announce, open};
use crate::{client, connect, environment, lifecycle, subscription, sys};

/// Starts the session on a connected socket, which the library owns from then on. Called inside `cuInit`, at most once per
/// process. Returns the reason if there is no session.
pub fn start(socket: i32, found: Found, driver: u32) -> Option<Refused> {
    if let Err(refused) = open(socket) {
        return Some(refused);
    }
    lifecycle::begin();
    let mut notices = Notices::default();
    let cupti = announce(found, driver, &mut notices);
    let records = cupti
        .is_some_and(|cupti| subscription::subscribe(cupti, &mut notices) && subscription::enable(cupti, &mut notices));
    let traced = environment::variable(wire::CALLS_VARIABLE).is_some();
    let reported = traced && cupti.is_some_and(|cupti| subscription::trace_calls(cupti, &mut notices));
    notices.send();
    if traced {
        let mut bytes = [0; wire::FunctionsEnd::SIZE];
        wire::FunctionsEnd { reported: reported.into() }.encode(&mut bytes);
        QUEUE.append(&bytes, 0);
    }
    // The sender announces the devices between these messages and the first records.
    QUEUE.seal();
    // Aside, it records once the other client has left.
    let aside = client::is_aside();
    if aside {
        lifecycle::leave();
    }
    if !sender::spawn(if records || aside { Role::Records } else { Role::Waits }) {
        // Without the sender nothing can be reported: restore the program's state.
        let error = sys::errno();
        subscription::stop();
        lifecycle::close();
        return Some(Refused(Refusal::Thread, error));
    }
    if traced || records {
        connect::await_welcome(lifecycle::socket(), wire::WELCOME_PATIENCE_MS.unsigned_abs());
    }
    if traced {
        subscription::enable_traced();
    }
    None
}

/// Starts a session in a process that already runs. Returns the descriptor that warpscope takes: the other end of the
/// connection. It is closed when warpscope has taken it, or has not done so in time.
pub fn attach() -> Result<i32, Refused> {
    let (socket, other) = connect::pair()?;
    lifecycle::keep_other_end(other);
    let opened = open(socket).and_then(|()| match sender::spawn(Role::Attached) {
        true => Ok(other),
        false => Err(Refused(Refusal::Thread, sys::errno())),
    });
    if opened.is_err() {
        lifecycle::end();
        lifecycle::close();
        lifecycle::close_other_end();
    }
    opened
}
