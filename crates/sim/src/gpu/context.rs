//! Contexts and their streams, and each thread's current context.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use cupti::callback::ResourceData;
use cupti::ids::resource;

use super::device::Device;
use super::graph::Graph;
use super::meeting::Meetings;
use super::timeline::Timeline;
use super::{Outcome, behind, client, memory, status};
use crate::script::MAX_DEVICES;
use crate::sys;

/// The null stream's id, as seen on real machines.
const DEFAULT_STREAM_ID: u32 = 7;
/// The first id of streams the program creates.
const FIRST_STREAM_ID: u32 = 13;

/// The primary context of a device.
#[derive(Debug)]
struct Primary {
    context: OnceLock<&'static Context>,
    /// References to it.
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

const CONTEXT_MAGIC: u64 = 0x7773_6374_7874;

/// By the device's index.
static PRIMARY: [Primary; MAX_DEVICES as usize] =
    [const { Primary { context: OnceLock::new(), retained: AtomicU32::new(0) } }; MAX_DEVICES as usize];

thread_local! {
    /// This thread's own stream in each device's primary context, created on first use.
    static THREAD_STREAMS: Cell<[Option<&'static Stream>; MAX_DEVICES as usize]> =
        const { Cell::new([None; MAX_DEVICES as usize]) };
}

impl Device {
    /// Returns the device's primary context.
    pub fn primary(&'static self) -> &'static Context {
        let mut created = false;
        let context = PRIMARY[self.index as usize].context.get_or_init(|| {
            created = true;
            Context::new(self)
        });
        if created {
            context.announce();
        }
        context
    }

    /// Adds a reference to the primary context.
    pub fn retain(&'static self) -> &'static Context {
        PRIMARY[self.index as usize].retained.fetch_add(1, Ordering::Relaxed);
        self.primary()
    }

    /// Drops a reference. The last one ends the context and frees its memory.
    pub fn release(&'static self) -> Outcome {
        let less = |count: u32| count.checked_sub(1);
        match PRIMARY[self.index as usize].retained.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less) {
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
        if let Some(context) = PRIMARY[self.index as usize].context.get() {
            context.end();
        }
    }
}

impl Context {
    /// Allocates memory of a kind ([`cupti::ids::memory_kind`]).
    pub fn allocate(&self, kind: u8, size: usize) -> Result<usize, u32> {
        memory::allocate(self.device, self.id, kind, size)
    }

    /// Waits for its work and frees its memory.
    pub fn end(&'static self) {
        self.synchronize();
        self.notify(resource::CONTEXT_DESTROY_STARTING);
        memory::free_all(self.id);
    }

    /// Creates an additional context of a device.
    pub fn new(device: &'static Device) -> &'static Context {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        Box::leak(Box::new(Context {
            magic: CONTEXT_MAGIC,
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            device,
            default: OnceLock::new(),
            streams: Mutex::default(),
            next_stream: AtomicU32::new(FIRST_STREAM_ID),
        }))
    }

    /// Reports to the CUPTI client that the context was created.
    pub fn announce(&'static self) {
        self.notify(resource::CONTEXT_CREATED);
    }

    fn notify(&'static self, cbid: u32) {
        let nothing = std::ptr::null_mut();
        let data = ResourceData { context: self.handle(), stream: nothing, descriptor: nothing };
        client::notify_resource(cbid, &data);
    }

    /// Returns the `CUcontext`.
    pub fn handle(&'static self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    /// Returns the context of a `CUcontext`.
    pub fn from_handle(handle: *mut c_void) -> Result<&'static Context, u32> {
        // SAFETY: the program got the handle from us; contexts are never freed.
        let context = unsafe { behind::<Context>(handle) }.map_err(|_| status::INVALID_CONTEXT)?;
        if context.magic == CONTEXT_MAGIC { Ok(context) } else { Err(status::INVALID_CONTEXT) }
    }

    fn streams(&self) -> MutexGuard<'_, Streams> {
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
        // Not while it is locked: other threads may create streams meanwhile.
        let live = self.streams().live.clone();
        live.iter().map(|stream| stream.free_at()).max().unwrap_or(0)
    }

    /// Waits for all work of the context.
    pub fn synchronize(&self) {
        sys::wait_until(self.done_at());
    }
}

/// Returns the calling thread's context.
#[inline]
pub fn current() -> Result<&'static Context, u32> {
    Context::from_handle(client::context().0)
}

/// Sets the calling thread's context; null for none.
pub fn set_current(handle: *mut c_void) -> Outcome {
    let id = if handle.is_null() { 0 } else { Context::from_handle(handle)?.id };
    client::set_context(handle, id);
    Ok(())
}

static CAPTURES: AtomicU32 = AtomicU32::new(0);

/// Returns how many streams are being captured.
pub fn captures() -> u32 {
    CAPTURES.load(Ordering::Relaxed)
}

/// A stream; never freed.
#[derive(Debug)]
pub struct Stream {
    magic: u64,
    id: AtomicU32,
    /// Its context.
    pub context: &'static Context,
    /// Its timeline.
    pub timeline: Timeline,
    /// Kernels whose times are not known yet.
    pub meetings: Meetings,
    capturing: AtomicBool,
    capture: Mutex<Option<Box<Graph>>>,
}

const STREAM_MAGIC: u64 = 0x7773_7374_726d;
/// `CU_STREAM_LEGACY`
const LEGACY: usize = 1;
/// `CU_STREAM_PER_THREAD`
const PER_THREAD: usize = 2;

/// Returns the stream that the `_ptsz` functions use for the null stream.
pub fn per_thread(stream: *mut c_void) -> *mut c_void {
    if stream.is_null() { std::ptr::without_provenance_mut(PER_THREAD) } else { stream }
}

impl Stream {
    /// Creates a stream that is never freed.
    pub fn leak(id: u32, context: &'static Context) -> &'static Stream {
        Box::leak(Box::new(Stream {
            magic: STREAM_MAGIC,
            id: AtomicU32::new(id),
            context,
            timeline: Timeline::new(),
            meetings: Meetings::default(),
            capturing: AtomicBool::new(false),
            capture: Mutex::new(None),
        }))
    }

    /// Reuses a destroyed stream.
    pub fn revive(&self, id: u32) {
        self.id.store(id, Ordering::Relaxed);
    }

    /// Returns its id in records.
    pub fn id(&self) -> u32 {
        self.id.load(Ordering::Relaxed)
    }

    /// Returns the `CUstream`.
    pub fn handle(&'static self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    /// Returns the stream of a `CUstream`, which may be null or one of the two special handles.
    pub fn from_handle(handle: *mut c_void) -> Result<&'static Stream, u32> {
        match handle.addr() {
            0 | LEGACY => Ok(current()?.default_stream()),
            PER_THREAD => Ok(current()?.thread_stream()),
            _ => {
                // SAFETY: the program got the handle from us; streams are never freed.
                let stream = unsafe { behind::<Stream>(handle) }?;
                if stream.magic == STREAM_MAGIC { Ok(stream) } else { Err(status::INVALID_HANDLE) }
            }
        }
    }

    fn capture(&self) -> MutexGuard<'_, Option<Box<Graph>>> {
        self.capture.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether launches are captured into a graph.
    #[inline]
    pub fn capturing(&self) -> bool {
        self.capturing.load(Ordering::Relaxed)
    }

    /// Starts capturing launches into a new graph.
    pub fn begin_capture(&self) -> Result<(), u32> {
        let mut capture = self.capture();
        if capture.is_some() {
            return Err(status::ILLEGAL_STATE);
        }
        *capture = Some(Graph::new());
        self.capturing.store(true, Ordering::Relaxed);
        CAPTURES.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Ends the capture.
    pub fn end_capture(&self) -> Result<Box<Graph>, u32> {
        self.capturing.store(false, Ordering::Relaxed);
        let graph = self.capture().take().ok_or(status::ILLEGAL_STATE)?;
        CAPTURES.fetch_sub(1, Ordering::Relaxed);
        Ok(graph)
    }

    /// Calls `work` with the graph being captured, if any.
    pub fn with_capture<R>(&self, work: impl FnOnce(&mut Graph) -> R) -> Option<R> {
        self.capture().as_deref_mut().map(work)
    }

    /// Returns when the work so far is done, once that is known.
    pub fn free_at(&self) -> u64 {
        self.meetings.settle();
        self.timeline.free_at()
    }

    /// Waits for the stream's work.
    pub fn synchronize(&self) {
        sys::wait_until(self.free_at());
    }
}
