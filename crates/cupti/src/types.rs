//! Types of the CUPTI functions that warpscope binds at run time.

use core::ffi::{c_char, c_void};

/// `CUptiResult`; [`crate::ids::result`] names some.
pub type CuptiResult = u32;
/// `CUpti_SubscriberHandle`.
pub type Subscriber = *mut c_void;
/// The subscriber's callback: user data, domain, callback id, data of the domain's type.
pub type CallbackFn = unsafe extern "C" fn(*mut c_void, u32, u32, *const c_void);
/// CUPTI requests a buffer: where to store the buffer, its size, and the maximum number of records in it (0: no limit).
pub type BufferRequestedFn = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
/// CUPTI returns a buffer: context, stream id, buffer, its size, and how many bytes are valid.
pub type BufferCompletedFn = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);
/// A clock, in nanoseconds.
pub type TimestampFn = unsafe extern "C" fn() -> u64;

/// `cuptiGetVersion`
pub type GetVersion = unsafe extern "C" fn(*mut u32) -> CuptiResult;
/// `cuptiGetResultString`
pub type GetResultString = unsafe extern "C" fn(CuptiResult, *mut *const c_char) -> CuptiResult;
/// `cuptiSubscribe`
pub type Subscribe = unsafe extern "C" fn(*mut Subscriber, CallbackFn, *mut c_void) -> CuptiResult;
/// `CUpti_SubscriberParams`, for [`SubscribeV2`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct SubscriberParams {
    /// Bytes of this struct.
    pub size: usize,
    /// This subscriber's name; may be null.
    pub name: *const c_char,
    /// Where CUPTI writes the name of the existing client, on error 39; at least 64 bytes.
    pub old_name: *mut c_char,
    /// Bytes at `old_name`.
    pub old_size: usize,
}
/// `cuptiSubscribe_v2` (13.0 and later)
pub type SubscribeV2 =
    unsafe extern "C" fn(*mut Subscriber, CallbackFn, *mut c_void, *mut SubscriberParams) -> CuptiResult;
/// `cuptiUnsubscribe`
pub type Unsubscribe = unsafe extern "C" fn(Subscriber) -> CuptiResult;
/// `cuptiEnableCallback`: enable, subscriber, domain, callback id.
pub type EnableCallback = unsafe extern "C" fn(u32, Subscriber, u32, u32) -> CuptiResult;
/// `cuptiEnableDomain`: enable, subscriber, domain.
pub type EnableDomain = unsafe extern "C" fn(u32, Subscriber, u32) -> CuptiResult;
/// `cuptiEnableAllDomains`: enable, subscriber.
pub type EnableAllDomains = unsafe extern "C" fn(u32, Subscriber) -> CuptiResult;
/// `cuptiFinalize`
pub type Finalize = unsafe extern "C" fn() -> CuptiResult;
/// `cuptiGetCallbackName`: domain, callback id, where to write the name, which is never freed.
pub type GetCallbackName = unsafe extern "C" fn(u32, u32, *mut *const c_char) -> CuptiResult;
/// `cuptiActivityRegisterCallbacks`
pub type ActivityRegisterCallbacks = unsafe extern "C" fn(BufferRequestedFn, BufferCompletedFn) -> CuptiResult;
/// `cuptiActivityGetNextRecord`: buffer, valid bytes, the record (in: the last one or null; out: the next).
pub type ActivityGetNextRecord = unsafe extern "C" fn(*mut u8, usize, *mut *mut u8) -> CuptiResult;
/// `cuptiActivityGetNumDroppedRecords`: context, stream id, count (since the last call).
pub type ActivityGetNumDroppedRecords = unsafe extern "C" fn(*mut c_void, u32, *mut usize) -> CuptiResult;
/// `cuptiActivityEnable`, `cuptiActivityDisable`
pub type ActivitySwitch = unsafe extern "C" fn(u32) -> CuptiResult;
/// `cuptiActivityFlushAll`: 0 for complete records, 1 to force incomplete ones out.
pub type ActivityFlushAll = unsafe extern "C" fn(u32) -> CuptiResult;
/// `cuptiActivityRegisterTimestampCallback`
pub type ActivityRegisterTimestampCallback = unsafe extern "C" fn(TimestampFn) -> CuptiResult;
/// `cuptiSetThreadIdType`: 1 for system thread ids.
pub type SetThreadIdType = unsafe extern "C" fn(u32) -> CuptiResult;
/// `cuptiGetStreamIdEx`: context, stream, whether the default stream is the per-thread one, the id.
pub type GetStreamId = unsafe extern "C" fn(*mut c_void, *mut c_void, u8, *mut u32) -> CuptiResult;
/// `cuptiGetGraphNodeId`: node, the id.
pub type GetGraphNodeId = unsafe extern "C" fn(*mut c_void, *mut u64) -> CuptiResult;
/// `cuptiGetGraphId`, `cuptiGetGraphExecId` (12.3 and later): graph, the id.
pub type GetGraphId = unsafe extern "C" fn(*mut c_void, *mut u32) -> CuptiResult;
/// `cuptiGetTimestamp`
pub type GetTimestamp = unsafe extern "C" fn(*mut u64) -> CuptiResult;

/// `CUresult InitializeInjection(void)`: called by the driver in the library named by `CUDA_INJECTION64_PATH`.
pub type InitializeInjection = unsafe extern "C" fn() -> i32;
