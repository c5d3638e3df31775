//! The code that runs inside every launch-class API call.
//!
//! The path of a successful call has no lock, no allocation, no system call and no panic: a table lookup, one
//! thread-local line, the marker and one relaxed add. Only reporting a call that failed, was captured into a graph or
//! had nothing to do leaves this path.
//!
//! A call that failed is reported on exit: its launch has no activity, and must not remain pending. So is one that was
//! captured: on a capturing stream, a launch only adds a node to a graph. CUPTI reports a node created on the same
//! thread, within the marked call; if the call then succeeds, its launch is captured. A node added explicitly is
//! outside any marked call, instantiation clones nodes instead of creating them, and the launch of a graph is never
//! treated as captured.

use core::cell::Cell;
use core::ffi::{c_char, c_void};
use core::ptr;

use cupti::callback::{CallbackData, ResourceData};
use cupti::ids::{COUNT_OFFSET, LAUNCH_CALLS, Work, domain, resource, site};

use crate::cost::Callback;
use crate::marker::mark;
use crate::queue::QUEUE;
use crate::sampling::Choice;
use crate::totals::{ShardOf, TOTALS, add};
use crate::{
    calls, client, cost, counting, earlier_launches, gate, launches, lifecycle, limits, nodes, nvtx, quirks, sampling,
    stalls, sys, waits,
};

/// One more than the highest callback id in the tables.
const CALLS: usize = 1024;

const fn works(of: u32) -> [u8; CALLS] {
    let mut table = [0; CALLS];
    let mut at = 0;
    while at < LAUNCH_CALLS.len() {
        let call = LAUNCH_CALLS[at];
        if call.domain == of {
            table[call.cbid as usize] = call.work as u8 | if call.has_count() { COUNTED } else { 0 };
        }
        at += 1;
    }
    table
}

/// Flag next to the kind of work: the call has a count, and a count of 0 means that it does nothing.
const COUNTED: u8 = 0x80;

/// [`cupti::ids::Work`] by callback id, with [`COUNTED`]; 0 for calls that launch nothing.
static DRIVER: [u8; CALLS] = works(domain::DRIVER);
static RUNTIME: [u8; CALLS] = works(domain::RUNTIME);

/// The work that a call submits to the GPU, 0 for none.
fn work(of: u32, cbid: u32) -> u8 {
    let table = match of {
        domain::DRIVER => &DRIVER,
        domain::RUNTIME => &RUNTIME,
        _ => return 0,
    };
    table.get(cbid as usize).copied().unwrap_or(0)
}

/// Never a correlation id: those have 32 bits.
const NONE: u64 = u64::MAX;

/// The outermost launch-class call of a thread. A driver call inside a runtime call carries the same id and is not
/// marked again. Only the exit of the marked call decides whether it failed, because the runtime may retry differently.
struct Thread {
    marked: Cell<u64>,
    /// Domain and callback id of the marked call; 0 once it has returned.
    call: Cell<u32>,
    /// The session that recorded it, 0 for none. The end of a call that was under way when a session ended is not seen.
    session: Cell<u64>,
    /// Whether a graph node was created during the marked call: its stream is being captured, so the work does not run
    /// now.
    node: Cell<bool>,
    /// Whether the stack of the marked call was taken.
    stacked: Cell<bool>,
    /// Whether the marked call is only counted, and the name of its kernel.
    counted: Cell<bool>,
    symbol: Cell<*const c_char>,
    /// The last launch that has returned, and how long it took. The next one reports it.
    returned: Cell<(u32, u64)>,
    shard: ShardOf,
}

impl Thread {
    /// Whether the thread is in a call whose stack was taken.
    fn is_stacked(&self) -> bool {
        self.call.get() != 0 && self.stacked.get() && self.session.get() == lifecycle::session()
    }
}

thread_local! {
    static THREAD: Thread = const {
        Thread {
            marked: Cell::new(NONE),
            call: Cell::new(0),
            session: Cell::new(0),
            node: Cell::new(false),
            stacked: Cell::new(false),
            counted: Cell::new(false),
            symbol: Cell::new(ptr::null()),
            returned: Cell::new((0, 0)),
            shard: ShardOf::unset(),
        }
    };
}

/// CUPTI's callback for API calls and for graph nodes.
///
/// # Safety
/// `data` must be null or point to the [`CallbackData`] of the call, as CUPTI passes it for the API domains.
pub unsafe extern "C" fn on_api(_user: *mut c_void, of: u32, cbid: u32, data: *const c_void) {
    let callback = Callback::begin();
    if !calls::are_traced() || data.is_null() || !matches!(of, domain::DRIVER | domain::RUNTIME) {
        // SAFETY: as the caller guarantees.
        unsafe { handle(&callback, of, cbid, data) };
    } else {
        let time = sys::now();
        // SAFETY: as in `handle`.
        let call = unsafe { &*data.cast::<CallbackData>() };
        if call.site == site::EXIT {
            calls::on_exit(of, cbid, call, time);
        }
        // SAFETY: as the caller guarantees.
        let marked = unsafe { handle(&callback, of, cbid, data) };
        if call.site == site::ENTER {
            calls::on_enter(of, cbid, call, time, marked);
        }
    }
    callback.end();
}

