//! Outputs of ordinary runs: their names, what they replace, and devices and FIFOs in their place.

use std::{
    fs,
    io::Read,
    os::unix::fs::{PermissionsExt, symlink},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use crate::support::{Ended, Scene, folded::kernels_by_path, program, scene::number};

fn fifo(scene: &Scene, name: &str) {
    crate::support::programs::run(Command::new("mkfifo").arg(scene.path(name)));
}

/// Check that, without -o, a run keeps the files of earlier runs, and gives the report and the recording the same number.
#[test]
fn default_outputs_are_numbered() {
    let scene = Scene::new();
    let record = || Ended::of(&mut scene.record("--sim", &format!("{} status", program("behave")))).exits(42);
    assert!(record().err().contains("wrote warpscope.html"));
    let first = fs::read(scene.path("warpscope.html")).expect("a report");
    let second = record();
    for name in ["wrote warpscope-2.html", "wrote warpscope-2.wscope"] {
        assert!(second.err().contains(name), "{}", second.err());
    }
    assert_eq!(fs::read(scene.path("warpscope.html")).expect("still there"), first);
    // A recording alone also reserves its number.
    fs::remove_file(scene.path("warpscope.html")).expect("it is there");
    record();
    let expected =
        ["warpscope-2.html", "warpscope-2.wscope", "warpscope-3.html", "warpscope-3.wscope", "warpscope.wscope"];
    assert_eq!(scene.files(), expected);

    let trace = || Ended::of(&mut scene.trace("--sim -q", &format!("{} status", program("behave")))).exits(42);
    trace();
    trace();
    assert_eq!(scene.files().iter().filter(|name| name.starts_with("trace")).count(), 2);
    assert!(number(&scene.report("trace-2.wscope"), "launches") > 0);
}

/// Check that a run that could not start its command leaves the files of the last run unchanged, and no others.
#[test]
fn a_failed_run_replaces_nothing() {
    let scene = Scene::new();
    for name in ["x.wscope", "x.svg"] {
        fs::write(scene.path(name), "the last run").expect("a file");
    }
    Ended::of(&mut scene.record("-q -o x.wscope -o x.svg", "/nowhere/command")).exits(127);
    assert_eq!(scene.files(), ["x.svg", "x.wscope"]);
    assert_eq!((scene.read("x.wscope"), scene.read("x.svg")), ("the last run".into(), "the last run".into()));
}

/// Check that a run whose command failed without any GPU work keeps the files of the last run, and that the summary names the
/// command's exit status and what the loader did not find.
#[test]
fn a_useless_run_keeps_the_last_recording() {
    let scene = Scene::new();
    let behave = format!("{} status", program("behave"));
    Ended::of(&mut scene.record("--sim -q -o x.wscope -o x.svg", &behave)).exits(42);
    let good = fs::read(scene.path("x.wscope")).expect("a recording");
    let run = Ended::of(&mut scene.record("-o x.wscope -o x.svg", &behave)).exits(127);
    let (hint, kept) = ("the loader did not find libcudart.so", "the previous x.wscope is kept as x.wscope.old");
    for words in ["exit status 127", hint, "use --sim", kept, "wrote x.wscope  ("] {
        assert!(run.err().contains(words), "`{words}` is not in: {}", run.err());
    }
    assert_eq!(scene.files(), ["x.svg", "x.svg.old", "x.wscope", "x.wscope.old"]);
    assert!(fs::read(scene.path("x.wscope.old")).expect("it is kept") == good);
    // A run with GPU work replaces what is there, although its command fails.
    let run = Ended::of(&mut scene.record("--sim -o x.wscope -o x.svg", &behave)).exits(42);
    assert!(run.err().contains("exit status 42") && !run.err().contains("is kept"), "{}", run.err());
    assert_eq!(scene.files(), ["x.svg", "x.svg.old", "x.wscope", "x.wscope.old"]);
    let report = Ended::of(&mut scene.warpscope(&["report", "x.wscope"])).exits(0);
    assert!(report.out().contains("exit status 42"), "{}", report.out());
    let run = Ended::of(&mut scene.record_words("-o y.wscope", &["sh", "-c", "kill -9 $$"]));
    assert!(run.err().contains("killed by SIGKILL"), "{}", run.err());
}

/// Check that `export` names every file it writes, with its size, but not its standard output.
#[test]
fn exported_files_are_named() {
    let scene = Scene::new();
    Ended::of(&mut scene.record("--sim -q -o x.wscope", &format!("{} status", program("behave")))).exits(42);
    let run = Ended::of(&mut scene.warpscope(&["export", "x.wscope", "-o", "x.html", "-o", "x.folded"])).exits(0);
    for name in ["wrote x.html  (", "wrote x.folded  ("] {
        assert!(run.err().contains(name), "{}", run.err());
    }
    let run = Ended::of(&mut scene.warpscope(&["export", "x.wscope", "--format", "folded", "-o", "-"])).exits(0);
    assert_eq!(run.err(), "");
}

/// Check that a replaced file keeps its permissions, that a hard link to it keeps its contents, and that a link is replaced too.
#[test]
fn files_and_links_are_replaced() {
    let scene = Scene::new();
    fs::write(scene.path("x.svg"), "old").expect("a file");
    fs::set_permissions(scene.path("x.svg"), fs::Permissions::from_mode(0o640)).expect("it is ours");
    fs::hard_link(scene.path("x.svg"), scene.path("other")).expect("a second name");
    fs::write(scene.path("target"), "target").expect("a file");
    symlink("target", scene.path("x.folded")).expect("a link");
    Ended::of(&mut scene.record("-q -o x.svg -o x.folded", "true")).exits(0);
    assert!(scene.read("x.svg").contains("<svg"));
    assert_eq!(fs::metadata(scene.path("x.svg")).expect("a file").permissions().mode() & 0o777, 0o640);
    assert_eq!((scene.read("other"), scene.read("target")), ("old".into(), "target".into()));
    assert!(!scene.path("x.folded").is_symlink());
}

/// Check that a FIFO without a reader is rejected before the command runs.
#[test]
fn fifos_without_a_reader_are_rejected() {
    let scene = Scene::new();
    for name in ["x.svg", "x.folded", "x.jsonl", "x.wscope"] {
        fifo(&scene, name);
        let run = Ended::of(&mut scene.record(&format!("-q -o {name}"), "touch ran")).exits(1);
        run.says(&["cannot write", name, "FIFO without a reader"]);
    }
    assert!(!scene.path("ran").exists());
}

/// Check that a FIFO with a reader gets the whole output, including a recording.
#[test]
fn fifos_get_the_whole_output() {
    let scene = Scene::new();
    for name in ["x.folded", "x.wscope"] {
        fifo(&scene, name);
        // Open at both ends, so that the reader sees the end only when the run is over.
        let both = fs::File::options().read(true).write(true).open(scene.path(name)).expect("the FIFO");
        let mut from = fs::File::open(scene.path(name)).expect("the FIFO");
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            from.read_to_end(&mut bytes).map(|_| bytes)
        });
        let command = format!("{} 2 2 1 1 500", program("truth"));
        let mut record = scene.record(&format!("--sim -q -o {name}"), &command);
        Ended::of(record.env("WARPSCOPE_SIM", "kernel_ns=3us")).exits(0);
        drop(both);
        let bytes = reader.join().expect("it ends").expect("the FIFO can be read");
        fs::write(scene.path(&format!("copy-{name}")), bytes).expect("a file");
    }
    let report = scene.report("copy-x.wscope");
    assert_eq!(number(&report, "matched"), 2_000);
    let kernels: u64 = kernels_by_path(&scene.read("copy-x.folded"), 3).values().sum();
    assert_eq!(kernels, number(&report, "kernels"));
}

