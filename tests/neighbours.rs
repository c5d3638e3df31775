//! Other users of the machine: several warpscopes, other CUPTI clients, and no CUPTI at all.

use std::path::Path;

use crate::support::{
    Ended, Running, Scene, folded,
    jsonl::Events,
    program, programs,
    scene::{lost, number},
    truth::Truth,
};

/// Check that several warpscopes at once, each with its own command, see their own processes, launches and samples, and none of
/// the others'.
#[test]
fn parallel_warpscopes_see_only_their_own() {
    let scenes: Vec<(Scene, u64)> = (1..=4).map(|n| (Scene::new(), 1000 * n)).collect();
    let start = |(scene, launches): &(Scene, u64)| {
        let command = format!("{} 2 2 2 1 {launches}", program("truth"));
        let sim = format!("kernel_ns=3us,truth={}", scene.text("truth"));
        let mut command = scene.record("--sim -q -F 499 -o x.wscope -o x.jsonl -o x.folded", &command);
        Running::start(command.env("WARPSCOPE_SIM", sim))
    };
    let runs: Vec<Running> = scenes.iter().map(start).collect();
    for run in runs {
        run.wait().exits(0);
    }
    let mut pids = std::collections::HashSet::new();
    for (scene, launches) in &scenes {
        let truth = Truth::of(scene, "truth");
        assert_eq!(truth.launched, 4 * launches);
        truth.agrees(&scene.report("x.wscope"));
        let events = Events::read(&scene.read("x.jsonl"));
        assert!(events.pids().iter().all(|pid| pids.insert(*pid)), "two recordings share a process");
        assert!(events.of("sample").all(|sample| events.pids().contains(&number(sample, "pid"))));
        let count: u64 = folded::kernels_by_path(&scene.read("x.folded"), 3).values().sum();
        assert_eq!(count, truth.kernels);
    }
}

/// Check a warpscope under a warpscope: the inner one has the launches, the outer one the processes, and the exit status passes
/// through both.
#[test]
fn nested_warpscopes_work() {
    let scene = Scene::new();
    let inner = format!("{} record --sim -q -o inner.wscope -- {} status", programs::WARPSCOPE, program("behave"));
    Ended::of(&mut scene.record("-q -o outer.wscope", &inner)).exits(42);
    let (inner, outer) = (scene.report("inner.wscope"), scene.report("outer.wscope"));
    assert_eq!((number(&inner, "matched"), number(&inner, "launches")), (1, 1));
    assert_eq!(number(&outer, "launches"), 0);
    assert!(number(&outer, "processes") > number(&inner, "processes"));
    assert_eq!((lost(&inner), lost(&outer)), (0, 0));
}

/// Check that, if another client holds CUPTI, one sentence says so with the error's number, the command is unharmed, and its CPU
/// side is still recorded.
#[test]
fn another_cupti_client_is_reported() {
    let scene = Scene::new();
    let mut command = scene.record("--sim -o x.wscope", &format!("{} status", program("behave")));
    let run = Ended::of(command.env("WARPSCOPE_SIM", "subscriber=other")).exits(42);
    assert!(run.err().contains("another client uses CUPTI (error 39"), "{}", run.err());
    assert_eq!(run.out(), "");
    let report = scene.report("x.wscope");
    assert_eq!((number(&report, "kernels"), number(&report, "unmatched_activities"), lost(&report)), (0, 0, 0));
    let notes = report["notes"].to_string();
    assert!(notes.contains("GPU activity is recorded once it has unsubscribed"), "{notes}");
    assert_eq!(report["pauses"][0]["client"], "simulated profiler");
}

/// Check that, if CUPTI rejects our buffers, a sentence says so and the command is unharmed.
#[test]
fn cupti_errors_are_reported() {
    let scene = Scene::new();
    let mut command = scene.record("--sim -o x.wscope", &format!("{} status", program("behave")));
    let run = Ended::of(command.env("WARPSCOPE_SIM", "buffer=refuse")).exits(42);
    assert!(run.err().contains("cuptiActivityRegisterCallbacks"), "{}", run.err());
}

/// Runs a CUDA program on a machine without libcupti: it is neither beside the other libraries nor in a CUDA toolkit.
fn without_cupti(scene: &Scene, cupti: Option<&Path>) -> Ended {
    let libraries = scene.path("cuda");
    std::fs::create_dir(&libraries).expect("a directory");
    for name in ["libcuda.so.1", "libcudart.so.13"] {
        std::fs::copy(programs::libraries().join(name), libraries.join(name)).expect("the library is there");
    }
    let script = r#"mount -t tmpfs none /usr/local && exec "$@""#;
    let record = [programs::WARPSCOPE, "record", "-o", "x.wscope", "--", &program("behave"), "status"];
    let mut command = scene.bare("unshare");
    command.args(["-m", "sh", "-c", script, "sh"]).args(record).env("LD_LIBRARY_PATH", &libraries);
    cupti.map(|path| command.env("WARPSCOPE_CUPTI", path));
    Ended::of(&mut command)
}

/// Check that, without libcupti, one sentence gives the remedy and the command is unharmed.
#[test]
fn missing_cupti_is_reported() {
    let scene = Scene::new();
    let run = without_cupti(&scene, None).exits(42);
    assert_eq!(run.err().matches("libcupti was not found").count(), 1, "{}", run.err());
    assert!(run.err().contains("set WARPSCOPE_CUPTI to the library's path"), "{}", run.err());
    assert_eq!(number(&scene.report("x.wscope"), "kernels"), 0);
}

/// Check that the remedy works: the library that WARPSCOPE_CUPTI names is used.
#[test]
fn cupti_is_found_by_environment_variable() {
    let scene = Scene::new();
    let run = without_cupti(&scene, Some(&programs::libraries().join("libcupti.so.13"))).exits(42);
    assert!(!run.err().contains("libcupti was not found"), "{}", run.err());
    assert_eq!(number(&scene.report("x.wscope"), "matched"), 1);
}
