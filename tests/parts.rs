//! Parts of recordings: filters, tables, and the comparison of recordings.

use serde_json::Value;

use crate::support::{Ended, Scene, browser::Browser, oracle::Walk, program, programs::WARPSCOPE, scene::number};

/// Records the ground-truth program on two GPUs.
fn recorded(scene: &Scene, rounds: u64, file: &str) {
    let command = format!("{} {}", program("truth"), Walk::of(rounds).arguments());
    let mut command = scene.record(&format!("--sim -q -F 999 -o {file}"), &command);
    Ended::of(command.env("WARPSCOPE_SIM", "devices=2,order=shuffle")).exits(0);
}

fn report(scene: &Scene, options: &[&str]) -> Value {
    let run = Ended::of(&mut scene.warpscope(&[&["report", "--json", "x.wscope"], options].concat())).exits(0);
    serde_json::from_str(run.out()).unwrap_or_else(|error| panic!("{options:?}: {error}"))
}

fn rows(value: &Value) -> &[Value] {
    value.as_array().expect("rows")
}

/// Check that the parts of a recording add up to the whole, and that GPU work keeps its launch in each of them.
#[test]
fn parts_add_up_to_the_whole() {
    let scene = Scene::new();
    recorded(&scene, 60, "x.wscope");
    let whole = report(&scene, &[]);
    let complete = |part: &Value| {
        for key in ["unmatched_activities", "pending_launches", "stacks_missing"] {
            assert_eq!(number(part, key), 0, "{key}: {}", part["ledger"]);
        }
        assert_eq!(number(part, "launches"), number(part, "matched"), "one operation each");
        // A thread without GPU work has nothing to match.
        if number(part, "matched") > 0 {
            assert_eq!(part["ledger"][0], "matched 100 %");
        }
        assert_eq!(part["lost"], whole["lost"], "a part has lost nothing more");
    };
    let total = |parts: &[Value], key: &str| parts.iter().map(|part| number(part, key)).sum::<u64>();
    let devices: Vec<Value> = ["0", "1"].iter().map(|device| report(&scene, &["--device", device])).collect();
    let threads = report(&scene, &["--by", "thread"]);
    let tids: Vec<&str> = rows(&threads).iter().map(|row| row["tid"].as_str().expect("a tid")).collect();
    let by_thread: Vec<Value> = tids.iter().map(|tid| report(&scene, &["--tid", tid])).collect();
    for (parts, keys) in [
        (&devices, &["gpu_time_ns", "kernels", "copies", "memsets", "launches"][..]),
        // Threads that only warpscope's own code ran on are not in the table.
        (&by_thread, &["gpu_time_ns", "kernels", "copies", "memsets", "launches"][..]),
    ] {
        for key in keys {
            assert_eq!(total(parts, key), number(&whole, key), "{key}");
        }
    }
    devices.iter().for_each(complete);
    by_thread.iter().for_each(complete);
    assert_eq!(total(&devices, "cpu_samples"), 0, "work on a device has no samples");

    let kernel = &rows(&whole["top_kernels"])[0];
    let part = report(&scene, &["--kernel", kernel["name"].as_str().expect("a name")]);
    complete(&part);
    assert_eq!(number(&part, "kernels"), number(kernel, "count"));
    assert_eq!(number(&part, "gpu_time_ns"), number(kernel, "ns"));

    let half = format!("{}ns", number(&whole, "wall_ns") / 2);
    let (first, second) = (report(&scene, &["--to", &half]), report(&scene, &["--from", &half]));
    assert_eq!(number(&first, "wall_ns") + number(&second, "wall_ns"), number(&whole, "wall_ns"));
    // What is in progress at the boundary is in both.
    let kernels = number(&first, "kernels") + number(&second, "kernels");
    assert!((number(&whole, "kernels")..number(&whole, "kernels") + 64).contains(&kernels), "{kernels}");
    assert_eq!(number(&first, "cpu_samples") + number(&second, "cpu_samples"), number(&whole, "cpu_samples"));
}

