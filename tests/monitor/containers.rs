//! Processes in other mount namespaces.

use std::{fs, process::Command};

use super::exact::assert_work;
use crate::support::{
    Scene,
    monitor::{Monitor, Watched},
    programs, wait_until,
};

/// Runs the program in a root of its own in memory, with copies of it and all its libraries.
const CONTAINER: &str = r#"
    set -e
    mount -t tmpfs none "$1"
    mkdir "$1/lib" "$1/lib64"
    cp "$2" "$1/program"
    ldd "$2" | grep -o '/[^ ]*' | while read -r library; do cp -L "$library" "$1/lib/"; done
    cp -L /lib64/ld-linux-x86-64.so.2 "$1/lib64/"
    LD_LIBRARY_PATH=/lib exec chroot "$1" /program
"#;

/// Runs the program with the same files under another path.
const ALIAS: &str = r#"
    set -e
    mount --bind "$1" "$2"
    LD_LIBRARY_PATH="$2" exec "$3"
"#;

fn unshared(scene: &Scene, script: &str, arguments: &[&str]) -> Command {
    let mut command = scene.bare("unshare");
    command
        .args(["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "sh", "-c", script, "sh"])
        .args(arguments)
        .arg(programs::program("watched"))
        .env("LD_LIBRARY_PATH", programs::libraries());
    scene.grouped(command)
}

/// The pid, in our namespace, of the process that `unshared` runs.
fn inside(unshare: &Watched) -> u32 {
    let pid = unshare.pid();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("it runs");
    children.trim().parse().expect("one child")
}

/// Check that a process with its own mounts, pids and root is counted exactly, and that its lines have names, although its files
/// cannot be reached by their paths. A second process there has the same files, which are watched only once.
#[test]
fn processes_in_another_root_are_counted() {
    let scene = Scene::new();
    let monitor = Monitor::start(&scene, "");
    fs::create_dir(scene.path("root")).expect("a directory");
    let mut first = Watched::of(&mut unshared(&scene, CONTAINER, &[&scene.text("root")]));
    let pid = inside(&first).to_string();
    wait_until("its libraries are watched", || {
        first.does("launch 1");
        monitor.scrape().any(&[("pid", &pid)])
    });
    assert!(!scene.path("root/lib").exists(), "its files are not visible outside");

    let mut command = scene.bare("nsenter");
    command.args(["--target", &pid, "--mount", "--root", "--wd=/", "/program"]).env("LD_LIBRARY_PATH", "/lib");
    let mut second = Watched::of(&mut scene.grouped(command));
    let pid = second.pid().to_string();
    second.does("work");
    assert_work(&monitor.scrape(), second.pid());
    second.does("leak 3");
    let line = [("pid", pid.as_str()), ("site", "forget_to_free (watched.c:30)")];
    wait_until("the leak has a name", || monitor.scrape().any(&line));
    assert_eq!(monitor.scrape().one("warpscope_memory_suspect_bytes", &line), f64::from(3 << 20));
    second.end();
    first.end();
    let log = monitor.stop();
    for library in ["/lib/libcuda.so.1", "/lib/libcudart.so.13"] {
        let found = format!("warpscope: {library} was probed ");
        assert_eq!(log.err().matches(&found).count(), 1, "{library} is watched once: {}", log.err());
    }
}

/// Check that one file under two paths is watched once, so no call is counted twice.
#[test]
fn files_under_two_paths_are_counted_once() {
    let scene = Scene::new();
    let (monitor, _pilot) = Monitor::with_pilot(&scene, "");
    fs::create_dir(scene.path("alias")).expect("a directory");
    let real = programs::libraries();
    let arguments = [real.to_str().expect("a path"), &scene.text("alias")];
    let mut worker = Watched::of(&mut unshared(&scene, ALIAS, &arguments));
    worker.does("work");
    let pid = inside(&worker);
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("it runs");
    assert!(maps.contains("/alias/libcuda"), "{maps}");
    assert_work(&monitor.scrape(), pid);
    worker.end();
    let log = monitor.stop();
    assert!(!log.err().contains("/alias/"), "nothing there is watched again: {}", log.err());
}
