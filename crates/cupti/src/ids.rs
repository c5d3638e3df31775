//! Constants of the CUPTI API: activity kinds, attributes, callback domains and callback ids.
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
    /// Launches of graphs as wholes: the records of their nodes are then not delivered.
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

/// Callback ids of [`domain::RESOURCE`] (`CUpti_CallbackIdResource`).
pub mod resource {
    #![allow(missing_docs)]
    pub const CONTEXT_CREATED: u32 = 1;
    /// A context is about to be destroyed.
    pub const CONTEXT_DESTROY_STARTING: u32 = 2;
    pub const MODULE_LOADED: u32 = 6;
    /// A graph is about to be destroyed.
    pub const GRAPH_DESTROY_STARTING: u32 = 10;
    /// A node was added to a graph, explicitly or by a call on a capturing stream.
    pub const GRAPH_NODE_CREATED: u32 = 13;
    /// A node is about to be destroyed.
    pub const GRAPH_NODE_DESTROY_STARTING: u32 = 14;
    /// An executable graph is about to be destroyed.
    pub const GRAPH_EXEC_DESTROY_STARTING: u32 = 19;
    /// A node was copied from another graph, as instantiation does.
    pub const GRAPH_NODE_CLONED: u32 = 20;
    /// A node of an executable graph was replaced by a node of another graph (13.0 and later).
    pub const GRAPH_NODE_UPDATED: u32 = 22;
}

/// Callback sites (`CUpti_ApiCallbackSite`).
pub mod site {
    #![allow(missing_docs)]
    pub const ENTER: u32 = 0;
    pub const EXIT: u32 = 1;
}

/// Results (`CUptiResult`) that warpscope handles individually.
pub mod result {
    #![allow(missing_docs)]
    pub const SUCCESS: u32 = 0;
    pub const INVALID_PARAMETER: u32 = 1;
    /// Of PC and PM sampling: the hardware buffer is full.
    pub const OUT_OF_MEMORY: u32 = 8;
    pub const MAX_LIMIT_REACHED: u32 = 12;
    pub const INVALID_KIND: u32 = 21;
    pub const NOT_INITIALIZED: u32 = 15;
    pub const INVALID_METRIC_NAME: u32 = 17;
    /// Another tool uses the GPU's counters.
    pub const HARDWARE_BUSY: u32 = 26;
    pub const NOT_SUPPORTED: u32 = 27;
    pub const INSUFFICIENT_PRIVILEGES: u32 = 35;
    /// Another CUPTI client is subscribed in this process.
    pub const MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED: u32 = 39;
    pub const VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES: u32 = 40;
    pub const CONFIDENTIAL_COMPUTING_NOT_SUPPORTED: u32 = 41;
    pub const MIG_DEVICE_NOT_SUPPORTED: u32 = 43;
    pub const INVALID_CHIP_NAME: u32 = 46;
    pub const UNKNOWN: u32 = 999;
}

/// The work that a launch-class call submits to the GPU.
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

