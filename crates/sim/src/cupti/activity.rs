//! The activity API.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

use cupti::ids::result;
use cupti::record::KIND;
use cupti::types::{BufferCompletedFn, BufferRequestedFn, TimestampFn};

use super::buffer::{self, Client};
use super::{clock, code, gpu, queue, record, subscribe};
use crate::gpu::answer;

#[unsafe(no_mangle)]
extern "C" fn cuptiActivityRegisterCallbacks(
    requested: Option<BufferRequestedFn>,
    completed: Option<BufferCompletedFn>,
) -> u32 {
    code(gpu().and_then(|gpu| {
        let (Some(requested), Some(completed)) = (requested, completed) else { return Err(result::INVALID_PARAMETER) };
        if (gpu.script)().refuse_buffer {
            return Err(code::INVALID_OPERATION);
        }
        subscribe::attach(gpu)?;
        buffer::set_client(Some(Client { requested, completed }));
        Ok(())
    }))
}

fn switch(kind: u32, on: bool) -> u32 {
    code(gpu().and_then(|gpu| {
        if !record::exists(kind) {
            return Err(result::INVALID_KIND);
        }
        subscribe::attach(gpu)?;
        gpu.switches.set_kind(kind, on);
        Ok(())
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuptiActivityEnable(kind: u32) -> u32 {
    switch(kind, true)
}

#[unsafe(no_mangle)]
extern "C" fn cuptiActivityEnableAndDump(kind: u32) -> u32 {
    switch(kind, true)
}

#[unsafe(no_mangle)]
extern "C" fn cuptiActivityDisable(kind: u32) -> u32 {
    switch(kind, false)
}

#[unsafe(no_mangle)]
extern "C" fn cuptiActivityFlushAll(flag: u32) -> u32 {
    code(gpu().map(|gpu| queue::flush(gpu, flag & 1 != 0)))
}

/// Full buffers are delivered at once, so there is no periodic work.
#[unsafe(no_mangle)]
extern "C" fn cuptiActivityFlushPeriod(_milliseconds: u32) -> u32 {
    code(gpu().map(|_| ()))
}

#[unsafe(no_mangle)]
extern "C" fn cuptiActivityGetNextRecord(buffer: *mut u8, valid: usize, record: *mut *mut u8) -> u32 {
    code(gpu().and_then(|gpu| {
        if record.is_null() {
            return Err(result::INVALID_PARAMETER);
        }
        if buffer.is_null() || valid == 0 {
            return Err(result::MAX_LIMIT_REACHED);
        }
        let release = (gpu.script)().release;
        // SAFETY: the client passes the address of its pointer.
        let last = unsafe { *record };
        let at = if last.is_null() {
            0
        } else {
            // SAFETY: the last record was found by this function, so its kind can be read.
            let stride = record::stride(release, unsafe { KIND.read(last) });
            if stride == 0 {
                return Err(result::INVALID_KIND);
            }
            last.addr().wrapping_sub(buffer.addr()).wrapping_add(stride)
        };
        if at.saturating_add(size_of::<u32>()) > valid {
            return Err(result::MAX_LIMIT_REACHED);
        }
        // SAFETY: at least four bytes are valid there.
        let next = unsafe { buffer.add(at) };
        // SAFETY: as above.
        match record::stride(release, unsafe { KIND.read(next) }) {
            0 => Err(result::INVALID_KIND),
            stride if at + stride > valid => Err(result::MAX_LIMIT_REACHED),
            _ => answer(record, next),
        }
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuptiActivityGetNumDroppedRecords(context: *mut c_void, stream: u32, count: *mut usize) -> u32 {
    code(gpu().and_then(|gpu| {
        if count.is_null() {
            return Err(result::INVALID_PARAMETER);
        }
        let of = if context.is_null() {
            None
        } else {
            Some(((gpu.context_ids)(context).ok_or(result::INVALID_PARAMETER)?.0, stream))
        };
        answer(count, queue::take_dropped(of))
    }))
}

/// Attributes are stored and returned, but have no effect in the simulated CUPTI.
static ATTRIBUTES: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];

fn attribute(number: u32, size: *mut usize, value: *mut c_void) -> Result<(&'static AtomicU64, usize), u32> {
    let attribute = ATTRIBUTES.get(number as usize).ok_or(result::INVALID_PARAMETER)?;
    // SAFETY: the client passes the address of the value's size, or null.
    let size = unsafe { size.as_ref() }.copied().filter(|s| (1..=8).contains(s) && !value.is_null());
    Ok((attribute, size.ok_or(result::INVALID_PARAMETER)?))
}

#[unsafe(no_mangle)]
extern "C" fn cuptiActivitySetAttribute(number: u32, size: *mut usize, value: *mut c_void) -> u32 {
    code(attribute(number, size, value).map(|(attribute, size)| {
        let mut bytes = [0; 8];
        // SAFETY: the value has `size` bytes, 8 at most.
        unsafe { std::ptr::copy_nonoverlapping(value.cast(), bytes.as_mut_ptr(), size) };
        attribute.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuptiActivityGetAttribute(number: u32, size: *mut usize, value: *mut c_void) -> u32 {
    code(attribute(number, size, value).map(|(attribute, size)| {
        let bytes = attribute.load(Ordering::Relaxed).to_le_bytes();
        // SAFETY: the value has `size` bytes, 8 at most.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), value.cast(), size) };
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuptiActivityRegisterTimestampCallback(callback: Option<TimestampFn>) -> u32 {
    code(gpu().and_then(|gpu| {
        let callback = callback.ok_or(result::INVALID_PARAMETER)?;
        if (gpu.script)().refuse_clock {
            return Err(result::NOT_SUPPORTED);
        }
        clock::set(callback, (gpu.script)().clock_spoils);
        Ok(())
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuptiGetTimestamp(time: *mut u64) -> u32 {
    code(gpu().and_then(|_| answer(time, clock::now())))
}

/// Only records of API calls contain thread ids, and those are not simulated.
#[unsafe(no_mangle)]
extern "C" fn cuptiSetThreadIdType(kind: u32) -> u32 {
    code(gpu().and(if kind <= 1 { Ok(()) } else { Err(result::INVALID_PARAMETER) }))
}
