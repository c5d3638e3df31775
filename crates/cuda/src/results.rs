//! Names of results: CUresult, cudaError_t, ncclResult_t and cublasStatus_t.
//!
//! The function's name determines which of the four applies. The codes are those of CUDA 13.3 and older ones that it
//! has dropped.

use std::borrow::Cow;

/// Returns the name of a driver API result (`CUresult`).
pub fn driver_result(code: u32) -> Option<&'static str> {
    name(DRIVER, code)
}

/// Returns the name of the result of `function`. A code newer than the tables is shown as a type with its number,
/// `CUresult 990`; `None` if the function does not return a status, or belongs to none of the four libraries.
pub fn result(function: &str, code: u32) -> Option<Cow<'static, str>> {
    let (kind, table) = Library::returned_by(function)?.results();
    Some(name(table, code).map_or_else(|| Cow::Owned(format!("{kind} {code}")), Cow::Borrowed))
}

/// Returns the code of a result of `function` by its name: the inverse of [`result`].
pub fn code(function: &str, result: &str) -> Option<u32> {
    let (kind, table) = Library::returned_by(function)?.results();
    let named = table.iter().find(|(_, name)| *name == result).map(|(code, _)| *code);
    named.or_else(|| result.strip_prefix(kind)?.trim_start().parse().ok())
}

/// Whether `function` returns a status. A few return text, a size, a handle or nothing.
pub fn returns_status(function: &str) -> bool {
    Library::returned_by(function).is_some()
}

/// Whether the status that `function` returns is that of this call. Some report the failure of an earlier one.
pub fn can_fail(function: &str) -> bool {
    returns_status(function) && !EARLIER_STATUS.contains(&base(function))
}

/// Whether `code`, returned by `function`, means that the call failed. "Not ready" and "in progress" are not failures.
pub fn is_error(function: &str, code: u32) -> bool {
    // Success in every library, and nearly every call.
    if code == 0 || !can_fail(function) {
        return false;
    }
    match Library::returned_by(function) {
        None => false,
        Some(Library::Driver | Library::Runtime) => code != 600,
        Some(Library::Nccl) => code != 7,
        Some(Library::Cublas) => true,
    }
}

/// The library whose status a function returns.
#[derive(Clone, Copy)]
enum Library {
    Driver,
    Runtime,
    Nccl,
    Cublas,
}

impl Library {
    /// Returns the type of its results, and their names.
    fn results(self) -> (&'static str, Names) {
        match self {
            Self::Driver => ("CUresult", DRIVER),
            Self::Runtime => ("cudaError_t", RUNTIME),
            Self::Nccl => ("ncclResult_t", NCCL),
            Self::Cublas => ("cublasStatus_t", CUBLAS),
        }
    }

    fn returned_by(function: &str) -> Option<Library> {
        let followed_by_capital = |prefix: &str| {
            function.strip_prefix(prefix).filter(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()))
        };
        if let Some(rest) = followed_by_capital("__cuda") {
            return RUNTIME_INTERNALS.contains(&base(rest)).then_some(Library::Runtime);
        }
        if NOT_A_STATUS.contains(&base(function)) {
            return None;
        }
        if let Some(rest) = followed_by_capital("cublas") {
            return (!is_legacy_blas(rest)).then_some(Library::Cublas);
        }
        if followed_by_capital("cuda").is_some() {
            Some(Library::Runtime)
        } else if followed_by_capital("cu").is_some() && !function.starts_with("cuFile") {
            Some(Library::Driver)
        } else if followed_by_capital("nccl").or(followed_by_capital("pnccl")).is_some() {
            Some(Library::Nccl)
        } else {
            None
        }
    }
}

/// Returns a function's name without the suffix for the per-thread default stream.
fn base(function: &str) -> &str {
    function.strip_suffix("_ptsz").or(function.strip_suffix("_ptds")).unwrap_or(function)
}

/// `__cuda*` functions that return a `cudaError_t`, called by the compiler's stubs. The others return a handle, a flag
/// or nothing.
const RUNTIME_INTERNALS: &[&str] = &["GetKernel", "LaunchKernel", "PopCallConfiguration", "PushCallConfiguration"];

