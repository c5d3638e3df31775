//! The locations of libcupti, in the order to try. Pure: the process and the file system are passed in.
//!
//! A copy that is already loaded must be used, because two copies in one process conflict. Next come those of the CUDA
//! installation that the program uses, then those of the machine. In each location the driver's own major version is
//! tried first, then older ones, which a newer driver supports; versions newer than the driver cannot work and come
//! last.

use cupti::locations::{self, List, OVERRIDE};

/// The inputs of the search.
pub struct Surroundings<'a> {
    /// The value of an environment variable.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// The names in a directory; empty if it cannot be read.
    pub list: List<'a>,
    /// `/proc/self/maps`.
    pub maps: &'a str,
    /// The version from `cuDriverGetVersion`, 0 if unknown.
    pub driver: u32,
}

/// One candidate to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Candidate {
    /// A library that must already be loaded.
    Loaded(String),
    /// A file.
    File(String),
    /// A name for the loader's own search.
    Search(String),
}

const SONAMES: [(u32, &str); 4] =
    [(13, "libcupti.so.13"), (12, "libcupti.so.12"), (11, "libcupti.so.11.8"), (11, "libcupti.so.11.7")];

/// Returns all candidates, best first, without duplicates.
pub fn candidates(around: &Surroundings<'_>) -> Vec<Candidate> {
    let newest = if around.driver == 0 { u32::MAX } else { around.driver / 1000 };
    let usable = || SONAMES.iter().filter(|(major, _)| *major <= newest).map(|(_, soname)| *soname);
    let newer = || SONAMES.iter().filter(|(major, _)| *major > newest).map(|(_, soname)| *soname);

    let mut found = Vec::new();
    if let Some(path) = (around.variable)(OVERRIDE).filter(|path| !path.is_empty()) {
        found.push(Candidate::File(path));
    }
    found.extend(usable().chain(newer()).map(|soname| Candidate::Loaded(soname.into())));
    let mapped: Vec<&str> = mapped_files(around.maps);
    found.extend(mapped.iter().filter(|p| is_library(p, "libcupti.so")).map(|p| Candidate::Loaded((*p).into())));

    let mut places = Vec::new();
    for path in mapped.iter().filter(|p| is_library(p, "libcudart.so")) {
        beside_runtime(path, &mut places);
    }
    for variable in locations::ENVIRONMENTS {
        if let Some(prefix) = (around.variable)(variable).filter(|prefix| prefix.starts_with('/')) {
            locations::of_environment(&prefix, around.list, &mut places);
        }
    }
    for path in &mapped {
        for marker in ["/site-packages/", "/dist-packages/"] {
            if let Some(at) = path.find(marker) {
                locations::of_packages(&path[..at + marker.len() - 1], &mut places);
            }
        }
    }
    locations::of_toolkits(around.list, newest, &mut places);

    found.extend(places.iter().flat_map(|place| usable().map(move |s| Candidate::File(format!("{place}/{s}")))));
    found.extend(usable().map(|soname| Candidate::Search(soname.into())));
    found.push(Candidate::Search("libcupti.so".into()));
    found.extend(places.iter().flat_map(|place| newer().map(move |s| Candidate::File(format!("{place}/{s}")))));
    found.extend(newer().map(|soname| Candidate::Search(soname.into())));
    let mut once = Vec::new();
    found.retain(|candidate| {
        let new = !once.contains(candidate);
        if new {
            once.push(candidate.clone());
        }
        new
    });
    found
}

/// Returns the paths of all mapped files, without duplicates.
pub fn mapped_files(maps: &str) -> Vec<&str> {
    let mut files = Vec::new();
    for line in maps.lines() {
        if let Some(at) = line.find('/') {
            let path = line[at..].trim_end_matches(" (deleted)");
            if files.last() != Some(&path) && !files.contains(&path) {
                files.push(path);
            }
        }
    }
    files
}

