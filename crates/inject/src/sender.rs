//! The library's one thread: it flushes CUPTI, sends what is queued, and at the end says goodbye.
//!
//! It alone uses the socket, and it alone may wait: for room in the socket, for work, for CUPTI. Full packets wake it; every
//! [`TICK`] it flushes and sends what there is.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

use crate::queue::{Packet, QUEUE};
use crate::totals::{self, TOTALS, add};
use crate::{buffers, driver, library, lifecycle, start, sys};

/// Between two flushes. A process that is killed loses what was complete since the last one.
const TICK: u64 = 50_000_000;
/// Where there is nothing to flush, the thread only waits for the end.
const IDLE: u64 = 3_600_000_000_000;
/// No deadline: whoever waits for the sender has one.
const FOREVER: u64 = u64::MAX;
/// CUPTI's flush runs on this stack; only what is touched costs memory.
const STACK: usize = 1 << 20;

static WAKE: AtomicU32 = AtomicU32::new(0);
static ASLEEP: AtomicBool = AtomicBool::new(false);
static THREAD: AtomicI32 = AtomicI32::new(0);

/// Tells the sender that there is something to do.
pub fn wake() {
    WAKE.fetch_add(1, Ordering::SeqCst);
    if ASLEEP.load(Ordering::SeqCst) {
        sys::wake(&WAKE);
    }
}

/// Whether the caller is the sender.
pub fn is_this_thread() -> bool {
    // SAFETY: asks only for the thread id.
    THREAD.load(Ordering::Relaxed) == unsafe { libc::gettid() }
}

/// Starts the thread, with every signal blocked. With `records`, CUPTI is to be flushed. False, with errno set, if there is no
/// thread.
pub fn spawn(records: bool) -> bool {
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
        let started = libc::pthread_create(&mut thread, &attributes, run, usize::from(records) as *mut c_void);
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, ptr::null_mut());
        libc::pthread_attr_destroy(&mut attributes);
        if started != 0 {
            sys::set_errno(started);
        }
        started == 0
    }
}

extern "C" fn run(records: *mut c_void) -> *mut c_void {
    lifecycle::guarded((), || {
        // SAFETY: asks only for the thread id.
        THREAD.store(unsafe { libc::gettid() }, Ordering::Relaxed);
        // SAFETY: names this thread; the text has fewer than 16 bytes.
        unsafe { libc::prctl(libc::PR_SET_NAME, c"warpscope-send".as_ptr()) };
        let mut sender = Sender::new(!records.is_null());
        if sender.serve().is_err() && !lifecycle::is_exiting() {
            start::stop();
        }
        lifecycle::close();
    });
    // Also after a panic: the session is over, and the exit must not wait.
    lifecycle::end();
    lifecycle::sender_done();
    ptr::null_mut()
}

/// The peer is gone.
struct Gone;

enum Sent {
    Whole,
    /// The socket has no room.
    Blocked,
    /// It will never go: lost.
    Refused,
}

struct Sender {
    records: bool,
    /// A packet that found no room.
    pending: Option<Packet>,
    named_devices: bool,
    told: wire::Totals,
}

impl Sender {
    fn new(records: bool) -> Self {
        Self { records, pending: None, named_devices: false, told: wire::Totals::default() }
    }

    /// Until the process exits or the peer is gone.
    fn serve(&mut self) -> Result<(), Gone> {
        self.send_queued(true, sys::now())?;
        let tick = if self.records { TICK } else { IDLE };
        let mut due = sys::now() + tick;
        loop {
            let seen = WAKE.load(Ordering::SeqCst);
            if lifecycle::is_exiting() {
                return self.finish();
            }
            let flush = sys::now() >= due;
            if flush {
                self.tick();
                due = sys::now() + tick;
                self.check_peer()?;
            }
            self.send_queued(flush, due)?;
            if flush && told_to_finish() {
                return self.leave();
            }
            if let Some(left) = due.checked_sub(sys::now()) {
                ASLEEP.store(true, Ordering::SeqCst);
                sys::wait(&WAKE, seen, left);
                ASLEEP.store(false, Ordering::SeqCst);
            }
        }
    }

    /// Brings out of CUPTI what is complete, and tells the totals if they have changed.
    fn tick(&mut self) {
        flush(0);
        self.name_devices();
        let totals = totals::snapshot();
        if totals != self.told {
            let mut bytes = [0; wire::Totals::SIZE];
            totals.encode(&mut bytes);
            if QUEUE.append(&bytes, 0) {
                self.told = totals;
            }
        }
    }