/// Functions that return the status of an earlier call.
const EARLIER_STATUS: &[&str] = &["cudaGetLastError", "cudaPeekAtLastError"];

/// Functions under the libraries' prefixes whose return value is not a status.
const NOT_A_STATUS: &[&str] = &[
    "cublasGetCudartVersion",
    "cublasGetStatusName",
    "cublasGetStatusString",
    "cublasLtGetCudartVersion",
    "cublasLtGetStatusName",
    "cublasLtGetStatusString",
    "cublasLtGetVersion",
    "cublasXerbla",
    "cudaCreateChannelDesc",
    "cudaGetErrorName",
    "cudaGetErrorString",
    "ncclGetErrorString",
    "ncclGetLastError",
    "ncclResetDebugInit",
    "pncclGetErrorString",
    "pncclGetLastError",
    "pncclResetDebugInit",
];

/// The legacy cuBLAS interface (`cublasSgemm`; the current one is `cublasSgemm_v2`) returns nothing, or the computed
/// number. `rest` is the part after `cublas`: one or two letters for the types, then the routine.
fn is_legacy_blas(rest: &str) -> bool {
    let routine = |skip: usize| rest.get(skip..).is_some_and(|routine| BLAS_ROUTINES.contains(&routine));
    routine(1) || routine(2)
}

#[rustfmt::skip]
const BLAS_ROUTINES: &[&str] = &[
    "amax", "amin", "asum", "axpy", "copy", "dot", "dotc", "dotu", "nrm2", "rot", "rotg", "rotm", "rotmg", "scal", "swap",
    "gbmv", "gemv", "ger", "gerc", "geru", "hbmv", "hemv", "her", "her2", "hpmv", "hpr", "hpr2", "sbmv", "spmv", "spr",
    "spr2", "symv", "syr", "syr2", "tbmv", "tbsv", "tpmv", "tpsv", "trmv", "trsv",
    "gemm", "hemm", "her2k", "herk", "symm", "syr2k", "syrk", "trmm", "trsm",
];

/// Codes and names, sorted by code.
type Names = &'static [(u32, &'static str)];

fn name(table: Names, code: u32) -> Option<&'static str> {
    table.binary_search_by_key(&code, |&(known, _)| known).ok().map(|at| table[at].1)
}

/// A table of names that share a prefix, except that of success.
macro_rules! names {
    ($success:literal, $prefix:literal, $($code:literal $name:ident)*) => {
        &[(0, $success), $(($code, concat!($prefix, stringify!($name)))),*]
    };
}

