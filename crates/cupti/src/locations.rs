//! The directories in which libcupti is installed. Pure: the file system is passed in, as a function that returns the names in a
//! directory.

use alloc::{format, string::String, vec::Vec};

/// The variable that overrides the search.
pub const OVERRIDE: &str = "WARPSCOPE_CUPTI";

/// The variables that name a Python or Conda environment.
pub const ENVIRONMENTS: [&str; 2] = ["VIRTUAL_ENV", "CONDA_PREFIX"];

/// Returns the names in a directory; empty if it cannot be read.
pub type List<'a> = &'a dyn Fn(&str) -> Vec<String>;

/// Adds the directories of a Python or Conda environment.
pub fn of_environment(prefix: &str, list: List<'_>, places: &mut Vec<String>) {
    let mut pythons = list(&format!("{prefix}/lib"));
    pythons.retain(|name| name.starts_with("python"));
    pythons.sort_by_cached_key(|name| name.rsplit('.').next().and_then(|minor| minor.parse::<u32>().ok()));
    for python in pythons.iter().rev() {
        for packages in ["site-packages", "dist-packages"] {
            of_packages(&format!("{prefix}/lib/{python}/{packages}"), places);
        }
    }
    places.push(format!("{prefix}/lib"));
    places.push(format!("{prefix}/extras/CUPTI/lib64"));
}

/// Adds the directories of NVIDIA's wheels for CUDA 13, and for 11 and 12, in a directory of Python packages.
pub fn of_packages(directory: &str, places: &mut Vec<String>) {
    for wheel in ["cu13", "cuda_cupti"] {
        let place = format!("{directory}/nvidia/{wheel}/lib");
        if !places.contains(&place) {
            places.push(place);
        }
    }
}

/// Adds the directories of installed toolkits: first the unversioned link, which is the administrator's choice, then from the
/// newest that the driver supports to the oldest, then those too new for it. `newest` is the driver's major version.
pub fn of_toolkits(list: List<'_>, newest: u32, places: &mut Vec<String>) {
    let mut names = list("/usr/local");
    names.retain(|name| name.starts_with("cuda"));
    names.sort_by_cached_key(|name| {
        let version = name.trim_start_matches("cuda").trim_start_matches('-');
        let mut numbers = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
        let (major, minor) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        (!version.is_empty(), major > newest, core::cmp::Reverse((major, minor)), name.clone())
    });
    for name in names {
        places.push(format!("/usr/local/{name}/extras/CUPTI/lib64"));
        let mut targets = list(&format!("/usr/local/{name}/targets"));
        targets.sort();
        places.extend(targets.iter().map(|target| format!("/usr/local/{name}/targets/{target}/lib")));
    }
}
