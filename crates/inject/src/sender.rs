//! The library's only thread: it flushes CUPTI, sends the queued packets and ends the session.
//!
//! Only this thread uses the socket, and only it may wait: for space in the socket, for work, for CUPTI. Full packets
//! wake it; every [`TICK`] it flushes CUPTI and sends the rest of the queue.
//!
//! CUPTI's own flush period returns only full buffers, so the thread flushes by itself. The socket's descriptor is
//! moved to 200 or above and checked by inode before each use, because programs do close descriptors that are not
//! theirs.

use core::ffi::c_void;
use core::ptr;

use crate::channel::{Disconnected, FOREVER, Sent, await_room, send, wait_for_room};
use crate::limiter::Limiter;
use crate::names::NAMES_SEEN;
use crate::pauses::Pauses;
use crate::queue::{Packet, QUEUE};
use crate::totals::{self, TOTALS, add};
use crate::{
    buffers, calls, client, connect, cost, counting, driver, known_stacks, launches, library, lifecycle, limits,
    quirks, sampling, setup, stalls, subscription, sys, wakeup,
};

/// Time between two flushes. A killed process loses what completed since the last one.
const TICK: u64 = 50_000_000;
/// The longest time that work in flight gets to complete when the recording ends. warpscope waits longer.
const LONGEST_DRAIN: u64 = 1_000_000_000;
/// If no further records arrive for this time, and none are known to be missing, the work is complete.
const QUIET: u64 = 30_000_000;
/// The longest wait for warpscope to take its end of the connection, and to be ready.
const LONGEST_WELCOME_MS: u32 = 20_000;
/// Time to sleep when there is nothing to flush and the thread only waits for the end.
const IDLE: u64 = 3_600_000_000_000;
/// CUPTI's flush runs on this stack; untouched pages cost nothing.
const STACK: usize = 1 << 20;

/// What the thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It sends messages that are queued, and waits for the end.
    Waits = 0,
    /// It also flushes CUPTI.
    Records = 1,
    /// It first sets up the session, in a process that already runs.
    Attached = 2,
}

/// Starts the thread with every signal blocked. Returns false, with errno set, if the thread cannot be created.
pub fn spawn(role: Role) -> bool {
    // SAFETY: all pointers are to locals that outlive their calls; the mask is put back as it was.
    unsafe {
        let mut attributes = core::mem::zeroed::<libc::pthread_attr_t>();
        if libc::pthread_attr_init(&mut attributes) != 0 {
            return false;
        }
        libc::pthread_attr_setstacksize(&mut attributes, STACK);
        libc::pthread_attr_setdetachstate(&mut attributes, libc::PTHREAD_CREATE_DETACHED);
        let mut all = core::mem::zeroed::<libc::sigset_t>();
        let mut before = core::mem::zeroed::<libc::sigset_t>();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let mut thread = core::mem::zeroed::<libc::pthread_t>();
        let started = libc::pthread_create(&mut thread, &attributes, run, ptr::without_provenance_mut(role as usize));
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, ptr::null_mut());
        libc::pthread_attr_destroy(&mut attributes);
        if started != 0 {
            sys::set_errno(started);
        }
        started == 0
    }
}

extern "C" fn run(role: *mut c_void) -> *mut c_void {
    lifecycle::guarded((), || {
        wakeup::set_sender();
        calls::ignore_this_thread();
        // SAFETY: names this thread; the text has fewer than 16 bytes.
        unsafe { libc::prctl(libc::PR_SET_NAME, c"warpscope-send".as_ptr()) };
        let mut sender = Sender::new(role.addr() == Role::Records as usize);
        let begun = if role.addr() == Role::Attached as usize { sender.begin() } else { Ok(()) };
        if begun.and_then(|()| sender.serve()).is_err() && !lifecycle::is_exiting() {
            subscription::stop();
        }
        close();
    });
    // Also after a panic: the session is over, and neither process exit nor another client must wait.
    lifecycle::end();
    client::end(None);
    wakeup::unset_sender();
    lifecycle::sender_done();
    lifecycle::release();
    ptr::null_mut()
}

/// Releases what only a session needs. What cannot be released is the library itself, and its memory, which is empty.
fn close() {
    lifecycle::close();
    lifecycle::close_other_end();
    if !lifecycle::is_exiting() {
        known_stacks::close();
        launches::close();
        NAMES_SEEN.clear();
        QUEUE.clear();
        buffers::discard();
    }
}

/// How far the devices have been announced.
enum Announcement {
    Due,
    /// The devices, and the next one to send.
    Partial(driver::Devices, u32),
    Done,
}

struct Sender {
    /// Time between two flushes.
    tick: u64,
    /// A packet that did not fit into the socket.
    pending: Option<Packet>,
    devices: Announcement,
    last_totals: wire::Totals,
    /// Present if the cost is limited.
    limiter: Option<Limiter>,
    pauses: Pauses,
}

