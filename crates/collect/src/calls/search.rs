//! Finds the libraries that a command is likely to load, so that they can be watched before its first call. A library
//! that is not found here is watched as soon as it is mapped.
//!
//! The order is the loader's: the simulator's directory, LD_LIBRARY_PATH, the program's own run path, wheels of the
//! Python that runs it, the loader's cache.

use std::{
    ffi::{OsStr, OsString},
    fs,
    io::{BufRead, BufReader, Read},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use elf::Elf;

use crate::process::procfs;

/// The default directories of loaders, and the usual locations of CUDA.
const USUAL: [&str; 8] = [
    "/usr/lib/x86_64-linux-gnu",
    "/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/lib64",
    "/usr/lib",
    "/usr/local/cuda/lib64",
    "/usr/local/nvidia/lib64",
    "/usr/lib/wsl/lib",
];

/// The most libraries that are searched for before a process loads them.
const MOST_INSTALLED: usize = 48;

/// Returns the program that a command name refers to.
pub fn program(name: &OsStr) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return Some(name.into());
    }
    std::env::split_paths(&std::env::var_os("PATH")?).map(|d| d.join(name)).find(|p| p.is_file())
}

/// Returns the directories to search for a program's libraries, in the loader's order, each once. `first` precedes all
/// others.
pub fn directories(program: Option<&Path>, first: Option<&Path>) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = first.map(Path::to_owned).into_iter().collect();
    found.extend(std::env::var_os("LD_LIBRARY_PATH").iter().flat_map(std::env::split_paths));
    if let Some(program) = program {
        found.extend(run_paths(program));
        found.extend(python_packages(program));
    }
    found.extend(USUAL.iter().map(PathBuf::from));
    found.extend(cached());
    let mut seen = std::collections::HashSet::new();
    found.retain(|d| d.is_absolute() && seen.insert(d.clone()));
    found
}

/// Returns the files in these directories whose name `wanted` accepts; the first file of each name wins, as for the
/// loader.
pub fn files(directories: &[PathBuf], wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut names = std::collections::HashSet::new();
    for directory in directories {
        let Ok(entries) = fs::read_dir(directory) else { continue };
        let mut here: Vec<_> =
            entries.flatten().filter(|e| e.file_name().to_str().is_some_and(&wanted)).map(|e| e.path()).collect();
        here.sort();
        found.extend(here.into_iter().filter(|p| names.insert(p.file_name().map(OsString::from))));
    }
    found
}

/// Returns the libraries that programs on this machine are likely to load: on the loader's path, and in the Python
/// packages of the system, of usual prefixes, of users, and of the running Pythons.
pub fn installed(wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let mut all = directories(None, None);
    all.extend(python_prefixes().iter().flat_map(|prefix| packages(prefix)));
    let mut found = Vec::new();
    let mut seen = std::collections::HashSet::new();
    for directory in all {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let mut here: Vec<PathBuf> = entries
            .filter(|entry| entry.file_name().to_str().is_some_and(&wanted))
            .filter_map(|entry| fs::canonicalize(entry.path()).ok())
            .filter(|path| path.is_file() && seen.insert(path.clone()))
            .take(MOST_INSTALLED - found.len())
            .collect();
        here.sort();
        found.extend(here);
    }
    found
}

/// Returns the prefixes where Pythons or their packages are installed.
fn python_prefixes() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = ["/usr", "/usr/local", "/opt"].map(PathBuf::from).to_vec();
    found.extend(subdirectories(Path::new("/opt"), ""));
    let mut homes = subdirectories(Path::new("/home"), "");
    homes.push("/root".into());
    for home in homes {
        found.extend([".local", "venv", ".venv"].map(|name| home.join(name)));
        for name in ["miniconda", "anaconda", "miniforge", "mambaforge"] {
            let conda = subdirectories(&home, name);
            found.extend(conda.iter().flat_map(|conda| subdirectories(&conda.join("envs"), "")));
            found.extend(conda);
        }
    }
    let running = procfs::all().into_iter().filter_map(|pid| fs::read_link(format!("/proc/{pid}/exe")).ok());
    found.extend(running.filter(|p| is_python(p)).filter_map(|python| Some(python.parent()?.parent()?.to_owned())));
    let mut seen = std::collections::HashSet::new();
    found.retain(|prefix| seen.insert(prefix.clone()));
    found
}

/// Returns the library directories that the program itself names.
fn run_paths(program: &Path) -> Vec<PathBuf> {
    let Ok(file) = probes::open(program) else { return Vec::new() };
    let origin = fs::canonicalize(program).ok().and_then(|p| p.parent().map(Path::to_owned)).unwrap_or_default();
    let texts = Elf::read(&file).and_then(|elf| elf::dynamic_strings(&elf, &file)).unwrap_or_default();
    let expand = |path: &str| {
        let origin = origin.to_string_lossy();
        PathBuf::from(path.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin))
    };
    texts.iter().flat_map(|text| text.split(':').filter(|p| !p.is_empty()).map(expand).collect::<Vec<_>>()).collect()
}

/// Returns a file's contents, if it is a regular file of at most `most` bytes.
fn read_head(path: &Path, most: u64) -> Option<Vec<u8>> {
    let file = probes::open(path).ok()?;
    if file.metadata().ok()?.len() > most {
        return None;
    }
    let mut data = Vec::new();
    file.take(most).read_to_end(&mut data).ok()?;
    Some(data)
}

