//! Numbers of the CUPTI API: activity kinds, attributes, callback domains and callback ids.
//!
//! The callback ids are the same from CUDA 11.7 to 13.4.

/// Activity kinds (`CUpti_ActivityKind`).
pub mod kind {
    #![allow(missing_docs)]
    pub const MEMCPY: u32 = 1;
    pub const MEMSET: u32 = 2;
    pub const DRIVER: u32 = 4;
    pub const RUNTIME: u32 = 5;
    pub const DEVICE: u32 = 8;
    pub const CONTEXT: u32 = 9;
    /// Kernels that may overlap. Kind 3, the other kernel kind, serialises the program: never enable it.
    pub const CONCURRENT_KERNEL: u32 = 10;
    pub const OVERHEAD: u32 = 17;
    /// Copies between two devices.
    pub const MEMCPY2: u32 = 22;
    pub const STREAM: u32 = 37;
    pub const SYNCHRONIZATION: u32 = 38;
    pub const EXTERNAL_CORRELATION: u32 = 39;
    pub const GRAPH_TRACE: u32 = 51;
}

/// Activity attributes (`CUpti_ActivityAttribute`).
pub mod attribute {
    #![allow(missing_docs)]
    pub const DEVICE_BUFFER_SIZE: u32 = 0;
    pub const DEVICE_BUFFER_POOL_LIMIT: u32 = 2;
    pub const ZEROED_OUT_ACTIVITY_BUFFER: u32 = 5;
    pub const PER_THREAD_ACTIVITY_BUFFER: u32 = 9;
}

/// Callback domains (`CUpti_CallbackDomain`).
pub mod domain {
    #![allow(missing_docs)]
    pub const DRIVER: u32 = 1;
    pub const RUNTIME: u32 = 2;
    pub const RESOURCE: u32 = 3;
    pub const SYNCHRONIZE: u32 = 4;
    pub const NVTX: u32 = 5;
    pub const STATE: u32 = 6;
}

/// Callback sites (`CUpti_ApiCallbackSite`).
pub mod site {
    #![allow(missing_docs)]
    pub const ENTER: u32 = 0;
    pub const EXIT: u32 = 1;
}

/// Results (`CUptiResult`) that warpscope treats by name.
pub mod result {
    #![allow(missing_docs)]
    pub const SUCCESS: u32 = 0;
    pub const INVALID_PARAMETER: u32 = 1;
    pub const MAX_LIMIT_REACHED: u32 = 12;
    pub const INVALID_KIND: u32 = 21;
    pub const NOT_INITIALIZED: u32 = 15;
    /// Another CUPTI client is subscribed in this process.
    pub const MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED: u32 = 39;
}

/// What a launch-class call puts on the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Work {
    /// One kernel.
    Kernel = 1,
    /// A copy.
    Copy = 2,
    /// A memset.
    Memset = 3,
    /// A graph of many operations.
    Graph = 4,
}

/// One launch-class API function: its name, what it launches, and its callback ids.
#[derive(Clone, Copy, Debug)]
pub struct LaunchCall {
    /// [`domain::DRIVER`] or [`domain::RUNTIME`].
    pub domain: u32,
    /// The callback id.
    pub cbid: u32,
    /// What it puts on the GPU.
    pub work: Work,
    /// The function's name without the suffixes `_v2`, `_ptsz` and `_ptds`.
    pub name: &'static str,
}

const fn driver(cbid: u32, work: Work, name: &'static str) -> LaunchCall {
    LaunchCall { domain: domain::DRIVER, cbid, work, name }
}

const fn runtime(cbid: u32, work: Work, name: &'static str) -> LaunchCall {
    LaunchCall { domain: domain::RUNTIME, cbid, work, name }
}