impl Sender {
    fn new(records: bool) -> Self {
        Self {
            tick: if records { TICK } else { IDLE },
            pending: None,
            devices: Announcement::Due,
            last_totals: wire::Totals::default(),
            limiter: Limiter::new().filter(|_| records),
            pauses: Pauses::default(),
        }
    }

    /// Sets up the session in a process that already runs.
    fn begin(&mut self) -> Result<(), Disconnected> {
        let (cupti, notices) = setup::queue_first_messages();
        self.send_queued(true, FOREVER)?;
        let welcome = connect::await_welcome(lifecycle::socket(), LONGEST_WELCOME_MS);
        lifecycle::close_other_end();
        if !welcome {
            // The recording has ended before it began.
            self.finish()?;
            return Err(Disconnected);
        }
        let records = setup::begin(cupti, notices);
        if client::is_aside() {
            // As if it had recorded until now: what it has is sent when the process exits.
            lifecycle::begin();
            lifecycle::leave();
        }
        self.limiter = Limiter::new().filter(|_| records);
        // Also without records: this thread must end when warpscope does.
        self.tick = TICK;
        Ok(())
    }

    /// Runs until the process exits or the peer disconnects.
    fn serve(&mut self) -> Result<(), Disconnected> {
        if client::is_aside() {
            self.pauses.begin(sys::now());
        }
        self.send_queued(true, sys::now())?;
        let tick = self.tick;
        let mut due = sys::now() + tick;
        loop {
            let seen = wakeup::count();
            if lifecycle::is_exiting() {
                return self.finish();
            }
            if client::is_waiting() {
                self.step_aside()?;
            }
            let flush = sys::now() >= due;
            if flush {
                self.tick();
                due = sys::now() + tick;
                self.check_peer()?;
            }
            self.send_queued(flush, due)?;
            if flush && self.pending.is_none() {
                self.announce_devices(totals::launches(), due)?;
            }
            let mut next = due;
            if client::is_aside() {
                if flush {
                    self.pauses.return_if_left();
                }
            } else if let Some(limiter) = &mut self.limiter {
                if sys::now() >= limiter.due() {
                    limiter.act();
                }
                next = next.min(limiter.due());
            }
            if flush && finish_requested() {
                return self.leave();
            }
            if flush && calls::are_traced() && !client::is_aside() {
                subscription::enable_traced();
                subscription::disable_untraced();
            }
            if let Some(left) = next.checked_sub(sys::now()) {
                wakeup::sleep(seen, left);
            }
        }
    }

    /// Lets another client use CUPTI. It waits meanwhile.
    fn step_aside(&mut self) -> Result<(), Disconnected> {
        let from = sys::now();
        let drained = self.drain();
        flush(1);
        stalls::step_aside();
        limits::finish();
        if let Some(cupti) = library::cupti() {
            subscription::leave(cupti);
        }
        client::set_aside();
        self.pauses.begin(from);
        drained
    }

    /// Flushes completed records out of CUPTI, and sends the totals, with the cost, if they have changed.
    fn tick(&mut self) {
        flush(0);
        if let Some(cupti) = library::cupti().filter(|_| client::is_recording()) {
            client::watch(cupti);
            stalls::tick();
            limits::tick();
        }
        self.report_sampling();
        let totals = totals::snapshot();
        if totals != self.last_totals {
            let mut bytes = [0; wire::Cost::SIZE + wire::Totals::SIZE];
            cost::snapshot().encode(&mut bytes);
            totals.encode(&mut bytes[wire::Cost::SIZE..]);
            if QUEUE.append(&bytes, 0) {
                self.last_totals = totals;
            }
        }
    }

    /// Queues what was counted, and how much was recorded; false if the queue is full.
    fn report_sampling(&self) -> bool {
        let Some(limiter) = &self.limiter else { return true };
        sampling::tick();
        let mut bytes = [0; wire::Sampling::SIZE];
        limiter.report().encode(&mut bytes);
        counting::send() && QUEUE.append(&bytes, 0)
    }

    /// Sends the devices, once, before any record that refers to them. `evidence` is not 0 if anything was launched:
    /// then cuInit has returned, and only then may the driver be queried. Returns false if the socket is full until
    /// `deadline`.
    fn announce_devices(&mut self, evidence: u64, deadline: u64) -> Result<bool, Disconnected> {
        if matches!(self.devices, Announcement::Due) && evidence > 0 {
            self.devices =
                driver::Devices::open().map_or(Announcement::Done, |devices| Announcement::Partial(devices, 0));
        }
        while let Announcement::Partial(devices, next) = &mut self.devices {
            if *next >= devices.count() {
                self.devices = Announcement::Done;
                break;
            }
            let Some((id, name)) = devices.describe(*next) else {
                *next += 1;
                continue;
            };
            let mut bytes = [0; wire::DeviceId::SIZE + 7 + driver::NAME];
            id.encode(&mut bytes);
            wire::encode_device(id.index, name.to_bytes(), &mut bytes[wire::DeviceId::SIZE..]);
            match send(&bytes[..wire::DeviceId::SIZE + wire::text_size(name.to_bytes())])? {
                Sent::Whole | Sent::Refused => *next += 1,
                Sent::Blocked if !await_room(deadline) => return Ok(false),
                Sent::Blocked => {}
            }
        }
        Ok(true)
    }

