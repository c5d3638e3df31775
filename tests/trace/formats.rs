//! The files of a trace are complete and valid, and the same whether written at once or later.

use std::fs;

use serde_json::Value;

use crate::support::{
    Ended, Scene,
    calls::{Trace, lines},
    program,
};

/// Check that `export` writes, byte for byte, the same files as the trace.
#[test]
fn export_matches_the_trace() {
    let scene = Scene::new();
    let command = format!("{} account account", program("traced"));
    let options = "--sim -q --driver --sched --stacks -o t.wscope -o t.jsonl -o t.json";
    Ended::of(&mut scene.trace(options, &command)).exits(0);
    Ended::of(&mut scene.warpscope(&["export", "t.wscope", "-o", "u.jsonl", "-o", "u.json"])).exits(0);
    for ending in ["jsonl", "json"] {
        let (at_once, later) = (scene.read(&format!("t.{ending}")), scene.read(&format!("u.{ending}")));
        assert!(!at_once.is_empty() && at_once == later, "{ending}");
    }
    let trace = Trace::read(&scene.read("t.jsonl"));
    let chrome: Value = serde_json::from_str(&scene.read("t.json")).expect("JSON");
    let events = chrome["traceEvents"].as_array().expect("events");
    for name in ["cudaLaunchKernel", "cuMemAlloc_v2", "third()"] {
        let drawn = events.iter().filter(|event| event["name"] == name && event["ph"] != "M").count();
        assert!(drawn >= trace.named(name).count(), "{name}");
    }
}

/// Check that `report` recognises a trace and shows every function with its calls and errors, in text and in JSON.
#[test]
fn report_shows_every_function() {
    let scene = Scene::new();
    let command = format!("{} account account", program("traced"));
    let run = Ended::of(&mut scene.trace("--sim -o t.wscope -o t.jsonl", &command)).exits(0);
    let text = Ended::of(&mut scene.warpscope(&["report", "t.wscope"])).exits(0);
    assert!(run.err().starts_with(text.out()) || run.err().contains(text.out()), "{}\n{}", run.err(), text.out());
    let trace = Trace::read(&scene.read("t.jsonl"));
    let report = scene.report("t.wscope");
    let functions = report["trace"]["functions"].as_array().expect("functions");
    let mut total = 0;
    for function in functions {
        let name = function["name"].as_str().expect("a name");
        let calls: Vec<_> = trace.named(name).filter(|call| call["type"] == "userspace").collect();
        let errors = calls.iter().filter(|call| call["error"] == true).count();
        assert_eq!(
            (function["calls"].as_u64(), function["errors"].as_u64()),
            (Some(calls.len() as u64), Some(errors as u64)),
            "{function}"
        );
        total += calls.len();
    }
    assert_eq!(total, trace.of("userspace").count());
}

/// Check that `report` shows the same of a trace's lines as of its recording, also from stdin and with begin and end as two
/// events, and says in one sentence which line is wrong.
#[test]
fn report_reads_lines() {
    let scene = Scene::new();
    let devices = program("devices");
    let options = format!("--sim -q --driver --sched --uprobe {devices}:inside -o t.wscope -o t.jsonl");
    let script = format!("{} account account; {devices} account 2", program("traced"));
    Ended::of(&mut scene.trace_words(&options, &["sh", "-c", &script])).exits(0);
    Ended::of(&mut scene.warpscope(&["export", "t.wscope", "--phases", "begin-end", "-o", "be.jsonl"])).exits(0);
    let of_lines = |file: &str, options: &[&str]| {
        let mut command = scene.warpscope(&[&["report", "-"], options].concat());
        command.stdin(fs::File::open(scene.path(file)).expect("it was written"));
        Ended::of(&mut command).exits(0).out().to_owned()
    };
    for table in ["calls", "requests", "kernels", "copies", "streams"] {
        let options = ["--by", table, "--json"];
        let recorded = Ended::of(&mut scene.warpscope(&[&["report", "t.wscope"], &options[..]].concat())).exits(0);
        assert!(recorded.out().len() > 10, "{table}: {}", recorded.out());
        assert_eq!(of_lines("t.jsonl", &options), recorded.out(), "{table}");
        assert_eq!(of_lines("be.jsonl", &options), recorded.out(), "{table}");
    }
    let [recorded, lines] = ["t.wscope", "t.jsonl"].map(|file| {
        let mut report = scene.report(file);
        // How full the GPU can be depends on its resources, which lines do not have.
        for kernel in report["top_kernels"].as_array_mut().expect("kernels") {
            kernel.as_object_mut().map(|kernel| [kernel.remove("occupancy"), kernel.remove("limiter")]);
        }
        report
    });
    let parts = [
        "trace",
        "devices",
        "top_kernels",
        "copies_by_direction",
        "launches",
        "matched",
        "lost",
        "processes",
        "threads",
    ];
    let different: Vec<_> = parts.iter().filter(|part| recorded[**part] != lines[**part]).collect();
    assert!(different.is_empty(), "{different:?}: {recorded:#}\n{lines:#}");

    let whole = scene.read("t.jsonl");
    let third = whole.lines().take(3).map(str::len).sum::<usize>() + 3;
    for (name, text, sentence) in [
        ("wrong.jsonl", format!("{}[]\n{}", &whole[..third], &whole[third..]), "line 4: it is not a JSON object"),
        ("foreign.jsonl", "{\"a\":1}\n".to_owned(), "line 1: it has no `type`: it is not of warpscope"),
    ] {
        fs::write(scene.path(name), text).expect("a file");
        let run = Ended::of(&mut scene.warpscope(&["report", name])).exits(1);
        assert_eq!(run.err().trim_end(), format!("warpscope: cannot read {name}: {sentence}"));
    }
}

