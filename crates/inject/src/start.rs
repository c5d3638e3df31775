//! Starts a session: sets up CUPTI, in the required order.

use wire::{Notice, Refusal};

use crate::connect::Refused;
use crate::library::{self, Cupti};
use crate::limiter::Limiter;
use crate::notices::Notices;
use crate::queue::QUEUE;
use crate::{buffers, clock, connect, cost, environment, lifecycle, rank, sender, subscription, sys};

/// The result of the search for libcupti.
pub enum Found {
    /// Its functions and its path.
    Library(Cupti, String),
    /// Nothing; the text lists the locations tried.
    Nothing(String),
}

/// Starts the session on a connected socket, which the library owns from then on. Called at most once per process.
/// Returns the reason if there is no session.
pub fn start(socket: i32, found: Found, driver: u32) -> Option<Refused> {
    let ready = QUEUE.prepare() && buffers::prepare();
    if !ready {
        let error = sys::errno();
        // SAFETY: the descriptor was given to us.
        unsafe { libc::close(socket) };
        return Some(Refused(Refusal::Memory, error));
    }
    if !lifecycle::open(socket) {
        return Some(Refused(Refusal::Exit, sys::errno()));
    }
    cost::begin();
    let mut notices = Notices::default();
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
            let cupti = library::install(cupti, hello.cupti);
            clock::set(cupti, &mut notices);
            hello.clock_offset = clock::offset();
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
    let records = cupti.is_some_and(|cupti| subscription::subscribe(cupti, &mut notices));
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
    if !sender::spawn(records) {
        // Without the sender nothing can be reported: restore the program's state.
        let error = sys::errno();
        subscription::stop();
        lifecycle::close();
        return Some(Refused(Refusal::Thread, error));
    }
    if traced || records {
        connect::await_welcome(lifecycle::socket());
    }
    if traced {
        subscription::enable_traced();
    }
    None
}