    /// Sends packets until none are left or, if the socket is full, until `deadline`.
    fn send_queued(&mut self, partial: bool, deadline: u64) -> Result<(), Disconnected> {
        while let Some(packet) = self.pending.take().or_else(|| QUEUE.take(partial)) {
            if !self.announce_devices(packet.records, deadline)? {
                self.pending = Some(packet);
                break;
            }
            match send(packet.bytes())? {
                Sent::Whole => {
                    QUEUE.release(packet);
                    lifecycle::advance();
                }
                Sent::Refused => {
                    add(&TOTALS.dropped_queue_full, packet.records);
                    QUEUE.release(packet);
                }
                Sent::Blocked => {
                    self.pending = Some(packet);
                    if !await_room(deadline) {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// Detects a peer that has disconnected while nothing was being sent.
    fn check_peer(&self) -> Result<(), Disconnected> {
        let mut poll = libc::pollfd { fd: lifecycle::socket(), events: 0, revents: 0 };
        // SAFETY: one entry, and no waiting.
        unsafe { libc::poll(&mut poll, 1, 0) };
        let disconnected = poll.fd < 0 || poll.revents & (libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0;
        if disconnected { Err(Disconnected) } else { Ok(()) }
    }

    /// Ends the recording while the process continues: sends what is queued and releases CUPTI. Launches that were marked get
    /// time to return, and their work to complete: its records come after that.
    fn leave(&mut self) -> Result<(), Disconnected> {
        if !client::is_aside() {
            self.drain()?;
        }
        self.finish()?;
        subscription::stop();
        Ok(())
    }

    /// Disables records, and waits for those of launches that were marked.
    fn drain(&mut self) -> Result<(), Disconnected> {
        let deadline = sys::now() + LONGEST_DRAIN;
        if !subscription::pause() {
            // A launch does not return. Those that begin from now on are not marked, but their records arrive.
            lifecycle::leave();
        }
        let (mut seen, mut since) = (totals::records(), sys::now());
        while !lifecycle::is_exiting() && sys::now() < deadline {
            flush(0);
            self.send_queued(true, deadline)?;
            let (records, now) = (totals::records(), sys::now());
            if records != seen {
                (seen, since) = (records, now);
            } else if totals::have_records() && now - since >= QUIET {
                break;
            }
            wakeup::pause_for(2_000_000);
        }
        Ok(())
    }

    /// Sends everything left, the last totals and the end of the session. Process exit waits for this, but only up to
    /// its deadline.
    fn finish(&mut self) -> Result<(), Disconnected> {
        self.pauses.end();
        // While the driver can still be queried.
        self.send_queued(true, FOREVER)?;
        self.announce_devices(totals::launches(), FOREVER)?;
        stalls::finish();
        limits::finish();
        flush(1);
        // From now on no further record is read; those that other threads are reading still count.
        lifecycle::end();
        while buffers::any_reader() {
            wakeup::pause(100_000);
        }
        while !self.report_sampling() {
            self.send_queued(true, FOREVER)?;
        }
        quirks::report();
        self.send_queued(true, FOREVER)?;
        let mut last = [0; wire::Cost::SIZE + wire::Totals::SIZE + wire::SessionEnd::SIZE];
        cost::snapshot().encode(&mut last);
        totals::snapshot().encode(&mut last[wire::Cost::SIZE..]);
        wire::SessionEnd { pid: lifecycle::pid() }.encode(&mut last[wire::Cost::SIZE + wire::Totals::SIZE..]);
        while !matches!(send(&last)?, Sent::Whole) {
            wait_for_room(TICK);
        }
        // SAFETY: what was sent can still be read at the other end.
        unsafe { libc::shutdown(lifecycle::socket(), libc::SHUT_WR) };
        Ok(())
    }
}

/// Flushes CUPTI if it may hold records. Launched work may get its buffer only when it completes. The records of another
/// client are its own.
fn flush(force: u32) {
    if let Some(cupti) = library::cupti().filter(|_| !client::is_aside())
        && (totals::launches() > 0 || buffers::any_live())
    {
        // SAFETY: only takes a number; no callback of CUPTI is on this thread's stack.
        unsafe { (cupti.flush_all)(force) };
    }
}

/// Whether warpscope has sent [`wire::FINISH`]. A welcome may also arrive this late.
fn finish_requested() -> bool {
    core::iter::from_fn(|| connect::receive(lifecycle::socket())).any(|answer| answer == wire::FINISH)
}
