//! What another client has set up, as far as the wrappers have seen.

use core::ffi::{CStr, c_void};
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};

use cupti::ids::{domain, result};
use cupti::types::{BufferCompletedFn, BufferRequestedFn, CallbackFn, TimestampFn};

use crate::library::Cupti;
use crate::{sys, wakeup};

/// A subscription is idle if its owner records nothing and has made no call for this time.
const IDLE: u64 = 500_000_000;
/// The same if the owner has not flushed its records.
const IDLE_UNFLUSHED: u64 = 5_000_000_000;
/// How long a lock is tried: in a forked child it may stay locked forever.
const PATIENCE: u64 = 1_000_000_000;

/// A subscription: its handle as the client knows it, its present handle, and its callback with its data.
#[derive(Clone, Copy, Debug)]
pub struct Subscription {
    pub handle: usize,
    pub present: usize,
    pub callback: CallbackFn,
    pub data: usize,
}

/// The client.
#[derive(Debug)]
pub struct Known {
    pub subscription: Option<Subscription>,
    /// Ours has replaced the subscription.
    pub borrowed: bool,
    /// The callbacks of the resource domain that it has enabled, one bit each.
    pub resources: u64,
    /// It has enabled callbacks that cannot be forwarded.
    pub others: bool,
    /// The activity kinds that it has enabled, one bit each.
    pub kinds: u64,
    /// Those that it left enabled when it unsubscribed.
    pub stray: u64,
    /// It has flushed since it last enabled a kind.
    pub flushed: bool,
    last_call: u64,
    /// Calls that are under way.
    arrivals: u32,
    name: String,
}

static KNOWN: Mutex<Known> = Mutex::new(Known {
    subscription: None,
    borrowed: false,
    resources: 0,
    others: false,
    kinds: 0,
    stray: 0,
    flushed: true,
    last_call: 0,
    arrivals: 0,
    name: String::new(),
});

/// Its buffer functions and its clock, 0 if it has none.
static REQUESTED: AtomicUsize = AtomicUsize::new(0);
static COMPLETED: AtomicUsize = AtomicUsize::new(0);
static TIMESTAMP: AtomicUsize = AtomicUsize::new(0);
/// What [`forward_resource`] forwards while its subscription is borrowed, and to where.
static FORWARDED: AtomicU64 = AtomicU64::new(0);
static CALLBACK: AtomicUsize = AtomicUsize::new(0);
static DATA: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Locks the client's state; `None` if that takes too long.
pub fn lock() -> Option<MutexGuard<'static, Known>> {
    let begin = sys::now();
    loop {
        match KNOWN.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if sys::now() - begin > PATIENCE => return None,
            Err(TryLockError::WouldBlock) => wakeup::pause(50_000),
        }
    }
}

/// Returns a function from its address.
///
/// # Safety
/// The address must be 0 or that of a function of type `F`.
unsafe fn function<F: Copy>(address: usize) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<usize>()) };
    // SAFETY: both are one word long, and the caller guarantees the type.
    (address != 0).then(|| unsafe { core::mem::transmute_copy(&address) })
}

/// Returns the client's buffer functions, if it has registered any.
pub fn buffer_functions() -> Option<(BufferRequestedFn, BufferCompletedFn)> {
    // SAFETY: both were stored from functions of these types.
    unsafe { Some((function(REQUESTED.load(Ordering::Acquire))?, function(COMPLETED.load(Ordering::Acquire))?)) }
}

pub fn set_buffer_functions(functions: Option<(BufferRequestedFn, BufferCompletedFn)>) {
    COMPLETED.store(functions.map_or(0, |(_, completed)| completed as usize), Ordering::Release);
    REQUESTED.store(functions.map_or(0, |(requested, _)| requested as usize), Ordering::Release);
}

/// Returns the client's clock, if it has registered one.
pub fn timestamp() -> Option<TimestampFn> {
    // SAFETY: it was stored from a function of this type.
    unsafe { function(TIMESTAMP.load(Ordering::Acquire)) }
}

pub fn set_timestamp(clock: TimestampFn) {
    TIMESTAMP.store(clock as usize, Ordering::Release);
}