fn is_library(path: &str, prefix: &str) -> bool {
    path.rsplit('/').next().is_some_and(|name| name.starts_with(prefix))
}

/// Adds the locations of libcupti for a libcudart at `path`: its own directory, or a sibling in the Python wheels and
/// the toolkit.
fn beside_runtime(path: &str, places: &mut Vec<String>) {
    let Some((directory, _)) = path.rsplit_once('/') else { return };
    places.push(directory.into());
    if let Some(wheels) = directory.strip_suffix("/cuda_runtime/lib") {
        places.push(format!("{wheels}/cuda_cupti/lib"));
    }
    if let Some(toolkit) = directory.strip_suffix("/lib64") {
        places.push(format!("{toolkit}/extras/CUPTI/lib64"));
    }
    if let Some((toolkit, _)) = directory.split_once("/targets/") {
        places.push(format!("{toolkit}/extras/CUPTI/lib64"));
    }
}

/// Tools that use CUPTI themselves, by the names of their libraries.
const TOOLS: [(&str, &str); 10] = [
    ("libToolsInjection", "Nsight Systems"),
    ("libcuda-injection", "Nsight Compute"),
    ("libTreeLauncherTargetInjection", "Nsight Compute or Compute Sanitizer"),
    ("libsanitizer-collection", "Compute Sanitizer"),
    ("libcudadebugger", "cuda-gdb"),
    ("libparcagpucupti", "parca"),
    ("libhpcrun", "HPCToolkit"),
    ("libscorep", "Score-P"),
    ("libproton", "Triton's Proton"),
    ("libtorch_cpu", "torch.profiler"),
];

