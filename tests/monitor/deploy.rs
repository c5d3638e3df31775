//! Checks the files of `deploy/` on this machine.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    process::Command,
};

use super::exact::assert_work;
use crate::support::{
    Ended, Scene,
    monitor::{Monitor, Watched},
    programs::{self, WARPSCOPE},
    wait_until,
};

/// A user that exists on every system.
const NOBODY: u32 = 65534;

fn unit() -> String {
    fs::read_to_string(deployed("warpscope-monitor.service")).expect("the unit is there")
}

/// The path of a file of `deploy/`.
pub fn deployed(name: &str) -> PathBuf {
    programs::sources().join("../deploy").join(name)
}

/// The capabilities of `unit` as options of setpriv: root with only these capabilities, which it cannot regain.
fn setpriv(unit: &str) -> Vec<String> {
    let granted = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=")).expect("capabilities");
    let granted: String =
        granted.split(' ').map(|name| format!(",+{}", &name.to_lowercase()["cap_".len()..])).collect();
    vec![format!("--bounding-set=-all{granted}"), "--inh-caps=-all".into(), "--no-new-privs".into()]
}

/// Check that the capabilities which the unit grants are enough to count another user's process exactly, and to name its lines
/// from a file that only its owner may read.
#[test]
fn unit_capabilities_are_enough() {
    let scene = Scene::new();
    let mut command = scene.bare("setpriv");
    command.args(setpriv(&unit())).args([WARPSCOPE, "monitor", "--metrics-addr", "127.0.0.1:0"]);
    command.args(["--display-interval", "0"]);
    command.args(scene.group().map(|group| format!("--cgroup={}", group.path().display())));
    let monitor = Monitor::of(&mut command);
    // Other users may have no access to the build directory.
    fs::create_dir(scene.path("theirs")).expect("a directory");
    let copy = |from: &Path, name: &str| {
        let to = scene.path("theirs").join(name);
        programs::copy(from, &to);
        chown(&to, Some(NOBODY), Some(NOBODY)).expect("we are root");
        fs::set_permissions(&to, fs::Permissions::from_mode(0o700)).expect("we are root");
    };
    copy(programs::program("watched").as_ref(), "watched");
    for library in ["libcuda.so.1", "libcudart.so.13"] {
        copy(&programs::libraries().join(library), library);
    }
    let start = || {
        let mut command = scene.grouped(scene.bare("setpriv"));
        command.args([format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"), "--clear-groups".into()]);
        Watched::of(command.arg(scene.path("theirs/watched")).env("LD_LIBRARY_PATH", scene.path("theirs")))
    };
    let mut pilot = start();
    let pid = pilot.pid().to_string();
    wait_until("its libraries are watched", || {
        pilot.does("launch 1");
        monitor.scrape().any(&[("pid", &pid)])
    });
    let mut worker = start();
    let pid = worker.pid().to_string();
    worker.does("work");
    assert_work(&monitor.scrape(), worker.pid());
    worker.does("leak 3");
    let line = [("pid", pid.as_str()), ("user", "nobody"), ("site", "forget_to_free (watched.c:30)")];
    wait_until("the leak has a name", || monitor.scrape().any(&line));
    worker.end();
    pilot.end();
    monitor.stop();
}

/// Check that, without one of the two capabilities that eBPF needs, the monitor says what is missing.
#[test]
fn missing_capabilities_are_reported() {
    let scene = Scene::new();
    for missing in ["CAP_BPF", "CAP_PERFMON"] {
        let unit = unit().replace(&format!("{missing} "), "");
        let mut command = scene.bare("setpriv");
        Ended::of(command.args(setpriv(&unit)).args([WARPSCOPE, "monitor", "--metrics-addr", "127.0.0.1:0"]))
            .exits(1)
            .says(&["root", "CAP_BPF", "CAP_PERFMON"]);
    }
}

/// Check that systemd accepts the unit without warnings.
#[test]
fn systemd_accepts_the_unit() {
    let scene = Scene::new();
    let file = scene.path("warpscope-monitor.service");
    fs::write(&file, unit().replace("/usr/local/bin/warpscope", WARPSCOPE)).expect("a file");
    let output = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&file).output();
    let output = output.expect("systemd-analyze is missing: install Debian's systemd");
    let warnings = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !warnings.contains("warpscope-monitor"), "{warnings}");
}
