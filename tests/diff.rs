//! Comparisons of recordings whose programs differ in one known way.

use serde_json::Value;

use crate::support::{Ended, Scene, browser::Browser, program, scene::number};

const ROUNDS: u64 = 40;

/// Records a program that loads for some milliseconds and uses some MiB, with kernels of this length.
fn recorded(scene: &Scene, file: &str, load_ms: u64, mib: u64, kernel: &str) {
    recorded_for(scene, file, ROUNDS, (load_ms, mib), kernel);
}

fn recorded_for(scene: &Scene, file: &str, rounds: u64, (load_ms, mib): (u64, u64), kernel: &str) {
    let command = format!("{} {rounds} {load_ms} {mib}", program("steps"));
    let mut command = scene.record(&format!("--sim -q -F 999 --off-cpu --memory -o {file}"), &command);
    Ended::of(command.env("WARPSCOPE_SIM", format!("kernel_ns={kernel}"))).exits(0);
}

fn diff(scene: &Scene, options: &str) -> Ended {
    Ended::of(&mut scene.warpscope(&[&["diff"], &options.split(' ').collect::<Vec<_>>()[..]].concat()))
}

fn compared(scene: &Scene, files: &str) -> Value {
    serde_json::from_str(diff(scene, &format!("{files} --json")).exits(0).out()).expect("JSON")
}

fn rows<'a>(diff: &'a Value, table: &str) -> &'a [Value] {
    diff[table].as_array().unwrap_or_else(|| panic!("no {table}: {diff}"))
}

/// Returns the row that has this in its name.
#[track_caller]
fn row<'a>(diff: &'a Value, table: &str, name: &str) -> &'a Value {
    let is = |row: &&Value| row["name"].as_str().is_some_and(|text| text.contains(name));
    rows(diff, table).iter().find(is).unwrap_or_else(|| panic!("no {name} in {table}: {}", diff[table]))
}

/// Check that a loader that takes four times as long fails a gate on the wall time and one on the CPU time, not one on the GPU
/// time, and that it is named as the explanation.
#[test]
fn a_slower_loader_fails_the_gate_and_is_named() {
    let scene = Scene::new();
    recorded(&scene, "a.wscope", 5, 1, "1ms");
    recorded(&scene, "b.wscope", 20, 1, "1ms");
    let failed = diff(&scene, "a.wscope b.wscope --fail-above 3% --fail-on wall").exits(3);
    assert!(failed.err().starts_with("warpscope: the wall time has increased by "), "{}", failed.err());
    let failed = diff(&scene, "a.wscope b.wscope --fail-above 3%").exits(3);
    assert!(failed.err().starts_with("warpscope: the median step has increased by "), "{}", failed.err());
    let text = failed.out();
    let sentence = text.lines().find(|line| line.starts_with("the wall time has increased by ")).expect(text);
    assert!(sentence.contains("GPU 0 was idle ") && sentence.contains(": load"), "{text}");
    diff(&scene, "a.wscope b.wscope --fail-above 3% --fail-on gpu").exits(0);
    diff(&scene, "a.wscope b.wscope --fail-above 3% --fail-on cpu").exits(3);
    diff(&scene, "b.wscope a.wscope --fail-above 3%").exits(0);
    diff(&scene, "a.wscope b.wscope --fail-on gpu").exits(2);

    let text = diff(&scene, "a.wscope b.wscope --fail-above 3% --format markdown").exits(3);
    let text = text.out();
    assert!(text.starts_with("### regression\n") && text.contains("| before | after | change | total |"), "{text}");
    assert!(text.contains("GPU idle that changed most") && text.contains("load"), "{text}");
    let brief = Ended::of(&mut scene.warpscope(&["report", "--brief", "b.wscope"])).exits(0);
    let brief = brief.out();
    assert!(brief.lines().count() <= 60 && !brief.contains('\u{1b}'), "{brief}");
    let at = |title: &str| brief.find(title).unwrap_or_else(|| panic!("no {title}: {brief}"));
    assert!(
        at("\nLosses and overhead\n") < at("\nWhere to look next\n") && brief.contains("gpu-idle: GPU 0 idle"),
        "{brief}"
    );

    let diff = compared(&scene, "a.wscope b.wscope");
    assert_eq!(row(&diff, "totals", "GPU time")["change"], 0.0, "simulated kernels have exact times");
    for (table, name) in [("totals", "wall time"), ("totals", "CPU time"), ("idle", "load"), ("lines", "load")] {
        let change = row(&diff, table, name)["change"].as_f64().expect("it was there before");
        assert!(change > 0.5, "{name} in {table}: {change}");
    }
    let parts = rows(&diff["explanation"], "parts");
    assert!(parts[0]["name"].as_str().is_some_and(|name| name.starts_with("load")), "{parts:?}");
    assert_eq!(diff["explanation"]["gpu"], "0");
}