#[rustfmt::skip]
const DRIVER: Names = names!("CUDA_SUCCESS", "CUDA_ERROR_",
    1 INVALID_VALUE  2 OUT_OF_MEMORY  3 NOT_INITIALIZED  4 DEINITIALIZED  5 PROFILER_DISABLED  6 PROFILER_NOT_INITIALIZED
    7 PROFILER_ALREADY_STARTED  8 PROFILER_ALREADY_STOPPED  34 STUB_LIBRARY  46 DEVICE_UNAVAILABLE
    100 NO_DEVICE  101 INVALID_DEVICE  102 DEVICE_NOT_LICENSED
    200 INVALID_IMAGE  201 INVALID_CONTEXT  202 CONTEXT_ALREADY_CURRENT  205 MAP_FAILED  206 UNMAP_FAILED
    207 ARRAY_IS_MAPPED  208 ALREADY_MAPPED  209 NO_BINARY_FOR_GPU  210 ALREADY_ACQUIRED  211 NOT_MAPPED
    212 NOT_MAPPED_AS_ARRAY  213 NOT_MAPPED_AS_POINTER  214 ECC_UNCORRECTABLE  215 UNSUPPORTED_LIMIT
    216 CONTEXT_ALREADY_IN_USE  217 PEER_ACCESS_UNSUPPORTED  218 INVALID_PTX  219 INVALID_GRAPHICS_CONTEXT
    220 NVLINK_UNCORRECTABLE  221 JIT_COMPILER_NOT_FOUND  222 UNSUPPORTED_PTX_VERSION  223 JIT_COMPILATION_DISABLED
    224 UNSUPPORTED_EXEC_AFFINITY  225 UNSUPPORTED_DEVSIDE_SYNC  226 CONTAINED
    300 INVALID_SOURCE  301 FILE_NOT_FOUND  302 SHARED_OBJECT_SYMBOL_NOT_FOUND  303 SHARED_OBJECT_INIT_FAILED
    304 OPERATING_SYSTEM  400 INVALID_HANDLE  401 ILLEGAL_STATE  402 LOSSY_QUERY  500 NOT_FOUND  600 NOT_READY
    700 ILLEGAL_ADDRESS  701 LAUNCH_OUT_OF_RESOURCES  702 LAUNCH_TIMEOUT  703 LAUNCH_INCOMPATIBLE_TEXTURING
    704 PEER_ACCESS_ALREADY_ENABLED  705 PEER_ACCESS_NOT_ENABLED  708 PRIMARY_CONTEXT_ACTIVE  709 CONTEXT_IS_DESTROYED
    710 ASSERT  711 TOO_MANY_PEERS  712 HOST_MEMORY_ALREADY_REGISTERED  713 HOST_MEMORY_NOT_REGISTERED
    714 HARDWARE_STACK_ERROR  715 ILLEGAL_INSTRUCTION  716 MISALIGNED_ADDRESS  717 INVALID_ADDRESS_SPACE  718 INVALID_PC
    719 LAUNCH_FAILED  720 COOPERATIVE_LAUNCH_TOO_LARGE  721 TENSOR_MEMORY_LEAK
    800 NOT_PERMITTED  801 NOT_SUPPORTED  802 SYSTEM_NOT_READY  803 SYSTEM_DRIVER_MISMATCH
    804 COMPAT_NOT_SUPPORTED_ON_DEVICE  805 MPS_CONNECTION_FAILED  806 MPS_RPC_FAILURE  807 MPS_SERVER_NOT_READY
    808 MPS_MAX_CLIENTS_REACHED  809 MPS_MAX_CONNECTIONS_REACHED  810 MPS_CLIENT_TERMINATED  811 CDP_NOT_SUPPORTED
    812 CDP_VERSION_MISMATCH
    900 STREAM_CAPTURE_UNSUPPORTED  901 STREAM_CAPTURE_INVALIDATED  902 STREAM_CAPTURE_MERGE  903 STREAM_CAPTURE_UNMATCHED
    904 STREAM_CAPTURE_UNJOINED  905 STREAM_CAPTURE_ISOLATION  906 STREAM_CAPTURE_IMPLICIT  907 CAPTURED_EVENT
    908 STREAM_CAPTURE_WRONG_THREAD  909 TIMEOUT  910 GRAPH_EXEC_UPDATE_FAILURE  911 EXTERNAL_DEVICE
    912 INVALID_CLUSTER_SIZE  913 FUNCTION_NOT_LOADED  914 INVALID_RESOURCE_TYPE  915 INVALID_RESOURCE_CONFIGURATION
    916 KEY_ROTATION  917 STREAM_DETACHED  918 GRAPH_RECAPTURE_FAILURE  999 UNKNOWN
);

