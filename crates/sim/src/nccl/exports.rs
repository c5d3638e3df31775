//! The exported functions.

use std::ffi::{c_char, c_void};

use super::communicator::Communicator;
use super::group::{self, Part, Place};
use super::nvtx::{Fields, Range, schema};
use super::region::UniqueId;
use super::{Outcome, result};
use crate::script::script;

/// NCCL 2.28.9.
const VERSION: i32 = 22_809;
/// The color of members that get no communicator (`NCCL_SPLIT_NOCOLOR`).
const NO_COLOR: i32 = -1;

type Handle = *mut c_void;

fn status(outcome: Outcome<()>) -> i32 {
    outcome.err().unwrap_or(result::SUCCESS)
}

fn write<T>(to: *mut T, value: T) -> Outcome<()> {
    if to.is_null() {
        return Err(result::INVALID_ARGUMENT);
    }
    // SAFETY: the program passes a place for it.
    unsafe { to.write(value) };
    Ok(())
}

/// Returns the bytes of some elements.
fn bytes(count: usize, kind: i32) -> Outcome<u64> {
    // int8, uint8, int32, uint32, int64, uint64, float16, float32, float64, bfloat16, float8e4m3, float8e5m2
    const SIZES: [u64; 12] = [1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1];
    let size = usize::try_from(kind).ok().and_then(|kind| SIZES.get(kind)).ok_or(result::INVALID_ARGUMENT)?;
    (count as u64).checked_mul(*size).ok_or(result::INVALID_ARGUMENT)
}

/// A call that all members take part in.
struct Collective {
    communicator: Handle,
    stream: Handle,
    schema: u64,
    operation: &'static str,
    variant: &'static str,
    bytes: Outcome<u64>,
    others: [i32; 2],
    fields: usize,
}

impl Collective {
    fn call(self) -> i32 {
        let Self { communicator, stream, schema, operation, variant, bytes, others, fields } = self;
        let call = || {
            let (communicator, bytes) = (Communicator::of(communicator)?, bytes?);
            let number = communicator.next_call();
            let mismatched = script().nccl_mismatch == Some((communicator.rank, number)) && !communicator.is_split;
            let said = Fields::of_call(communicator.hash, bytes, &others[..fields]);
            let _range = match mismatched {
                true => Range::begin(schema::ALL_GATHER, Fields { size: 16, ..said }),
                false => Range::begin(schema, said),
            };
            let place = Place::Collective(number);
            group::call(Part { communicator, stream, operation, variant, bytes, place })
        };
        status(call())
    }
}

