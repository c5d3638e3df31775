//! A matrix of native programs: C, C++ and Rust, in the shapes that compilers make of frames. Every launch's stack must be the one
//! its kernel is named by, function by function, from the outermost to the launch; and every CPU sample must stand on such a
//! path.

mod path;

use model::event::StackEnd;

use crate::support::{
    Ended, Scene,
    natives::native,
    recording::{Recording, line},
    scene::lost,
};
use path::{Kernels, Paths};

/// Records a program of the matrix that launches, checks every launch, and returns the names of its kernels.
fn launches(name: &str, arguments: &str) -> Kernels {
    let scene = Scene::new();
    let command = format!("{} launch {arguments}", native(name));
    let run = Ended::of(&mut scene.record("--sim -q --gpu-only -o x.wscope", &command)).exits(0);
    let recording = Recording::read(&scene, "x.wscope");
    let (mut kernels, mut count) = (Kernels::new(), 0);
    for (kernel, stack) in recording.kernels() {
        assert!(Paths::of(name, [kernel]).launched(stack), "{name}: {kernel} was launched by {}", line(stack));
        kernels.insert(kernel.to_owned());
        count += 1;
    }
    assert!(run.out().ends_with(&format!("launched {count}\n")), "{name}: {count} kernels, but {}", run.out());
    let report = scene.report("x.wscope");
    assert_eq!(lost(&report), 0, "{name}: {}", report["lost"]);
    println!("{name}: {count} launches on {} paths", kernels.len());
    kernels
}

/// C: saved registers, recursion, alloca, large and aligned frames, tail calls, callbacks, by several compilers and flags. A
/// stack of more frames than are kept is cut, and says so.
#[test]
fn c() {
    for name in ["shapes", "shapes-framed", "shapes-cet", "shapes-clang", "shapes-stripped"] {
        assert_eq!(launches(name, "20").len(), 13);
    }
}

/// The same on 8 threads at once.
#[test]
fn threads() {
    assert_eq!(launches("shapes", "50 threads").len(), 12);
}

/// C++: exceptions, destructors, lambdas, std::function, virtual calls.
#[test]
fn cpp() {
    for name in ["cpp", "cpp-clang", "cpp-static-libstdc++"] {
        assert_eq!(launches(name, "20").len(), 10);
    }
}

/// Rust: traits, closures, a panic that is caught, threads.
#[test]
fn rust() {
    assert_eq!(launches("rust", "20").len(), 5);
}

/// Handlers of signals, whatever they have interrupted.
#[test]
fn signals() {
    assert_eq!(launches("signals", "5").len(), 11);
}

/// A library's functions, bound when first called or at the start; code that runs inside the loader and the C library.
#[test]
fn plt() {
    assert_eq!(launches("plt", "20").len(), 7);
    assert_eq!(launches("plt-now", "20").len(), 3);
}

/// Stacks that are switched by hand: each is its own.
#[test]
fn contexts() {
    assert_eq!(launches("contexts", "20").len(), 2);
}

/// Programs that start each other by posix_spawn, vfork and exec: each launch is its own program's. Where a program takes
/// another's place, the activity of the first is cut off with it; its launches are not.
#[test]
fn chain() {
    let scene = Scene::new();
    let command = format!("{} launch 20 2", native("chain"));
    Ended::of(&mut scene.record("--sim -q --gpu-only -o x.wscope", &command)).exits(0);
    let recording = Recording::read(&scene, "x.wscope");
    let paths = Paths::of("chain", ["_start;@system;main;link_of_chain"]);
    let wrong: Vec<String> = recording.launches().filter(|stack| !paths.launched(stack)).map(line).collect();
    assert_eq!(wrong, Vec::<String>::new());
    // One, three by the first, and three by each of those.
    assert_eq!(recording.launches().count(), 13 * 20);
}

/// Libraries that take turns at one address are not mistaken for each other.
#[test]
fn reload() {
    let libraries = format!("10 {} {}", native("libfirst.so"), native("libsecond.so"));
    assert_eq!(launches("reload", &libraries).len(), 2);
}

/// Programs at work, sampled: at least 99.9 % of all samples reach the outermost frame, and every one that does stands on a
/// path of its program, in whatever instruction it was: prologues and epilogues, the loader, libc, signal handlers. What is
/// cut short is mostly libgcc, on its way from a throw to a catch: it overwrites its own frame.
#[test]
fn samples() {
    let (mut all, mut wrong, mut cut) = (0, Vec::new(), Vec::new());
    for (name, arguments) in [
        ("shapes", "1"),
        ("shapes", "1 threads"),
        ("shapes-framed", "1"),
        ("shapes-cet", "1"),
        ("shapes-clang", "1"),
        ("shapes-stripped", "1"),
        ("shapes-static", "1"),
        ("cpp", "1"),
        ("cpp-clang", "1"),
        ("rust", "1"),
        ("signals", "1"),
        ("plt", "1"),
    ] {
        // What has the simulated GPU linked to it cannot be a static program.
        let kernels = launches(name.trim_end_matches("-static"), arguments);
        let paths = Paths::of(name, kernels.iter().map(String::as_str).chain(["_start;@system;main"]));
        let scene = Scene::new();
        let command = format!("{} busy {arguments}", native(name));
        Ended::of(&mut scene.record("--sim --cpu-only -q -F 1999 -o x.wscope", &command)).exits(0);
        let recording = Recording::read(&scene, "x.wscope");
        let (mut samples, before) = (0, cut.len());
        for stack in recording.samples() {
            samples += 1;
            match stack.end {
                StackEnd::Whole | StackEnd::Truncated if paths.pass(stack) => {}
                StackEnd::Whole | StackEnd::Truncated => wrong.push(format!("{name}: {}", line(stack))),
                _ => cut.push(format!("{name}: {}", line(stack))),
            }
        }
        println!(
            "{name} {arguments}: {samples} samples of {}, {} cut short",
            recording.all_samples(),
            cut.len() - before
        );
        assert!(samples > 100, "{name}: {samples} samples");
        all += samples;
    }
    println!("{all} samples, {} cut short", cut.len());
    wrong.truncate(20);
    assert_eq!(wrong, Vec::<String>::new(), "on no path");
    assert!(cut.len() * 1000 <= all, "{} of {all} samples were cut short: {cut:#?}", cut.len());
}