/// Check that a reader that stops reading does not block warpscope forever.
#[test]
fn stalled_fifo_readers_time_out() {
    let scene = Scene::new();
    fifo(&scene, "x.jsonl");
    // Open for reading and writing: the FIFO has a reader, and opening it does not block.
    let reader = fs::File::options().read(true).write(true).open(scene.path("x.jsonl")).expect("the FIFO");
    let begin = Instant::now();
    let command = format!("{} 1 1 1 1 2000", program("truth"));
    let run = Ended::of(&mut scene.record("--sim -q -o x.jsonl -o x.folded", &command)).exits(1);
    run.says(&["cannot write x.jsonl", "has read nothing for 10 s"]);
    assert!(begin.elapsed() < Duration::from_secs(60));
    assert_ne!(scene.read("x.folded"), "");
    drop(reader);
}

/// Check that a link to standard output works, whether that is a pipe or a file.
#[test]
fn links_to_standard_output_are_followed() {
    let scene = Scene::new();
    symlink("/dev/stdout", scene.path("x.folded")).expect("a link");
    let command = format!("{} status", program("behave"));
    let run = Ended::of(&mut scene.record("--sim -q -o x.folded", &command)).exits(42);
    assert!(run.out().contains("[GPU_Kernel] behave"), "{}", run.out());
    let file = fs::File::create(scene.path("out")).expect("a file");
    Ended::of(scene.record("--sim -q -o x.folded", &command).stdout(Stdio::from(file))).exits(42);
    assert!(scene.read("out").contains("[GPU_Kernel] behave"), "{}", scene.read("out"));
    assert!(scene.path("x.folded").is_symlink());
}

