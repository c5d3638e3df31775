//! A matrix of native programs: C, C++ and Rust, with the frame layouts that compilers generate. Every launch's stack must be the
//! one that its kernel is named after, function by function, from the outermost frame to the launch; and every CPU sample must
//! be on such a path.

mod path;

use model::event::StackEnd;

use crate::support::{
    Ended, Scene,
    natives::native,
    programs,
    recording::{Recording, line},
    scene::lost,
};
use path::{Kernels, Paths};

/// Records a program of the matrix that launches kernels, checks every launch, and returns the names of its kernels.
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

/// Check C programs by several compilers and flags: saved registers, recursion, alloca, large and aligned frames, tail calls,
/// callbacks. A stack with more frames than are kept is truncated and marked as such.
#[test]
fn c_stacks_are_exact() {
    for name in ["shapes", "shapes-framed", "shapes-cet", "shapes-clang", "shapes-stripped"] {
        assert_eq!(launches(name, "20").len(), 13);
    }
}

/// Check the same on 8 threads at once.
#[test]
fn stacks_are_exact_on_8_threads() {
    assert_eq!(launches("shapes", "50 threads").len(), 12);
}

/// Check C++ programs: exceptions, destructors, lambdas, std::function, virtual calls.
#[test]
fn cpp_stacks_are_exact() {
    for name in ["cpp", "cpp-clang", "cpp-static-libstdc++"] {
        assert_eq!(launches(name, "20").len(), 10);
    }
}

/// Check Rust programs: traits, closures, a caught panic, threads.
#[test]
fn rust_stacks_are_exact() {
    assert_eq!(launches("rust", "20").len(), 5);
}

/// Check launches in signal handlers, wherever the signal arrived.
#[test]
fn stacks_in_signal_handlers_are_exact() {
    assert_eq!(launches("signals", "5").len(), 11);
}

/// Check a library's functions, bound lazily or at the start, and code that runs inside the loader and the C library.
#[test]
fn stacks_through_the_plt_and_loader_are_exact() {
    assert_eq!(launches("plt", "20").len(), 7);
    assert_eq!(launches("plt-now", "20").len(), 3);
}

/// Check that stacks which a program switches by hand are not confused.
#[test]
fn switched_stacks_are_exact() {
    assert_eq!(launches("contexts", "20").len(), 2);
}

/// Check programs that start each other by posix_spawn, vfork and exec: each launch belongs to its own program. If a program
/// replaces itself, its GPU activity is lost with it, but its launches are not.
#[test]
fn stacks_are_exact_across_spawn_and_exec() {
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

/// Check stacks while another tool has return probes on functions of the program, which replace return addresses by the kernel's
/// trampoline: stacks continue past it.
#[test]
fn stacks_continue_past_return_probes() {
    let scene = Scene::new();
    // A copy: probes stop every process that runs the file, those of other tests too.
    let shapes = scene.text("shapes");
    programs::copy(native("shapes"), &shapes);
    let record = scene.record("--sim -q --gpu-only -o x.wscope", &format!("{shapes} launch 50"));
    let probed = ["middle", "recursion", "compare"].map(|function| format!("{shapes}:{function}"));
    let mut trace = vec!["trace", "-q", "--no-gpu", "-o", "calls.jsonl"];
    trace.extend(probed.iter().flat_map(|function| ["--uprobe", function]));
    trace.push("--");
    trace.extend([record.get_program()].into_iter().chain(record.get_args()).map(|word| word.to_str().expect("text")));
    Ended::of(&mut scene.warpscope(&trace)).exits(0);
    let calls = scene.read("calls.jsonl");
    assert!(calls.lines().filter(|line| line.contains("recursion")).count() > 100, "the functions were traced");
    let recording = Recording::read(&scene, "x.wscope");
    let (mut whole, mut copied) = (0, 0);
    for (kernel, stack) in recording.kernels() {
        match stack.end {
            // Stacks copied before their unwind tables existed were walked without the kernel's help.
            StackEnd::NoMapping | StackEnd::NoRule => copied += 1,
            _ => {
                assert!(Paths::of("shapes", [kernel]).launched(stack), "{kernel} was launched by {}", line(stack));
                whole += 1;
            }
        }
    }
    println!("{whole} whole, {copied} copied");
    assert_eq!(whole + copied, 50 * 19);
    assert!(whole > copied, "{whole} whole, {copied} copied");
}

/// Check that libraries loaded in turn at the same address are not confused.
#[test]
fn reloaded_libraries_are_not_confused() {
    let libraries = format!("10 {} {}", native("libfirst.so"), native("libsecond.so"));
    assert_eq!(launches("reload", &libraries).len(), 2);
}

/// Check the samples of busy programs: at least 99.9 % reach the outermost frame, and each of those is on a path of its program,
/// wherever it was taken: in prologues and epilogues, the loader, libc, signal handlers. Truncated samples are mostly in
/// libgcc, which overwrites its own frame between a throw and a catch.
#[test]
fn samples_are_on_the_right_paths() {
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
        // A program linked to the simulated GPU cannot be static.
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
                StackEnd::Whole | StackEnd::Truncated if paths.sampled(stack) => {}
                StackEnd::Whole | StackEnd::Truncated => wrong.push(format!("{name}: {}", line(stack))),
                _ => cut.push(format!("{name}: {}", line(stack))),
            }
        }
        println!(
            "{name} {arguments}: {samples} samples of {}, {} truncated",
            recording.all_samples(),
            cut.len() - before
        );
        assert!(samples > 100, "{name}: {samples} samples");
        all += samples;
    }
    println!("{all} samples, {} truncated", cut.len());
    wrong.truncate(20);
    assert_eq!(wrong, Vec::<String>::new(), "on no path");
    // While these install another frame, the rules for their own are expressions, which the walker does not evaluate.
    let leaves_its_frame =
        |line: &String| line.ends_with("(Unsupported)") && (line.contains("__longjmp") || line.contains("_Unwind_R"));
    cut.retain(|line| !leaves_its_frame(line));
    assert!(cut.len() * 1000 <= all, "{} of {all} samples were truncated: {cut:#?}", cut.len());
}
