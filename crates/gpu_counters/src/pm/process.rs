//! The process that samples, from its first instruction. Whoever can run warpscope can start it, with any arguments and any
//! environment.
//!
//! A binary with file capabilities has them in this process, too. So it decides for itself, before anything is loaded: root
//! loads only what nobody else can change, and everybody else loads without capabilities.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs, io,
    path::PathBuf,
    process::ExitCode,
};

use rustix::process::{Signal, geteuid, set_parent_process_death_signal};

use super::{sampling, trust::trusted};
use crate::simulated;

/// The first argument of the process that samples, and of one that only checks. They are no commands for users, and have no
/// help.
pub const SAMPLE: &str = "sample-counters";
pub const CHECK: &str = "check-counters";
/// The second argument: which libcuda is loaded. The third is the path of libcupti; without it, the simulated GPU's is loaded.
pub const DRIVER: &str = "driver";
pub const SIMULATED: &str = "simulated";
/// In the environment of a program: the GPUs that it sees.
pub const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";
/// The script of the simulated GPU.
pub const SCRIPT: &str = "WARPSCOPE_SIM";
/// Nanoseconds between two samples.
const INTERVAL: u64 = 1_000_000;

/// Samples or checks if the arguments of this process request it. `None` if they do not.
pub fn run_if_named(mut arguments: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    let what = arguments.nth(1).filter(|name| name == SAMPLE || name == CHECK)?;
    let simulated = arguments.next().is_some_and(|name| name == SIMULATED);
    let done = run(&what, simulated, arguments.next().map(PathBuf::from));
    Some(if done.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn run(what: &OsStr, simulated: bool, library: Option<PathBuf>) -> io::Result<()> {
    let root = geteuid().is_root();
    if !root {
        sandbox::drop_capabilities()?;
    }
    clear_environment();
    // It ends when its standard input is closed; this is for a library that hangs.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let library = match library {
        Some(path) if root => match trusted(&path) {
            Some(path) => path,
            None => return sampling::refuse(),
        },
        Some(path) => fs::canonicalize(path)?,
        None => simulated::library("libcupti.so.13")?,
    };
    env::set_current_dir("/")?;
    let driver = if simulated { simulated::library("libcuda.so.1")? } else { "libcuda.so.1".into() };
    if what == CHECK { sampling::check(&driver, &library) } else { sampling::run(&driver, &library, INTERVAL) }
}

/// Removes all variables but two. Some make the driver load a library, such as `CUDA_INJECTION64_PATH`.
fn clear_environment() {
    let kept = [VISIBLE, SCRIPT].map(|name| (name, env::var_os(name)));
    // SAFETY: no other thread exists yet.
    unsafe {
        libc::clearenv();
        for (name, value) in kept {
            if let Some(value) = value {
                env::set_var(name, value);
            }
        }
    }
}