    /// Names the devices, once. A launch means that cuInit has returned: only then may they be asked for.
    fn name_devices(&mut self) {
        if self.named_devices || totals::launches() == 0 {
            return;
        }
        self.named_devices = true;
        driver::devices(|index, name| {
            let mut bytes = [0; 7 + 256];
            wire::encode_device(index, name, &mut bytes);
            QUEUE.append(&bytes[..wire::text_size(name)], 0);
        });
    }

    /// Sends packets until there are none or, where the socket has no room, until `deadline`.
    fn send_queued(&mut self, partial: bool, deadline: u64) -> Result<(), Gone> {
        while let Some(packet) = self.pending.take().or_else(|| QUEUE.take(partial)) {
            match send(packet.bytes())? {
                Sent::Whole => QUEUE.release(packet),
                Sent::Refused => {
                    add(&TOTALS.dropped_queue_full, packet.records);
                    QUEUE.release(packet);
                }
                Sent::Blocked => {
                    self.pending = Some(packet);
                    let Some(left) = deadline.checked_sub(sys::now()).filter(|left| *left > 0) else { break };
                    wait_for_room(left);
                    if deadline != FOREVER && lifecycle::is_exiting() {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// A peer that left without our sending anything is noticed here.
    fn check_peer(&self) -> Result<(), Gone> {
        let mut poll = libc::pollfd { fd: lifecycle::socket(), events: 0, revents: 0 };
        // SAFETY: one entry, and no waiting.
        unsafe { libc::poll(&mut poll, 1, 0) };
        let gone = poll.fd < 0 || poll.revents & (libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0;
        if gone { Err(Gone) } else { Ok(()) }
    }

    /// warpscope stops recording while the process runs on: what there is goes out, and CUPTI is left alone.
    fn leave(&mut self) -> Result<(), Gone> {
        self.finish()?;
        start::stop();
        Ok(())
    }

    /// The process exits: everything out, the last totals, goodbye. The exit waits for this, but not for ever.
    fn finish(&mut self) -> Result<(), Gone> {
        self.name_devices();
        flush(1);
        // From here on no further record is read; those being read by other threads still count.
        lifecycle::end();
        while buffers::any_read() {
            sys::wait(&WAKE, WAKE.load(Ordering::Relaxed), 100_000);
        }
        self.send_queued(true, FOREVER)?;
        let mut last = [0; wire::Totals::SIZE + wire::Goodbye::SIZE];
        totals::snapshot().encode(&mut last);
        wire::Goodbye { pid: lifecycle::pid() }.encode(&mut last[wire::Totals::SIZE..]);
        while !matches!(send(&last)?, Sent::Whole) {
            wait_for_room(TICK);
        }
        // SAFETY: what was sent can still be read at the other end.
        unsafe { libc::shutdown(lifecycle::socket(), libc::SHUT_WR) };
        Ok(())
    }
}

/// Asks CUPTI for what it has, if it can have anything: work that was launched may get its buffer only when it completes.
fn flush(force: u32) {
    if let Some(cupti) = library::cupti()
        && (totals::launches() > 0 || buffers::any_live())
    {
        // SAFETY: takes only a number; no callback of CUPTI is on this thread's stack.
        unsafe { (cupti.flush_all)(force) };
    }
}

/// Whether warpscope has sent [`wire::FINISH`].
fn told_to_finish() -> bool {
    let mut byte = 0_u8;
    // SAFETY: one byte of room, and no waiting.
    let got = unsafe { libc::recv(lifecycle::socket(), (&raw mut byte).cast(), 1, libc::MSG_DONTWAIT) };
    got == 1 && byte == wire::FINISH
}

fn send(packet: &[u8]) -> Result<Sent, Gone> {
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: the bytes are valid for the call.
    let sent = unsafe { libc::send(lifecycle::socket(), packet.as_ptr().cast(), packet.len(), flags) };
    if sent >= 0 {
        return Ok(Sent::Whole);
    }
    match sys::errno() {
        libc::EAGAIN | libc::EINTR | libc::ENOBUFS | libc::ENOMEM => Ok(Sent::Blocked),
        libc::EMSGSIZE => Ok(Sent::Refused),
        _ => Err(Gone),
    }
}

/// Waits for room in the socket. At least a moment, for memory can be short while the socket has room.
fn wait_for_room(nanoseconds: u64) {
    let mut poll = libc::pollfd { fd: lifecycle::socket(), events: libc::POLLOUT, revents: 0 };
    let milliseconds = (nanoseconds / 1_000_000).clamp(1, 100) as i32;
    // SAFETY: one entry, valid for the call.
    let ready = unsafe { libc::poll(&mut poll, 1, milliseconds) };
    if ready > 0 {
        let pause = libc::timespec { tv_sec: 0, tv_nsec: 50_000 };
        // SAFETY: the time is initialised; the remainder is not wanted.
        unsafe { libc::nanosleep(&pause, ptr::null_mut()) };
    }
}
