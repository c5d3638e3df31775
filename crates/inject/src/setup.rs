//! Sets up a session: its state, CUPTI and the first messages, in the required order.

use wire::{Notice, Refusal};

use crate::connect::Refused;
use crate::library::{self, Cupti};
use crate::limiter::Limiter;
use crate::names::NAMES_SEEN;
use crate::notices::Notices;
use crate::queue::QUEUE;
use crate::{
    buffers, client, clock, cost, driver, earlier_launches, launches_in_flight, lifecycle, quirks, rank, sampling,
    stalls, subscription, sys, totals,
};

/// The result of the search for libcupti.
pub enum Found {
    /// Its functions and its path.
    Library(Box<Cupti>, String),
    /// Nothing; the text lists the locations tried.
    Nothing(String),
}

impl Found {
    /// Searches libcupti for a driver of this version.
    pub fn search(driver: u32) -> Self {
        match library::find(driver) {
            Ok((cupti, path)) => Self::Library(Box::new(cupti), path),
            Err(tried) => Self::Nothing(tried),
        }
    }
}

/// Opens a session on a connected socket, which the library owns from then on.
pub fn open(socket: i32) -> Result<(), Refused> {
    if !(QUEUE.prepare() && buffers::prepare()) {
        let error = sys::errno();
        // SAFETY: the descriptor was given to us.
        unsafe { libc::close(socket) };
        return Err(Refused(Refusal::Memory, error));
    }
    QUEUE.clear();
    NAMES_SEEN.clear();
    totals::begin();
    sampling::begin();
    stalls::begin();
    quirks::begin();
    if !lifecycle::open(socket) {
        return Err(Refused(Refusal::Exit, sys::errno()));
    }
    cost::begin();
    Ok(())
}

/// Installs libcupti and queues the first messages.
pub fn announce(found: Found, driver: u32, notices: &mut Notices) -> Option<&'static Cupti> {
    let mut hello = wire::Hello {
        version: wire::VERSION,
        pid: lifecycle::pid(),
        session: lifecycle::session(),
        driver,
        ..Default::default()
    };
    let cupti = match found {
        Found::Library(cupti, path) => {
            notices.add(Notice::Library, path);
            // SAFETY: `hello.cupti` is writable.
            let outcome = unsafe { (cupti.get_version)(&mut hello.cupti) };
            notices.check(&cupti, "cuptiGetVersion", outcome);
            let cupti = library::install(*cupti, hello.cupti);
            // The clock of another client must not change.
            if subscription::enter(cupti, notices) {
                clock::set(cupti, notices);
                hello.clock_offset = clock::offset();
            } else if client::is_aside() {
                notices.add(Notice::OtherSubscriber, client::name());
            }
            Some(cupti)
        }
        Found::Nothing(tried) => {
            notices.add(Notice::NoCupti, tried);
            None
        }
    };
    let mut bytes = [0; wire::Hello::SIZE];
    hello.encode(&mut bytes);
    QUEUE.append(&bytes, 0);
    rank::announce();
    if let Some(limiter) = Limiter::new() {
        limiter.begin();
    }
    cupti
}

/// Queues the first messages of a session in a process that already runs. The sender sends them.
pub fn queue_first_messages() -> (Option<&'static Cupti>, Notices) {
    let mut notices = Notices::default();
    let driver = driver::version();
    let cupti = announce(Found::search(driver), driver, &mut notices);
    (cupti, notices)
}

/// Begins to record in a process that already runs, once warpscope is ready; true if records will arrive.
pub fn begin(cupti: Option<&'static Cupti>, mut notices: Notices) -> bool {
    earlier_launches::begin();
    let records = cupti.is_some_and(|cupti| record(cupti, &mut notices));
    notices.send();
    QUEUE.seal();
    records
}

/// Begins to record after a pause in which another client used CUPTI; false if it is still there.
pub fn resume(cupti: &'static Cupti) -> bool {
    let mut notices = Notices::default();
    if !subscription::enter(cupti, &mut notices) {
        return false;
    }
    clock::set(cupti, &mut notices);
    quirks::resume();
    record(cupti, &mut notices);
    subscription::trace_again(cupti, &mut notices);
    notices.send();
    true
}

/// Enables callbacks and records in a process that already launches; true if records will arrive.
fn record(cupti: &'static Cupti, notices: &mut Notices) -> bool {
    if !subscription::subscribe(cupti, notices) {
        return false;
    }
    launches_in_flight::wait();
    // Records of an earlier session, which nobody reads.
    // SAFETY: only takes a number; no callback of CUPTI is on this thread's stack.
    unsafe { (cupti.flush_all)(1) };
    subscription::begin(cupti, notices)
}