/// One launch-class API function: its name, its work, and its callback id.
#[derive(Clone, Copy, Debug)]
pub struct LaunchCall {
    /// [`domain::DRIVER`] or [`domain::RUNTIME`].
    pub domain: u32,
    /// The callback id.
    pub cbid: u32,
    /// The work it submits.
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

impl LaunchCall {
    /// Whether the call's parameters have a count at [`COUNT_OFFSET`], where 0 means that the call does nothing.
    pub const fn has_count(&self) -> bool {
        /// Functions of the forms `(to, from, count, ...)` and `(to, value, count, ...)`.
        const COUNTED: &[&str] = &[
            "cudaMemcpy",
            "cudaMemcpyAsync",
            "cudaMemset",
            "cudaMemsetAsync",
            "cuMemcpy",
            "cuMemcpyAsync",
            "cuMemcpyHtoD",
            "cuMemcpyHtoDAsync",
            "cuMemcpyDtoH",
            "cuMemcpyDtoHAsync",
            "cuMemcpyDtoD",
            "cuMemcpyDtoDAsync",
            "cuMemsetD8",
            "cuMemsetD8Async",
            "cuMemsetD16",
            "cuMemsetD16Async",
            "cuMemsetD32",
            "cuMemsetD32Async",
        ];
        // Functions from before CUDA 4 have 32-bit addresses and counts.
        if self.domain == domain::DRIVER && self.cbid < 216 {
            return false;
        }
        let mut at = 0;
        while at < COUNTED.len() {
            if equal(COUNTED[at].as_bytes(), self.name.as_bytes()) {
                return true;
            }
            at += 1;
        }
        false
    }
}

/// The offset of the count, a `size_t`, in the parameters of a call with [`LaunchCall::has_count`].
pub const COUNT_OFFSET: usize = 16;

const fn equal(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

/// Every call that submits work to the GPU, in both domains, with its older, `_v2` and per-thread-stream variants. The
/// ids are the same in CUDA 11.7, 11.8, 12.0, 12.3, 12.6, 12.8, 12.9, 13.0, 13.2, 13.3 and 13.4; a release rejects
/// those it does not know yet.
pub const LAUNCH_CALLS: &[LaunchCall] = &[
    driver(115, Work::Kernel, "cuLaunch"),
    driver(116, Work::Kernel, "cuLaunchGrid"),
    driver(117, Work::Kernel, "cuLaunchGridAsync"),
    driver(307, Work::Kernel, "cuLaunchKernel"),
    driver(442, Work::Kernel, "cuLaunchKernel"),
    driver(477, Work::Kernel, "cuLaunchCooperativeKernel"),
    driver(478, Work::Kernel, "cuLaunchCooperativeKernel"),
    driver(480, Work::Kernel, "cuLaunchCooperativeKernelMultiDevice"),
    driver(652, Work::Kernel, "cuLaunchKernelEx"),
    driver(653, Work::Kernel, "cuLaunchKernelEx"),
    driver(828, Work::Kernel, "cuSubgridScheduleLaunch"),
    driver(829, Work::Kernel, "cuSubgridScheduleLaunch"),
    driver(514, Work::Graph, "cuGraphLaunch"),
    driver(515, Work::Graph, "cuGraphLaunch"),
    driver(819, Work::Graph, "cuGraphLaunchWithArguments"),
    driver(43, Work::Copy, "cuMemcpyHtoD"),
    driver(276, Work::Copy, "cuMemcpyHtoD"),
    driver(397, Work::Copy, "cuMemcpyHtoD"),
    driver(45, Work::Copy, "cuMemcpyDtoH"),
    driver(278, Work::Copy, "cuMemcpyDtoH"),
    driver(398, Work::Copy, "cuMemcpyDtoH"),
    driver(47, Work::Copy, "cuMemcpyDtoD"),
    driver(280, Work::Copy, "cuMemcpyDtoD"),
    driver(399, Work::Copy, "cuMemcpyDtoD"),
    driver(49, Work::Copy, "cuMemcpyDtoA"),
    driver(285, Work::Copy, "cuMemcpyDtoA"),
    driver(400, Work::Copy, "cuMemcpyDtoA"),
    driver(51, Work::Copy, "cuMemcpyAtoD"),
    driver(284, Work::Copy, "cuMemcpyAtoD"),
    driver(401, Work::Copy, "cuMemcpyAtoD"),
    driver(53, Work::Copy, "cuMemcpyHtoA"),
    driver(292, Work::Copy, "cuMemcpyHtoA"),
    driver(402, Work::Copy, "cuMemcpyHtoA"),
    driver(54, Work::Copy, "cuMemcpyAtoH"),
    driver(282, Work::Copy, "cuMemcpyAtoH"),
    driver(403, Work::Copy, "cuMemcpyAtoH"),
    driver(55, Work::Copy, "cuMemcpyAtoA"),
    driver(286, Work::Copy, "cuMemcpyAtoA"),
    driver(404, Work::Copy, "cuMemcpyAtoA"),
    driver(56, Work::Copy, "cuMemcpy2D"),
    driver(287, Work::Copy, "cuMemcpy2D"),
    driver(405, Work::Copy, "cuMemcpy2D"),
    driver(57, Work::Copy, "cuMemcpy2DUnaligned"),
    driver(288, Work::Copy, "cuMemcpy2DUnaligned"),
    driver(406, Work::Copy, "cuMemcpy2DUnaligned"),
    driver(58, Work::Copy, "cuMemcpy3D"),
    driver(290, Work::Copy, "cuMemcpy3D"),
    driver(407, Work::Copy, "cuMemcpy3D"),
    driver(60, Work::Copy, "cuMemcpyHtoDAsync"),
    driver(277, Work::Copy, "cuMemcpyHtoDAsync"),
    driver(421, Work::Copy, "cuMemcpyHtoDAsync"),
    driver(62, Work::Copy, "cuMemcpyDtoHAsync"),
    driver(279, Work::Copy, "cuMemcpyDtoHAsync"),
    driver(422, Work::Copy, "cuMemcpyDtoHAsync"),
    driver(64, Work::Copy, "cuMemcpyDtoDAsync"),
    driver(281, Work::Copy, "cuMemcpyDtoDAsync"),
    driver(423, Work::Copy, "cuMemcpyDtoDAsync"),
    driver(66, Work::Copy, "cuMemcpyHtoAAsync"),
    driver(293, Work::Copy, "cuMemcpyHtoAAsync"),
    driver(419, Work::Copy, "cuMemcpyHtoAAsync"),
    driver(67, Work::Copy, "cuMemcpyAtoHAsync"),
    driver(283, Work::Copy, "cuMemcpyAtoHAsync"),
    driver(420, Work::Copy, "cuMemcpyAtoHAsync"),
    driver(68, Work::Copy, "cuMemcpy2DAsync"),
    driver(289, Work::Copy, "cuMemcpy2DAsync"),
    driver(424, Work::Copy, "cuMemcpy2DAsync"),
    driver(69, Work::Copy, "cuMemcpy3DAsync"),
    driver(291, Work::Copy, "cuMemcpy3DAsync"),
    driver(425, Work::Copy, "cuMemcpy3DAsync"),
    driver(248, Work::Copy, "cuMemcpy"),
    driver(305, Work::Copy, "cuMemcpy"),
    driver(408, Work::Copy, "cuMemcpy"),
    driver(306, Work::Copy, "cuMemcpyAsync"),
    driver(418, Work::Copy, "cuMemcpyAsync"),
    driver(318, Work::Copy, "cuMemcpyPeer"),
    driver(409, Work::Copy, "cuMemcpyPeer"),
    driver(319, Work::Copy, "cuMemcpyPeerAsync"),
    driver(426, Work::Copy, "cuMemcpyPeerAsync"),
    driver(320, Work::Copy, "cuMemcpy3DPeer"),
    driver(410, Work::Copy, "cuMemcpy3DPeer"),
    driver(321, Work::Copy, "cuMemcpy3DPeerAsync"),
    driver(427, Work::Copy, "cuMemcpy3DPeerAsync"),
    driver(776, Work::Copy, "cuMemcpyBatchAsync"),
    driver(777, Work::Copy, "cuMemcpyBatchAsync"),
    driver(796, Work::Copy, "cuMemcpyBatchAsync"),
    driver(797, Work::Copy, "cuMemcpyBatchAsync"),
    driver(778, Work::Copy, "cuMemcpy3DBatchAsync"),
    driver(779, Work::Copy, "cuMemcpy3DBatchAsync"),
    driver(798, Work::Copy, "cuMemcpy3DBatchAsync"),
    driver(799, Work::Copy, "cuMemcpy3DBatchAsync"),
    driver(837, Work::Copy, "cuMemcpyWithAttributesAsync"),
    driver(838, Work::Copy, "cuMemcpyWithAttributesAsync"),
    driver(839, Work::Copy, "cuMemcpy3DWithAttributesAsync"),
    driver(840, Work::Copy, "cuMemcpy3DWithAttributesAsync"),
    driver(71, Work::Memset, "cuMemsetD8"),
    driver(249, Work::Memset, "cuMemsetD8"),
    driver(411, Work::Memset, "cuMemsetD8"),
    driver(73, Work::Memset, "cuMemsetD16"),
    driver(250, Work::Memset, "cuMemsetD16"),
    driver(412, Work::Memset, "cuMemsetD16"),
    driver(75, Work::Memset, "cuMemsetD32"),
    driver(251, Work::Memset, "cuMemsetD32"),
    driver(413, Work::Memset, "cuMemsetD32"),
    driver(77, Work::Memset, "cuMemsetD2D8"),
    driver(252, Work::Memset, "cuMemsetD2D8"),
    driver(414, Work::Memset, "cuMemsetD2D8"),
    driver(79, Work::Memset, "cuMemsetD2D16"),
    driver(253, Work::Memset, "cuMemsetD2D16"),
    driver(415, Work::Memset, "cuMemsetD2D16"),
    driver(81, Work::Memset, "cuMemsetD2D32"),
    driver(254, Work::Memset, "cuMemsetD2D32"),
    driver(416, Work::Memset, "cuMemsetD2D32"),
    driver(216, Work::Memset, "cuMemsetD8Async"),
    driver(428, Work::Memset, "cuMemsetD8Async"),
    driver(218, Work::Memset, "cuMemsetD16Async"),
    driver(429, Work::Memset, "cuMemsetD16Async"),
    driver(220, Work::Memset, "cuMemsetD32Async"),
    driver(430, Work::Memset, "cuMemsetD32Async"),
    driver(222, Work::Memset, "cuMemsetD2D8Async"),
    driver(431, Work::Memset, "cuMemsetD2D8Async"),
    driver(224, Work::Memset, "cuMemsetD2D16Async"),
    driver(432, Work::Memset, "cuMemsetD2D16Async"),
    driver(226, Work::Memset, "cuMemsetD2D32Async"),
    driver(433, Work::Memset, "cuMemsetD2D32Async"),
    runtime(13, Work::Kernel, "cudaLaunch"),
    runtime(213, Work::Kernel, "cudaLaunch"),
    runtime(211, Work::Kernel, "cudaLaunchKernel"),
    runtime(214, Work::Kernel, "cudaLaunchKernel"),
    runtime(269, Work::Kernel, "cudaLaunchCooperativeKernel"),
    runtime(270, Work::Kernel, "cudaLaunchCooperativeKernel"),
    runtime(272, Work::Kernel, "cudaLaunchCooperativeKernelMultiDevice"),
    runtime(430, Work::Kernel, "cudaLaunchKernelExC"),
    runtime(431, Work::Kernel, "cudaLaunchKernelExC"),
    runtime(505, Work::Kernel, "__cudaLaunchKernel"),
    runtime(506, Work::Kernel, "__cudaLaunchKernel"),
    runtime(311, Work::Graph, "cudaGraphLaunch"),
    runtime(312, Work::Graph, "cudaGraphLaunch"),
    runtime(31, Work::Copy, "cudaMemcpy"),
    runtime(215, Work::Copy, "cudaMemcpy"),
    runtime(32, Work::Copy, "cudaMemcpy2D"),
    runtime(216, Work::Copy, "cudaMemcpy2D"),
    runtime(33, Work::Copy, "cudaMemcpyToArray"),
    runtime(217, Work::Copy, "cudaMemcpyToArray"),
    runtime(34, Work::Copy, "cudaMemcpy2DToArray"),
    runtime(218, Work::Copy, "cudaMemcpy2DToArray"),
    runtime(35, Work::Copy, "cudaMemcpyFromArray"),
    runtime(219, Work::Copy, "cudaMemcpyFromArray"),
    runtime(36, Work::Copy, "cudaMemcpy2DFromArray"),
    runtime(220, Work::Copy, "cudaMemcpy2DFromArray"),
    runtime(37, Work::Copy, "cudaMemcpyArrayToArray"),
    runtime(221, Work::Copy, "cudaMemcpyArrayToArray"),
    runtime(38, Work::Copy, "cudaMemcpy2DArrayToArray"),
    runtime(222, Work::Copy, "cudaMemcpy2DArrayToArray"),
    runtime(39, Work::Copy, "cudaMemcpyToSymbol"),
    runtime(223, Work::Copy, "cudaMemcpyToSymbol"),
    runtime(40, Work::Copy, "cudaMemcpyFromSymbol"),
    runtime(224, Work::Copy, "cudaMemcpyFromSymbol"),
    runtime(41, Work::Copy, "cudaMemcpyAsync"),
    runtime(225, Work::Copy, "cudaMemcpyAsync"),
    runtime(42, Work::Copy, "cudaMemcpyToArrayAsync"),
    runtime(226, Work::Copy, "cudaMemcpyToArrayAsync"),
    runtime(43, Work::Copy, "cudaMemcpyFromArrayAsync"),
    runtime(227, Work::Copy, "cudaMemcpyFromArrayAsync"),
    runtime(44, Work::Copy, "cudaMemcpy2DAsync"),
    runtime(228, Work::Copy, "cudaMemcpy2DAsync"),
    runtime(45, Work::Copy, "cudaMemcpy2DToArrayAsync"),
    runtime(229, Work::Copy, "cudaMemcpy2DToArrayAsync"),
    runtime(46, Work::Copy, "cudaMemcpy2DFromArrayAsync"),
    runtime(230, Work::Copy, "cudaMemcpy2DFromArrayAsync"),
    runtime(47, Work::Copy, "cudaMemcpyToSymbolAsync"),
    runtime(231, Work::Copy, "cudaMemcpyToSymbolAsync"),
    runtime(48, Work::Copy, "cudaMemcpyFromSymbolAsync"),
    runtime(232, Work::Copy, "cudaMemcpyFromSymbolAsync"),
    runtime(144, Work::Copy, "cudaMemcpy3D"),
    runtime(245, Work::Copy, "cudaMemcpy3D"),
    runtime(145, Work::Copy, "cudaMemcpy3DAsync"),
    runtime(246, Work::Copy, "cudaMemcpy3DAsync"),
    runtime(160, Work::Copy, "cudaMemcpyPeer"),
    runtime(161, Work::Copy, "cudaMemcpyPeerAsync"),
    runtime(162, Work::Copy, "cudaMemcpy3DPeer"),
    runtime(249, Work::Copy, "cudaMemcpy3DPeer"),
    runtime(163, Work::Copy, "cudaMemcpy3DPeerAsync"),
    runtime(250, Work::Copy, "cudaMemcpy3DPeerAsync"),
    runtime(482, Work::Copy, "cudaMemcpyBatchAsync"),
    runtime(483, Work::Copy, "cudaMemcpyBatchAsync"),
    runtime(509, Work::Copy, "cudaMemcpyBatchAsync"),
    runtime(510, Work::Copy, "cudaMemcpyBatchAsync"),
    runtime(484, Work::Copy, "cudaMemcpy3DBatchAsync"),
    runtime(485, Work::Copy, "cudaMemcpy3DBatchAsync"),
    runtime(511, Work::Copy, "cudaMemcpy3DBatchAsync"),
    runtime(512, Work::Copy, "cudaMemcpy3DBatchAsync"),
    runtime(554, Work::Copy, "cudaMemcpyWithAttributesAsync"),
    runtime(555, Work::Copy, "cudaMemcpyWithAttributesAsync"),
    runtime(556, Work::Copy, "cudaMemcpy3DWithAttributesAsync"),
    runtime(557, Work::Copy, "cudaMemcpy3DWithAttributesAsync"),
    runtime(49, Work::Memset, "cudaMemset"),
    runtime(233, Work::Memset, "cudaMemset"),
    runtime(50, Work::Memset, "cudaMemset2D"),
    runtime(234, Work::Memset, "cudaMemset2D"),
    runtime(51, Work::Memset, "cudaMemsetAsync"),
    runtime(235, Work::Memset, "cudaMemsetAsync"),
    runtime(52, Work::Memset, "cudaMemset2DAsync"),
    runtime(236, Work::Memset, "cudaMemset2DAsync"),
    runtime(142, Work::Memset, "cudaMemset3D"),
    runtime(243, Work::Memset, "cudaMemset3D"),
    runtime(143, Work::Memset, "cudaMemset3DAsync"),
    runtime(244, Work::Memset, "cudaMemset3DAsync"),
];

/// One API function in which the calling thread waits for the GPU.
#[derive(Clone, Copy, Debug)]
pub struct WaitCall {
    /// [`domain::DRIVER`] or [`domain::RUNTIME`].
    pub domain: u32,
    /// The callback id.
    pub cbid: u32,
    /// What it waits for: [`sync_kind`]. A call that waits for a stream has it as its only parameter.
    pub kind: u32,
    /// The default stream is the per-thread one (`_ptsz`).
    pub per_thread: bool,
    /// The function's name without suffix.
    pub name: &'static str,
}

const fn wait(domain: u32, cbid: u32, kind: u32, per_thread: bool, name: &'static str) -> WaitCall {
    WaitCall { domain, cbid, kind, per_thread, name }
}

/// Every call that only waits. Blocking copies are launches.
pub const WAIT_CALLS: &[WaitCall] = &[
    wait(domain::DRIVER, 17, sync_kind::CONTEXT, false, "cuCtxSynchronize"),
    wait(domain::DRIVER, 121, sync_kind::EVENT, false, "cuEventSynchronize"),
    wait(domain::DRIVER, 126, sync_kind::STREAM, false, "cuStreamSynchronize"),
    wait(domain::DRIVER, 440, sync_kind::STREAM, true, "cuStreamSynchronize"),
    wait(domain::RUNTIME, 131, sync_kind::STREAM, false, "cudaStreamSynchronize"),
    wait(domain::RUNTIME, 239, sync_kind::STREAM, true, "cudaStreamSynchronize"),
    wait(domain::RUNTIME, 137, sync_kind::EVENT, false, "cudaEventSynchronize"),
    wait(domain::RUNTIME, 165, sync_kind::CONTEXT, false, "cudaDeviceSynchronize"),
];

/// The driver's calls that begin to capture a stream, and those that end it, by callback id.
pub const BEGIN_CAPTURE_CALLS: [u32; 6] = [495, 496, 539, 540, 720, 721];
/// See [`BEGIN_CAPTURE_CALLS`].
pub const END_CAPTURE_CALLS: [u32; 2] = [497, 498];

/// The driver calls that instantiate a graph; those of the runtime call them.
pub const INSTANTIATE_CALLS: &[u32] = &[513, 578, 643, 656, 657];

/// The type of a graph node (`CUgraphNodeType`), for those that the GPU executes.
pub mod node_type {
    #![allow(missing_docs)]
    pub const KERNEL: u32 = 0;
    pub const MEMCPY: u32 = 1;
    pub const MEMSET: u32 = 2;
    /// A node that contains a graph.
    pub const GRAPH: u32 = 4;
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

/// What a thread waited for (`CUpti_ActivitySynchronizationType`).
pub mod sync_kind {
    #![allow(missing_docs)]
    pub const EVENT: u32 = 1;
    pub const STREAM_WAIT_EVENT: u32 = 2;
    pub const STREAM: u32 = 3;
    pub const CONTEXT: u32 = 4;
}
