//! PC sampling: the structures of `cupti_pcsampling.h`. Each call takes one structure that begins with its size.

use core::ffi::{c_char, c_void};

use crate::types::CuptiResult;

/// The parameters of `cuptiPCSamplingEnable` and `cuptiPCSamplingDisable`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ContextParams {
    /// Bytes of this structure.
    pub size: usize,
    /// Null.
    pub private: *mut c_void,
    /// The context.
    pub context: *mut c_void,
}

impl ContextParams {
    /// For a context.
    pub fn new(context: *mut c_void) -> Self {
        Self { size: size_of::<Self>(), private: core::ptr::null_mut(), context }
    }
}

/// The parameters of `cuptiPCSamplingGetData`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct DataParams {
    /// The context; the size includes `data`.
    pub of: ContextParams,
    /// Where the data goes.
    pub data: *mut Data,
}

/// The parameters of `cuptiPCSamplingSetConfigurationAttribute`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ConfigurationParams {
    /// The context; the size includes the rest.
    pub of: ContextParams,
    /// The number of attributes.
    pub count: usize,
    /// The attributes.
    pub attributes: *mut Attribute,
}

/// The parameters of `cuptiPCSamplingGetNumStallReasons`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ReasonCountParams {
    /// The context; the size includes the rest.
    pub of: ContextParams,
    /// Where the number goes.
    pub count: *mut usize,
}

/// The parameters of `cuptiPCSamplingGetStallReasons`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ReasonsParams {
    /// The context; the size includes the rest.
    pub of: ContextParams,
    /// The number of reasons.
    pub count: usize,
    /// Where their indexes go. A sample refers to a reason by its index, not by its place in this array.
    pub indexes: *mut u32,
    /// Where their names go: [`REASON_NAME`] bytes each.
    pub names: *mut *mut c_char,
}

/// The bytes of a reason's name.
pub const REASON_NAME: usize = 128;

/// An attribute to configure, and whether it was accepted.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Attribute {
    /// [`attribute`].
    pub kind: u32,
    /// The result.
    pub status: CuptiResult,
    /// The value, in the first words.
    pub value: [u64; 3],
}

impl Attribute {
    /// An attribute with a value of one word.
    pub fn new(kind: u32, value: u64) -> Self {
        Self { kind, status: 0, value: [value, 0, 0] }
    }
}

/// Attributes (`CUpti_PCSamplingConfigurationAttributeType`).
pub mod attribute {
    /// The logarithm to base 2 of the cycles between two samples: 5 to 31.
    pub const PERIOD: u32 = 1;
    /// Bytes of host memory for data from the hardware buffer (1 MiB: about 5,500 instructions).
    pub const SCRATCH: u32 = 3;
    /// Bytes of the hardware buffer in device memory (512 MiB).
    pub const HARDWARE_BUFFER: u32 = 4;
    /// The mode: [`CONTINUOUS`] or [`SERIALISED`].
    pub const MODE: u32 = 5;
    /// Where data goes when sampling is disabled.
    pub const DATA: u32 = 8;
    /// Milliseconds between two reads of the hardware buffer by CUPTI's threads (100).
    pub const WORKER_SLEEP: u32 = 9;

    /// Kernels run concurrently, and samples do not identify their launch.
    pub const CONTINUOUS: u64 = 1;
    /// Kernels run one at a time, and samples identify their launch ([`super::correlation_offset`]).
    pub const SERIALISED: u64 = 2;
}

/// `CUpti_PCSamplingData`: samples by instruction since the last call.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Data {
    /// Bytes of this structure.
    pub size: usize,
    /// The number of instructions that fit.
    pub room: usize,
    /// All samples, those of other kernels and dropped ones included.
    pub samples: u64,
    /// Samples that the hardware dropped.
    pub dropped: u64,
    /// Instructions returned.
    pub count: usize,
    /// Instructions left for the next call.
    pub remaining: usize,
    /// The number of the range.
    pub range: u64,
    /// The instructions: [`Instruction`], [`instruction_stride`] bytes each.
    pub instructions: *mut u8,
    /// Samples in kernels that are not the program's.
    pub other_kernels: u64,
    /// Not 0 if the hardware buffer was full.
    pub full: u8,
}

