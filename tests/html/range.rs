//! The time range rules idle time and findings.

use serde_json::{Value, json};

use super::{STATE, no_errors, url};
use crate::support::{Ended, Scene, browser::Browser, program, scene::number};

/// A program whose GPU waits for naps, computation and slow launches, recorded with all evidence.
fn recorded() -> Scene {
    let scene = Scene::new();
    let mut record =
        scene.record("--sim -q -F 999 --off-cpu -o x.html -o x.wscope", &format!("{} 20", program("idle")));
    Ended::of(record.env("WARPSCOPE_SIM", "slow=cuLaunchKernel:2ms")).exits(0);
    scene
}

/// The sum of the table that is shown, by what the thread that feeds the GPU did.
fn table(browser: &mut Browser) -> Value {
    browser.js(
        "Object.fromEntries(app.current.view.rows.reduce((sums, { cause, ns }) => sums.set(cause, (sums.get(cause) || 0) + ns), new Map()))",
    )
}

/// Check that the page charges the idle time of the whole time as `report` does, that parts add up to it, and that a
/// time in which the thread slept is charged to that alone.
#[test]
fn idle_time_follows_the_time_range() {
    let scene = recorded();
    let report = scene.report("x.wscope");
    let mut browser = Browser::start(1400, 900);
    browser.open(&url(&scene, "x.html", "#tab=idle"));
    assert_eq!(browser.js("app.recording.idleTime.isKnown"), true);
    // The report rounds the share of each stack to whole nanoseconds.
    let differs = "(() => { const { idle, idleTime, wall } = app.recording; const sums = new Map();
         idle.node.forEach((node, i) => sums.set(node, (sums.get(node) || 0) + idle.ns[i]));
         for (const { node, ns } of idleTime.in([0, wall])) sums.set(node, (sums.get(node) || 0) - ns);
         return [...sums].filter(([, ns]) => Math.abs(ns) > idleTime.rows.length); })()";
    assert_eq!(browser.js(differs), json!([]));

    let wall = number(&report, "wall_ns");
    let idle = wall - number(&report["devices"][0], "busy_ns");
    let mut parts = 0.0;
    for range in [[0, wall / 3], [wall / 3, wall / 2], [wall / 2, wall]] {
        browser.js(&format!("app.state.set({{ range: {range:?} }})"));
        assert_eq!(browser.text("document.querySelector('.ranged').textContent"), "");
        parts += browser.number("app.current.view.rows.reduce((sum, row) => sum + row.ns, 0)");
    }
    assert!((parts - idle as f64).abs() < 1.0, "{parts} {idle}");

    // The middle of the longest sleep before a launch.
    let nap = browser.js(
        "(() => { const { start, duration, frame } = app.recording.switch; const { gaps } = app.recording.idleTime;
         const [made] = gaps.values(); let nap = null, longest = 0;
         start.forEach((from, i) => { const to = from + duration[i];
             const inside = made.start.some((start, at) => made.phase[at] === PHASE.between && start <= from && to <= made.launched[at]);
             if (inside && duration[i] > longest && app.recording.names[frame[i]] === '[sleeping]') [nap, longest] = [[from + duration[i] / 4, to - duration[i] / 4].map(Math.round), duration[i]]; });
         return [...nap, nap[1] - nap[0]]; })()",
    );
    browser.js(&format!("app.state.set({{ range: [{}, {}] }})", nap[0], nap[1]));
    let length = &nap[2];
    assert_eq!(table(&mut browser), json!({ "waited [sleeping]": length }));
    assert_eq!(browser.text("app.current.view.rows[0].place"), "nap");
    assert_eq!(browser.number("app.current.view.rows[0].share"), 1.0);
    // So does the flame graph of idle time.
    browser.js("app.state.set({ tab: 'flame', weight: 'idle' })");
    assert_eq!(browser.js("app.current.view.tree.root.total"), *length);
    assert!(!browser.text("app.current.view.controls.textContent").contains("whole recording"));
    // And the waits of threads that launch.
    browser.js("app.state.set({ tab: 'waits' })");
    assert_eq!(browser.js("app.current.view.rows.find(row => row.name === '[sleeping]').total"), *length);
    no_errors(&mut browser);
}

/// Check that each finding says how much of it is in the selected time, and that one without anything there steps back.
#[test]
fn findings_follow_the_time_range() {
    let scene = recorded();
    let report = scene.report("x.wscope");
    let mut browser = Browser::start(1400, 900);
    browser.open(&url(&scene, "x.html", ""));
    let findings = report["findings"].as_array().expect("findings");
    let idle = findings.iter().position(|finding| finding["kind"] == "gpu-idle").expect("an idle GPU");
    let card = format!("document.querySelectorAll('.card')[{idle}]");
    let said = format!("{card}.querySelector('.warn').textContent");
    let steps_back = format!("{card}.classList.contains('outside')");
    assert_eq!(browser.js(&format!("{card}.querySelector('.warn').hidden")), true);

    let first = browser.number("Math.min(...app.recording.op.start)");
    browser.js(&format!("app.state.set({{ range: [0, {first}] }})"));
    assert!(browser.text(&said).starts_with("nothing of it in the selected time"), "{}", browser.text(&said));
    assert_eq!(browser.js(&steps_back), true);
    assert_eq!(browser.js(include_str!("contrast.js")), json!([]), "it can be read");

    browser.js(&format!("app.state.set({{ range: [{first}, app.recording.wall] }})"));
    let text = browser.text(&said);
    let whole = browser.text(&format!("formatTime({})", report["idle"][0]["idle_ns"]));
    assert_eq!(text, format!("in the selected time: {whole} of {whole} idle"));
    assert_eq!(browser.js(&steps_back), false);
    browser.press("Escape");
    browser.press("Escape");
    super::becomes(&mut browser, &format!("{STATE}.range"), &Value::Null);
    assert_eq!(browser.js(&format!("{card}.querySelector('.warn').hidden")), true);
    no_errors(&mut browser);
}