/// A message to a peer (side 0), or from it (side 1).
fn message(communicator: Handle, stream: Handle, bytes: Outcome<u64>, peer: i32, side: usize) -> i32 {
    let call = || {
        let (communicator, bytes) = (Communicator::of(communicator)?, bytes?);
        let own = u32::try_from(peer).ok().filter(|peer| *peer < communicator.size);
        let own = own.ok_or(result::INVALID_ARGUMENT)?;
        let number = communicator.next_message(own, side);
        let layout = [schema::SEND, schema::RECEIVE][side];
        let _range = Range::begin(layout, Fields::of_call(communicator.hash, bytes, &[peer]));
        let place = Place::Message(own, side, number);
        group::call(Part { communicator, stream, operation: "SendRecv", variant: "", bytes, place })
    };
    status(call())
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetVersion(version: *mut i32) -> i32 {
    status(write(version, VERSION))
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetErrorString(outcome: i32) -> *const c_char {
    let text = match outcome {
        result::SUCCESS => c"no error",
        result::UNHANDLED_CUDA_ERROR => c"unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        result::SYSTEM_ERROR => c"unhandled system error (run with NCCL_DEBUG=INFO for details)",
        result::INVALID_ARGUMENT => c"invalid argument (run with NCCL_DEBUG=WARN for details)",
        result::INVALID_USAGE => c"invalid usage (run with NCCL_DEBUG=WARN for details)",
        _ => c"unknown result code",
    };
    text.as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetLastError(_communicator: Handle) -> *const c_char {
    c"".as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetUniqueId(id: *mut UniqueId) -> i32 {
    status(UniqueId::make().and_then(|made| write(id, made)))
}

fn init(to: *mut Handle, size: i32, id: &UniqueId, rank: i32) -> Outcome<()> {
    let number = |value: i32| u32::try_from(value).map_err(|_| result::INVALID_ARGUMENT);
    let communicator = Communicator::join(id, number(size)?, number(rank)?, false)?;
    drop(communicator.describe(schema::INIT_RANK));
    write(to, communicator.handle())
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommInitRank(to: *mut Handle, size: i32, id: UniqueId, rank: i32) -> i32 {
    status(init(to, size, &id, rank))
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommInitRankConfig(
    to: *mut Handle,
    size: i32,
    id: UniqueId,
    rank: i32,
    _config: *const c_void,
) -> i32 {
    status(init(to, size, &id, rank))
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommSplit(
    communicator: Handle,
    color: i32,
    key: i32,
    to: *mut Handle,
    _config: *const c_void,
) -> i32 {
    let split = || {
        if color < NO_COLOR {
            return Err(result::INVALID_ARGUMENT);
        }
        let part = Communicator::of(communicator)?.split(color, key)?;
        write(to, part.map_or(std::ptr::null_mut(), Communicator::handle))
    };
    status(split())
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommFinalize(communicator: Handle) -> i32 {
    status(Communicator::of(communicator).map(|_| ()))
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommDestroy(communicator: Handle) -> i32 {
    status(Communicator::of(communicator).map(|own| drop(own.describe(schema::DESTROY))))
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommAbort(communicator: Handle) -> i32 {
    let abort = |own: &Communicator| {
        let _range = own.describe(schema::ABORT);
        own.region.abort();
    };
    status(Communicator::of(communicator).map(abort))
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommGetAsyncError(communicator: Handle, error: *mut i32) -> i32 {
    status(Communicator::of(communicator).and_then(|_| write(error, result::SUCCESS)))
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommCount(communicator: Handle, count: *mut i32) -> i32 {
    status(Communicator::of(communicator).and_then(|own| write(count, own.size as i32)))
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommUserRank(communicator: Handle, rank: *mut i32) -> i32 {
    status(Communicator::of(communicator).and_then(|own| write(rank, own.rank as i32)))
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommCuDevice(communicator: Handle, device: *mut i32) -> i32 {
    status(Communicator::of(communicator).and_then(|own| write(device, own.device as i32)))
}

#[unsafe(no_mangle)]
extern "C" fn ncclGroupStart() -> i32 {
    group::begin();
    result::SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn ncclGroupEnd() -> i32 {
    status(group::end())
}

macro_rules! collectives {
    ($($name:ident($($before:ident: $type:ty),*; $count:ident; $($other:ident),*) = $schema:ident $operation:literal $variant:literal
        [$($field:ident),*];)*) => {
        $(
        #[unsafe(no_mangle)]
        extern "C" fn $name(
            $($before: $type,)* $count: usize, kind: i32, $($other: i32,)* communicator: Handle, stream: Handle
        ) -> i32 {
            let _ = ($($before,)* $($other,)*);
            let mut others = [0; 2];
            let said: &[i32] = &[$($field),*];
            others[..said.len()].copy_from_slice(said);
            let (bytes, fields) = (bytes($count, kind), said.len());
            let (schema, operation, variant) = (schema::$schema, $operation, $variant);
            Collective { communicator, stream, schema, operation, variant, bytes, others, fields }.call()
        }
        )*
    };
}

collectives! {
    ncclAllReduce(send: Handle, receive: Handle; count; op) = ALL_REDUCE "AllReduce" "_Sum_f32_RING_LL" [op];
    ncclBroadcast(send: Handle, receive: Handle; count; root) = BROADCAST "Broadcast" "_RING_LL" [root];
    ncclBcast(buffer: Handle; count; root) = BROADCAST "Broadcast" "_RING_LL" [root];
    ncclReduce(send: Handle, receive: Handle; count; op, root) = REDUCE "Reduce" "_Sum_f32_RING_LL" [root, op];
    ncclAllGather(send: Handle, receive: Handle; count; ) = ALL_GATHER "AllGather" "_RING_LL" [];
    ncclReduceScatter(send: Handle, receive: Handle; count; op) = REDUCE_SCATTER "ReduceScatter" "_Sum_f32_RING_LL" [op];
}

#[unsafe(no_mangle)]
extern "C" fn ncclSend(
    _buffer: Handle,
    count: usize,
    kind: i32,
    peer: i32,
    communicator: Handle,
    stream: Handle,
) -> i32 {
    message(communicator, stream, bytes(count, kind), peer, 0)
}

#[unsafe(no_mangle)]
extern "C" fn ncclRecv(
    _buffer: Handle,
    count: usize,
    kind: i32,
    peer: i32,
    communicator: Handle,
    stream: Handle,
) -> i32 {
    message(communicator, stream, bytes(count, kind), peer, 1)
}