/// Handles calls that launch work or wait, and graph nodes; true if the marker was called.
///
/// # Safety
/// As [`on_api`].
#[inline(always)]
unsafe fn handle(callback: &Callback, of: u32, cbid: u32, data: *const c_void) -> bool {
    let entry = work(of, cbid);
    let work = entry & !COUNTED;
    if entry == 0 {
        if of == domain::RESOURCE {
            client::forward_resource(cbid, data);
        }
        if data.is_null() || !lifecycle::is_reading() {
            return false;
        }
        if of == domain::RESOURCE {
            // SAFETY: the type that CUPTI passes for this domain; it lives as long as this call.
            on_resource(callback, cbid, unsafe { &*data.cast::<ResourceData>() });
        } else if let Some(call) = waits::call(of, cbid) {
            // SAFETY: as below.
            waits::on_call(call, unsafe { &*data.cast::<CallbackData>() });
        } else if nodes::instantiates(of, cbid) {
            // SAFETY: as below.
            nodes::on_instantiate(unsafe { &*data.cast::<CallbackData>() });
        } else if of == domain::DRIVER && limits::are_wanted() {
            // SAFETY: as below.
            limits::on_capture(cbid, unsafe { &*data.cast::<CallbackData>() });
        }
        return false;
    }
    if data.is_null() {
        return false;
    }
    // SAFETY: the domain is driver or runtime, for which CUPTI passes this type; it lives as long as this call.
    let data = unsafe { &*data.cast::<CallbackData>() };
    let id = u64::from(data.correlation_id);
    let call = (of << 16) | cbid;
    let measurable = limits::are_wanted() && of == domain::DRIVER && work == Work::Kernel as u8;
    if measurable && data.site == site::EXIT {
        limits::on_exit(data);
    }
    let marked = THREAD.with(|thread| {
        if data.site == site::ENTER {
            if thread.marked.get() != id {
                thread.marked.set(id);
                thread.call.set(call);
                thread.node.set(false);
                // Before the marker, at which the thread may be preempted: the end of a recording waits for calls in flight.
                thread.shard.count_begun();
                gate::pass();
                // Sessions begin and end while the gate is closed.
                let live = lifecycle::is_live();
                let session = if live { lifecycle::session() } else { 0 };
                if thread.session.replace(session) != session {
                    thread.returned.set((0, 0));
                }
                if !live {
                    return false;
                }
                earlier_launches::note_launch(data.correlation_id);
                thread.shard.count_launch();
                if work == Work::Graph as u8 {
                    quirks::graph_launched();
                }
                let choice = sampling::choose();
                if choice != Choice::Count {
                    nvtx::on_launch(data.correlation_id);
                }
                match choice {
                    Choice::Stack(rate) => {
                        let work = u32::from(work) | u32::from(rate) << wire::RATE_SHIFT;
                        launches::begin();
                        let (previous, took) = thread.returned.replace((0, 0));
                        let ids = id | u64::from(previous) << 32;
                        callback.taking_stack(|| mark(ids, work, lifecycle::session(), took));
                    }
                    Choice::NoStack => report_unmarked(data.correlation_id, work),
                    Choice::Count => thread.symbol.set(data.symbol_name),
                }
                thread.counted.set(choice == Choice::Count);
                thread.stacked.set(matches!(choice, Choice::Stack(_)));
                callback.begin_call(choice != Choice::Count);
                return matches!(choice, Choice::Stack(_));
            }
        } else if data.site == site::EXIT && thread.marked.get() == id && thread.call.get() == call {
            cost::end_call();
            thread.call.set(0);
            thread.shard.count_return();
            if !lifecycle::is_reading() || thread.session.get() != lifecycle::session() {
                return false;
            }
            if thread.stacked.get() {
                thread.returned.set((data.correlation_id, launches::end()));
            }
            // SAFETY: on exit CUPTI points this at the call's result; null is checked.
            let code = unsafe { data.return_value.as_ref() }.copied().unwrap_or(0);
            if thread.counted.get() {
                let captured = thread.node.get() && work != Work::Graph as u8;
                let empty = entry & COUNTED != 0 && count(data) == Some(0);
                if code == 0 && !captured && !empty {
                    // SAFETY: CUPTI keeps the name of a kernel at least until its launch has returned.
                    unsafe { count_launch(thread.shard.index(), work, thread.symbol.get()) };
                }
            } else if code != 0 {
                thread.shard.count_failed();
                report_failure(data.correlation_id, code);
            } else if thread.node.get() && work != Work::Graph as u8 {
                report_capture(data.correlation_id);
            } else if entry & COUNTED != 0 && count(data) == Some(0) {
                report_empty(data.correlation_id);
            } else if work != Work::Graph as u8 {
                thread.shard.count_owed();
            }
        }
        false
    });
    if measurable && data.site == site::ENTER && THREAD.with(Thread::is_stacked) {
        limits::on_enter(cbid, data);
    }
    marked
}

