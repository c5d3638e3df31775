//! Where libcupti is, on this machine.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The library that libcupti loads for PM sampling; it is installed beside it.
pub const HOST: &str = "libnvperf_host.so";

/// The variable that overrides the search.
pub const OVERRIDE: &str = "WARPSCOPE_CUPTI";

/// Returns the CUPTI libraries of the CUDA toolkits, then of the Python packages in these environments, such as `/usr` or the
/// value of `VIRTUAL_ENV`. Of each directory, the newest comes first.
pub fn libraries(environments: &[PathBuf]) -> Vec<PathBuf> {
    let mut directories = Vec::new();
    let mut toolkits = list("/usr/local");
    toolkits.retain(|path| name_starts(path, "cuda"));
    // The link without a version is the administrator's choice; then the newest.
    toolkits.sort_by_key(|path| (!path.ends_with("cuda"), std::cmp::Reverse(path.clone())));
    for root in toolkits {
        directories.push(root.join("extras/CUPTI/lib64"));
        directories.push(root.join("targets/x86_64-linux/lib"));
    }
    directories.push("/usr/lib/x86_64-linux-gnu".into());
    for environment in environments {
        for python in list(environment.join("lib")).into_iter().filter(|path| name_starts(path, "python")) {
            for packages in ["site-packages", "dist-packages"] {
                for wheel in ["cu13", "cuda_cupti"] {
                    directories.push(python.join(packages).join("nvidia").join(wheel).join("lib"));
                }
            }
        }
        directories.push(environment.join("lib"));
    }
    let mut found = Vec::new();
    for directory in directories {
        let mut libraries = list(directory);
        libraries.retain(|path| name_starts(path, "libcupti.so"));
        libraries.sort_by_key(|path| std::cmp::Reverse(path.clone()));
        for library in libraries {
            if !found.contains(&library) {
                found.push(library);
            }
        }
    }
    found
}

/// Returns the environments of Python that the variables and a program name: `/venv/bin/python3` is in `/venv`.
pub fn environments(
    variable: &dyn Fn(&str) -> Option<PathBuf>,
    program: Option<&Path>,
    home: Option<&Path>,
) -> Vec<PathBuf> {
    let of_program = program.and_then(|program| Some(program.parent()?.parent()?.to_owned()));
    let mut all: Vec<PathBuf> = ["VIRTUAL_ENV", "CONDA_PREFIX"].iter().filter_map(|name| variable(name)).collect();
    all.extend(of_program);
    all.extend(["/usr/local".into(), "/usr".into()]);
    all.extend(home.map(|home| home.join(".local")));
    let absolute = |path: &PathBuf| path.is_absolute();
    let mut once: Vec<PathBuf> = Vec::new();
    for path in all.into_iter().filter(absolute) {
        if !once.contains(&path) {
            once.push(path);
        }
    }
    once
}

fn name_starts(path: &Path, prefix: &str) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix))
}

fn list(directory: impl AsRef<Path>) -> Vec<PathBuf> {
    let mut paths: Vec<_> = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the wheels of an environment are found, the newest library of a directory first.
    #[test]
    fn wheels_are_found() {
        let root = tempfile::tempdir().expect("a directory");
        let lib = root.path().join("lib/python3.12/site-packages/nvidia/cuda_cupti/lib");
        fs::create_dir_all(&lib).expect("ours");
        for name in ["libcupti.so.12", "libcupti.so.2025.1.0", "libcudart.so.12"] {
            fs::write(lib.join(name), "").expect("ours");
        }
        let found: Vec<_> =
            libraries(&[root.path().to_owned()]).into_iter().filter(|path| path.starts_with(root.path())).collect();
        assert_eq!(found, [lib.join("libcupti.so.2025.1.0"), lib.join("libcupti.so.12")]);
    }

    /// Check the order of environments, and that each is there once.
    #[test]
    fn environments_are_ordered() {
        let variable = |name: &str| (name == "CONDA_PREFIX").then(|| PathBuf::from("/opt/conda"));
        let all = environments(&variable, Some(Path::new("/venv/bin/python3")), Some(Path::new("/home/me")));
        let expected = ["/opt/conda", "/venv", "/usr/local", "/usr", "/home/me/.local"].map(PathBuf::from);
        assert_eq!(all, expected);
        assert_eq!(environments(&|_| Some("x".into()), Some(Path::new("/usr/bin/a")), None).len(), 2);
    }
}