/// Every call that puts work on the GPU, in both domains, with its per-thread-stream form where it has one.
pub const LAUNCH_CALLS: &[LaunchCall] = &[
    driver(307, Work::Kernel, "cuLaunchKernel"),
    driver(442, Work::Kernel, "cuLaunchKernel"),
    driver(652, Work::Kernel, "cuLaunchKernelEx"),
    driver(653, Work::Kernel, "cuLaunchKernelEx"),
    driver(477, Work::Kernel, "cuLaunchCooperativeKernel"),
    driver(478, Work::Kernel, "cuLaunchCooperativeKernel"),
    driver(514, Work::Graph, "cuGraphLaunch"),
    driver(515, Work::Graph, "cuGraphLaunch"),
    driver(276, Work::Copy, "cuMemcpyHtoD"),
    driver(397, Work::Copy, "cuMemcpyHtoD"),
    driver(277, Work::Copy, "cuMemcpyHtoDAsync"),
    driver(421, Work::Copy, "cuMemcpyHtoDAsync"),
    driver(278, Work::Copy, "cuMemcpyDtoH"),
    driver(398, Work::Copy, "cuMemcpyDtoH"),
    driver(279, Work::Copy, "cuMemcpyDtoHAsync"),
    driver(422, Work::Copy, "cuMemcpyDtoHAsync"),
    driver(280, Work::Copy, "cuMemcpyDtoD"),
    driver(399, Work::Copy, "cuMemcpyDtoD"),
    driver(281, Work::Copy, "cuMemcpyDtoDAsync"),
    driver(423, Work::Copy, "cuMemcpyDtoDAsync"),
    driver(305, Work::Copy, "cuMemcpy"),
    driver(408, Work::Copy, "cuMemcpy"),
    driver(306, Work::Copy, "cuMemcpyAsync"),
    driver(418, Work::Copy, "cuMemcpyAsync"),
    driver(319, Work::Copy, "cuMemcpyPeerAsync"),
    driver(426, Work::Copy, "cuMemcpyPeerAsync"),
    driver(216, Work::Memset, "cuMemsetD8Async"),
    driver(428, Work::Memset, "cuMemsetD8Async"),
    driver(220, Work::Memset, "cuMemsetD32Async"),
    driver(430, Work::Memset, "cuMemsetD32Async"),
    runtime(211, Work::Kernel, "cudaLaunchKernel"),
    runtime(214, Work::Kernel, "cudaLaunchKernel"),
    runtime(430, Work::Kernel, "cudaLaunchKernelExC"),
    runtime(431, Work::Kernel, "cudaLaunchKernelExC"),
    runtime(269, Work::Kernel, "cudaLaunchCooperativeKernel"),
    runtime(270, Work::Kernel, "cudaLaunchCooperativeKernel"),
    runtime(311, Work::Graph, "cudaGraphLaunch"),
    runtime(312, Work::Graph, "cudaGraphLaunch"),
    runtime(31, Work::Copy, "cudaMemcpy"),
    runtime(215, Work::Copy, "cudaMemcpy"),
    runtime(41, Work::Copy, "cudaMemcpyAsync"),
    runtime(225, Work::Copy, "cudaMemcpyAsync"),
    runtime(161, Work::Copy, "cudaMemcpyPeerAsync"),
    runtime(44, Work::Copy, "cudaMemcpy2DAsync"),
    runtime(228, Work::Copy, "cudaMemcpy2DAsync"),
    runtime(145, Work::Copy, "cudaMemcpy3DAsync"),
    runtime(246, Work::Copy, "cudaMemcpy3DAsync"),
    runtime(49, Work::Memset, "cudaMemset"),
    runtime(233, Work::Memset, "cudaMemset"),
    runtime(51, Work::Memset, "cudaMemsetAsync"),
    runtime(235, Work::Memset, "cudaMemsetAsync"),
];

/// The launch-class call with this callback id, if it is one.
pub fn launch_call(domain: u32, cbid: u32) -> Option<&'static LaunchCall> {
    LAUNCH_CALLS.iter().find(|c| c.domain == domain && c.cbid == cbid)
}

/// The kind of a copy (`CUpti_ActivityMemcpyKind`).
pub mod copy_kind {
    #![allow(missing_docs)]
    pub const HTOD: u8 = 1;
    pub const DTOH: u8 = 2;
    pub const HTOA: u8 = 3;
    pub const ATOH: u8 = 4;
    pub const ATOA: u8 = 5;
    pub const ATOD: u8 = 6;
    pub const DTOA: u8 = 7;
    pub const DTOD: u8 = 8;
    pub const HTOH: u8 = 9;
    pub const PTOP: u8 = 10;
}

/// The kind of memory (`CUpti_ActivityMemoryKind`).
pub mod memory_kind {
    #![allow(missing_docs)]
    pub const PAGEABLE: u8 = 1;
    pub const PINNED: u8 = 2;
    pub const DEVICE: u8 = 3;
    pub const ARRAY: u8 = 4;
    pub const MANAGED: u8 = 5;
}

/// What a synchronisation record waited for (`CUpti_ActivitySynchronizationType`).
pub mod sync_kind {
    #![allow(missing_docs)]
    pub const EVENT: u32 = 1;
    pub const STREAM_WAIT_EVENT: u32 = 2;
    pub const STREAM: u32 = 3;
    pub const CONTEXT: u32 = 4;
}