#[rustfmt::skip]
const RUNTIME: Names = names!("cudaSuccess", "cudaError",
    1 InvalidValue  2 MemoryAllocation  3 InitializationError  4 CudartUnloading  5 ProfilerDisabled
    6 ProfilerNotInitialized  7 ProfilerAlreadyStarted  8 ProfilerAlreadyStopped  9 InvalidConfiguration
    10 VersionTranslation  12 InvalidPitchValue  13 InvalidSymbol  16 InvalidHostPointer  17 InvalidDevicePointer
    18 InvalidTexture  19 InvalidTextureBinding  20 InvalidChannelDescriptor  21 InvalidMemcpyDirection
    22 AddressOfConstant  23 TextureFetchFailed  24 TextureNotBound  25 SynchronizationError  26 InvalidFilterSetting
    27 InvalidNormSetting  28 MixedDeviceExecution  31 NotYetImplemented  32 MemoryValueTooLarge  34 StubLibrary
    35 InsufficientDriver  36 CallRequiresNewerDriver  37 InvalidSurface  43 DuplicateVariableName
    44 DuplicateTextureName  45 DuplicateSurfaceName  46 DevicesUnavailable  49 IncompatibleDriverContext
    52 MissingConfiguration  53 PriorLaunchFailure  65 LaunchMaxDepthExceeded  66 LaunchFileScopedTex
    67 LaunchFileScopedSurf  68 SyncDepthExceeded  69 LaunchPendingCountExceeded  98 InvalidDeviceFunction
    100 NoDevice  101 InvalidDevice  102 DeviceNotLicensed  103 SoftwareValidityNotEstablished  127 StartupFailure
    200 InvalidKernelImage  201 DeviceUninitialized  205 MapBufferObjectFailed  206 UnmapBufferObjectFailed
    207 ArrayIsMapped  208 AlreadyMapped  209 NoKernelImageForDevice  210 AlreadyAcquired  211 NotMapped
    212 NotMappedAsArray  213 NotMappedAsPointer  214 ECCUncorrectable  215 UnsupportedLimit  216 DeviceAlreadyInUse
    217 PeerAccessUnsupported  218 InvalidPtx  219 InvalidGraphicsContext  220 NvlinkUncorrectable
    221 JitCompilerNotFound  222 UnsupportedPtxVersion  223 JitCompilationDisabled  224 UnsupportedExecAffinity
    225 UnsupportedDevSideSync  226 Contained
    300 InvalidSource  301 FileNotFound  302 SharedObjectSymbolNotFound  303 SharedObjectInitFailed  304 OperatingSystem
    400 InvalidResourceHandle  401 IllegalState  402 LossyQuery  500 SymbolNotFound  600 NotReady
    700 IllegalAddress  701 LaunchOutOfResources  702 LaunchTimeout  703 LaunchIncompatibleTexturing
    704 PeerAccessAlreadyEnabled  705 PeerAccessNotEnabled  708 SetOnActiveProcess  709 ContextIsDestroyed  710 Assert
    711 TooManyPeers  712 HostMemoryAlreadyRegistered  713 HostMemoryNotRegistered  714 HardwareStackError
    715 IllegalInstruction  716 MisalignedAddress  717 InvalidAddressSpace  718 InvalidPc  719 LaunchFailure
    720 CooperativeLaunchTooLarge  721 TensorMemoryLeak
    800 NotPermitted  801 NotSupported  802 SystemNotReady  803 SystemDriverMismatch  804 CompatNotSupportedOnDevice
    805 MpsConnectionFailed  806 MpsRpcFailure  807 MpsServerNotReady  808 MpsMaxClientsReached
    809 MpsMaxConnectionsReached  810 MpsClientTerminated  811 CdpNotSupported  812 CdpVersionMismatch
    900 StreamCaptureUnsupported  901 StreamCaptureInvalidated  902 StreamCaptureMerge  903 StreamCaptureUnmatched
    904 StreamCaptureUnjoined  905 StreamCaptureIsolation  906 StreamCaptureImplicit  907 CapturedEvent
    908 StreamCaptureWrongThread  909 Timeout  910 GraphExecUpdateFailure  911 ExternalDevice  912 InvalidClusterSize
    913 FunctionNotLoaded  914 InvalidResourceType  915 InvalidResourceConfiguration  917 StreamDetached
    918 GraphRecaptureFailure  999 Unknown  10000 ApiFailureBase
);

#[rustfmt::skip]
const NCCL: Names = names!("ncclSuccess", "nccl",
    1 UnhandledCudaError  2 SystemError  3 InternalError  4 InvalidArgument  5 InvalidUsage  6 RemoteError  7 InProgress
    8 Timeout
);

