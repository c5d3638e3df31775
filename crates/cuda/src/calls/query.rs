//! Functions that only query state: programs call them constantly, and they change nothing.
//!
//! PyTorch makes 27 CUDA calls per launch; nearly all are `cudaGetDevice`, `cudaPeekAtLastError` and similar. Each
//! probe interrupts the program, so `monitor` does not probe these functions, and `trace` does only with `--all-calls`
//! or `--match`.

/// Words in the names of functions that query something and change nothing.
const WORDS: [&str; 9] = ["Get", "Query", "Peek", "Is", "Can", "Elapsed", "Occupancy", "Configuration", "Exchange"];

/// Whether a CUDA function only queries something, such as `cudaGetDevice`, `cudaPeekAtLastError` or `cuStreamQuery`.
/// PyTorch calls such functions twenty times for each launch.
pub fn is_query(name: &str) -> bool {
    let of_cuda = name.starts_with("cu") || name.starts_with("__cuda");
    of_cuda && words(name).any(|word| WORDS.contains(&word))
}

/// Splits a name such as `cudaStreamIsCapturing_v2` into words: each begins with an upper-case letter.
fn words(name: &str) -> impl Iterator<Item = &str> {
    let name = name.split('_').find(|part| !part.is_empty()).unwrap_or("");
    let starts = name.match_indices(|c: char| c.is_ascii_uppercase()).map(|(at, _)| at);
    starts.map(|at| {
        let rest = &name[at..];
        let end = rest[1..].find(|c: char| !c.is_ascii_lowercase()).map_or(rest.len(), |end| end + 1);
        &rest[..end]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that frequent queries are recognised, and that nothing else is.
    #[test]
    fn queries_are_recognised() {
        for name in [
            "cudaGetDevice",
            "cuCtxGetDevice_v2",
            "cudaPeekAtLastError",
            "cudaStreamIsCapturing_ptsz",
            "cuStreamQuery",
            "cudaEventElapsedTime",
            "cuDevicePrimaryCtxGetState",
            "__cudaPushCallConfiguration",
            "cudaThreadExchangeStreamCaptureMode",
            "cudaDeviceCanAccessPeer",
            "cudaOccupancyMaxActiveBlocksPerMultiprocessor",
        ] {
            assert!(is_query(name), "{name}");
        }
        for name in [
            "cudaMalloc",
            "cuMemAlloc_v2",
            "cudaLaunchKernel",
            "cuLaunchKernelEx",
            "cudaMemcpyAsync",
            "cudaStreamSynchronize",
            "cudaEventRecord",
            "cudaGraphInstantiate",
            "cuModuleLoadData",
            "cudaSetDevice",
            "cuStreamWaitEvent",
            "cudaIpcOpenMemHandle",
            "cuInit",
            "ncclCommGetAsyncError",
            "",
        ] {
            assert!(!is_query(name), "{name}");
        }
    }
}