/// Check that a filter that matches nothing is an error that names what there is.
#[test]
fn filters_that_match_nothing_are_explained() {
    let scene = Scene::new();
    recorded(&scene, 2, "x.wscope");
    for (options, words) in [
        (["--pid", "1"], "the recording has no such process; it has: "),
        (["--comm", "nothing"], "the recording has no such process; it has: "),
        (["--device", "7"], "the recording has no GPU 7; it has: 0, 1"),
        (["--kernel", "nothing*"], "the recording has no kernel that matches nothing*"),
        (["--path", "nothing"], "the recording has no stack with a frame that matches nothing"),
        (["--from", "soon"], "--from soon: expected a time such as 1.5s or 200ms"),
        (
            ["--by", "colour"],
            "there is no such table; there are: kernels, classes, phases, paths, user-paths, lines, steps",
        ),
    ] {
        let run = Ended::of(&mut scene.warpscope(&[&["report", "x.wscope"], &options[..]].concat()));
        assert!(run.err().contains(words), "{options:?}: {}", run.err());
        assert_ne!(run.status.code(), Some(0), "{options:?}");
    }
}

/// Check that tables are the same on the terminal, as JSON and as CSV, and that the standard output is a file.
#[test]
fn tables_and_the_standard_output() {
    let scene = Scene::new();
    recorded(&scene, 20, "x.wscope");
    let kernels = report(&scene, &["--by", "kernel"]);
    let export = ["export", "x.wscope", "--table", "kernels", "--format", "csv", "-o", "-"];
    let csv = Ended::of(&mut scene.warpscope(&export)).exits(0).out().to_owned();
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some("kernel,count,ns,mean_ns,max_ns,gpu_share"));
    assert_eq!(lines.count(), rows(&kernels).len());
    let total: u64 = rows(&kernels).iter().map(|row| number(row, "ns")).sum();
    assert_eq!(total, number(&report(&scene, &[]), "kernel_time_ns"));
    let text = Ended::of(&mut scene.warpscope(&["report", "x.wscope", "--by", "kernel", "--top", "2"])).exits(0);
    assert_eq!(text.out().lines().count(), 3, "{}", text.out());

    let folded = Ended::of(&mut scene.warpscope(&["export", "x.wscope", "--format", "folded", "-o", "/dev/stdout"]));
    Ended::of(&mut scene.warpscope(&["export", "x.wscope", "-o", "x.folded", "-o", "x.csv"])).exits(0);
    assert_eq!(folded.exits(0).out(), scene.read("x.folded"));
    assert_eq!(scene.read("x.csv"), csv);
    let run = Ended::of(&mut scene.warpscope(&["export", "x.wscope", "-o", "-"])).exits(1);
    run.says(&["choose the format of the standard output"]);
}

/// Check that an empty table says which option would have filled it, and that each line has one row.
#[test]
fn empty_tables_say_what_would_fill_them() {
    let scene = Scene::new();
    recorded(&scene, 2, "x.wscope");
    for (table, option) in [
        ("energy", "--energy"),
        ("verdicts", "--counters"),
        ("stalls", "--stalls"),
        ("waits", "--off-cpu"),
        ("memory", "--memory"),
        ("calls", "warpscope trace"),
    ] {
        let run = Ended::of(&mut scene.warpscope(&["report", "x.wscope", "--by", table])).exits(0);
        assert_eq!(run.out(), "", "{table}");
        run.says(&["the table is empty: ", option]);
    }
    let lines = report(&scene, &["--by", "lines"]);
    let names: std::collections::BTreeSet<[&str; 2]> =
        rows(&lines).iter().map(|row| ["line", "file"].map(|key| row[key].as_str().expect("a text"))).collect();
    assert_eq!(names.len(), rows(&lines).len(), "one row for each line: {lines}");
    assert!(rows(&lines).iter().any(|row| number(row, "gpu_ns") > 0), "{lines}");
    let trace = Ended::of(&mut scene.trace("--sim -q -o t.wscope", &program("calls"))).exits(0);
    drop(trace);
    let text = Ended::of(&mut scene.warpscope(&["report", "t.wscope", "--by", "calls"])).exits(0).out().to_owned();
    assert!(text.lines().next().is_some_and(|line| line.contains("self") && line.contains("function")), "{text}");
}