#[rustfmt::skip]
const CUBLAS: Names = names!("CUBLAS_STATUS_SUCCESS", "CUBLAS_STATUS_",
    1 NOT_INITIALIZED  3 ALLOC_FAILED  7 INVALID_VALUE  8 ARCH_MISMATCH  11 MAPPING_ERROR  13 EXECUTION_FAILED
    14 INTERNAL_ERROR  15 NOT_SUPPORTED  16 LICENSE_ERROR
);

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the tables are sorted for binary search and have no duplicate codes.
    #[test]
    fn codes_ascend() {
        for table in [DRIVER, RUNTIME, NCCL, CUBLAS] {
            assert!(table.is_sorted_by(|a, b| a.0 < b.0));
        }
    }

    /// Check that a function's name selects the right set of codes.
    #[test]
    fn the_name_selects_the_library() {
        let named = |function, code| result(function, code).map(Cow::into_owned);
        assert_eq!(named("cuMemAlloc_v2", 2).as_deref(), Some("CUDA_ERROR_OUT_OF_MEMORY"));
        assert_eq!(named("cudaMalloc", 2).as_deref(), Some("cudaErrorMemoryAllocation"));
        assert_eq!(named("ncclAllReduce", 0).as_deref(), Some("ncclSuccess"));
        assert_eq!(named("pncclAllReduce", 6).as_deref(), Some("ncclRemoteError"));
        assert_eq!(named("cublasSgemm_v2", 13).as_deref(), Some("CUBLAS_STATUS_EXECUTION_FAILED"));
        assert_eq!(named("cublasLtMatmul", 15).as_deref(), Some("CUBLAS_STATUS_NOT_SUPPORTED"));
        assert_eq!(named("__cudaPushCallConfiguration", 0).as_deref(), Some("cudaSuccess"));
        assert_eq!(named("cuInit", 990).as_deref(), Some("CUresult 990"));
        assert_eq!(named("cufftExecC2C", 0), None);
        for (function, known) in [("cuMemAlloc_v2", 2), ("cudaMalloc", 46), ("ncclSend", 6), ("cuInit", 990)] {
            assert_eq!(code(function, &named(function, known).expect("a status")), Some(known), "{function}");
        }
        assert_eq!((code("cuInit", "cudaErrorUnknown"), code("malloc", "12")), (None, None));
        assert_eq!(named("malloc", 0), None);
        assert_eq!(driver_result(999), Some("CUDA_ERROR_UNKNOWN"));
        assert_eq!(name(RUNTIME, 999), Some("cudaErrorUnknown"));
        assert_eq!(name(RUNTIME, 998), None);
    }

    /// Check that text, handles and missing results are not mistaken for a status.
    #[test]
    fn some_functions_return_no_status() {
        for function in [
            "cudaGetErrorString",
            "cudaGetErrorName",
            "ncclGetErrorString",
            "__cudaRegisterFunction",
            "__cudaRegisterFatBinary",
            "cublasLtGetVersion",
            "cublasSgemm",
            "cublasIsamax",
            "cublasScnrm2",
            "cuFileRead",
        ] {
            assert!(!returns_status(function), "{function}");
            assert_eq!(result(function, 0), None, "{function}");
            assert!(!is_error(function, 1), "{function}");
        }
        for function in ["cuGetErrorString", "cublasGetVersion_v2", "cublasSgemmStridedBatched", "cublasCreate_v2"] {
            assert!(returns_status(function), "{function}");
        }
    }

    /// Check that a poll that returns "not ready" is not an error.
    #[test]
    fn not_ready_is_not_an_error() {
        assert!(!is_error("cudaEventQuery", 600));
        assert!(!is_error("cuStreamQuery", 600));
        assert!(!is_error("ncclCommGetAsyncError", 7));
        assert!(is_error("cudaMalloc", 2));
        assert!(is_error("cublasCreate_v2", 1));
        assert!(!is_error("cudaMalloc", 0));
        assert!(!is_error("cudaGetLastError", 2), "the error of an earlier call");
    }
}