/// `CUpti_PCSamplingPCData`: the fields that all releases have.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Instruction {
    /// Bytes of the structure.
    pub size: usize,
    /// The cubin, as the function of `cuptiRegisterComputeCrcCallback` identified it.
    pub cubin: u64,
    /// The offset in the function.
    pub offset: u64,
    /// The function's index in the cubin's symbol table.
    pub function_index: u32,
    padding: u32,
    /// The function's name. CUPTI keeps one copy of each name, which is not freed.
    pub function: *const c_char,
    /// The number of reasons returned.
    pub reason_count: usize,
    /// The reasons.
    pub reasons: *mut ReasonCount,
}

/// Samples of one instruction with one reason.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct ReasonCount {
    /// The reason's index.
    pub index: u32,
    /// Samples.
    pub samples: u32,
}

/// Returns the distance between two [`Instruction`]s of a release, by the result of `cuptiGetVersion`: from 12.4 on, a
/// correlation id follows the common fields.
pub fn instruction_stride(version: u32) -> usize {
    if version >= 22 { 64 } else { 56 }
}

/// Returns where an [`Instruction`] has the correlation id of its launch, 4 bytes; `None` if the release has none.
pub fn correlation_offset(version: u32) -> Option<usize> {
    (instruction_stride(version) > size_of::<Instruction>()).then_some(size_of::<Instruction>())
}

/// `cuptiPCSamplingEnable`, `cuptiPCSamplingDisable`
pub type Switch = unsafe extern "C" fn(*mut ContextParams) -> CuptiResult;
/// `cuptiPCSamplingSetConfigurationAttribute`
pub type Configure = unsafe extern "C" fn(*mut ConfigurationParams) -> CuptiResult;
/// `cuptiPCSamplingGetData`
pub type GetData = unsafe extern "C" fn(*mut DataParams) -> CuptiResult;
/// `cuptiPCSamplingGetNumStallReasons`
pub type GetReasonCount = unsafe extern "C" fn(*mut ReasonCountParams) -> CuptiResult;
/// `cuptiPCSamplingGetStallReasons`
pub type GetReasons = unsafe extern "C" fn(*mut ReasonsParams) -> CuptiResult;
/// Identifies a cubin that is being loaded: its bytes, their number, and where the identity goes.
pub type IdentifyCubin = unsafe extern "C" fn(*const c_void, usize, *mut u64);
/// `cuptiRegisterComputeCrcCallback`
pub type RegisterIdentify = unsafe extern "C" fn(IdentifyCubin) -> CuptiResult;

// As measured on an H200 with CUPTI 13.0.
const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<ContextParams>() == 24 && size_of::<DataParams>() == 32 && size_of::<ReasonCountParams>() == 32);
    assert!(size_of::<ConfigurationParams>() == 40 && size_of::<ReasonsParams>() == 48);
    assert!(size_of::<Attribute>() == 32 && offset_of!(Attribute, value) == 8);
    assert!(size_of::<Data>() == 80 && offset_of!(Data, samples) == 16 && offset_of!(Data, dropped) == 24);
    assert!(offset_of!(Data, count) == 32 && offset_of!(Data, remaining) == 40 && offset_of!(Data, range) == 48);
    assert!(offset_of!(Data, instructions) == 56 && offset_of!(Data, other_kernels) == 64);
    assert!(offset_of!(Data, full) == 72);
    assert!(size_of::<Instruction>() == 56 && offset_of!(Instruction, cubin) == 8);
    assert!(offset_of!(Instruction, offset) == 16 && offset_of!(Instruction, function_index) == 24);
    assert!(offset_of!(Instruction, function) == 32 && offset_of!(Instruction, reason_count) == 40);
    assert!(offset_of!(Instruction, reasons) == 48 && size_of::<ReasonCount>() == 8);
};
