//! Names of GPU kernels as a person reads them.

use cpp_demangle::{DemangleOptions, Symbol};
use model::profile::Profile;

/// The most bytes a demangled name may take: templates of templates can explode.
const MOST: usize = 64 * 1024;

/// Demangles a kernel's name: C++ (`_Z…`), Rust (`_R…`), or as it is.
pub fn kernel_name(mangled: &str) -> String {
    let demangled = if mangled.starts_with("_Z") {
        let options = DemangleOptions::new().no_return_type();
        Symbol::new(mangled).ok().and_then(|symbol| symbol.demangle_with_options(&options).ok())
    } else {
        rustc_demangle::try_demangle(mangled).ok().map(|name| format!("{name:#}"))
    };
    demangled.filter(|name| name.len() <= MOST).unwrap_or_else(|| mangled.to_owned())
}

/// Makes the names of a profile's kernels readable.
pub fn name_kernels(profile: &mut Profile) {
    for kernel in &mut profile.kernel_names {
        kernel.text = kernel_name(&kernel.mangled).into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// nvcc's, Triton's and broken names.
    #[test]
    fn kernel_names() {
        assert_eq!(kernel_name("_Z13matmul_kernelPKfS0_Pfiii"), "matmul_kernel(float const*, float const*, float*, int, int, int)");
        assert_eq!(kernel_name("add_kernel_0d1d2d3de"), "add_kernel_0d1d2d3de");
        assert_eq!(kernel_name("_Zbroken"), "_Zbroken");
        assert_eq!(kernel_name(""), "");
    }
}