/// Check that `.parquet` is a directory of tables, the same from `record` and `export`, which replaces an earlier one but never
/// a directory with other files, nor a file.
#[test]
fn tables_are_a_directory() {
    let scene = Scene::new();
    let run = format!("{} status", program("behave"));
    Ended::of(&mut scene.record("--sim -q -o x.wscope -o x.parquet/", &run)).exits(42);
    let export = |name: &str| Ended::of(&mut scene.warpscope(&["export", "x.wscope", "-o", name]));
    let tables = |name: &str| -> Vec<(String, Vec<u8>)> {
        let entries = fs::read_dir(scene.path(name)).expect("a directory").map(|entry| entry.expect("an entry"));
        let read =
            |entry: fs::DirEntry| (entry.file_name().display().to_string(), fs::read(entry.path()).expect("read"));
        let mut tables: Vec<_> = entries.map(read).collect();
        tables.sort();
        tables
    };
    let exported = export("y.parquet").exits(0);
    assert!(exported.err().contains("wrote y.parquet"), "{}", exported.err());
    assert_eq!(tables("x.parquet").len(), 18);
    assert!(tables("x.parquet") == tables("y.parquet"));

    fs::write(scene.path("y.parquet/kernels.parquet"), "of an earlier run").expect("written");
    export("y.parquet").exits(0);
    assert!(tables("x.parquet") == tables("y.parquet"));
    fs::write(scene.path("y.parquet/thesis.txt"), "precious").expect("written");
    fs::write(scene.path("z.parquet"), "somebody's table").expect("written");
    export("y.parquet").exits(1).says(&["contains another file: thesis.txt"]);
    export("z.parquet").exits(1).says(&["is not a directory"]);
    let piped = Ended::of(&mut scene.warpscope(&["export", "x.wscope", "--format", "parquet", "-o", "-"]));
    piped.exits(1).says(&["a .parquet output is a directory of files"]);
    assert_eq!(scene.read("y.parquet/thesis.txt"), "precious");
    assert_eq!(scene.read("z.parquet"), "somebody's table");
    assert_eq!(scene.files(), ["x.parquet", "x.wscope", "y.parquet", "z.parquet"]);
}

/// Check that `record --live` prints every launch and all GPU work as lines of JSON, like those of `trace`, after a header with the
/// time of zero.
#[test]
fn a_recording_is_printed_live() {
    let scene = Scene::new();
    let run =
        Ended::of(&mut scene.record("--sim -q --live -o r.wscope", &format!("{} status", program("behave")))).exits(42);
    let parse = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    let lines: Vec<_> = run.err().lines().map(parse).collect();
    assert!(lines[0]["type"] == "start" && lines[0]["unix_ns"].is_u64(), "{}", lines[0]);
    let report = scene.report("r.wscope");
    let kernels =
        report["top_kernels"].as_array().expect("kernels").iter().map(|row| number(row, "count")).sum::<u64>();
    let launches = lines.iter().filter(|line| line["name"] == "kernel launch").count() as u64;
    let of_kernels = |line: &&serde_json::Value| line["type"] == "gpu" && !line["args"]["grid"].is_null();
    assert!(kernels > 0);
    assert_eq!((launches, lines.iter().filter(of_kernels).count() as u64), (kernels, kernels));
}
