//! The files inside the warpscope binary: the injected library, the simulated GPU, and its workload.
//!
//! The build script creates them with one nested cargo build and the C compiler.
//!
//! The nested build uses the profile `embedded` (fat LTO; panics unwind so that they can be caught; frame pointers
//! kept) with its own target directory in `OUT_DIR`. Flags and wrappers of the outer build (clippy, coverage) are not
//! passed on. Cargo's artifact dependencies could replace this once they are stable. libelf and zlib are linked
//! statically; only libc, libm, libgcc_s and the loader are dynamic.

use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// The injected library (`libinject.so`).
pub static INJECTOR: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/files/libinject.so"));

/// The bundled workload, an executable that needs `libcudart.so.13`.
pub static WORKLOAD: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/files/workload"));

/// A library of the simulated GPU.
#[derive(Clone, Copy, Debug)]
pub struct SimFile {
    /// Its file name, which is its soname.
    pub name: &'static str,
    /// Its contents.
    pub bytes: &'static [u8],
}

macro_rules! sim_file {
    ($name:literal) => {
        SimFile { name: $name, bytes: include_bytes!(concat!(env!("OUT_DIR"), "/files/", $name)) }
    };
}

/// The libraries of the simulated GPU.
pub static SIM_LIBRARIES: &[SimFile] = &[
    sim_file!("libcuda.so.1"),
    sim_file!("libcudart.so.12"),
    sim_file!("libcudart.so.13"),
    sim_file!("libcupti.so.12"),
    sim_file!("libcupti.so.13"),
    sim_file!("libnvidia-ml.so.1"),
    sim_file!("libnccl.so.2"),
];

/// Names that a linker or an unversioned dlopen uses for the libraries.
const LINKS: [(&str, &str); 4] = [
    ("libcuda.so", "libcuda.so.1"),
    ("libcudart.so", "libcudart.so.13"),
    ("libcupti.so", "libcupti.so.13"),
    ("libnccl.so", "libnccl.so.2"),
];

/// Writes an executable file.
pub fn write_executable(path: &Path, bytes: &[u8]) -> io::Result<()> {
    std::fs::write(path, bytes)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
}

/// Writes the simulated GPU's libraries into `dir`, which must exist, with the links that a compiler needs.
pub fn write_sim(dir: &Path) -> io::Result<()> {
    for file in SIM_LIBRARIES {
        write_executable(&dir.join(file.name), file.bytes)?;
    }
    for (link, target) in LINKS {
        let link = dir.join(link);
        match std::fs::remove_file(&link) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => symlink(target, &link)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every file is an ELF object.
    #[test]
    fn files_are_elf() {
        let libraries = SIM_LIBRARIES.iter().map(|f| f.bytes);
        for bytes in libraries.chain([INJECTOR, WORKLOAD]) {
            assert!(bytes.starts_with(b"\x7fELF"));
        }
    }
}
