//! The Ranks tab: who waited for whom, the ranks over time, and the members of an operation.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{STATE, becomes, no_errors, url};
use crate::support::{Ended, Scene, browser::Browser, jsonl::Events, program, scene::number};

const RANKS: u64 = 8;
const ROUNDS: u64 = 20;

/// Eight ranks of which rank 1 sleeps before each broadcast.
fn recorded() -> Scene {
    let scene = Scene::new();
    let command = format!("{} {RANKS} {ROUNDS} asleep", program("nccl"));
    let mut record = scene.record("--sim -q --off-cpu -o x.html -o x.wscope -o x.jsonl", &command);
    Ended::of(record.env("WARPSCOPE_SIM", format!("devices={RANKS},kernel_ns=40us,nccl_names=numbered"))).exits(0);
    scene
}

/// The rows of a table, by the column that names them.
fn rows(browser: &mut Browser, table: &str) -> Vec<Value> {
    browser.js(&format!("app.current.view.{table}.rows")).as_array().expect("rows").clone()
}

/// Check that the matrix, the operations and the late ranks are those of `report`, and that those of parts of the time add up to them.
#[test]
fn waits_are_those_of_the_report() {
    let scene = recorded();
    let report = scene.report("x.wscope");
    let mut browser = Browser::start(1400, 900);
    browser.open(&url(&scene, "x.html", "#tab=ranks"));
    assert_eq!(browser.text("document.body.dataset.drawn"), "ranks");
    let waited: Vec<Vec<u64>> = (0..RANKS as usize)
        .map(|rank| {
            let mut row = vec![0; RANKS as usize];
            for waited in report["ranks"][rank]["waited_for"].as_array().expect("waits") {
                row[number(waited, "rank") as usize] = number(waited, "ns");
            }
            row
        })
        .collect();
    let matrix = "app.recording.collectives.waits(RANGE).cells.map(row => row.map(cell => cell.ns))";
    assert_eq!(browser.js(&matrix.replace("RANGE", "null")), json!(waited));
    let shown = "[...document.querySelectorAll('.matrix tbody tr:not(.sum)')].map(row => [...row.querySelectorAll('.cell')].map(cell => cell.textContent))";
    let formatted = browser.js(&format!("{}.map(row => row.map(ns => ns ? formatTime(ns) : ''))", json!(waited)));
    assert_eq!(browser.js(shown), formatted);

    // Each operation belongs to the half in which its last member began.
    let middle = number(&report, "wall_ns") / 2;
    let halves = format!(
        "(() => {{ const halves = [[0, {middle}], [{middle}, {middle} * 3]].map(range => app.recording.collectives.waits(range).cells);
         return halves[0].map((row, own) => row.map((cell, other) => cell.ns + halves[1][own][other].ns)); }})()"
    );
    assert_eq!(browser.js(&halves), json!(waited));
    let counts = |browser: &mut Browser| {
        let sums: BTreeMap<(String, String), [u64; 3]> = rows(browser, "calls")
            .iter()
            .map(|row| {
                let text = |key: &str| row[key].as_str().expect("a text").to_owned();
                let numbers = ["count", "bytes", "waited_ns"].map(|key| row[key].as_f64().expect("a number") as u64);
                ((text("operation"), text("communicator")), numbers)
            })
            .collect();
        sums
    };
    let whole = counts(&mut browser);
    assert_eq!(whole.len(), report["collectives"].as_array().expect("collectives").len());
    browser.js("app.state.set({ range: [0, app.recording.wall] })");
    assert_eq!(counts(&mut browser), whole, "the page adds up what the report has");
    // So is the work of each rank.
    let work = browser.js("app.recording.collectives.work([0, app.recording.wall])");
    for (rank, work) in report["ranks"].as_array().expect("ranks").iter().zip(work.as_array().expect("work")) {
        for (name, ns) in [("busy", "busy_ns"), ("communication", "communication_ns"), ("exposed", "exposed_ns")] {
            assert_eq!(work[name].as_f64(), rank[ns].as_f64(), "{name} of {rank}");
        }
    }
    browser.press("Escape");
    becomes(&mut browser, &format!("{STATE}.range"), &Value::Null);

    let late = browser.text("document.querySelector('.late li').textContent");
    assert!(late.contains("rank 1: others waited") && late.contains("load_batch [sleeping]"), "{late}");
    browser.click_on("document.querySelector('.late ul button')");
    assert!(browser.text("document.querySelector('#details .name').textContent").contains("load_batch"));
    no_errors(&mut browser);
}