/// Returns the first mapped file of a tool known to use CUPTI, with the tool's name.
pub fn known_tool(maps: &str) -> Option<(&'static str, &str)> {
    let mapped = mapped_files(maps);
    TOOLS.iter().find_map(|(prefix, tool)| mapped.iter().find(|p| is_library(p, prefix)).map(|p| (*tool, *p)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(variables: &[(&str, &str)], tree: &[(&str, &[&str])], maps: &str, driver: u32) -> Vec<Candidate> {
        let variable = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| String::from(*value));
        let list = |directory: &str| {
            let names = tree.iter().find(|(d, _)| *d == directory).map_or(&[][..], |(_, names)| *names);
            names.iter().map(|n| String::from(*n)).collect()
        };
        candidates(&Surroundings { variable: &variable, list: &list, maps, driver })
    }

    fn place(found: &[Candidate], wanted: &Candidate) -> usize {
        found.iter().position(|c| c == wanted).unwrap_or_else(|| panic!("{wanted:?} not in {found:#?}"))
    }

    fn file(path: &str) -> Candidate {
        Candidate::File(path.into())
    }

    const MAPS: &str = "\
7f00-7f01 r-xp 00000000 08:01 11  /venv/lib/python3.11/site-packages/nvidia/cuda_runtime/lib/libcudart.so.12\n\
7f01-7f02 r--p 00001000 08:01 11  /venv/lib/python3.11/site-packages/nvidia/cuda_runtime/lib/libcudart.so.12\n\
7f02-7f03 r-xp 00000000 08:01 12  /usr/lib/x86_64-linux-gnu/libc.so.6 (deleted)\n\
7f03-7f04 rw-p 00000000 00:00 0   [heap]\n";

    /// Checks the order: override, loaded, next to the runtime, environments, toolkits, the loader's search.
    #[test]
    fn candidates_are_ordered() {
        let found = search(
            &[(OVERRIDE, "/mine/libcupti.so"), ("VIRTUAL_ENV", "/other")],
            &[
                ("/other/lib", &["python3.9", "python3.12", "cmake"]),
                ("/usr/local", &["bin", "cuda", "cuda-11.8", "cuda-12.8", "cuda-12.10", "cuda-13.0"]),
                ("/usr/local/cuda-12.8/targets", &["x86_64-linux"]),
            ],
            MAPS,
            12080,
        );
        let expected = [
            file("/mine/libcupti.so"),
            Candidate::Loaded("libcupti.so.12".into()),
            Candidate::Loaded("libcupti.so.11.8".into()),
            Candidate::Loaded("libcupti.so.13".into()),
            file("/venv/lib/python3.11/site-packages/nvidia/cuda_cupti/lib/libcupti.so.12"),
            file("/other/lib/python3.12/site-packages/nvidia/cuda_cupti/lib/libcupti.so.12"),
            file("/other/lib/python3.9/site-packages/nvidia/cuda_cupti/lib/libcupti.so.12"),
            file("/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.12"),
            file("/usr/local/cuda-12.10/extras/CUPTI/lib64/libcupti.so.12"),
            file("/usr/local/cuda-12.8/extras/CUPTI/lib64/libcupti.so.12"),
            file("/usr/local/cuda-12.8/targets/x86_64-linux/lib/libcupti.so.12"),
            file("/usr/local/cuda-11.8/extras/CUPTI/lib64/libcupti.so.11.8"),
            Candidate::Search("libcupti.so.12".into()),
            Candidate::Search("libcupti.so".into()),
            file("/usr/local/cuda-13.0/extras/CUPTI/lib64/libcupti.so.13"),
            Candidate::Search("libcupti.so.13".into()),
        ];
        let places: Vec<usize> = expected.iter().map(|c| place(&found, c)).collect();
        assert!(places.is_sorted(), "{places:?} of {found:#?}");
    }

    /// In each location the driver's major version comes first; with an unknown driver, the newest.
    #[test]
    fn the_drivers_version_comes_first() {
        let tree: &[(&str, &[&str])] = &[("/usr/local", &["cuda-13.0", "cuda-12.8"])];
        let new = search(&[], tree, "", 13000);
        assert_eq!(new[0], Candidate::Loaded("libcupti.so.13".into()));
        let thirteen = place(&new, &file("/usr/local/cuda-13.0/extras/CUPTI/lib64/libcupti.so.13"));
        assert!(thirteen < place(&new, &file("/usr/local/cuda-12.8/extras/CUPTI/lib64/libcupti.so.12")));
        let unknown = search(&[], tree, "", 0);
        assert_eq!(unknown[0], Candidate::Loaded("libcupti.so.13".into()));
    }

    /// A CUDA 13 wheel has libcupti next to libcudart; a loaded libcupti is also tried by its own path.
    #[test]
    fn wheels_of_cuda_13() {
        let maps = "7f00-7f01 r-xp 0 08:01 1 /v/lib/python3.12/site-packages/nvidia/cu13/lib/libcudart.so.13\n\
                    7f00-7f01 r-xp 0 08:01 1 /odd/libcupti.so.2025.3\n";
        let found = search(&[], &[], maps, 13000);
        assert!(found.contains(&Candidate::Loaded("/odd/libcupti.so.2025.3".into())));
        place(&found, &file("/v/lib/python3.12/site-packages/nvidia/cu13/lib/libcupti.so.13"));
    }

    /// Nothing is tried twice, and an empty environment still leaves the loader's search.
    #[test]
    fn each_is_tried_once() {
        let found = search(&[("VIRTUAL_ENV", "/venv"), ("CONDA_PREFIX", "/venv")], &[], MAPS, 12080);
        for (at, candidate) in found.iter().enumerate() {
            assert!(!found[..at].contains(candidate), "{candidate:?} twice");
        }
        assert!(search(&[], &[], "", 0).contains(&Candidate::Search("libcupti.so.12".into())));
    }

    /// A profiler is recognised by its library.
    #[test]
    fn known_tools_are_recognised() {
        let maps = "7f00-7f01 r-xp 0 08:01 1 /opt/nsys/libToolsInjection64.so\n";
        assert_eq!(known_tool(maps), Some(("Nsight Systems", "/opt/nsys/libToolsInjection64.so")));
        assert_eq!(known_tool(MAPS), None);
    }
}
