//! Chooses the libcupti for PM sampling, and with whose rights it is loaded.
//!
//! Root's rights are for files that only root can change. Any other library, such as one from pip in a home directory, runs
//! with the rights of the user who called sudo.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use pm::{search, trust::owned_by_root};

use crate::{calls, command::user::User};

/// What the choice depends on.
struct Surroundings<'a> {
    /// The directory of the simulated GPU.
    simulator: Option<&'a Path>,
    /// The recorded program.
    program: Option<&'a Path>,
    /// The user who called sudo.
    user: Option<&'a User>,
    /// Whether we are root.
    root: bool,
}

/// The libraries, and who loads them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// libcupti.
    pub library: PathBuf,
    /// libcuda.
    pub driver: PathBuf,
    /// Only root can change it: it is loaded with our rights.
    pub trusted: bool,
    /// Otherwise, with those of this user.
    pub user: Option<User>,
    /// The script of the simulated GPU.
    pub script: Option<OsString>,
}

impl Choice {
    /// Chooses for a recorded program; the error says what is missing.
    pub fn for_program(program: &OsString, simulator: Option<&Path>) -> Result<Self, String> {
        let program = calls::search::program(program)
            .map(|path| fs::read_link(&path).ok().filter(|_| path.starts_with("/proc")).unwrap_or(path));
        let user = User::behind_sudo();
        let root = rustix::process::geteuid().is_root();
        Self::new(&Surroundings { simulator, program: program.as_deref(), user: user.as_ref(), root })
    }

    /// Chooses; the error says what is missing.
    fn new(around: &Surroundings<'_>) -> Result<Self, String> {
        let variable = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let script = around.simulator.and_then(|_| env::var_os("WARPSCOPE_SIM"));
        let driver = around.simulator.map_or("libcuda.so.1".into(), |directory| directory.join("libcuda.so.1"));
        let named = variable(search::OVERRIDE);
        if let (Some(directory), None) = (around.simulator, &named) {
            // Our own file in our own directory.
            let library = directory.join("libcupti.so.13");
            return Ok(Self { library, driver, trusted: true, user: None, script });
        }
        let home = around.user.and_then(|user| user.home.as_deref()).map(Path::new);
        let found = match named {
            Some(path) if !path.exists() => {
                return Err(format!("{} names no file: {}", search::OVERRIDE, path.display()));
            }
            Some(path) => vec![path],
            None => search::libraries(&search::environments(&variable, around.program, home)),
        };
        let complete = |library: &&PathBuf| around.simulator.is_some() || host(library).is_some();
        let Some(first) = found.iter().find(complete) else {
            return Err(match found.first() {
                Some(library) => format!("PM sampling needs {} beside {}", search::HOST, library.display()),
                None => {
                    "no libcupti for PM sampling was found: install the CUDA toolkit's CUPTI, or set WARPSCOPE_CUPTI \
                         to the library's path"
                        .into()
                }
            });
        };
        if let Some(library) = found.iter().filter(complete).find_map(|library| trusted(library)) {
            return Ok(Self { library, driver, trusted: true, user: None, script });
        }
        if around.root && around.user.is_none() {
            return Err(format!(
                "{} is not loaded as root because others than root can change it: install the CUDA toolkit's CUPTI, or \
                 make its files and directories root's",
                first.display()
            ));
        }
        Ok(Self { library: first.clone(), driver, trusted: false, user: around.user.cloned(), script })
    }
}

/// Returns the library that libcupti loads, if it is there.
fn host(library: &Path) -> Option<PathBuf> {
    let library = fs::canonicalize(library).ok()?;
    Some(library.parent()?.join(search::HOST)).filter(|host| host.exists())
}

/// Returns the file of a library that only root can change, as well as the one that it loads.
fn trusted(library: &Path) -> Option<PathBuf> {
    let file = owned_by_root(library)?;
    match host(&file) {
        Some(host) => owned_by_root(&host).map(|_| file),
        None => Some(file),
    }
}
