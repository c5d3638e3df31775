//! The default selection of functions in CUDA's libraries.

use text::pattern::{Glob, Selection};

/// Returns the selection for one library: without `--match`, its public functions according to the file's name.
pub fn for_library(selection: &Selection, file: &str) -> Selection {
    selection.or(usual(file).unwrap_or_default().iter().filter_map(|pattern| Glob::parse(pattern).ok()))
}

/// The functions of the CUDA runtime. Code compiled by nvcc 13 launches by one that is not public.
const RUNTIME: &[&str] = &["cuda[A-Z]*", "__cudaLaunchKernel*"];
/// The functions of the driver.
const DRIVER: &[&str] = &["cu[A-Z]*"];

/// Returns the public functions of known libraries; other libraries export only those anyway.
fn usual(file: &str) -> Option<&'static [&'static str]> {
    // Wheels may add a hash to a file's name: libcudart-9335f6a2.so.12.
    let is = |library: &str| file.strip_prefix(library).is_some_and(|rest| rest.starts_with(['.', '-']));
    match file {
        _ if is("libcuda") => Some(DRIVER),
        _ if is("libcudart") => Some(RUNTIME),
        _ if is("libnccl") => Some(&["nccl*"]),
        _ if file.starts_with("libcublas") => Some(&["cublas*"]),
        _ => None,
    }
}

/// Functions to watch in addition to those shown: through these a library registers or returns kernels, with their
/// names.
pub fn registrations(file: &str) -> Option<Selection> {
    let names: &[&str] = match usual(file)? {
        RUNTIME => &["__cudaRegister*", "__cudaGetKernel"],
        DRIVER => &["cuModuleGetFunction", "cuLibraryGetKernel", "cuKernelGetFunction"],
        _ => return None,
    };
    Selection::parse(&names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>(), &[]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selection(include: &[&str], exclude: &[&str]) -> Selection {
        let own = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        Selection::parse(&own(include), &own(exclude)).unwrap()
    }

    /// Check the default selection of each library.
    #[test]
    fn libraries_have_default_selections() {
        let usual = |file| for_library(&Selection::default(), file);
        for (file, yes, no) in [
            ("libcuda.so.1", "cuInit", "cudbgApiInit"),
            ("libcuda.so.535.129.03", "cuMemAlloc_v2", "cudaMalloc"),
            ("libcudart.so.13", "cudaMalloc", "__cudaRegisterFunction"),
            ("libcudart-9335f6a2.so.12", "cudaMalloc", "cudart"),
            ("libcudart.so.13", "__cudaLaunchKernel", "__cudaGetKernel"),
            ("libnccl.so.2", "ncclAllReduce", "pncclAllReduce"),
            ("libcublasLt.so.13", "cublasLtMatmul", "other"),
        ] {
            assert!(usual(file).takes(yes) && !usual(file).takes(no), "{file}");
        }
        assert!(usual("libc.so.6").takes("anything"));
        assert!(for_library(&selection(&["__*"], &[]), "libcuda.so.1").takes("__x"));
        assert!(!for_library(&selection(&[], &["cuInit"]), "libcuda.so.1").takes("cuInit"));
        assert!(registrations("libcudart.so.12").unwrap().takes("__cudaRegisterFunction"));
        assert!(registrations("libcudart.so.13").unwrap().takes("__cudaGetKernel"));
        let driver = registrations("libcuda.so.1").unwrap();
        assert!(driver.takes("cuModuleGetFunction") && !driver.takes("cuModuleGetGlobal"));
        assert_eq!(registrations("libnccl.so.2"), None);
    }
}
