//! "no GPU work was recorded" always comes with a reason, and the command is unharmed.

use std::{fs, process::Command};

use crate::support::{
    Ended, Scene,
    attacker::{id, with_sudo},
    program, programs,
    scene::number,
};

/// The report's reason, and its notes.
#[track_caller]
fn reason(scene: &Scene) -> (String, String) {
    let report = scene.report("x.wscope");
    assert_eq!(number(&report, "kernels"), 0);
    (report["no_gpu_work"].as_str().unwrap_or_default().to_owned(), report["notes"].to_string())
}

/// Runs long enough for the process to be inspected.
const LOOP: [&str; 2] = ["loop", "0.5"];

/// Records a command on the simulated GPU, and asserts that the notes contain these words.
#[track_caller]
fn assert_explained(words: &[&str], command: &[&str]) {
    let scene = Scene::new();
    let run = Ended::of(&mut scene.record_words("--sim -o x.wscope", command)).exits(0);
    assert!(run.err().contains("no GPU work was recorded: see the notes above"), "{}", run.err());
    let (_, notes) = reason(&scene);
    assert_eq!(notes.matches("no GPU activity from process").count(), 1, "{notes}");
    for word in words {
        assert!(notes.contains(word), "`{word}` is not in: {notes}");
    }
}

/// Check a program that does not use CUDA.
#[test]
fn programs_without_cuda_are_explained() {
    let scene = Scene::new();
    let run = Ended::of(&mut scene.record("-o x.wscope", "true")).exits(0);
    assert!(run.err().contains("no GPU work was recorded: no process loaded libcuda"), "{}", run.err());
    let run = Ended::of(&mut scene.record("--cpu-only -o x.wscope", "true")).exits(0);
    assert!(!run.err().contains("no GPU work"), "{}", run.err());
}

/// Check a program that initialises CUDA and launches nothing, and one that loads libcuda and never calls it.
#[test]
fn programs_without_launches_are_explained() {
    let scene = Scene::new();
    Ended::of(&mut scene.record("--sim -q -o x.wscope", &format!("{} init", program("behave")))).exits(42);
    assert_eq!(reason(&scene).0, "CUDA was initialised, but nothing was launched");
    let run = Ended::of(&mut scene.record("--sim -o x.wscope", &format!("{} none", program("behave")))).exits(0);
    assert!(run.err().contains("see the notes above"), "{}", run.err());
    assert!(reason(&scene).1.contains("never called cuInit"), "{}", reason(&scene).1);
}

/// Check a seccomp filter that kills on socket(). The injected library used to call it, and the program died.
#[test]
fn seccomp_filters_are_explained() {
    assert_explained(&["seccomp filter of its own"], &[&program("sandboxed"), &program("behave"), LOOP[0], LOOP[1]]);
}

/// Check that a filter that warpscope runs under too, as in a container, makes no difference.
#[test]
fn seccomp_around_warpscope_is_harmless() {
    let scene = Scene::new();
    let script = "import ctypes, os, sys\n\
        libc = ctypes.CDLL(None, use_errno=True)\n\
        code = (ctypes.c_uint64 * 1)(0x7fff000000000006)\n\
        prog = (ctypes.c_uint64 * 2)(1, ctypes.addressof(code))\n\
        assert libc.prctl(22, 2, prog) == 0, os.strerror(ctypes.get_errno())\n\
        os.execv(sys.argv[1], sys.argv[1:])";
    let mut command = scene.bare("python3");
    let behave = program("behave");
    command.args([
        "-c",
        script,
        programs::WARPSCOPE,
        "record",
        "--sim",
        "-q",
        "-o",
        "x.wscope",
        "--",
        &behave,
        "status",
    ]);
    Ended::of(&mut command).exits(42);
    assert_eq!(number(&scene.report("x.wscope"), "matched"), 1);
}

/// Check that missing injection variables are reported, whether the caller or the program itself removed them.
#[test]
fn removed_variables_are_explained() {
    let behave = program("behave");
    let gone = "CUDA_INJECTION64_PATH is not in its environment";
    assert_explained(&[gone], &["env", "-u", "CUDA_INJECTION64_PATH", &behave, LOOP[0], LOOP[1]]);
    assert_explained(&["was replaced"], &["env", "CUDA_INJECTION64_PATH=/other.so", &behave, LOOP[0], LOOP[1]]);
    assert_explained(&["WARPSCOPE_SOCKET is not in its environment"], &[&behave, "forgetful", "WARPSCOPE_SOCKET"]);
    assert_explained(&["it changed CUDA_INJECTION64_PATH"], &[&behave, "forgetful", "CUDA_INJECTION64_PATH"]);
}

/// Check a process without free descriptors: with none, no library can be loaded; one is not enough for CUPTI.
#[test]
fn missing_descriptors_are_explained() {
    let behave = program("behave");
    let starve = |left: &str| format!("ulimit -n 64; exec {behave} starve {left}");
    assert_explained(&["no descriptors left (its limit is 64)"], &["sh", "-c", &starve("0")]);
    assert_explained(&["libcupti was not found", "Too many open files"], &["sh", "-c", &starve("1")]);
}