/// Notes a call of the client.
pub fn note_call() {
    if let Some(mut known) = lock() {
        known.last_call = sys::now();
    }
}

/// A call of the client that needs CUPTI, until it is dropped.
pub struct Arrival(bool);

impl Arrival {
    /// The call begins: the client wants CUPTI.
    pub fn begin(wanted: &AtomicBool) -> Self {
        let known = lock();
        wanted.store(true, Ordering::SeqCst);
        let counted = known.map(|mut known| {
            known.last_call = sys::now();
            known.arrivals += 1;
        });
        Self(counted.is_some())
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        if let Some(mut known) = lock().filter(|_| self.0) {
            known.last_call = sys::now();
            known.arrivals = known.arrivals.saturating_sub(1);
        }
    }
}

/// Whether a client is subscribed.
pub fn is_subscribed() -> bool {
    lock().is_some_and(|known| known.subscription.is_some())
}

/// Whether the client has left, or is idle; then it no longer wants CUPTI.
pub fn forget_if_left(now: u64, wanted: &AtomicBool) -> bool {
    let Some(known) = lock() else { return false };
    let left = known.has_left(now);
    if left {
        wanted.store(false, Ordering::SeqCst);
    }
    left
}

/// Returns what to call the client.
pub fn name() -> String {
    lock().map_or(String::new(), |known| known.name.clone())
}

pub fn set_name(name: &str) {
    if let Some(mut known) = lock() {
        known.name = name.into();
    }
}

/// Names the client after the file of one of its functions.
pub fn set_name_by(function: usize) {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: `info` is writable, and all zeros is a value of the type.
    let info = unsafe {
        libc::dladdr(function as *const c_void, info.as_mut_ptr());
        info.assume_init()
    };
    if !info.dli_fname.is_null() {
        // SAFETY: the loader keeps the name as long as the module is loaded, and the module is calling.
        let path = unsafe { CStr::from_ptr(info.dli_fname) }.to_string_lossy();
        set_name(name_of(path.rsplit('/').next().unwrap_or_default()));
    }
}

/// Returns what users call the client in this file.
fn name_of(file: &str) -> &str {
    if file.starts_with("libtorch") || file.starts_with("libkineto") { "torch.profiler" } else { file }
}

impl Known {
    /// Whether it has left, or is idle so that its subscription can be borrowed.
    fn has_left(&self, now: u64) -> bool {
        let quiet = now.saturating_sub(self.last_call);
        let patience = match (self.subscription, self.flushed) {
            (None, true) => 0,
            (Some(_), true) => IDLE,
            (_, false) => IDLE_UNFLUSHED,
        };
        self.arrivals == 0 && self.kinds == 0 && !(self.subscription.is_some() && self.others) && quiet >= patience
    }

    /// It has subscribed.
    pub fn subscribed(&mut self, subscription: Subscription) {
        (self.subscription, self.borrowed, self.resources, self.others) = (Some(subscription), false, 0, false);
        forward(0, None);
    }

    /// Its subscription has ended.
    pub fn unsubscribed(&mut self) {
        (self.subscription, self.borrowed, self.resources, self.others) = (None, false, 0, false);
        (self.stray, self.kinds, self.flushed) = (self.stray | self.kinds, 0, true);
        forward(0, None);
    }

    /// Returns CUPTI's handle for a handle that it has.
    pub fn present(&self, handle: *mut c_void) -> *mut c_void {
        match self.subscription {
            Some(subscription) if subscription.handle == handle as usize => subscription.present as *mut c_void,
            _ => handle,
        }
    }
}

fn forward(resources: u64, to: Option<&Subscription>) {
    FORWARDED.store(0, Ordering::SeqCst);
    if let Some(to) = to {
        CALLBACK.store(to.callback as usize, Ordering::SeqCst);
        DATA.store(to.data as *mut c_void, Ordering::SeqCst);
        FORWARDED.store(resources, Ordering::SeqCst);
    }
}

/// The callbacks to enable for the client whose subscription is borrowed, one bit each.
pub fn borrowed_resources() -> u64 {
    FORWARDED.load(Ordering::Relaxed)
}

