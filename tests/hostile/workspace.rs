//! Attacks on the private directory of a recording, which holds a library that other users load and a socket that they use.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink},
    path::Path,
};

use crate::support::{
    Ended, Running, Scene,
    attacker::{Attacker, with_sudo},
};

/// The injected library that the command was given.
fn library(run: &Ended) -> &Path {
    let line = run.out().lines().find_map(|line| line.strip_prefix("CUDA_INJECTION64_PATH="));
    Path::new(line.expect("the variable"))
}

/// Check that no file of root's changes if TMPDIR is a directory of the attacker's, in which a program replaces every new file
/// with links to that file. A `chmod` by warpscope used to follow such a link: the file's mode became 0666 or 0711.
#[test]
fn temporary_directory_of_the_attacker_is_not_used() {
    let (scene, attacker) = (Scene::new(), Attacker::new());
    let script = r#"echo ready
while :; do
    for d in "$PWD"/warpscope*; do
        [ -e "$d" ] && mv "$d" "$d.moved" && ln -s "$0" "$d" && mkdir -p other && ln -sfn "$0" other/socket
    done
done"#;
    let mut race = Running::start(attacker.command("sh").args(["-c", script]).arg(attacker.secret()));
    assert_eq!(race.stdout_line(), "ready");
    for _ in 0..10 {
        let mut record = scene.record("--sim -q -o x.svg", "env");
        let run = Ended::of(with_sudo(&mut record).env("TMPDIR", attacker.path(""))).exits(0);
        assert!(!library(&run).starts_with(attacker.path("")), "{}", library(&run).display());
        attacker.secret_is_untouched();
    }
    drop(race);
    assert_eq!(fs::read_dir(attacker.path("")).expect("it is there").count(), 0, "something was created in TMPDIR");
}

/// Check that temporary directories are skipped if other users may rename their contents or those of a parent directory.
#[test]
fn directories_that_others_may_change_are_skipped() {
    let (scene, attacker) = (Scene::new(), Attacker::new());
    let inner = attacker.path("inner");
    fs::create_dir(&inner).expect("a directory");
    let open = scene.path("open");
    fs::create_dir(&open).expect("a directory");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).expect("it is ours");
    symlink(attacker.path(""), scene.path("link")).expect("a link");
    for temporary in [&inner, &open, &scene.path("link"), &scene.path("missing")] {
        let run = Ended::of(scene.record("-q -o x.svg", "env").env("TMPDIR", temporary)).exits(0);
        assert!(library(&run).to_string_lossy().starts_with("/tmp/warpscope."), "{}", library(&run).display());
    }
    let run = Ended::of(&mut scene.record("-q -o x.svg", "env")).exits(0);
    assert!(library(&run).starts_with(scene.temporary()), "{}", library(&run).display());
}

/// Check that a run removes what a killed run left, and nothing else: no directory in use, no directory of another user, and
/// nothing behind a link.
#[test]
fn only_leftovers_of_killed_runs_are_removed() {
    let (scene, attacker) = (Scene::new(), Attacker::new());
    // The command ends when the other end of the pipe is closed.
    let waiting = || {
        let (stdin, end) = std::io::pipe().expect("a pipe");
        let mut command = scene.record_words("--sim -q -o x.svg", &["sh", "-c", "echo ready; exec cat"]);
        let mut run = Running::start(command.stdin(stdin));
        assert_eq!(run.stdout_line(), "ready");
        (run, end)
    };
    let names = || {
        let entries = fs::read_dir(scene.temporary()).expect("it is there");
        let mut names: Vec<_> = entries.map(|entry| entry.expect("it can be read").file_name()).collect();
        names.sort();
        names
    };
    let (killed, end) = waiting();
    let left = names();
    killed.signal(libc::SIGKILL);
    drop(end);
    killed.wait().dies_of(libc::SIGKILL);
    assert_eq!((names(), left.len()), (left.clone(), 1));

    let (theirs, link) = ("warpscope.0123456789abcdef", "warpscope.fedcba9876543210");
    fs::create_dir(scene.temporary().join(theirs)).expect("a directory");
    let uid = fs::metadata(attacker.path("")).expect("it is there").uid();
    chown(scene.temporary().join(theirs), Some(uid), None).expect("root may do that");
    symlink(attacker.secret().parent().expect("a directory"), scene.temporary().join(link)).expect("a link");

    let (in_use, end) = waiting();
    let both = names();
    assert!(both.len() == 3 && !both.contains(&left[0]), "{both:?}, and {left:?} was left");
    Ended::of(&mut scene.record("-q -o y.svg", "true")).exits(0);
    assert_eq!(names(), both);
    drop(end);
    in_use.wait().exits(0);
    attacker.secret_is_untouched();
    assert_eq!(names(), [theirs, link]);
    fs::remove_dir(scene.temporary().join(theirs)).expect("still there");
    fs::remove_file(scene.temporary().join(link)).expect("still there");
}