/// Check a mount namespace in which the library is not visible.
#[test]
fn mount_namespaces_are_explained() {
    let scene = Scene::new();
    let script = format!("mount -t tmpfs none $TMPDIR && exec {} loop 0.5", program("behave"));
    let mut command = scene.record_words("-o x.wscope", &["unshare", "-m", "sh", "-c", &script]);
    Ended::of(command.env("LD_LIBRARY_PATH", programs::libraries())).exits(0);
    let (why, notes) = reason(&scene);
    assert_eq!(why, "see the notes above");
    assert!(notes.contains("chroot or mount namespace in which") && notes.contains("is not visible"), "{notes}");
}

/// Check a chroot in which the library is not visible. The program and its libraries are copied there.
#[test]
fn chroots_are_explained() {
    let scene = Scene::new();
    let root = scene.path("root");
    fs::create_dir(&root).expect("a directory");
    let behave = program("behave");
    let script = "set -e; cp \"$1\" \"$2/behave\"
        LD_LIBRARY_PATH=\"$3\" ldd \"$1\" | grep -o '/[^ ]*' | while read -r file; do
            mkdir -p \"$2$(dirname \"$file\")\" && cp -L \"$file\" \"$2$file\"
        done
        mkdir -p \"$2$3\" && cp -rL \"$3/.\" \"$2$3\"";
    let libraries = programs::libraries();
    programs::run(Command::new("sh").args(["-c", script, "sh", &behave]).arg(&root).arg(&libraries));
    let root = root.to_str().expect("text");
    let mut command = scene.record_words("-o x.wscope", &["chroot", root, "/behave", LOOP[0], LOOP[1]]);
    Ended::of(command.env("LD_LIBRARY_PATH", &libraries)).exits(0);
    let (why, notes) = reason(&scene);
    assert_eq!(why, "see the notes above");
    assert!(notes.contains("chroot or mount namespace in which") && notes.contains("is not visible"), "{notes}");
}

/// Check a process with too little address space for the library's buffers.
#[test]
fn address_space_limits_are_explained() {
    assert_explained(
        &["address space"],
        &["sh", "-c", &format!("ulimit -v 100000; exec {} loop 0.5", program("behave"))],
    );
}

/// Records a program of a user who called sudo, under a wrapper, and asserts that the notes contain these words.
#[track_caller]
fn assert_explained_for_caller(words: &[&str], wrapper: &[&str]) {
    let scene = Scene::new();
    programs::copy(program("behave"), scene.path("behave"));
    let behave = scene.text("behave");
    let command = [wrapper, &[behave.as_str(), "status"]].concat();
    let mut record = scene.record_words("--sim -o x.wscope", &command);
    Ended::of(with_sudo(&mut record)).exits(42);
    let (_, notes) = reason(&scene);
    for word in words {
        assert!(notes.contains(word), "`{word}` is not in: {notes}");
    }
}

/// Check a user namespace without root, and a limit that allows no further thread.
#[test]
fn user_namespaces_and_thread_limits_are_explained() {
    assert_explained_for_caller(&["user namespace"], &["unshare", "-r"]);
    assert_explained_for_caller(&["could not start a thread"], &["prlimit", "--nproc=1"]);
}

/// Check a command of root's that continues as another user, who may not report to root's recording.
#[test]
fn other_users_are_explained() {
    let scene = Scene::new();
    programs::copy(program("behave"), scene.path("behave"));
    let (uid, behave) = (format!("--reuid={}", id("-u")), scene.text("behave"));
    let command = ["setpriv", &uid, "--clear-groups", &behave, "status"];
    Ended::of(&mut scene.record_words("--sim -o x.wscope", &command)).exits(42);
    let (_, notes) = reason(&scene);
    assert!(notes.contains(&format!("it runs as user {}", id("-u"))), "{notes}");
}

/// Check a set-user-id program, on a file system that permits it. Its caller must not choose what it loads.
#[test]
fn set_user_id_programs_are_explained() {
    let scene = Scene::new();
    let directory = scene.text("trusted");
    // With an rpath, because the loader ignores LD_LIBRARY_PATH for such a program.
    let source = programs::sources().join("programs/behave.c");
    programs::run(
        Command::new("cc")
            .args(["-O1", "-o"])
            .args([&scene.path("behave"), &source])
            .arg(format!("-L{}", programs::libraries().display()))
            .args(["-lcudart", "-lcuda", &format!("-Wl,-rpath,{directory}")]),
    );
    let script = r#"mkdir trusted && mount -t tmpfs -o mode=755 none trusted && cp behave "$0"/lib* trusted && \
        chmod 4755 trusted/behave && exec "$@""#;
    let record = [programs::WARPSCOPE, "record", "-o", "x.wscope", "--", "trusted/behave", "loop", "0.5"];
    let mut command = scene.bare("unshare");
    command.args(["-m", "sh", "-c", script]).arg(programs::libraries()).args(record);
    Ended::of(with_sudo(&mut command)).exits(0);
    let (_, notes) = reason(&scene);
    assert!(notes.contains("it gained privileges"), "{notes}");
}