/// Check that a recording can come through a pipe, or from a file as the standard input.
#[test]
fn recordings_are_read_from_the_standard_input() {
    let scene = Scene::new();
    recorded(&scene, 2, "x.wscope");
    let expected = Ended::of(&mut scene.warpscope(&["report", "x.wscope"])).exits(0).out().to_owned();
    for script in [
        "cat x.wscope | WARPSCOPE report -",
        "WARPSCOPE report - < x.wscope",
        "cat x.wscope | WARPSCOPE report /dev/stdin",
    ] {
        let script = script.replace("WARPSCOPE", WARPSCOPE);
        let run = Ended::of(scene.bare("sh").args(["-c", &script])).exits(0);
        assert_eq!(run.out(), expected, "{script}");
    }
    let run = Ended::of(&mut scene.warpscope(&["report", "-"])).exits(1);
    run.says(&["-: "]);
}

/// Check that a comparison finds what has changed, and that its exit status says so.
#[test]
fn recordings_are_compared() {
    let scene = Scene::new();
    recorded(&scene, 20, "a.wscope");
    recorded(&scene, 40, "b.wscope");
    let diff = |arguments: &[&str]| Ended::of(&mut scene.warpscope(&[&["diff"], arguments].concat()));
    let same = diff(&["a.wscope", "a.wscope", "--fail-above", "0%", "--json"]).exits(0);
    let same: Value = serde_json::from_str(same.out()).expect("JSON");
    assert!(rows(&same["kernels"]).iter().all(|row| row["change"] == 0.0 && row["significant"].is_null()));
    let on_gpu = ["--fail-above", "20%", "--fail-on", "gpu"];
    let more = diff(&[&["a.wscope", "b.wscope", "--json"], &on_gpu[..]].concat()).exits(3);
    assert!(more.err().starts_with("warpscope: the GPU time has increased by "), "{}", more.err());
    let more: Value = serde_json::from_str(more.out()).expect("JSON");
    let gpu_time = rows(&more["totals"]).iter().find(|row| row["name"] == "GPU time").expect("GPU time");
    let runs = |key: &str| rows(&more["kernels"]).iter().map(|row| number(row, key)).sum::<u64>();
    assert_eq!(2 * runs("before_count"), runs("after_count"), "twice as many rounds");
    for row in rows(&more["kernels"]).windows(2) {
        let change = |row: &Value| number(row, "before").abs_diff(number(row, "after"));
        assert!(change(&row[0]) >= change(&row[1]), "the largest change is first: {row:?}");
    }
    diff(&[&["b.wscope", "a.wscope"], &on_gpu[..]].concat()).exits(0);
    let several = diff(&[&on_gpu[..], &["a.wscope", "a.wscope", "--", "b.wscope", "b.wscope"]].concat()).exits(3);
    assert!(several.out().starts_with("means of 2 and 2 recordings"), "{}", several.out());
    diff(&["a.wscope"]).exits(1).says(&["give two recordings"]);
    diff(&["a.wscope", "b.wscope", "-o", "d.pdf"]).exits(1).says(&["the file name must end in .html"]);

    // The page has the same rows, and its graph zooms.
    let page = diff(&[&["a.wscope", "b.wscope", "-o", "d.html"], &on_gpu[..]].concat()).exits(3);
    assert!(page.err().contains("wrote d.html"), "{}", page.err());
    let mut browser = Browser::start(1280, 720);
    browser.open(&format!("file://{}", scene.text("d.html")));
    let shown = browser.number("document.querySelectorAll('#kernels tbody tr').length");
    assert_eq!(shown, rows(&more["kernels"]).len() as f64);
    assert_eq!(browser.number("root.before"), number(gpu_time, "before") as f64);
    assert_eq!(browser.number("root.after"), number(gpu_time, "after") as f64);
    browser.click_on("document.querySelectorAll('#flame button')[1]");
    assert_eq!(browser.js("zoomed.above === root"), true);
    browser.press("Escape");
    assert_eq!(browser.js("zoomed === root"), true);
    assert_eq!(browser.errors(), Vec::<String>::new());
    diff(&["a.wscope", "b.wscope", "--fail-above", "x"]).exits(1).says(&["expected a percentage such as 3%"]);
}
