//! PM sampling: the structures of `cupti_pmsampling.h`, and of the other headers that it needs. Each call takes one structure
//! that begins with its size.

use core::ffi::{c_char, c_void};

use crate::types::CuptiResult;

/// Structures that begin with their size and a null pointer.
macro_rules! parameters {
    ($($(#[$doc:meta])* $name:ident: $size:literal { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        #[repr(C)]
        pub struct $name {
            /// Bytes of the structure, up to the end of its last field.
            pub size: usize,
            /// Null.
            pub private: *mut c_void,
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl $name {
            /// The size that the structure states.
            pub const SIZE: usize = $size;

            /// All zeros but for the size.
            pub fn new() -> Self {
                // SAFETY: pointers may be null, and numbers 0.
                let zeros = unsafe { core::mem::zeroed::<Self>() };
                Self { size: Self::SIZE, ..zeros }
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new()
            }
        }

        const _: () = assert!(size_of::<$name>() == usize::next_multiple_of($size, 8));
    )*};
}
pub(crate) use parameters;

parameters! {
    /// The parameters of `cuptiProfilerInitialize`.
    Initialize: 16 {}

    /// The parameters of `cuptiDeviceGetChipName`.
    ChipName: 32 {
        /// The device.
        device: usize,
        /// Its chip, as CUPTI returns it.
        chip: *const c_char,
    }

    /// The parameters of `cuptiPmSamplingGetCounterAvailability`.
    Availability: 40 {
        /// The device.
        device: usize,
        /// Bytes of the image; returned if it is null.
        image_size: usize,
        /// The image.
        image: *mut u8,
    }

    /// The parameters of `cuptiProfilerHostInitialize`.
    HostInitialize: 48 {
        /// [`PM_SAMPLING`].
        kind: u32,
        /// The chip.
        chip: *const c_char,
        /// The image of available counters.
        availability: *const u8,
        /// The object, as CUPTI returns it.
        host: *mut c_void,
    }

    /// The parameters of `cuptiProfilerHostDeinitialize`.
    HostDeinitialize: 24 {
        /// The object.
        host: *mut c_void,
    }

    /// The parameters of `cuptiProfilerHostConfigAddMetrics`.
    AddMetrics: 40 {
        /// The object.
        host: *mut c_void,
        /// The names.
        names: *const *const c_char,
        /// Their number.
        count: usize,
    }

    /// The parameters of `cuptiProfilerHostGetConfigImageSize`.
    ConfigSize: 32 {
        /// The object.
        host: *mut c_void,
        /// Bytes, as CUPTI returns them.
        image_size: usize,
    }

    /// The parameters of `cuptiProfilerHostGetConfigImage`.
    ConfigImage: 40 {
        /// The object.
        host: *mut c_void,
        /// Bytes of the image.
        image_size: usize,
        /// Where it goes.
        image: *mut u8,
    }

    /// The parameters of `cuptiProfilerHostGetNumOfPasses`.
    Passes: 40 {
        /// Bytes of the image.
        image_size: usize,
        /// The image of the configuration.
        image: *mut u8,
        /// How often the same work would have to run, as CUPTI returns it.
        passes: usize,
    }

    /// The parameters of `cuptiProfilerHostEvaluateToGpuValues`.
    Evaluate: 72 {
        /// The object.
        host: *mut c_void,
        /// The image of samples.
        image: *const u8,
        /// Its bytes.
        image_size: usize,
        /// The sample.
        index: usize,
        /// The names of the metrics.
        names: *const *const c_char,
        /// Their number.
        count: usize,
        /// Where their values go.
        values: *mut f64,
    }

    /// The parameters of `cuptiPmSamplingEnable`.
    Enable: 32 {
        /// The device.
        device: usize,
        /// The object, as CUPTI returns it.
        sampling: *mut c_void,
    }

    /// The parameters of `cuptiPmSamplingDisable`, `cuptiPmSamplingStart` and `cuptiPmSamplingStop`.
    Switch: 24 {
        /// The object.
        sampling: *mut c_void,
    }

    /// The parameters of `cuptiPmSamplingSetConfig`.
    SetConfig: 64 {
        /// The object.
        sampling: *mut c_void,
        /// Bytes of the configuration.
        config_size: usize,
        /// The configuration.
        config: *const u8,
        /// Bytes of the hardware buffer.
        hardware_buffer: usize,
        /// Nanoseconds, with [`TIME_INTERVAL`].
        interval: u64,
        /// [`TIME_INTERVAL`].
        trigger: u32,
        /// [`KEEP_OLDEST`].
        append: u32,
    }

    /// The parameters of `cuptiPmSamplingGetCounterDataSize`.
    DataSize: 56 {
        /// The object.
        sampling: *mut c_void,
        /// The names of the metrics.
        names: *const *const c_char,
        /// Their number.
        count: usize,
        /// The number of samples.
        samples: u32,
        /// Bytes, as CUPTI returns them.
        image_size: usize,
    }

    /// The parameters of `cuptiPmSamplingCounterDataImageInitialize`.
    DataInitialize: 40 {
        /// The object.
        sampling: *mut c_void,
        /// Bytes of the image.
        image_size: usize,
        /// The image.
        image: *mut u8,
    }

    /// The parameters of `cuptiPmSamplingDecodeData`.
    Decode: 45 {
        /// The object.
        sampling: *mut c_void,
        /// The image.
        image: *mut u8,
        /// Its bytes.
        image_size: usize,
        /// Why CUPTI stopped: [`IMAGE_FULL`] if there is more.
        reason: u32,
        /// Not 0 if the hardware buffer was full.
        overflow: u8,
    }

    /// The parameters of `cuptiPmSamplingGetCounterDataInfo`.
    DataInfo: 56 {
        /// The image.
        image: *const u8,
        /// Its bytes.
        image_size: usize,
        /// The samples that fit, as CUPTI returns them.
        total: usize,
        /// Those that have begun.
        populated: usize,
        /// Those that are complete.
        completed: usize,
    }

    /// The parameters of `cuptiPmSamplingCounterDataGetSampleInfo`.
    SampleInfo: 64 {
        /// The object.
        sampling: *mut c_void,
        /// The image.
        image: *const u8,
        /// Its bytes.
        image_size: usize,
        /// The sample.
        index: usize,
        /// Its beginning by CUPTI's clock, as CUPTI returns it.
        start: u64,
        /// Its end.
        end: u64,
    }
}

/// Of `CUpti_ProfilerType`.
pub const PM_SAMPLING: u32 = 1;
/// Of `CUpti_PmSampling_TriggerMode`: the interval is in nanoseconds. GA100 and Turing do not support it.
pub const TIME_INTERVAL: u32 = 1;
/// Of `CUpti_PmSampling_HardwareBuffer_AppendMode`.
pub const KEEP_OLDEST: u32 = 0;
/// Of `CUpti_PmSampling_DecodeStopReason`: the image is full, and there is more in the hardware buffer.
pub const IMAGE_FULL: u32 = 1;

/// A function of this kind.
pub type Call<P> = unsafe extern "C" fn(*mut P) -> CuptiResult;

// As measured on an H200 with CUPTI 13.0.
const _: () = {
    use core::mem::offset_of;
    assert!(offset_of!(HostInitialize, kind) == 16 && offset_of!(HostInitialize, chip) == 24);
    assert!(offset_of!(SetConfig, trigger) == 56 && offset_of!(SetConfig, append) == 60);
    assert!(offset_of!(DataSize, samples) == 40 && offset_of!(DataSize, image_size) == 48);
    assert!(offset_of!(Decode, reason) == 40 && offset_of!(Decode, overflow) == 44);
};
