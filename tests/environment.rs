//! A command starts with the same environment, open files, signals, limits and user as without warpscope.

use std::{
    collections::BTreeMap,
    os::unix::process::CommandExt,
    process::{Command, Stdio},
};

use crate::support::{Ended, Scene, defaults, program, programs};

/// Variables that the injected library needs.
const INJECTION: [&str; 3] = ["CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "WARPSCOPE_SOCKET"];

fn variables(scene: &Scene, command: &mut Command) -> BTreeMap<String, String> {
    command.env("WITH_BLANKS", " a  b ").env("EMPTY", "").env("LD_LIBRARY_PATH", scene.path("somewhere"));
    let run = Ended::of(command).exits(0);
    let pairs = run.out().split_terminator('\0').map(|line| line.split_once('=').expect("NAME=VALUE"));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Check that the environment is unchanged except for the injection variables and, with --sim, the library path.
#[test]
fn environment_variables_are_unchanged() {
    let scene = Scene::new();
    let bare = variables(&scene, scene.bare("env").arg("-0"));

    let cpu_only = variables(&scene, &mut scene.record("-q --cpu-only -o x.svg", "env -0"));
    assert_eq!(cpu_only, bare);

    let mut injected = variables(&scene, &mut scene.record("-q -o x.svg", "env -0"));
    for name in INJECTION {
        assert!(injected.remove(name).is_some_and(|path| path.starts_with('/')), "{name} is missing");
    }
    assert_eq!(injected, bare);

    let mut simulated = variables(&scene, &mut scene.record("-q --sim -o x.svg", "env -0"));
    for name in INJECTION {
        simulated.remove(name);
    }
    let path = simulated.insert("LD_LIBRARY_PATH".into(), scene.text("somewhere")).expect("a library path");
    assert!(path.ends_with(&format!("/sim:{}", scene.text("somewhere"))), "{path}");
    assert_eq!(simulated, bare);
}

/// Starts a command with these signals blocked and ignored.
fn with_signals(command: &mut Command, blocked: &'static [libc::c_int], ignored: &'static [libc::c_int]) {
    // SAFETY: only system calls between fork and exec.
    unsafe {
        command.pre_exec(move || {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in blocked {
                libc::sigaddset(&raw mut set, *signal);
            }
            libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
            for signal in ignored {
                libc::signal(*signal, libc::SIG_IGN);
            }
            Ok(())
        });
    }
}

/// The lines of /proc/PID/status that a process inherits: signals, capabilities, user, umask.
fn inherited(status: &str) -> String {
    let keys = ["Uid:", "Gid:", "Groups:", "Umask:", "Sig", "Shd", "Cap", "NoNewPrivs:", "Seccomp", "Cpus_allowed:"];
    let lines = status.lines().filter(|line| keys.iter().any(|key| line.starts_with(key)));
    // The number of queued signals belongs to the user, not to the process.
    lines.filter(|line| !line.starts_with("SigQ:")).map(|line| format!("{line}\n")).collect()
}

/// What a command inherits without warpscope and with it.
fn inherited_without_and_with(blocked: &'static [libc::c_int], ignored: &'static [libc::c_int]) -> [String; 2] {
    let scene = Scene::new();
    let mut bare = scene.bare("cat");
    bare.arg("/proc/self/status");
    let mut under = scene.record("-q -o x.svg", "cat /proc/self/status");
    [&mut bare, &mut under].map(|command| {
        with_signals(command, blocked, ignored);
        inherited(Ended::of(command).exits(0).out())
    })
}

/// Check that signal mask and dispositions, capabilities, ids and umask are unchanged.
#[test]
fn signals_and_privileges_are_unchanged() {
    let [bare, under] = inherited_without_and_with(&[], &[]);
    assert!(bare.lines().count() >= 12, "{bare}");
    assert_eq!(under, bare);
}

/// Check the same if signals are blocked and ignored from the start, as under nohup or a Python parent.
#[test]
fn blocked_and_ignored_signals_are_unchanged() {
    let blocked = &[libc::SIGUSR1, libc::SIGTERM, libc::SIGCHLD];
    let [bare, under] = inherited_without_and_with(blocked, &[libc::SIGUSR2, libc::SIGHUP, libc::SIGPIPE]);
    let ignored =
        bare.split("SigIgn:\t").nth(1).and_then(|rest| u64::from_str_radix(rest.split('\n').next()?, 16).ok());
    assert_eq!(ignored, Some(0x1801), "{bare}");
    assert_eq!(under, bare);
}

/// Check that limits, priority and working directory are unchanged.
#[test]
fn limits_are_unchanged() {
    let scene = Scene::new();
    let script = "cat /proc/self/limits /proc/self/oom_score_adj /proc/self/cgroup; pwd; nice";
    let bare = Ended::of(scene.bare("sh").args(["-c", script])).exits(0);
    let under = Ended::of(&mut scene.record_words("-q --sim -o x.svg", &["sh", "-c", script])).exits(0);
    assert_eq!(under.out(), bare.out());
}

/// Check that the command has the same open files as without warpscope.
#[test]
fn open_files_are_unchanged() {
    let scene = Scene::new();
    let bare = Ended::of(scene.bare("ls").arg("/proc/self/fd")).exits(0);
    let under = Ended::of(&mut scene.record("-q --sim -o x.svg", "ls /proc/self/fd")).exits(0);
    assert_eq!(under.out(), bare.out());
}

/// Check that children of a CUDA program inherit no descriptors from warpscope, with or without exec.
#[test]
fn children_inherit_no_descriptors_from_warpscope() {
    let scene = Scene::new();
    for how in ["exec", "fork"] {
        let bare = Ended::of(scene.bare_cuda("spawn").arg(how)).exits(0);
        let under = Ended::of(&mut scene.record("-q --sim -o x.svg", &format!("{} {how}", program("spawn")))).exits(0);
        assert_eq!(under.out(), bare.out(), "{how}");
    }
}

/// Check that nothing is loaded into programs that do not use CUDA.
#[test]
fn nothing_is_loaded_into_programs_without_cuda() {
    let scene = Scene::new();
    let script = "cat /proc/self/maps";
    let mut command = scene.record_words("-q -o x.svg", &["sh", "-c", script]);
    let run = Ended::of(command.env("LD_LIBRARY_PATH", programs::libraries())).exits(0);
    assert!(!run.out().contains("warpscope"), "{}", run.out());
}

/// Check that the limit on open files is unchanged, although warpscope raises its own.
#[test]
fn limit_on_open_files_is_unchanged() {
    let scene = Scene::new();
    let limits = |command: &mut Command| {
        let limit = libc::rlimit { rlim_cur: 700, rlim_max: 5000 };
        // SAFETY: a system call between fork and exec.
        unsafe {
            command.pre_exec(move || {
                libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
                Ok(())
            });
        }
        Ended::of(command).exits(0).out().to_owned()
    };
    let words = ["sh", "-c", "ulimit -Sn; ulimit -Hn"];
    assert_eq!(limits(scene.bare(words[0]).args(&words[1..])), "700\n5000\n");
    assert_eq!(limits(&mut scene.record_words("-q --cpu-only -o x.svg", &words)), "700\n5000\n");
}

/// Check that tests start commands under known conditions, whatever conditions the tests run under: nohup ignores SIGHUP, a
/// script's `&` ignores SIGINT and SIGQUIT.
#[test]
fn commands_start_under_known_conditions() {
    let scene = Scene::new();
    let script = "umask; ulimit -Sn; ulimit -Sc; grep -E '^Sig(Blk|Ign)' /proc/self/status";
    let mut command = Command::new("sh");
    with_signals(&mut command, &[libc::SIGTERM], &[libc::SIGHUP, libc::SIGINT, libc::SIGQUIT]);
    // SAFETY: only system calls between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::umask(0o077);
            let limit = libc::rlimit { rlim_cur: 64, rlim_max: 4096 };
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
            Ok(())
        });
    }
    defaults::apply(&mut command);
    command.args(["-c", script]).current_dir(scene.path("")).stdout(Stdio::piped());
    let none = "0000000000000000";
    assert_eq!(Ended::of(&mut command).exits(0).out(), format!("0022\n1024\n0\nSigBlk:\t{none}\nSigIgn:\t{none}\n"));
}
