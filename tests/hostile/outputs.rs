//! Attacks on the files that a recording writes: a command that runs as the user who called sudo tries to make warpscope,
//! which runs as root, open, overwrite or give away one of root's files.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink},
};

use export::Format;

use crate::support::{
    Ended, Scene,
    attacker::{Attacker, with_sudo},
    program, programs,
};

/// An output of every format, except those that are directories.
fn outputs() -> Vec<String> {
    let files = Format::ALL.into_iter().filter(|format| !format.is_directory());
    files.map(|format| format!("x{}", format.extension())).collect()
}

/// `warpscope record` as root, called through sudo by the attacker, in the attacker's directory.
fn record(scene: &Scene, attacker: &Attacker, options: &str, command: &[&str]) -> std::process::Command {
    let mut record = scene.record_words(options, command);
    with_sudo(&mut record).current_dir(attacker.path(""));
    record
}

/// Options that name all of [`outputs`] in a directory.
fn outputs_in(directory: &str) -> String {
    outputs().iter().map(|name| format!("-o {directory}{name}")).collect::<Vec<_>>().join(" ")
}

/// A shell script with [`outputs`] as its arguments after `first`.
fn script<'a>(script: &'a str, first: &'a str, outputs: &'a [String]) -> Vec<&'a str> {
    ["sh", "-c", script, first].into_iter().chain(outputs.iter().map(String::as_str)).collect()
}

/// Check that no file of root's changes if the command replaces every output, and the partial recording, with links to it.
#[test]
fn outputs_replaced_by_links_are_safe() {
    let (scene, attacker) = (Scene::new(), Attacker::new());
    let secret = attacker.secret();
    let secret = secret.to_str().expect("the path is text");
    let outputs = outputs();
    let command = script("for f in \"$@\"; do ln -sfn \"$0\" \"$f\" || exit 9; done", secret, &outputs);
    Ended::of(&mut record(&scene, &attacker, &format!("-q {}", outputs_in("")), &command)).exits(0);
    attacker.secret_is_untouched();
    for name in &outputs {
        let info = fs::symlink_metadata(attacker.path(name)).expect("it is there");
        assert!(info.is_file() && attacker.owns(name), "{name}: {info:?}");
    }
    assert!(fs::read_to_string(attacker.path("x.svg")).expect("text").contains("<svg"));
    let command = ["sh", "-c", "ln -sfn \"$0\" x.wscope.partial", secret];
    let run = Ended::of(&mut record(&scene, &attacker, "-q -o x.wscope", &command)).exits(1);
    run.says(&["cannot write x.wscope", "was replaced while it was written"]);
    attacker.secret_is_untouched();
}

/// Check that outputs go to the directory that was named, whatever its name is now, if the command replaces it with a link to
/// one of root's directories.
#[test]
fn directory_replaced_by_a_link_is_safe() {
    let (scene, attacker) = (Scene::new(), Attacker::new());
    fs::create_dir(attacker.path("out")).expect("a directory");
    chown(attacker.path("out"), Some(fs::metadata(attacker.path("")).expect("it is there").uid()), None).expect("root");
    let target = attacker.secret();
    let target = target.parent().and_then(|directory| directory.to_str()).expect("the path is text");
    let command = ["sh", "-c", "mv out moved && ln -s \"$0\" out", target];
    Ended::of(&mut record(&scene, &attacker, &format!("-q {}", outputs_in("out/")), &command)).exits(0);
    attacker.secret_is_untouched();
    assert_eq!(fs::read_dir(target).expect("it is there").count(), 1, "something was written to root's directory");
    for name in outputs() {
        assert!(attacker.owns(&format!("moved/{name}")), "{name}");
    }
}

/// Check that tables, which are a directory, are not written through a link to one of root's directories, whether the link is
/// there before the run or the command creates it, and that nothing else is left.
#[test]
fn tables_replaced_by_a_link_are_safe() {
    let (scene, attacker) = (Scene::new(), Attacker::new());
    let target = attacker.secret();
    let target = target.parent().and_then(|directory| directory.to_str()).expect("the path is text");
    for (command, reason) in [
        (&["ln", "-s", target, "x.parquet"][..], "Not a directory"),
        (&["touch", "ran"], "it exists and is not a directory"),
    ] {
        let run = Ended::of(&mut record(&scene, &attacker, "-q -o x.parquet", command)).exits(1);
        run.says(&["cannot write x.parquet", reason]);
        attacker.secret_is_untouched();
        assert_eq!(fs::read_dir(target).expect("it is there").count(), 1, "something was written to root's directory");
        assert_eq!(fs::read_dir(attacker.path("")).expect("it is there").count(), 1, "more than the link is left");
    }
}

