//! What to watch: the libraries, and the functions in them, that the user and the defaults select.

use std::{
    collections::HashSet,
    fs::File,
    path::{Path, PathBuf},
};

use elf::Budget;
use probes::Function;
use text::pattern::Selection;

use super::{
    file::{is_named, is_usual},
    named::Named,
};

/// The functions to watch if each probe is expensive.
const SHORT_LIST: [&str; 16] = [
    "cudaLaunchKernel",
    "cudaLaunchKernelExC",
    "cudaMalloc",
    "cudaFree",
    "cudaMemcpy",
    "cudaMemcpyAsync",
    "cudaStreamSynchronize",
    "cudaDeviceSynchronize",
    "cuLaunchKernel",
    "cuLaunchKernelEx",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuStreamSynchronize",
    "cuCtxSynchronize",
];

/// The function that initialises CUDA. It is always probed if processes report their calls: those that do not are found by
/// it.
pub const INIT: &str = "cuInit";

/// The most names kept for suggestions.
const MOST_NAMES: usize = 1 << 18;

/// Limits on watched files, so that no file and no user can use up the room of all.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// What may be read of one file.
    pub budget: Budget,
    /// Functions of one file that are not in `cuda`'s tables.
    pub unknown_functions: usize,
    /// Files watched at a time.
    pub files: usize,
    /// Those of them that belong to one user other than root.
    pub files_of_user: usize,
}

impl Limits {
    /// For a trace, where the user decides what runs.
    pub const TRACE: Limits =
        Limits { budget: Budget::RECORDING, unknown_functions: 16_384, files: usize::MAX, files_of_user: usize::MAX };
    /// For the daemon. The largest libcuda has some 700 functions that are not in the tables.
    pub const DAEMON: Limits =
        Limits { budget: Budget::DAEMON, unknown_functions: 1024, files: 256, files_of_user: 64 };
}

/// What to watch.
pub struct Wanted {
    /// The functions that the user selected by pattern.
    pub selection: Selection,
    /// `--lib`: in addition to the default ones.
    named: Vec<PathBuf>,
    functions: Vec<Named>,
    /// Names in the files seen, for suggestions if a pattern of the user matches nothing.
    names: HashSet<String>,
    /// Only the most important functions are watched.
    pub shortened: bool,
    any: bool,
    /// Functions of the last file that did not fit.
    pub refused: usize,
}

impl Wanted {
    /// Selects functions in the default libraries and in those `named`, and single `functions`.
    pub fn new(selection: Selection, named: Vec<PathBuf>, functions: Vec<Named>) -> Self {
        Self { selection, named, functions, names: HashSet::new(), shortened: false, any: false, refused: 0 }
    }

    /// Whether a file with this path should be watched.
    pub fn wants(&self, path: &str) -> bool {
        is_usual(path)
            || self.named.iter().any(|named| is_named(named, path))
            || self.functions.iter().any(|function| is_named(&function.library, path))
    }

    /// Returns the libraries that the user named by an existing path.
    pub fn given_paths(&self) -> impl Iterator<Item = &Path> {
        let named = self.named.iter().chain(self.functions.iter().map(|function| &function.library));
        named.filter(|l| l.as_os_str().as_encoded_bytes().contains(&b'/')).map(PathBuf::as_path)
    }