/// Check that calls shorter than the limit are left out of the events, but not of the recording and its report, that files say so,
/// and that `export` does the same; and that begin and end are two events on request.
#[test]
fn short_calls_are_left_out_of_events_only() {
    let scene = Scene::new();
    let command = format!("{} account account", program("traced"));
    let options = "--sim --min-duration 1h -o t.wscope -o t.jsonl -o t.json";
    let run = Ended::of(&mut scene.trace(options, &command)).exits(0);
    assert!(run.err().contains("are left out of events (--min-duration)"), "{}", run.err());
    Ended::of(&mut scene.warpscope(&["export", "t.wscope", "--min-duration", "1h", "-o", "u.jsonl"])).exits(0);
    assert_eq!(scene.read("t.jsonl"), scene.read("u.jsonl"));
    Ended::of(&mut scene.warpscope(&["export", "t.wscope", "-o", "all.jsonl"])).exits(0);
    let (some, all) = (lines(&scene.read("t.jsonl")), lines(&scene.read("all.jsonl")));
    let of =
        |lines: &[Value], kind: &str| lines.iter().filter(|line| line["type"] == kind).cloned().collect::<Vec<_>>();
    let phases =
        |lines: &[Value], phase: &str| of(lines, "userspace").iter().filter(|call| call["phase"] == phase).count();
    let calls = phases(&all, "X");
    assert!(calls > 10 && phases(&some, "X") == 0, "{calls}");
    for kind in ["gpu", "memory"] {
        assert_eq!(of(&some, kind), of(&all, kind));
    }
    let note = format!("{calls} calls shorter than");
    assert!(of(&some, "note").iter().any(|line| line["text"].as_str().is_some_and(|text| text.starts_with(&note))));
    assert_eq!(scene.report("t.wscope")["trace"]["calls"], calls);
    let chrome: Value = serde_json::from_str(&scene.read("t.json")).expect("JSON");
    let drawn = chrome["traceEvents"].as_array().expect("events").iter().filter(|event| event["cat"] == "call");
    assert_eq!(drawn.filter(|event| event["ph"] == "X").count(), 0);

    Ended::of(&mut scene.record("--sim -q -o r.wscope", &program("calls"))).exits(0);
    let run =
        Ended::of(&mut scene.warpscope(&["export", "r.wscope", "--min-duration", "1h", "-o", "r.jsonl"])).exits(0);
    assert!(!run.err().contains("--min-duration"), "a recording without calls: {}", run.err());

    Ended::of(&mut scene.warpscope(&["export", "t.wscope", "--phases", "begin-end", "-o", "be.jsonl"])).exits(0);
    let halves = lines(&scene.read("be.jsonl"));
    assert_eq!((phases(&halves, "X"), phases(&halves, "E")), (0, calls));
    assert!(phases(&halves, "B") >= calls);
}