/// Check that a click on an operation in a lane selects all its members, with kernel, start and wait, here and on the timeline.
#[test]
fn an_operation_selects_its_members() {
    let scene = recorded();
    let events = Events::read(&scene.read("x.jsonl"));
    let origin = number(events.of("start").next().expect("a start"), "ts_ns");
    let mut browser = Browser::start(1400, 900);
    browser.open(&url(&scene, "x.html", "#tab=ranks"));
    // The last broadcast of all ranks, in the lane of the rank that is late.
    let point = browser.js("(() => { const { lanes } = app.current.view, { collectives } = app.recording;
         let id = collectives.count - 1;
         while (!collectives.name(id).startsWith('broadcast')) id--;
         const m = collectives.first[id] + 1;
         app.state.set({ window: [collectives.member.start[m] - 50000, collectives.member.start[m] + 90000] });
         lanes.canvas.scrollIntoView();
         const row = lanes.laneRows[1][0], at = lanes.canvas.getBoundingClientRect();
         return [at.x + lanes.x(collectives.member.start[m] + 20000), at.y + row.y + row.height / 2, id]; })()");
    browser.click((point[0].as_f64().expect("x"), point[1].as_f64().expect("y")));
    assert_eq!(browser.js(&format!("{STATE}.sel")), json!({ "kind": "c", "id": point[2] }));
    let details = browser.text("document.getElementById('details').textContent");
    assert!(details.contains("broadcast of 8 members") && details.contains("for rank 1"), "{details}");

    let members = rows(&mut browser, "members");
    assert_eq!(members.len() as u64, RANKS);
    let kernel = members[0]["kernel"].as_str().expect("a kernel").to_owned();
    assert!(kernel.starts_with("ncclDevKernel_Broadcast_"), "{kernel}");
    let rank_of: BTreeMap<u64, u64> = events.of("rank").map(|e| (number(e, "session"), number(e, "rank"))).collect();
    let starts: BTreeMap<String, u64> = events
        .of("kernel")
        .filter(|event| event["name"].as_str().is_some_and(|name| name.starts_with(&kernel)))
        .map(|event| (format!("rank {}", rank_of[&number(event, "session")]), number(event, "ts_ns") - origin))
        .collect();
    let last = *starts.values().max().expect("starts");
    assert_eq!(starts.len() as u64, RANKS);
    for member in &members {
        let rank = member["rank"].as_str().expect("a rank");
        let start = starts[rank];
        assert_eq!(number(member, "start"), start, "{member}");
        assert_eq!(number(member, "waited"), last - start, "{member}");
        assert_eq!(member["last"] == "rank 1", rank != "rank 1", "{member}");
    }
    // On the timeline each is outlined, and a click on one of them leads back to all.
    browser.js("app.state.set({ tab: 'time' })");
    let found = "(() => { const { collectives } = app.recording; const id = collectives.of(app.state.values.sel);
         return [...Array(8).keys()].filter(m => app.current.view.place(collectives.opOf(collectives.first[id] + m))).length; })()";
    assert_eq!(browser.number(found), RANKS as f64);
    let first = format!("app.recording.collectives.first[{}]", point[2]);
    browser.js(&format!("app.state.set({{ sel: {{ kind: 'o', id: app.recording.collectives.opOf({first}) }} }})"));
    browser.click_on(
        "[...document.querySelectorAll('#details button')].find(button => button.textContent === 'all members')",
    );
    assert_eq!(browser.js(&format!("{STATE}.sel")), json!({ "kind": "c", "id": point[2] }));
    browser.js("app.showFlame(app.state.values.sel)");
    assert!(browser.number("app.current.view.selected().size") >= 1.0);
    no_errors(&mut browser);
}

/// Check that eight ranks can be read on a phone and in both themes, with the keyboard, and that every heading is explained or plain.
#[test]
fn eight_ranks_are_readable() {
    let scene = recorded();
    let mut browser = Browser::start(1920, 1080);
    for scheme in ["light", "dark"] {
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        browser.call("Emulation.setEmulatedMedia", features);
        browser.open(&url(&scene, "x.html", "#tab=ranks&sel=c3"));
        assert_eq!(browser.js(include_str!("contrast.js")), json!([]), "{scheme}");
    }
    let in_sight = "[...document.querySelectorAll('.matrix tr')].every(row => row.getBoundingClientRect().bottom <= document.getElementById('details').getBoundingClientRect().top)";
    assert_eq!(browser.js(in_sight), true, "the whole matrix");
    // A cell shows its longest wait; its button has a name for screen readers.
    browser.js("document.querySelector('.matrix .cell button').focus()");
    let name = browser.text("document.activeElement.ariaLabel");
    assert!(name.starts_with("rank 0 waited ") && name.ends_with(" for rank 1: show the longest"), "{name}");
    browser.press("Enter");
    let worst = "(() => { const { member, first } = app.recording.collectives; const { id } = app.state.values.sel;
         return Math.max(...member.waited.subarray(first[id], first[id + 1]).filter((_, m) => m === 0)); })()";
    assert_eq!(browser.js(worst), browser.js("app.recording.collectives.waits(null).cells[0][1].most"));
    assert_eq!(browser.text("document.activeElement.ariaLabel"), name, "the focus stays");

    let size = json!({ "width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": false });
    browser.call("Emulation.setDeviceMetricsOverride", size);
    browser.open(&url(&scene, "x.html", "#tab=ranks&sel=c3"));
    assert!(browser.number("document.documentElement.scrollWidth") <= 390.0);
    let sections =
        "[...document.querySelectorAll('.ranks > section')].every(part => part.getBoundingClientRect().right <= 390)";
    assert_eq!(browser.js(sections), true);
    // The name of a rank stays while its numbers are scrolled.
    browser.js("document.querySelector('.matrix').scrollLeft = 400");
    assert!(browser.number("document.querySelector('.matrix tbody th').getBoundingClientRect().left") >= 0.0);
    no_errors(&mut browser);
}

/// Check that a program without collectives has no Ranks tab.
#[test]
fn others_have_no_ranks() {
    let scene = super::recorded();
    let mut browser = Browser::start(1400, 900);
    browser.open(&url(&scene, "x.html", ""));
    assert_eq!(browser.js("app.tabs.some(tab => tab.id === 'ranks')"), false);
    // An address with an operation that there is not shows nothing.
    browser.open(&url(&scene, "x.html", "#sel=c7&tab=ranks"));
    assert_eq!(browser.text("document.body.dataset.drawn"), "flame");
    no_errors(&mut browser);
}