/// Returns the count of a call that has one.
fn count(data: &CallbackData) -> Option<usize> {
    if data.params.is_null() {
        return None;
    }
    // SAFETY: CUPTI points this at the call's parameters, and those of a call with a count have it there.
    Some(unsafe { data.params.byte_add(COUNT_OFFSET).cast::<usize>().read() })
}

/// Handles a callback about a context or a graph. A node that is created within a marked call is that call's work. Outside one the
/// program is building a graph explicitly, which is not a launch.
#[cold]
fn on_resource(callback: &Callback, cbid: u32, data: &ResourceData) {
    if matches!(cbid, resource::CONTEXT_CREATED | resource::CONTEXT_DESTROY_STARTING) {
        return lifecycle::guarded((), || {
            if cbid == resource::CONTEXT_DESTROY_STARTING {
                limits::on_context_destroyed(data.context);
            }
            stalls::on_context(cbid, data.context);
        });
    }
    let launch = THREAD.with(|thread| {
        let within = thread.call.get() != 0 && thread.session.get() == lifecycle::session();
        if within && cbid == resource::GRAPH_NODE_CREATED {
            thread.node.set(true);
        }
        // A marked id is a correlation id, which has 32 bits.
        (within && thread.stacked.get()).then_some(thread.marked.get() as u32)
    });
    nodes::on_event(callback, cbid, data, launch);
}

/// # Safety
/// `symbol` must be null or point to a C string.
#[inline(never)]
unsafe fn count_launch(shard: usize, work: u8, symbol: *const c_char) {
    let name = if work == Work::Kernel as u8 { symbol } else { ptr::null() };
    lifecycle::guarded((), || {
        // SAFETY: as the caller guarantees.
        unsafe { counting::count(shard, work, name) };
    });
}

#[inline(never)]
fn report_unmarked(correlation: u32, work: u8) {
    let mut bytes = [0; wire::Unmarked::SIZE];
    sampling::unmarked(correlation, work).encode(&mut bytes);
    lifecycle::guarded((), || {
        if !QUEUE.append(&bytes, 0) {
            add(&TOTALS.dropped_launches, 1);
        }
    });
}

#[cold]
#[inline(never)]
fn report_failure(correlation: u32, code: u32) {
    let mut bytes = [0; wire::Failed::SIZE];
    wire::Failed { correlation, code }.encode(&mut bytes);
    report(&bytes);
}

#[cold]
#[inline(never)]
fn report_capture(correlation: u32) {
    let mut bytes = [0; wire::Captured::SIZE];
    wire::Captured { correlation }.encode(&mut bytes);
    report(&bytes);
}

#[cold]
#[inline(never)]
fn report_empty(correlation: u32) {
    let mut bytes = [0; wire::Empty::SIZE];
    wire::Empty { correlation }.encode(&mut bytes);
    report(&bytes);
}

fn report(message: &[u8]) {
    lifecycle::guarded((), || {
        if !QUEUE.append(message, 1) {
            add(&TOTALS.dropped_queue_full, 1);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every launch-class call is in the table of its domain, with its kind of work; the ids fit.
    #[test]
    fn the_tables_hold_every_launch_call() {
        for call in LAUNCH_CALLS {
            assert_eq!(work(call.domain, call.cbid) & !COUNTED, call.work as u8, "{}", call.name);
        }
        let listed = DRIVER.iter().chain(&RUNTIME).filter(|w| **w != 0).count();
        assert_eq!(listed, LAUNCH_CALLS.len(), "an id is listed twice");
    }

    /// Ids and domains outside the tables map to no work.
    #[test]
    fn unknown_calls_map_to_no_work() {
        assert_eq!(work(domain::DRIVER, 307), Work::Kernel as u8);
        assert_eq!(work(domain::DRIVER, 279), Work::Copy as u8 | COUNTED);
        assert_eq!(work(domain::DRIVER, 17), 0);
        assert_eq!(work(domain::DRIVER, u32::MAX), 0);
        assert_eq!(work(domain::RESOURCE, 307), 0);
        assert_eq!(work(domain::RESOURCE, resource::GRAPH_NODE_CREATED), 0);
    }
}
