//! The range profiler: the structures of `cupti_range_profiler.h` (CUPTI 12.6 and later). Those of the host side are in
//! [`crate::pm_sampling`]. Each call takes one structure that begins with its size.

use core::ffi::{c_char, c_void};

use crate::pm_sampling::parameters;

parameters! {
    /// The parameters of `cuptiRangeProfilerEnable`.
    Enable: 32 {
        /// The context.
        context: *mut c_void,
        /// The object, as CUPTI returns it.
        profiler: *mut c_void,
    }

    /// The parameters of `cuptiRangeProfilerDisable`, `cuptiRangeProfilerStart` and `cuptiRangeProfilerPopRange`.
    Switch: 24 {
        /// The object.
        profiler: *mut c_void,
    }

    /// The parameters of `cuptiRangeProfilerStop`.
    Stop: 41 {
        /// The object.
        profiler: *mut c_void,
        /// The pass, as CUPTI returns it.
        pass: usize,
        /// The nesting level, as CUPTI returns it.
        level: usize,
        /// Not 0 if there are no more passes.
        last: u8,
    }

    /// The parameters of `cuptiRangeProfilerSetConfig`. Only the first one of an object counts: CUPTI 13.0 ignores others.
    SetConfig: 90 {
        /// The object.
        profiler: *mut c_void,
        /// Bytes of the configuration.
        config_size: usize,
        /// The configuration.
        config: *const u8,
        /// Bytes of the image.
        image_size: usize,
        /// Where values go.
        image: *mut u8,
        /// [`USER_RANGE`].
        range: u32,
        /// [`USER_REPLAY`].
        replay: u32,
        /// The most ranges.
        ranges: usize,
        /// 1.
        levels: u16,
        /// 1.
        first_level: u16,
        /// 0.
        pass: usize,
        /// 1.
        target_level: u16,
    }

    /// The parameters of `cuptiRangeProfilerPushRange`.
    Push: 32 {
        /// The object.
        profiler: *mut c_void,
        /// The name of the range. Ranges of the same name are one.
        name: *const c_char,
    }

    /// The parameters of `cuptiRangeProfilerDecodeData`.
    Decode: 32 {
        /// The object.
        profiler: *mut c_void,
        /// Ranges that did not fit into the image.
        dropped: usize,
    }

    /// The parameters of `cuptiRangeProfilerGetCounterDataSize`.
    DataSize: 64 {
        /// The object.
        profiler: *mut c_void,
        /// The names of the metrics.
        names: *const *const c_char,
        /// Their number.
        count: usize,
        /// The most ranges.
        ranges: usize,
        /// The same.
        nodes: u32,
        /// Bytes, as CUPTI returns them.
        image_size: usize,
    }

    /// The parameters of `cuptiRangeProfilerCounterDataImageInitialize`.
    DataInitialize: 40 {
        /// The object.
        profiler: *mut c_void,
        /// Bytes of the image.
        image_size: usize,
        /// The image.
        image: *mut u8,
    }

    /// The parameters of `cuptiRangeProfilerGetCounterDataInfo`.
    DataInfo: 40 {
        /// The image.
        image: *const u8,
        /// Its bytes.
        image_size: usize,
        /// The ranges in it, as CUPTI returns them.
        ranges: usize,
    }
}

/// Of `CUpti_ProfilerType`.
pub const RANGE_PROFILER: u32 = 0;
/// Of `CUpti_ProfilerRange`: ranges begin and end where the client says.
pub const USER_RANGE: u32 = 2;
/// Of `CUpti_ProfilerReplayMode`: nothing is run again.
pub const USER_REPLAY: u32 = 3;

// As measured on an H200 with CUPTI 13.0.
const _: () = {
    use core::mem::offset_of;
    assert!(offset_of!(Enable, profiler) == 24 && offset_of!(Stop, last) == 40);
    assert!(offset_of!(SetConfig, range) == 56 && offset_of!(SetConfig, ranges) == 64);
    assert!(offset_of!(SetConfig, levels) == 72 && offset_of!(SetConfig, pass) == 80);
    assert!(offset_of!(SetConfig, target_level) == 88);
    assert!(offset_of!(DataSize, nodes) == 48 && offset_of!(DataSize, image_size) == 56);
};