/// Returns the library directories of Python wheels with CUDA libraries: `site-packages/nvidia/*/lib`.
fn python_packages(program: &Path) -> Vec<PathBuf> {
    let python = if is_python(program) { Some(program.to_owned()) } else { interpreter(program) };
    let Some(python) = python.filter(|p| is_python(p)) else { return Vec::new() };
    // The directory of the link (a virtual environment), then that of its target (the base installation).
    let prefixes = [Some(python.clone()), fs::canonicalize(&python).ok()];
    let prefixes = prefixes.iter().flatten().filter_map(|p| p.parent()?.parent());
    prefixes.flat_map(packages).collect()
}

/// Returns the library directories in the packages of the Pythons under a prefix.
fn packages(prefix: &Path) -> Vec<PathBuf> {
    let mut found = vec![prefix.join("lib")];
    for lib in ["lib", "lib64", "local/lib"] {
        for version in subdirectories(&prefix.join(lib), "python3") {
            for packages in ["site-packages", "dist-packages"] {
                let packages = version.join(packages);
                found.push(packages.join("torch/lib"));
                found.extend(subdirectories(&packages.join("nvidia"), "").iter().map(|d| d.join("lib")));
            }
        }
    }
    let dist = prefix.join("lib/python3/dist-packages/nvidia");
    found.extend(subdirectories(&dist, "").iter().map(|d| d.join("lib")));
    found
}

fn subdirectories(directory: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter(|e| e.file_name().as_bytes().starts_with(prefix.as_bytes())).map(|e| e.path()).take(256).collect()
}

fn is_python(program: &Path) -> bool {
    program.file_name().is_some_and(|name| name.as_bytes().starts_with(b"python"))
}

/// Returns the interpreter of a script: from its `#!` line, also through `env`.
fn interpreter(program: &Path) -> Option<PathBuf> {
    let mut line = Vec::new();
    BufReader::new(elf::open(program).ok()?.take(256)).read_until(b'\n', &mut line).ok()?;
    let line = String::from_utf8_lossy(line.strip_prefix(b"#!")?).into_owned();
    let mut words = line.split_whitespace();
    let first = Path::new(words.next()?);
    if first.file_name() == Some(OsStr::new("env")) {
        return self::program(words.find(|w| !w.starts_with('-'))?.as_ref());
    }
    Some(first.to_owned())
}

/// Returns the directories in the loader's cache.
fn cached() -> Vec<PathBuf> {
    let data = read_head(Path::new("/etc/ld.so.cache"), 64 << 20).unwrap_or_default();
    let is_cuda = |path: &&String| path.contains("/libcuda") || path.contains("/libnvidia");
    let files = cached_files(&data);
    let mut found: Vec<PathBuf> =
        files.iter().filter(is_cuda).filter_map(|p| Path::new(p).parent().map(Path::to_owned)).collect();
    found.sort();
    found.dedup();
    found
}

/// Returns the libraries in the loader's cache whose path `wanted` accepts.
pub fn cached_libraries(wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let data = read_head(Path::new("/etc/ld.so.cache"), 64 << 20).unwrap_or_default();
    cached_files(&data).into_iter().filter(|path| wanted(path)).map(PathBuf::from).collect()
}

/// Returns the files in the loader's cache: a header, then entries of 24 bytes whose third word is the position of the
/// path.
fn cached_files(data: &[u8]) -> Vec<String> {
    const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
    const HEADER: usize = 48;
    const ENTRY: usize = 24;
    let word = |at: usize| Some(u32::from_ne_bytes(data.get(at..at + 4)?.try_into().ok()?));
    if !data.starts_with(MAGIC) {
        return Vec::new();
    }
    let entries = word(MAGIC.len()).unwrap_or(0).min(1 << 16) as usize;
    let path = |index: usize| {
        let text = data.get(word(HEADER + index * ENTRY + 8)? as usize..)?;
        let length = text.iter().position(|b| *b == 0)?;
        std::str::from_utf8(&text[..length]).ok().map(str::to_owned)
    };
    (0..entries).filter_map(path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a broken cache yields no files.
    #[test]
    fn broken_caches_yield_no_files() {
        assert!(cached_files(b"").is_empty());
        let mut data = b"glibc-ld.so.cache1.1".to_vec();
        data.extend(u32::MAX.to_ne_bytes());
        data.resize(400, 0xff);
        assert!(cached_files(&data).is_empty());
    }

    /// Check that the first directory wins, as for the loader.
    #[test]
    fn the_first_file_of_each_name_wins() {
        let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (directory, name) in [(&a, "libcuda.so.1"), (&b, "libcuda.so.1"), (&b, "libcudart.so.13"), (&b, "other.so")]
        {
            fs::write(directory.path().join(name), "").unwrap();
        }
        let found = files(&[a.path().into(), b.path().into()], |name| name.starts_with("libcuda"));
        assert_eq!(found, [a.path().join("libcuda.so.1"), b.path().join("libcudart.so.13")]);
    }

    /// Check that the packages of every version under a prefix are searched.
    #[test]
    fn packages_of_every_version_are_found() {
        let prefix = tempfile::tempdir().unwrap();
        for directory in
            ["lib/python3.12/site-packages/nvidia/cuda_runtime/lib", "lib64/python3.9/dist-packages/torch/lib"]
        {
            fs::create_dir_all(prefix.path().join(directory)).unwrap();
            assert!(packages(prefix.path()).contains(&prefix.path().join(directory)), "{directory}");
        }
    }

    /// Check that the interpreter is read from the first line of a script.
    #[test]
    fn interpreters_are_read_from_the_first_line() {
        let script = tempfile::NamedTempFile::new().unwrap();
        fs::write(script.path(), "#!/opt/venv/bin/python3.12 -u\nprint()\n").unwrap();
        assert_eq!(interpreter(script.path()), Some("/opt/venv/bin/python3.12".into()));
        fs::write(script.path(), "\u{7f}ELF").unwrap();
        assert_eq!(interpreter(script.path()), None);
    }
}
