//! Devices, contexts, and each thread's current context.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use cupti::callback::ResourceData;
use cupti::ids::resource;

use super::stream::Stream;
use super::{Outcome, behind, call, memory, status};
use crate::script::{MAX_DEVICES, script};
use crate::sys;

/// The null stream's id, as seen on real machines.
const DEFAULT_STREAM_ID: u32 = 7;
/// The first id of streams the program creates.
const FIRST_STREAM_ID: u32 = 13;

/// One GPU.
#[derive(Debug)]
pub struct Device {
    /// Its index.
    pub index: u32,
    /// Bytes allocated.
    pub used: AtomicU64,
    primary: OnceLock<&'static Context>,
    /// References to the primary context.
    retained: AtomicU32,
}

/// A context; never freed.
#[derive(Debug)]
pub struct Context {
    magic: u64,
    /// Its id in records.
    pub id: u32,
    /// Its device.
    pub device: &'static Device,
    default: OnceLock<&'static Stream>,
    streams: Mutex<Streams>,
    next_stream: AtomicU32,
}

#[derive(Debug, Default)]
struct Streams {
    live: Vec<&'static Stream>,
    /// Destroyed ones, for reuse.
    free: Vec<&'static Stream>,
}

const MAGIC: u64 = 0x7773_6374_7874;

static DEVICES: OnceLock<Vec<Device>> = OnceLock::new();

thread_local! {
    static CURRENT: Cell<Option<&'static Context>> = const { Cell::new(None) };
    /// This thread's own stream in each device's primary context, created on first use.
    static THREAD_STREAMS: Cell<[Option<&'static Stream>; MAX_DEVICES as usize]> =
        const { Cell::new([None; MAX_DEVICES as usize]) };
}

/// Creates the script's devices.
pub fn create_devices() {
    DEVICES.get_or_init(|| {
        (0..script().devices)
            .map(|index| Device {
                index,
                used: AtomicU64::new(0),
                primary: OnceLock::new(),
                retained: AtomicU32::new(0),
            })
            .collect()
    });
}

/// Returns a device by index.
pub fn device(index: i32) -> Result<&'static Device, u32> {
    let devices = DEVICES.get().ok_or(status::NOT_INITIALIZED)?;
    usize::try_from(index).ok().and_then(|i| devices.get(i)).ok_or(status::INVALID_DEVICE)
}

impl Device {
    /// Returns the device's primary context.
    pub fn primary(&'static self) -> &'static Context {
        let mut created = false;
        let context = self.primary.get_or_init(|| {
            created = true;
            Context::new(self)
        });
        if created {
            context.announce();
        }
        context
    }
}

impl Device {
    /// Adds a reference to the primary context.
    pub fn retain(&'static self) -> &'static Context {
        self.retained.fetch_add(1, Ordering::Relaxed);
        self.primary()
    }

    /// Drops a reference. The last one ends the context and frees its memory.
    pub fn release(&'static self) -> Outcome {
        let less = |count: u32| count.checked_sub(1);
        match self.retained.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less) {
            Ok(1) => {
                self.reset();
                Ok(())
            }
            Ok(_) => Ok(()),
            Err(_) => Err(status::INVALID_CONTEXT),
        }
    }

    /// Ends the primary context, regardless of references. The same object is reused the next time.
    pub fn reset(&'static self) {
        if let Some(context) = self.primary.get() {
            context.end();
        }
    }
}

impl Context {
    /// Waits for its work and frees its memory.
    pub fn end(&'static self) {
        self.synchronize();
        memory::free_all(self);
    }

    /// Creates an additional context of a device.
    pub fn new(device: &'static Device) -> &'static Context {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        Box::leak(Box::new(Context {
            magic: MAGIC,
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            device,
            default: OnceLock::new(),
            streams: Mutex::default(),
            next_stream: AtomicU32::new(FIRST_STREAM_ID),
        }))
    }

    /// Reports to the CUPTI client that the context was created.
    pub fn announce(&'static self) {
        let nothing = std::ptr::null_mut();
        call::notify_resource(
            resource::CONTEXT_CREATED,
            &ResourceData { context: self.handle(), stream: nothing, descriptor: nothing },
        );
    }

    /// Returns the `CUcontext`.
    pub fn handle(&'static self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    /// Returns the context of a `CUcontext`.
    pub fn from_handle(handle: *mut c_void) -> Result<&'static Context, u32> {
        // SAFETY: the program got the handle from us; contexts are never freed.
        let context = unsafe { behind::<Context>(handle) }.map_err(|_| status::INVALID_CONTEXT)?;
        if context.magic == MAGIC { Ok(context) } else { Err(status::INVALID_CONTEXT) }
    }

    fn streams(&self) -> std::sync::MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add_stream(&'static self, id: u32) -> &'static Stream {
        let mut streams = self.streams();
        let stream = match streams.free.pop() {
            Some(stream) => {
                stream.revive(id);
                stream
            }
            None => Stream::leak(id, self),
        };
        streams.live.push(stream);
        stream
    }

    /// Creates a stream.
    pub fn create_stream(&'static self) -> &'static Stream {
        self.add_stream(self.next_stream.fetch_add(1, Ordering::Relaxed))
    }

    /// Destroys a stream created by the program.
    pub fn destroy_stream(&self, stream: &'static Stream) {
        let mut streams = self.streams();
        if let Some(at) = streams.live.iter().position(|s| std::ptr::eq(*s, stream)) {
            streams.live.swap_remove(at);
            streams.free.push(stream);
        }
    }

    /// Returns the null stream.
    pub fn default_stream(&'static self) -> &'static Stream {
        self.default.get_or_init(|| self.add_stream(DEFAULT_STREAM_ID))
    }

    /// Returns the calling thread's own stream.
    pub fn thread_stream(&'static self) -> &'static Stream {
        let mut streams = THREAD_STREAMS.get();
        let slot = &mut streams[self.device.index as usize];
        if let Some(stream) = *slot {
            return stream;
        }
        let stream = self.create_stream();
        *slot = Some(stream);
        THREAD_STREAMS.set(streams);
        stream
    }

    /// Returns when all work queued on the context so far will be done.
    pub fn done_at(&self) -> u64 {
        self.streams().live.iter().map(|s| s.clock.free_at()).max().unwrap_or(0)
    }

    /// Waits for all work of the context.
    pub fn synchronize(&self) {
        sys::wait_until(self.done_at());
    }
}

/// Returns the calling thread's context.
#[inline]
pub fn current() -> Result<&'static Context, u32> {
    CURRENT.get().ok_or(status::INVALID_CONTEXT)
}

/// Returns the calling thread's context for a callback: handle and id, or none.
pub fn current_handle() -> (*mut c_void, u32) {
    CURRENT.get().map_or((std::ptr::null_mut(), 0), |c| (c.handle(), c.id))
}

/// Sets the calling thread's context; null for none.
pub fn set_current(handle: *mut c_void) -> Outcome {
    let context = if handle.is_null() { None } else { Some(Context::from_handle(handle)?) };
    CURRENT.set(context);
    Ok(())
}
