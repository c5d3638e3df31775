//! Chooses the libcupti for PM sampling, and who loads it.
//!
//! Root's rights are for files that only root can change. Any other library, such as one from pip in a home directory, runs
//! with the rights of the user who called sudo. The process that loads it checks this again ([`crate::pm::process`]).

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use sandbox::user::User;

use crate::pm::{
    search::{self, host},
    trust::trusted,
};

/// What the choice depends on.
struct Surroundings<'a> {
    /// The GPU is simulated.
    simulated: bool,
    /// The recorded program.
    program: Option<&'a Path>,
    /// The user who called sudo.
    user: Option<&'a User>,
}

/// The libraries, and who loads them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// libcupti; `None` for that of the simulated GPU.
    pub library: Option<PathBuf>,
    /// libcuda is that of the simulated GPU.
    pub simulated: bool,
    /// Only root can change libcupti.
    pub trusted: bool,
    /// Otherwise, the user who loads it, if that is not ours.
    pub user: Option<User>,
}

impl Choice {
    /// Chooses for a recorded program; the error says what is missing.
    pub fn for_program(program: Option<&Path>, simulator: Option<&Path>) -> Result<Self, String> {
        let of_process = |path: &Path| fs::read_link(path).ok().filter(|_| path.starts_with("/proc"));
        let program = program.map(|path| of_process(path).unwrap_or_else(|| path.to_owned()));
        let user = User::behind_sudo();
        let simulated = simulator.is_some();
        Self::new(&Surroundings { simulated, program: program.as_deref(), user: user.as_ref() })
    }

    /// Chooses; the error says what is missing.
    fn new(around: &Surroundings<'_>) -> Result<Self, String> {
        let variable = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let simulated = around.simulated;
        let named = variable(search::OVERRIDE);
        if simulated && named.is_none() {
            return Ok(Self { library: None, simulated, trusted: true, user: None });
        }
        let home = around.user.and_then(|user| user.home.as_deref()).map(Path::new);
        let found = match named {
            Some(path) if !path.exists() => {
                return Err(format!("{} names no file: {}", search::OVERRIDE, path.display()));
            }
            Some(path) => vec![path],
            None => search::libraries(&search::environments(&variable, around.program, home)),
        };
        let complete = |library: &&PathBuf| simulated || host(library).is_some();
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
            return Ok(Self { library: Some(library), simulated, trusted: true, user: None });
        }
        Ok(Self { library: Some(first.clone()), simulated, trusted: false, user: around.user.cloned() })
    }
}