/// Check that `record` and `export` replace links that exist before the run, and do not follow them.
#[test]
fn existing_links_are_not_followed() {
    let (scene, attacker) = (Scene::new(), Attacker::new());
    let link = |name: &str| symlink(attacker.secret(), attacker.path(name)).expect("a link");
    outputs().iter().for_each(|name| link(name));
    Ended::of(&mut record(&scene, &attacker, &format!("-q {}", outputs_in("")), &["true"])).exits(0);
    attacker.secret_is_untouched();

    let mut export = scene.warpscope(&["export", "x.wscope", "-o", "y.svg", "-o", "y.jsonl", "-o", "y.wscope"]);
    ["y.svg", "y.jsonl", "y.wscope"].iter().for_each(|name| link(name));
    Ended::of(with_sudo(&mut export).current_dir(attacker.path(""))).exits(0);
    attacker.secret_is_untouched();
    for name in outputs().iter().map(String::as_str).chain(["y.svg", "y.jsonl", "y.wscope"]) {
        assert!(attacker.owns(name) && !attacker.path(name).is_symlink(), "{name}");
    }
}

/// Check that outputs which the user may not write are rejected before the command runs: in a directory of root's, over a file
/// of root's, and over another user's file in a sticky directory.
#[test]
fn outputs_need_the_callers_permission() {
    let (scene, attacker) = (Scene::new(), Attacker::new());
    let refused = |output: &str, why: &str| {
        let options = format!("-q -o {output}");
        let run = Ended::of(&mut record(&scene, &attacker, &options, &["touch", "ran"])).exits(1);
        run.says(&[output, "who called sudo", why]);
    };
    let closed = attacker.secret().with_file_name("x.svg");
    refused(closed.to_str().expect("the path is text"), "Permission denied");

    fs::write(attacker.path("x.svg"), "root's").expect("a file");
    refused("x.svg", "Permission denied");

    fs::create_dir(attacker.path("shared")).expect("a directory");
    fs::set_permissions(attacker.path("shared"), fs::Permissions::from_mode(0o1777)).expect("root");
    fs::write(attacker.path("shared/x.folded"), "root's").expect("a file");
    fs::set_permissions(attacker.path("shared/x.folded"), fs::Permissions::from_mode(0o666)).expect("root");
    refused("shared/x.folded", "sticky");

    assert!(!attacker.path("ran").exists());
    for name in ["x.svg", "shared/x.folded"] {
        assert_eq!(fs::read_to_string(attacker.path(name)).expect("root can read it"), "root's");
        assert!(!attacker.owns(name));
    }
}

/// Check that a FIFO which the command puts in the place of an output is replaced, without waiting for a reader.
#[test]
fn outputs_replaced_by_fifos_are_replaced() {
    let (scene, attacker) = (Scene::new(), Attacker::new());
    let outputs = outputs();
    let command = script("for f in \"$@\"; do rm -f \"$f\"; mkfifo \"$f\" || exit 9; done", "sh", &outputs);
    Ended::of(&mut record(&scene, &attacker, &format!("-q {}", outputs_in("")), &command)).exits(0);
    for name in outputs {
        assert!(fs::symlink_metadata(attacker.path(&name)).expect("it is there").is_file(), "{name}");
    }
}

/// Check that the attacker owns all outputs of a recorded CUDA program in its own directory.
#[test]
fn callers_own_their_outputs() {
    let (scene, attacker) = (Scene::new(), Attacker::new());
    programs::copy(program("behave"), attacker.path("behave"));
    let options = format!("--sim -q -o x.parquet {}", outputs_in(""));
    Ended::of(&mut record(&scene, &attacker, &options, &["./behave", "status"])).exits(42);
    for name in outputs().iter().map(String::as_str).chain(["x.parquet", "x.parquet/kernels.parquet"]) {
        assert!(attacker.owns(name), "{name}");
    }
}