/// Check that slower kernels fail gates on the wall time and on the GPU time, and that the kernel is named.
#[test]
fn a_slower_kernel_is_named() {
    let scene = Scene::new();
    recorded(&scene, "a.wscope", 1, 1, "1ms");
    recorded(&scene, "b.wscope", 1, 1, "20ms");
    let failed = diff(&scene, "a.wscope b.wscope --fail-above 3%").exits(3);
    let text = failed.out();
    assert!(text.contains("GPU 0 was busy ") && text.contains("most in work (+760 ms)"), "{text}");
    diff(&scene, "a.wscope b.wscope --fail-above 3% --fail-on gpu").exits(3);
    let diff = compared(&scene, "a.wscope b.wscope");
    let work = row(&diff, "kernels", "work");
    assert_eq!((number(work, "before"), number(work, "after")), (ROUNDS * 1_000_000, ROUNDS * 20_000_000));
    let waits = row(&diff, "totals", "waits for the GPU");
    // A busy machine lengthens the short waits more than the long ones.
    let (before, after) = (number(waits, "before"), number(waits, "after"));
    assert!(after > 19 * 1_000_000 * (ROUNDS - 1) && after > before, "{waits}");
    row(&diff, "waits", "train [waiting for the GPU]");
}

/// Check that the steps of runs of different length are compared: the one with longer steps is shorter.
#[test]
fn steps_of_runs_of_different_length_are_compared() {
    let scene = Scene::new();
    recorded_for(&scene, "a.wscope", 100, (1, 1), "1ms");
    recorded_for(&scene, "b.wscope", 10, (1, 1), "20ms");
    let failed = diff(&scene, "a.wscope b.wscope --fail-above 3%").exits(3);
    let text = failed.out();
    let sentence = text.lines().find(|line| line.starts_with("the median step of ")).expect(text);
    assert!(sentence.contains("; in each, GPU 0 was busy "), "{text}");
    let diff = compared(&scene, "a.wscope b.wscope");
    let steps = &diff["steps"];
    assert!(number(steps, "after") >= 20_000_000 && number(steps, "after_count") < 10, "{steps}");
    assert_eq!(steps["explanation"]["parts"][0]["kernel"], serde_json::json!(["work", 19_000_000]));
}