/// Passes a callback of the resource domain on to the client whose subscription is borrowed.
pub fn forward_resource(cbid: u32, data: *const c_void) {
    if cbid < 64 && FORWARDED.load(Ordering::Relaxed) & (1 << cbid) != 0 {
        // SAFETY: it was stored from a function of this type, and the client has enabled this callback.
        unsafe {
            if let Some(callback) = function::<CallbackFn>(CALLBACK.load(Ordering::Relaxed)) {
                callback(DATA.load(Ordering::Relaxed), domain::RESOURCE, cbid, data);
            }
        }
    }
}

/// Takes the activity kinds that the client left enabled.
pub fn take_stray_kinds() -> impl Iterator<Item = u32> {
    let kinds = lock().map_or(0, |mut known| core::mem::take(&mut known.stray));
    (0..64).filter(move |kind| kinds & (1 << kind) != 0)
}

/// Ends the subscription of an idle client, so that this library can subscribe.
pub fn borrow(cupti: &Cupti) {
    let Some(mut known) = lock() else { return };
    if let Some(subscription) = known.subscription.filter(|_| !known.borrowed) {
        // SAFETY: CUPTI's handle of a subscription that has not ended.
        known.borrowed = unsafe { (cupti.unsubscribe)(subscription.present as *mut c_void) } == result::SUCCESS;
        if known.borrowed {
            forward(known.resources, Some(&subscription));
        }
    }
}

/// Restores a subscription that was borrowed, after this library's has ended.
pub fn restore(cupti: &Cupti) {
    let Some(mut known) = lock() else { return };
    let (borrowed, resources) = (known.borrowed, known.resources);
    let Some(subscription) = known.subscription.as_mut().filter(|_| borrowed) else { return };
    forward(0, None);
    let mut handle = ptr::null_mut();
    // SAFETY: callback and data are those that the client passed; the handle is the new subscription's.
    unsafe {
        if (cupti.subscribe)(&mut handle, subscription.callback, subscription.data as *mut c_void) == result::SUCCESS {
            subscription.present = handle as usize;
            for cbid in (0..64).filter(|cbid| resources & (1 << cbid) != 0) {
                (cupti.enable_callback)(1, handle, domain::RESOURCE, cbid);
            }
        }
    }
    known.borrowed = false;
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn callback(_: *mut c_void, _: u32, _: u32, _: *const c_void) {}

    /// An idle subscription is borrowed, but not one that receives calls or whose records were not flushed.
    #[test]
    fn clients_leave_or_are_idle() {
        let subscription = Some(Subscription { handle: 1, present: 2, callback, data: 0 });
        let client = |subscription, kinds, flushed, others| Known {
            subscription,
            borrowed: false,
            resources: 2,
            others,
            kinds,
            stray: 0,
            flushed,
            last_call: 1000,
            arrivals: 0,
            name: String::new(),
        };
        assert!(client(None, 0, true, false).has_left(1000), "it has unsubscribed");
        assert!(!client(None, 1 << 10, false, false).has_left(u64::MAX), "it records");
        assert!(!client(subscription, 0, true, false).has_left(1000 + IDLE - 1));
        assert!(client(subscription, 0, true, false).has_left(1000 + IDLE));
        assert!(!client(subscription, 0, false, false).has_left(1000 + IDLE));
        assert!(client(subscription, 0, false, false).has_left(1000 + IDLE_UNFLUSHED));
        assert!(!client(subscription, 0, true, true).has_left(u64::MAX), "it receives calls");
    }

    /// A client that kept its first handle reaches its present subscription.
    #[test]
    fn handles_are_translated() {
        let mut known = KNOWN.lock().unwrap();
        known.subscription = Some(Subscription { handle: 0x10, present: 0x20, callback, data: 0 });
        assert_eq!(known.present(ptr::without_provenance_mut(0x10)).addr(), 0x20);
        assert_eq!(known.present(ptr::without_provenance_mut(0x30)).addr(), 0x30);
        known.unsubscribed();
    }

    /// torch.profiler is known by its library.
    #[test]
    fn clients_have_names() {
        assert_eq!((name_of("libtorch_cpu.so"), name_of("libother.so")), ("torch.profiler", "libother.so"));
    }
}
