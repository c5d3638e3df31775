//! A matrix of native programs: C, C++ and Rust, in the shapes that compilers make of frames. Every launch's stack must be the one
//! its kernel is named by, function by function, from the outermost to the launch; and every CPU sample must stand on such a
//! path.

mod path;
mod programs;

use std::collections::BTreeSet;

use model::event::StackEnd;

use crate::support::{
    Ended, Scene,
    recording::{Recording, line},
    scene::lost,
};
use path::Path;
use programs::program;

/// A program in which functions have no names.
fn stripped(name: &str) -> Option<&str> {
    name.ends_with("-stripped").then_some(name)
}

/// Records a program of the matrix that launches, checks every launch, and returns the paths that were taken.
fn launches(name: &str, arguments: &str) -> BTreeSet<String> {
    let scene = Scene::new();
    let command = format!("{} launch {arguments}", program(name));
    let run = Ended::of(&mut scene.record("--sim -q --gpu-only -o x.wscope", &command)).exits(0);
    let recording = Recording::read(&scene, "x.wscope");
    let (mut paths, mut count) = (BTreeSet::new(), 0);
    for (kernel, stack) in recording.kernels() {
        let path = Path::parse(kernel, stripped(name));
        assert!(path.launches(&stack.frames), "{name}: {kernel} was launched by {}", line(stack));
        let end = if path.cut { StackEnd::Truncated } else { StackEnd::Whole };
        assert_eq!(stack.end, end, "{name}: {kernel} was launched by {}", line(stack));
        paths.insert(kernel.to_owned());
        count += 1;
    }
    assert!(run.out().ends_with(&format!("launched {count}\n")), "{name}: {count} kernels, but {}", run.out());
    let report = scene.report("x.wscope");
    assert_eq!(lost(&report), 0, "{name}: {}", report["lost"]);
    println!("{name}: {count} launches on {} paths", paths.len());
    paths
}

/// C: saved registers, recursion, alloca, large and aligned frames, tail calls, callbacks, by several compilers and flags. A
/// stack of more frames than are kept is cut, and says so.
#[test]
fn c() {
    for name in ["shapes", "shapes-framed", "shapes-cet", "shapes-clang", "shapes-stripped"] {
        assert_eq!(launches(name, "20").len(), 12);
    }
}

/// The same on 8 threads at once.
#[test]
fn threads() {
    assert_eq!(launches("shapes", "50 threads").len(), 11);
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

/// Libraries that take turns at one address are not mistaken for each other.
#[test]
fn reload() {
    let libraries = format!("10 {} {}", program("libfirst.so"), program("libsecond.so"));
    assert_eq!(launches("reload", &libraries).len(), 2);
}

/// Programs at work, sampled: at least 99.9 % of all samples reach the outermost frame, and every one that does stands on a
/// path of its program, in whatever instruction it was: prologues and epilogues, the loader, libc, signal handlers.
#[test]
fn samples() {
    let (mut all, mut wrong, mut cut) = (0, Vec::new(), Vec::new());
    let of_shapes = launches("shapes", "1");
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
        let taken = match arguments {
            _ if name == "shapes-static" => of_shapes.clone(),
            "1" => launches(name, "1"),
            other => launches(name, other),
        };
        let taken = taken.iter().map(String::as_str).chain(["_start;@system;main"]);
        let paths: Vec<Path> = taken.map(|path| Path::parse(path, stripped(name))).collect();
        let scene = Scene::new();
        let command = format!("{} busy {arguments}", program(name));
        Ended::of(&mut scene.record("--sim --cpu-only -q -F 1999 -o x.wscope", &command)).exits(0);
        let recording = Recording::read(&scene, "x.wscope");
        let (mut samples, mut odd) = (0, 0);
        for stack in recording.samples() {
            samples += 1;
            let fits = paths.iter().any(|path| path.passes(&stack.frames));
            match stack.end {
                StackEnd::Whole | StackEnd::Truncated if fits => {}
                StackEnd::Whole => wrong.push(format!("{name}: {}", line(stack))),
                _ => {
                    odd += 1;
                    cut.push(format!("{name}: {}", line(stack)));
                }
            }
        }
        assert!(samples > 300, "{name}: {samples} samples");
        println!("{name} {arguments}: {samples} samples of {}, {odd} cut short", recording.all_samples());
        all += samples;
    }
    assert_eq!(wrong, Vec::<String>::new(), "on no path");
    println!("{all} samples, {} cut short: {cut:#?}", cut.len());
    assert!(cut.len() * 1000 <= all, "{} of {all} samples were cut short: {cut:#?}", cut.len());
}