    /// Returns the functions of a file to watch, including those that cannot be probed.
    /// `init` selects the function that initialises CUDA in any case.
    pub fn find(&mut self, file: &File, path: &str, limits: &Limits, init: bool) -> anyhow::Result<Vec<Found>> {
        let name = path.rsplit('/').next().unwrap_or(path);
        self.refused = 0;
        let budget = limits.budget;
        let mut found = Vec::new();
        if is_usual(path) || self.named.iter().any(|named| is_named(named, path)) {
            self.any = true;
            let selection = probes::for_library(&self.selection, name);
            let registrations = probes::registrations(name);
            // Names that are not selected are needed for suggestions if a pattern matches nothing.
            let keep = self.selection.has_patterns() && !self.shortened;
            let hidden = |name: &str| registrations.as_ref().is_some_and(|r| r.takes(name)) || (init && name == INIT);
            let meant = |name: &str| selection.takes(name) || hidden(name);
            // Beyond the limit the code of a function is not read: a file may invent hundreds of thousands. Some
            // functions have several names.
            let most = limits.unknown_functions.saturating_mul(4);
            let mut unknown = 0;
            let wanted = |name: &str| {
                if !meant(name) {
                    return keep;
                }
                let known = cuda::call(name).is_some();
                unknown += usize::from(!known);
                known || unknown <= most
            };
            let exported = probes::exported(file, wanted, &budget)?;
            self.refused = unknown.saturating_sub(most);
            for function in exported {
                let room = if keep { MOST_NAMES.saturating_sub(self.names.len()) } else { 0 };
                self.names.extend(function.names().take(room).map(str::to_owned));
                let chosen = selection.first_selected(function.names()).map(|name| (name.to_owned(), true));
                let unseen = || function.names().find(|name| hidden(name)).map(|name| (name.to_owned(), false));
                if let Some((name, shown)) = chosen.or_else(unseen) {
                    found.push(Found { function, name, shown });
                }
            }
        } else {
            // A program with a statically linked libcudart.
            let wanted = |name: &str| is_call(name) || ["__cudaRegisterFunction", "__cudaGetKernel"].contains(&name);
            for function in probes::linked(file, wanted, &budget)? {
                let shown = is_call(&function.name);
                if !shown || self.selection.takes(&function.name) {
                    if self.names.len() < MOST_NAMES {
                        self.names.insert(function.name.clone());
                    }
                    found.push(Found { name: function.name.clone(), function, shown });
                }
            }
        }
        for named in self.functions.iter().filter(|named| is_named(&named.library, path)) {
            for (name, function) in named.find(file, path, &budget)? {
                found.retain(|found| found.function.offset != function.offset);
                found.push(Found { name, function, shown: true });
            }
        }
        // A program without a statically linked libcudart is not a CUDA library.
        self.any |= !found.is_empty();
        Ok(found)
    }

    /// Keeps only the most important functions, for kernels where each probe is expensive, unless the user chose some.
    pub fn shorten(&mut self) -> anyhow::Result<()> {
        if self.selection == Selection::default() {
            self.selection = Selection::parse(&SHORT_LIST.map(str::to_owned), &[])?;
            self.shortened = true;
        }
        Ok(())
    }

    /// Returns the patterns that match nothing in any library seen so far, with similar names.
    pub fn unmatched_patterns(&self) -> Vec<(String, Vec<String>)> {
        // The patterns of the short list are not the user's.
        if self.shortened {
            return Vec::new();
        }
        let names = || self.names.iter().map(String::as_str);
        let idle = self.selection.unmatched(names().collect::<Vec<_>>());
        idle.into_iter().map(|pattern| (pattern.to_owned(), text::near(names(), pattern))).collect()
    }

    /// Whether any library was seen.
    pub fn any(&self) -> bool {
        self.any
    }
}

/// A function to watch.
pub struct Found {
    /// Where it is.
    pub function: Function,
    /// The name to show.
    pub name: String,
    /// The user selected it; other functions are watched for the names of kernels.
    pub shown: bool,
}

/// Whether the name is that of a CUDA runtime or driver function.
fn is_call(name: &str) -> bool {
    let rest = name.strip_prefix("cuda").or_else(|| name.strip_prefix("cu"));
    name.starts_with("__cudaLaunchKernel")
        || rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that CUDA's libraries are selected in every spelling, as are those the user names, and nothing else.
    #[test]
    fn only_cuda_and_named_libraries_are_selected() {
        let named = vec!["libnccl".into(), "/opt/my.so".into()];
        let libraries = Wanted::new(Selection::default(), named, Vec::new());
        for path in ["/usr/lib/libcuda.so.1", "/x/libcudart-9335f6a2.so.12", "/y/libnccl.so.2", "/opt/my.so"] {
            assert!(libraries.wants(path), "{path}");
        }
        for path in ["/usr/lib/libcudadebugger.so.1", "/usr/lib/libcudnn.so.9", "/usr/lib/my.so", "[vdso]"] {
            assert!(!libraries.wants(path), "{path}");
        }
    }
}
