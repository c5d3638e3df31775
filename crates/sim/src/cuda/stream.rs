//! Streams and events.

use std::sync::atomic::Ordering;

use cupti::ids::sync_kind;

use super::Handle;
use super::stub::driver;
use crate::gpu::context::{Stream, per_thread};
use crate::gpu::event::Event;
use crate::gpu::{Outcome, answer, context, launch, status};
use crate::sys;

fn synchronize(stream: Handle) -> Outcome {
    let stream = Stream::from_handle(stream)?;
    if stream.capturing() {
        return Err(status::CAPTURE_UNSUPPORTED);
    }
    launch::wait(stream, stream.free_at(), sync_kind::STREAM, 0);
    Ok(())
}

fn done(time: u64) -> Outcome {
    if sys::now() >= time { Ok(()) } else { Err(status::NOT_READY) }
}

fn record(event: Handle, stream: Handle) -> Outcome {
    let time = Stream::from_handle(stream)?.free_at().max(sys::now());
    Event::from_handle(event)?.time.store(time, Ordering::Release);
    Ok(())
}

/// The stream waits, not the host; the record has the time of the call.
fn wait_event(stream: Handle, event: Handle) -> Outcome {
    let (stream, event) = (Stream::from_handle(stream)?, Event::from_handle(event)?);
    stream.meetings.settle();
    stream.timeline.wait_for(event.time.load(Ordering::Acquire));
    launch::wait(stream, 0, sync_kind::STREAM_WAIT_EVENT, event.id);
    Ok(())
}

fn elapsed(out: *mut f32, from: Handle, to: Handle) -> Outcome {
    let time = |event: Handle| Event::from_handle(event).map(|e| e.time.load(Ordering::Acquire));
    let (from, to) = (time(from)?, time(to)?);
    if from == 0 || to == 0 {
        return Err(status::INVALID_HANDLE);
    }
    done(from.max(to))?;
    answer(out, (to as i64 - from as i64) as f32 / 1e6)
}

driver! {
    124 cuStreamCreate(out: *mut Handle, _flags: u32) => answer(out, context::current()?.create_stream().handle());
    936 cuStreamCreateWithPriority(out: *mut Handle, _flags: u32, _priority: i32) => {
        answer(out, context::current()?.create_stream().handle())
    };
    937 cuStreamDestroy_v2(stream: Handle) => {
        let stream = Stream::from_handle(stream)?;
        stream.context.destroy_stream(stream);
        Ok(())
    };
    125 cuStreamQuery(stream: Handle) => {
        let stream = Stream::from_handle(stream)?;
        if stream.meetings.busy() { Err(status::NOT_READY) } else { done(stream.timeline.free_at()) }
    };
    126 cuStreamSynchronize(stream: Handle) => synchronize(stream);
    440 cuStreamSynchronize_ptsz(stream: Handle) => synchronize(per_thread(stream));
    938 cuStreamWaitEvent(stream: Handle, event: Handle, _flags: u32) => wait_event(stream, event);
    939 cuStreamWaitEvent_ptsz(stream: Handle, event: Handle, _flags: u32) => wait_event(per_thread(stream), event);
    940 cuStreamGetCtx(stream: Handle, out: *mut Handle) => answer(out, Stream::from_handle(stream)?.context.handle());
    118 cuEventCreate(out: *mut Handle, _flags: u32) => context::current().and_then(|_| answer(out, Event::create()));
    119 cuEventRecord(event: Handle, stream: Handle) => record(event, stream);
    941 cuEventRecord_ptsz(event: Handle, stream: Handle) => record(event, per_thread(stream));
    120 cuEventQuery(event: Handle) => done(Event::from_handle(event)?.time.load(Ordering::Acquire));
    121 cuEventSynchronize(event: Handle) => {
        let event = Event::from_handle(event)?;
        let stream = context::current()?.default_stream();
        launch::wait(stream, event.time.load(Ordering::Acquire), sync_kind::EVENT, event.id);
        Ok(())
    };
    942 cuEventDestroy_v2(event: Handle) => Event::destroy(event);
    123 cuEventElapsedTime(out: *mut f32, from: Handle, to: Handle) => elapsed(out, from, to);
    943 cuEventElapsedTime_v2(out: *mut f32, from: Handle, to: Handle) => elapsed(out, from, to);
}
