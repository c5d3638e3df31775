//! Where libcupti is, on this machine.

use std::{
    fs,
    path::{Path, PathBuf},
};

use cupti::locations;
pub use cupti::locations::OVERRIDE;

/// The library that libcupti loads for PM sampling; it is installed beside it.
pub const HOST: &str = "libnvperf_host.so";

/// Returns the CUPTI libraries of the CUDA toolkits, then of the Python packages in these environments, such as `/usr` or the
/// value of `VIRTUAL_ENV`. Of each directory, the newest comes first.
pub fn libraries(environments: &[PathBuf]) -> Vec<PathBuf> {
    let mut places = Vec::new();
    locations::of_toolkits(&names, u32::MAX, &mut places);
    places.push("/usr/lib/x86_64-linux-gnu".into());
    for environment in environments.iter().filter_map(|environment| environment.to_str()) {
        locations::of_environment(environment, &names, &mut places);
    }
    let mut found = Vec::new();
    for place in places {
        let mut libraries = names(&place);
        libraries.retain(|name| name.starts_with("libcupti.so"));
        libraries.sort_by(|a, b| b.cmp(a));
        for library in libraries.iter().map(|name| Path::new(&place).join(name)) {
            if !found.contains(&library) {
                found.push(library);
            }
        }
    }
    found
}

/// Returns the library that libcupti loads, if it is there.
pub fn host(library: &Path) -> Option<PathBuf> {
    let library = fs::canonicalize(library).ok()?;
    Some(library.parent()?.join(HOST)).filter(|host| host.exists())
}

/// Returns the environments of Python that the variables and a program name: `/venv/bin/python3` is in `/venv`.
pub fn environments(
    variable: &dyn Fn(&str) -> Option<PathBuf>,
    program: Option<&Path>,
    home: Option<&Path>,
) -> Vec<PathBuf> {
    let of_program = program.and_then(|program| Some(program.parent()?.parent()?.to_owned()));
    let mut all: Vec<PathBuf> = locations::ENVIRONMENTS.iter().filter_map(|name| variable(name)).collect();
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

/// Returns the names in a directory; empty if it cannot be read.
fn names(directory: &str) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
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
