//! Streams and events.

use super::Handle;
use super::call::{check, ready};
use super::stub::runtime;
use crate::gpu::context::per_thread;

runtime! {
    129 cudaStreamCreate(out: *mut Handle) => check((ready()?.cuStreamCreate)(out, 0));
    0 cudaStreamCreateWithFlags(out: *mut Handle, flags: u32) => check((ready()?.cuStreamCreate)(out, flags));
    0 cudaStreamCreateWithPriority(out: *mut Handle, flags: u32, _priority: i32) => {
        check((ready()?.cuStreamCreate)(out, flags))
    };
    130 cudaStreamDestroy(stream: Handle) => check((ready()?.cuStreamDestroy_v2)(stream));
    132 cudaStreamQuery(stream: Handle) => check((ready()?.cuStreamQuery)(stream));
    131 cudaStreamSynchronize(stream: Handle) => check((ready()?.cuStreamSynchronize)(stream));
    239 cudaStreamSynchronize_ptsz(stream: Handle) => check((ready()?.cuStreamSynchronize)(per_thread(stream)));
    0 cudaStreamWaitEvent(stream: Handle, event: Handle, flags: u32) => {
        check((ready()?.cuStreamWaitEvent)(stream, event, flags))
    };
    133 cudaEventCreate(out: *mut Handle) => check((ready()?.cuEventCreate)(out, 0));
    134 cudaEventCreateWithFlags(out: *mut Handle, flags: u32) => check((ready()?.cuEventCreate)(out, flags));
    135 cudaEventRecord(event: Handle, stream: Handle) => check((ready()?.cuEventRecord)(event, stream));
    0 cudaEventRecord_ptsz(event: Handle, stream: Handle) => {
        check((ready()?.cuEventRecord)(event, per_thread(stream)))
    };
    136 cudaEventDestroy(event: Handle) => check((ready()?.cuEventDestroy_v2)(event));
    137 cudaEventSynchronize(event: Handle) => check((ready()?.cuEventSynchronize)(event));
    138 cudaEventQuery(event: Handle) => check((ready()?.cuEventQuery)(event));
    139 cudaEventElapsedTime(out: *mut f32, from: Handle, to: Handle) => {
        check((ready()?.cuEventElapsedTime)(out, from, to))
    };
}
