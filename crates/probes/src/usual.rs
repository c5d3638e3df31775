//! Which functions of CUDA's libraries are meant where the user does not say.

use text::pattern::{Glob, Selection};

/// The selection for one library: where no `--match` was given, its public functions by the name of its file.
pub fn for_library(selection: &Selection, file: &str) -> Selection {
    selection.or(usual(file).and_then(|pattern| Glob::parse(pattern).ok()))
}

/// The public functions of libraries we know; others export what they mean to.
fn usual(file: &str) -> Option<&'static str> {
    // Wheels may put a hash into a file's name: libcudart-9335f6a2.so.12.
    let is = |library: &str| file.strip_prefix(library).is_some_and(|rest| rest.starts_with(['.', '-']));
    match file {
        _ if is("libcuda") => Some("cu[A-Z]*"),
        _ if is("libcudart") => Some("cuda[A-Z]*"),
        _ if is("libnccl") => Some("nccl*"),
        _ if file.starts_with("libcublas") => Some("cublas*"),
        _ => None,
    }
}

/// Functions to watch beside what is shown: through these a library hears of kernels or hands them out, with their names.
pub fn registrations(file: &str) -> Option<Selection> {
    let names: &[&str] = match usual(file)? {
        "cuda[A-Z]*" => &["__cudaRegister*"],
        "cu[A-Z]*" => &["cuModuleGetFunction", "cuLibraryGetKernel", "cuKernelGetFunction"],
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

    /// Check what is shown of each library when the user does not say.
    #[test]
    fn libraries_have_their_usual_names() {
        let usual = |file| for_library(&Selection::default(), file);
        for (file, yes, no) in [
            ("libcuda.so.1", "cuInit", "cudbgApiInit"),
            ("libcuda.so.535.129.03", "cuMemAlloc_v2", "cudaMalloc"),
            ("libcudart.so.13", "cudaMalloc", "__cudaRegisterFunction"),
            ("libcudart-9335f6a2.so.12", "cudaMalloc", "cudart"),
            ("libnccl.so.2", "ncclAllReduce", "pncclAllReduce"),
            ("libcublasLt.so.13", "cublasLtMatmul", "other"),
        ] {
            assert!(usual(file).takes(yes) && !usual(file).takes(no), "{file}");
        }
        assert!(usual("libc.so.6").takes("anything"));
        assert!(for_library(&selection(&["__*"], &[]), "libcuda.so.1").takes("__x"));
        assert!(!for_library(&selection(&[], &["cuInit"]), "libcuda.so.1").takes("cuInit"));
        assert!(registrations("libcudart.so.12").unwrap().takes("__cudaRegisterFunction"));
        let driver = registrations("libcuda.so.1").unwrap();
        assert!(driver.takes("cuModuleGetFunction") && !driver.takes("cuModuleGetGlobal"));
        assert_eq!(registrations("libnccl.so.2"), None);
    }
}