/// Check that the page has the steps of both sides, one above the other in one scale, with the numbers of the JSON; and no steps
/// where the JSON has none.
#[test]
fn the_page_has_steps_side_by_side() {
    let scene = Scene::new();
    recorded_for(&scene, "a.wscope", 100, (4, 1), "1ms");
    recorded_for(&scene, "b.wscope", 20, (4, 1), "4ms");
    let steps = compared(&scene, "a.wscope b.wscope")["steps"].clone();
    let [before, after] = ["before", "after"].map(|side| number(&steps, side));
    let of = |name: &str, side: &str| {
        let part = rows(&steps, "made_of").iter().find(|part| part["name"] == name);
        number(part.unwrap_or_else(|| panic!("no {name} in {steps}")), side)
    };
    assert_eq!(of("[GPU busy]", "after") - of("[GPU busy]", "before"), 3_000_000, "exact times of simulated kernels");
    diff(&scene, "a.wscope b.wscope -o d.html").exits(0);
    let mut browser = Browser::start(1400, 900);
    browser.open(&format!("file://{}", scene.text("d.html")));
    let side = |browser: &mut Browser, side: usize, what: &str| {
        browser.number(&format!("(side => {what})(document.querySelectorAll('#steps .side')[{side}])"))
    };
    for (at, times) in rows(&steps, "times").iter().enumerate() {
        let bars = side(&mut browser, at, "side.querySelectorAll('.strip i').length");
        assert_eq!(bars, times.as_array().expect("times").len() as f64);
        let parts = side(&mut browser, at, "side.querySelectorAll('.made i').length");
        assert_eq!(parts, rows(&steps, "made_of").len() as f64);
    }
    // In one scale: widths are to each other as the mean steps are.
    let width =
        "[...side.querySelectorAll('.made i')].reduce((sum, part) => sum + part.getBoundingClientRect().width, 0)";
    let widths = [0, 1].map(|at| side(&mut browser, at, width));
    let means =
        ["before", "after"].map(|of| rows(&steps, "made_of").iter().map(|part| number(part, of)).sum::<u64>() as f64);
    assert!((widths[0] / widths[1] - means[0] / means[1]).abs() < 0.02, "{widths:?}, {means:?}");
    let text = browser.text("document.querySelector('#steps').textContent");
    for (ns, unit) in [(before, "ms"), (after, "ms")] {
        let digits = format!("{:.2}", ns as f64 / 1e6);
        let digits = if ns >= 9_995_000 { format!("{:.1}", ns as f64 / 1e6) } else { digits };
        assert!(text.contains(&format!("{digits} {unit}")), "{digits}: {text}");
    }
    assert_eq!(browser.errors(), Vec::<String>::new());

    Ended::of(&mut scene.record("--sim -q -o c.wscope", &format!("{} 1 1 1", program("steps")))).exits(0);
    diff(&scene, "c.wscope c.wscope -o e.html").exits(0);
    browser.open(&format!("file://{}", scene.text("e.html")));
    assert_eq!(browser.js("document.querySelector('#steps')"), Value::Null);
    assert_eq!(browser.errors(), Vec::<String>::new());
}

/// Check that a recording does not differ from itself, in any table, and passes any gate.
#[test]
fn nothing_has_changed() {
    let scene = Scene::new();
    recorded(&scene, "a.wscope", 1, 1, "1ms");
    for total in ["step", "wall", "gpu", "cpu"] {
        diff(&scene, &format!("a.wscope a.wscope --fail-above 0 --fail-on {total}")).exits(0);
    }
    let same = diff(&scene, "a.wscope a.wscope").exits(0);
    assert!(same.out().ends_with("nothing has changed\n"), "{}", same.out());
    let same = compared(&scene, "a.wscope a.wscope");
    for table in ["idle", "kernels", "paths", "functions", "lines", "waits", "memory"] {
        assert!(!rows(&same, table).is_empty(), "{table}");
        assert!(rows(&same, table).iter().all(|row| row["change"] == 0.0), "{table}: {}", same[table]);
    }
    assert!(same["explanation"].is_null(), "{}", same["explanation"]);
}

/// Check that a larger peak of GPU memory is shown, with the line that holds it.
#[test]
fn a_larger_memory_peak_is_shown() {
    let scene = Scene::new();
    recorded(&scene, "a.wscope", 1, 16, "1ms");
    recorded(&scene, "b.wscope", 1, 64, "1ms");
    let diff = compared(&scene, "a.wscope b.wscope");
    for row in [row(&diff, "totals", "GPU memory peak"), row(&diff, "memory", "allocate")] {
        assert_eq!((&row["unit"], number(row, "before"), number(row, "after")), (&"bytes".into(), 16 << 20, 64 << 20));
    }
    let text = self::diff(&scene, "a.wscope b.wscope").exits(0).out().to_owned();
    assert!(text.contains("16.0 MiB") && text.contains("+300.0 %") && text.contains("GPU memory peak"), "{text}");
}
