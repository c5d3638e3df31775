//! The HTML report in a real browser.

use std::{
    collections::BTreeSet,
    io::{Read, Write},
    os::unix::process::CommandExt,
};

use serde_json::{Value, json};

mod limits;
mod range;
mod ranks;

use crate::stalls;
use crate::support::{Ended, Running, Scene, browser::Browser, oracle::Walk, program, scene::number};

/// A recording of the ground-truth program on two GPUs, and its report.
fn recorded() -> Scene {
    let scene = Scene::new();
    let command = format!("{} {}", program("truth"), Walk::of(625).arguments());
    let mut command = scene.record("--sim -q -F 999 -o x.html -o x.wscope", &command);
    Ended::of(command.env("WARPSCOPE_SIM", "devices=2,order=shuffle")).exits(0);
    scene
}

/// The address of a report in a scene.
fn url(scene: &Scene, name: &str, fragment: &str) -> String {
    format!("file://{}{fragment}", scene.text(name))
}

const STATE: &str = "app.state.values";
const ROOT: &str = "app.tabs[0].view.tree.root";

/// Waits until an expression has a value: the browser goes back in its history when it likes.
#[track_caller]
fn becomes(browser: &mut Browser, expression: &str, value: &Value) {
    browser.js(&format!(
        "new Promise(done => (function look() {{
            JSON.stringify({expression}) === JSON.stringify({value}) ? done() : requestAnimationFrame(look); }})())"
    ));
}

#[track_caller]
fn no_errors(browser: &mut Browser) {
    assert_eq!(browser.errors(), Vec::<String>::new());
}

/// Check that the flame graph shows the times of the report, and that search, zoom and Esc work with mouse and keyboard.
#[test]
fn flame_graph_is_searched_and_zoomed() {
    let scene = recorded();
    let report = scene.report("x.wscope");
    let mut browser = Browser::start(1280, 720);
    browser.open(&url(&scene, "x.html", ""));
    assert_eq!(browser.text("document.body.dataset.drawn"), "flame");
    assert_eq!(browser.number(&format!("{ROOT}.total")), number(&report, "gpu_time_ns") as f64);
    browser.click_on("document.querySelector('[data-value=cpu]')");
    let cpu = number(&report, "cpu_time_ns");
    assert_eq!(browser.number(&format!("{ROOT}.total")), cpu as f64);
    browser.click_on("document.querySelector('[data-value=gpu]')");

    // The search: its share is that of the kernel in the table.
    let kernel = report["top_kernels"][0]["name"].as_str().expect("a name");
    browser.press("/");
    browser.call("Input.insertText", json!({ "text": kernel }));
    let found = browser.text("document.getElementById('found').textContent");
    assert!(found.starts_with("matched ") && found.ends_with(" %"), "{found}");
    let matched = browser.number("app.tabs[0].view.matches.total");
    assert!(matched >= number(&report["top_kernels"][0], "ns") as f64, "{matched}: {report}");
    browser.js("app.state.set({ q: '/(/' })");
    let error = browser.text("document.getElementById('found').textContent");
    assert!(error.contains("regular expression"), "{error}");
    let alert = browser.text("document.querySelector('header [role=alert]').textContent");
    assert!(alert.contains("regular expression"), "{alert}");
    browser.js("app.state.set({ q: '' }); document.activeElement.blur()");

    // A click zooms and selects, Esc goes back.
    let point =
        browser.js("(() => { const { boxes, canvas } = app.tabs[0].view; const at = canvas.getBoundingClientRect();
         const box = boxes.find(box => box.node.key >= 0 && box.w > 40 && box.w < at.width * 0.9);
         return [at.x + box.x + box.w / 2, at.y + box.y + box.h / 2, box.node.total]; })()");
    browser.click((point[0].as_f64().expect("x"), point[1].as_f64().expect("y")));
    assert_eq!(browser.js("app.tabs[0].view.zoomed.total"), point[2]);
    assert!(browser.number("document.querySelectorAll('.crumbs button').length") >= 2.0);
    let selected = browser.text("document.querySelector('#details .name').textContent");
    assert_eq!(selected, browser.text("app.tabs[0].view.tree.name(app.tabs[0].view.zoomed)"));
    browser.press("Escape");
    becomes(&mut browser, &format!("{STATE}.zoom"), &Value::Null);
    assert_eq!(browser.js(&format!("{STATE}.sel")), Value::Null);
    no_errors(&mut browser);
}

/// Check that Esc and the browser's Back undo one action each, whatever it was, and that typing is one action.
#[test]
fn every_action_is_undone_once() {
    let scene = recorded();
    let mut browser = Browser::start(1400, 900);
    browser.open(&url(&scene, "x.html", ""));
    let state = "app.state.text()";
    let mut seen = vec![browser.js(state)];
    for action in [
        "document.querySelector('[data-value=cpu]')",
        "document.querySelector('[data-value=function]')",
        "document.getElementById('tab-kernels')",
        "document.querySelector('.rows .row')",
        "document.getElementById('tab-flame')",
        "document.getElementById('theme')",
    ] {
        browser.click_on(action);
        seen.push(browser.js(state));
        assert_ne!(seen[seen.len() - 2], seen[seen.len() - 1], "{action}");
    }
    browser.press("/");
    for letter in ["a", "b", "c"] {
        browser.press(letter);
    }
    assert_eq!(browser.js(&format!("{STATE}.q")), "abc");
    for (number, before) in seen.iter().rev().enumerate() {
        match number % 2 {
            0 => browser.press("Escape"),
            _ => {
                browser.js("history.back()");
            }
        }
        becomes(&mut browser, state, before);
        // The page is drawn as its address says.
        assert_eq!(browser.js("location.hash.slice(1)"), *before);
        browser.js("document.activeElement.blur()");
    }
    browser.press("Escape");
    assert_eq!(browser.js(state), seen[0]);
    no_errors(&mut browser);
}

/// Check that the texts of every tab have the contrast of WCAG AA in both themes, as have the frames of every family.
#[test]
fn texts_have_contrast() {
    let scene = recorded();
    let mut browser = Browser::start(1400, 900);
    for scheme in ["light", "dark"] {
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        browser.call("Emulation.setEmulatedMedia", features);
        browser.open(&url(&scene, "x.html", "#q=/(/"));
        for tab in browser.js("app.tabs.map(tab => tab.id)").as_array().expect("tabs") {
            browser.js(&format!("app.state.set({{ tab: {tab}, range: [0, app.recording.wall / 2] }})"));
            assert_eq!(browser.js(include_str!("html/contrast.js")), json!([]), "{scheme}, {tab}");
            browser.js("app.state.set({ q: '' })");
        }
        browser.click_on("document.querySelector('#view .explain')");
        assert_eq!(browser.js(include_str!("html/contrast.js")), json!([]), "{scheme}, an explanation");
    }
    no_errors(&mut browser);
}

/// Check that a phone reaches everything: nothing is wider than the screen, and names are in sight.
#[test]
fn phones_reach_everything() {
    let scene = recorded();
    let mut browser = Browser::start(390, 844);
    browser.open(&url(&scene, "x.html", ""));
    for what in ["input[type=search]", "#help", "#theme"] {
        let place = browser.js(&format!(
            "(() => {{ const box = document.querySelector('{what}').getBoundingClientRect(); return [box.left, box.right, box.bottom]; }})()"
        ));
        let place: Vec<f64> = place.as_array().expect("numbers").iter().filter_map(Value::as_f64).collect();
        assert!(place[0] >= 0.0 && place[1] <= 390.0 && place[2] <= 400.0, "{what}: {place:?}");
    }
    for tab in browser.js("app.tabs.map(tab => tab.id)").as_array().expect("tabs") {
        browser.js(&format!("app.state.set({{ tab: {tab} }})"));
        assert!(browser.number("document.documentElement.scrollWidth") <= 390.0, "{tab}");
    }
    browser.js("app.state.set({ tab: 'kernels' })");
    let small = "[...document.querySelectorAll('.explain')].map(button => button.getBoundingClientRect())
         .filter(box => box.width < 24 || box.height < 24).length";
    assert_eq!(browser.number(small), 0.0, "a finger finds each");
    browser.js("document.querySelector('.scroll.table').scrollIntoView()");
    browser.click_on("document.querySelector('.heading .explain')");
    let shown = "(() => { const box = document.querySelector('dialog').getBoundingClientRect(); return [box.left, box.right, box.top, box.bottom]; })()";
    let shown: Vec<f64> = browser.js(shown).as_array().expect("numbers").iter().filter_map(Value::as_f64).collect();
    assert!(shown[0] >= 0.0 && shown[1] <= 390.0 && shown[2] >= 0.0 && shown[3] <= 844.0, "{shown:?}");
    browser.press("Enter");
    browser.js("document.querySelector('.scroll.table').scrollLeft = 300");
    let name = "document.querySelector('.rows .first').getBoundingClientRect()";
    assert!(browser.number(&format!("{name}.left")) < 20.0 && browser.number(&format!("{name}.right")) > 150.0);
    no_errors(&mut browser);
}

/// Check that every tab is explained, and every column that is not obvious, with the texts of `warpscope explain`; by keyboard and with
/// a name for screen readers.
#[test]
fn tabs_and_terms_are_explained() {
    // What needs no explanation. A new column is explained, or is added here.
    const OBVIOUS: &str = "runs, mean, max, kernel, count, bytes, copy or memset, GPU runs, line, function, waits, wait, kind, calls, pid, \
        from, to, process, streams, kernels, copies, memsets, device, UUID, use, when, grid and block, GPU, meaning, time";
    let scene = Scene::new();
    stalls::record(&scene, "", "--stalls", "");
    Ended::of(&mut scene.warpscope(&["demo", "-o", "demo.html"])).exits(0);
    Ended::of(&mut scene.record("--sim -q --memory --gpu-only -o memory.html", &program("held"))).exits(0);
    Ended::of(&mut scene.trace("--sim -q -o trace.html", &program("held"))).exits(0);
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
    let mut browser = Browser::start(1400, 900);
    let (mut explained, mut tabs) = (BTreeSet::new(), BTreeSet::new());
    for page in ["x.html", "demo.html", "memory.html", "trace.html"] {
        browser.open(&url(&scene, page, ""));
        for tab in browser.js("app.tabs.map(tab => tab.id)").as_array().expect("tabs") {
            browser.js(&format!("app.state.set({{ tab: {tab} }})"));
            tabs.insert(tab.to_string());
            assert!(browser.number("document.querySelectorAll('#view .explain').length") > 0.0, "{tab}");
            let without = "[...document.querySelectorAll('.heading [role=columnheader]')].filter(column => !column.querySelector('.explain'))
                 .map(column => column.textContent.replace(/ [↓↑]$/, ''))";
            for column in browser.js(without).as_array().expect("columns") {
                assert!(OBVIOUS.split(", ").any(|name| name == column), "{tab}: {column} is not explained");
            }
            let labels = browser
                .js("[...document.querySelectorAll('.explain')].map(button => button.getAttribute('aria-label'))");
            for label in labels.as_array().expect("labels").iter().filter_map(Value::as_str) {
                if !explained.insert(label.to_owned()) {
                    continue;
                }
                let term = label.strip_prefix("Explain ").expect("a name for screen readers");
                let button = format!(
                    "[...document.querySelectorAll('.explain')].find(button => button.ariaLabel === {})",
                    json!(label)
                );
                browser.js(&format!("{button}.focus()"));
                browser.press("Enter");
                let shown = browser.js(
                    "[...document.querySelectorAll('dialog p:not(.faint), dialog dd')].map(part => part.textContent)",
                );
                let said = words(Ended::of(&mut scene.warpscope(&["explain", term])).exits(0).out());
                let shown = shown.as_array().expect("texts").iter().filter_map(Value::as_str).map(words);
                let shown = shown.inspect(|text| assert!(said.contains(text), "{term}: {said} {text}")).count();
                assert!(shown >= 4, "{tab}: {label}");
                // The dialog's button has the focus.
                browser.press("Enter");
                becomes(&mut browser, "document.querySelectorAll('dialog').length", &json!(0));
                assert_eq!(browser.text("document.activeElement.ariaLabel"), label);
            }
        }
    }
    assert!(tabs.len() == 17 && explained.len() > 25, "{tabs:?} {explained:?}");
    no_errors(&mut browser);
}

/// Check that steps are bars of which a click selects the time, that numbers without times say so, and that a card shows
/// the evidence of its finding.
#[test]
fn steps_and_findings_are_shown() {
    let scene = Scene::new();
    let command = format!("{} slow 30", program("loops"));
    Ended::of(&mut scene.record("--sim -q --off-cpu -o x.html -o x.wscope", &command)).exits(0);
    let report = scene.report("x.wscope");
    let mut browser = Browser::start(1400, 900);
    browser.open(&url(&scene, "x.html", ""));
    assert_eq!(browser.js("app.steps.series.count"), report["steps"]["count"]);
    assert_eq!(browser.js("app.steps.median.duration"), report["steps"]["median_ns"]);
    let slowest = number(&report["steps"]["slowest"], "step") - 1;
    // The program loads for 300 ms in step 7, instead of 20 ms.
    let described = browser.text("app.steps.describe(6).join('\\n')");
    assert!(described.contains("times the median") && described.contains(" ms idle"), "{described}");
    let point = browser.js(&format!(
        "(() => {{ const box = app.steps.canvas.getBoundingClientRect();
         return [box.x + ({slowest} + 0.5) / app.steps.series.count * box.width, box.y + 20]; }})()"
    ));
    browser.click((point[0].as_f64().expect("x"), point[1].as_f64().expect("y")));
    let start = number(&report["steps"]["slowest"], "start_ns");
    assert_eq!(
        browser.js(&format!("{STATE}.range")),
        json!([start, start + number(&report["steps"]["slowest"], "ns")])
    );
    let busy = browser.text("document.querySelector('.facts').textContent");
    assert!(busy.contains("of the selected"), "{busy}");
    let about = browser.text("document.querySelector('#findings .about').textContent");
    assert!(about.contains("Of the whole recording; each card says what of it is in the selected time"), "{about}");

    let cards = report["findings"].as_array().expect("findings");
    assert_eq!(browser.number("document.querySelectorAll('.card').length"), cards.len() as f64);
    let card = browser.text("document.querySelector('.card').textContent");
    for text in ["title", "advice"] {
        assert!(card.contains(cards[0][text].as_str().expect("text")), "{card}");
    }
    let idle = cards.iter().position(|finding| finding["kind"] == "gpu-idle").expect("an idle GPU");
    browser.click_on(&format!("document.querySelectorAll('.card')[{idle}].querySelector('button')"));
    assert_eq!(browser.js(&format!("[{STATE}.weight, {STATE}.range]")), json!(["idle", null]));
    assert!(browser.number("app.current.view.selected().size") > 0.0);
    // A healthy program has no card, but a sentence.
    browser.js("app.recording.head.summary.findings = []; app.findings = new Findings(app); app.findings.update()");
    let said = browser.text("document.querySelector('#findings .about').textContent");
    assert!(said.starts_with("Nothing stands out"), "{said}");
    assert_eq!(browser.js("document.querySelector('.cards').hidden"), true);
    no_errors(&mut browser);
}

/// Check that code of others that only leads on is folded, that a selection in a table scrolls to its frame, and that
/// kernels whose names begin alike are drawn with what distinguishes them.
#[test]
fn flame_graph_shows_what_differs() {
    let scene = Scene::new();
    let programs = crate::support::programs::sources().join("programs");
    std::fs::write(
        scene.path("deep.py"),
        "import sys, threading\n\
         sys.path.insert(0, sys.argv[1])\n\
         from cudart import ONE, cudart, register\n\
         def launch(name): cudart.cudaLaunchKernel(register(name), ONE, ONE, None, 0, None)\n\
         def work():\n\
         \x20   for op in ['plus', 'multiplies', 'divides']: launch(f'void apply_kernel<Meta<2>, Functor<float, 2>, std::{op}<float> >(int)')\n\
         def deeper(n):\n\
         \x20   if n: return deeper(n - 1)\n\
         \x20   launch('deepest')\n\
         thread = threading.Thread(target=work)\n\
         thread.start()\n\
         thread.join()\n\
         deeper(60)\n",
    )
    .expect("written");
    let command = ["python3", &scene.text("deep.py"), programs.to_str().expect("a path")];
    Ended::of(&mut scene.record_words("--sim -q --gpu-only -o x.html", &command)).exits(0);
    let mut browser = Browser::start(1400, 900);
    browser.open(&url(&scene, "x.html", ""));
    let shown = "(() => { const all = []; const { tree } = app.tabs[0].view;
         (function visit(node) { if (node.key >= 0) all.push(tree.name(node)); node.children.forEach(visit); })(tree.root);
         return all; })()";
    let names = browser.js(shown).to_string();
    assert!(names.contains("work (deep.py:6)") && !names.contains("_bootstrap"), "{names}");
    browser.js("app.state.set({ fold: 'none' })");
    assert!(browser.js(shown).to_string().contains("_bootstrap"));
    browser.js("app.state.set({ fold: 'mine' })");
    assert!(!browser.js(shown).to_string().contains("threading.py"));
    browser.js("app.state.set({ fold: 'plumbing' })");

    let labels = browser.js("[...app.recording.distinct.values()].sort()");
    assert_eq!(labels, json!(["apply_kernel…divides", "apply_kernel…multiplies", "apply_kernel…plus"]));

    browser.js("app.state.set({ tab: 'kernels', q: 'deepest' })");
    browser.click_on("document.querySelector('.rows .row')");
    browser.js("app.state.set({ q: '', tab: 'flame' })");
    let seen = "(() => { const { boxes, scroll } = app.current.view; const chosen = app.current.view.selected();
         const box = boxes.find(box => chosen.has(box.node));
         return box.y > 900 && box.y >= scroll.scrollTop && box.y + box.h <= scroll.scrollTop + scroll.clientHeight; })()";
    assert_eq!(browser.js(seen), true);
    no_errors(&mut browser);
}

/// Check that plumbing is folded, can be unfolded, and that neither this nor the other trees change the sum.
#[test]
fn every_tree_has_the_same_sum() {
    let scene = recorded();
    let report = scene.report("x.wscope");
    let mut browser = Browser::start(1280, 720);
    browser.open(&url(&scene, "x.html", ""));
    let names = "(() => { const all = new Set(); const { tree } = app.tabs[0].view;
         (function visit(node) { if (node.key >= 0) all.add(tree.name(node)); node.children.forEach(visit); })(tree.root);
         return [...all].filter(name => name.startsWith('cudaLaunchKernel')).length; })()";
    assert_eq!(browser.number(names), 0.0);
    let whole = number(&report, "gpu_time_ns") as f64;
    for change in [
        "{ fold: 'none' }",
        "{ by: 'function' }",
        "{ view: 'up' }",
        "{ fold: 'plumbing' }",
        "{ fold: 'mine' }",
        "{ view: 'down' }",
        "{ by: 'line' }",
    ] {
        browser.js(&format!("app.state.set({change})"));
        let root = browser.number(&format!("{ROOT}.total"));
        let children = browser.number(&format!("{ROOT}.children.reduce((sum, node) => sum + node.total, 0)"));
        assert_eq!((root, children), (whole, whole), "{change}");
        if change == "{ fold: 'none' }" {
            assert!(browser.number(names) > 0.0);
        }
    }
    no_errors(&mut browser);
}

/// Check that dragging over the strip selects a time range for every tab, that two halves add up to the whole, and that
/// the address alone restores the view.
#[test]
fn time_range_applies_to_every_tab() {
    let scene = recorded();
    let report = scene.report("x.wscope");
    let mut browser = Browser::start(1280, 900);
    browser.open(&url(&scene, "x.html", ""));
    let strip = browser.js("(() => { const box = document.querySelector('#overview canvas').getBoundingClientRect(); return [box.x, box.y, box.width]; })()");
    let (x, y, width) =
        (strip[0].as_f64().expect("x"), strip[1].as_f64().expect("y"), strip[2].as_f64().expect("width"));
    browser.drag((x + width * 0.4, y + 10.0), (x + width * 0.6, y + 10.0));
    assert!(browser.number(&format!("{STATE}.range[1] - {STATE}.range[0]")) > 0.0);
    assert!(browser.number(&format!("{ROOT}.total")) < number(&report, "gpu_time_ns") as f64);
    let note = browser.text("document.querySelector('#overview .range').textContent");
    assert!(note.contains('–'), "{note}");

    let wall = number(&report, "wall_ns");
    let mut halves = 0.0;
    for range in [[0, wall / 2], [wall / 2, wall * 2]] {
        browser.js(&format!("app.state.set({{ range: {range:?}, tab: 'kernels' }})"));
        halves += browser.number("app.current.view.rows.reduce((sum, row) => sum + row.total, 0)");
    }
    assert_eq!(halves, number(&report, "kernel_time_ns") as f64);

    let address = browser.text("app.state.text()");
    assert!(address.contains("tab=kernels") && address.contains("range="), "{address}");
    let rows = browser.js("app.current.view.rows.length");
    browser.open(&url(&scene, "x.html", &format!("#{address}")));
    assert_eq!(browser.js("app.current.id"), "kernels");
    assert_eq!(browser.js("app.current.view.rows.length"), rows);
    no_errors(&mut browser);
}

/// Check that every table can be shown, that a row selects its frame everywhere, and that the CSV has every row.
#[test]
fn table_rows_select() {
    let scene = recorded();
    let report = scene.report("x.wscope");
    let mut browser = Browser::start(1280, 720);
    browser.open(&url(&scene, "x.html", ""));
    let tabs = browser.js("app.tabs.map(tab => tab.id)");
    for tab in tabs.as_array().expect("tabs") {
        let tab = tab.as_str().expect("a name");
        browser.click_on(&format!("document.getElementById('tab-{tab}')"));
        assert_eq!(browser.js("document.body.dataset.drawn"), tab);
    }
    for tab in ["flame", "time", "kernels", "paths", "functions", "copies", "processes", "devices", "ledger"] {
        assert!(tabs.as_array().is_some_and(|tabs| tabs.contains(&tab.into())), "{tab}: {tabs}");
    }
    browser.click_on("document.getElementById('tab-kernels')");
    let first = browser.text("document.querySelector('.rows .row .text').title");
    for kernel in report["top_kernels"].as_array().expect("kernels") {
        let row = format!("app.current.view.rows.find(row => row.label === {})", kernel["name"]);
        assert_eq!(browser.number(&format!("{row}.total")), number(kernel, "ns") as f64, "{kernel}");
        assert_eq!(browser.number(&format!("{row}.count")), number(kernel, "count") as f64, "{kernel}");
    }
    assert_eq!(browser.number("app.current.view.rows[0].total"), number(&report["top_kernels"][0], "ns") as f64);
    let lines = browser.number("app.current.view.csv().split('\\n').length");
    assert_eq!(lines, browser.number("app.current.view.rows.length") + 2.0);
    browser.click_on("document.querySelector('.rows .row')");
    assert_eq!(browser.js(&format!("{STATE}.sel.kind")), "f");
    assert!(browser.text("document.querySelector('#details .name').textContent").contains(&first));
    browser.click_on("document.getElementById('tab-flame')");
    assert!(browser.number("app.current.view.selected().size") > 0.0);
    // A search without a match says so.
    browser.js("app.state.set({ tab: 'kernels', q: 'no such kernel' })");
    assert!(browser.text("document.querySelector('main .message').textContent").contains("No row matches"));
    no_errors(&mut browser);
}

/// Check that the timeline zooms with the keyboard, draws no more than the screen can show, and that a click on an
/// operation selects it with its call path.
#[test]
fn timeline_selects_operations() {
    let scene = recorded();
    let mut browser = Browser::start(1280, 720);
    browser.open(&url(&scene, "x.html", "#tab=time"));
    let span = "app.current.view.window()[1] - app.current.view.window()[0]";
    let whole = browser.number(span);
    browser.press("w");
    assert!(browser.number(span) < whole * 0.8);
    browser.press("s");
    browser.press("d");
    let drawn = browser.number("app.current.view.draw(), app.current.view.drawnSlices");
    let most = browser.number("app.current.view.rows.length * 2 * app.current.view.width()");
    assert!(drawn > 0.0 && drawn < most, "{drawn} of {most}");

    let point =
        browser.js("(() => { const view = app.current.view; const row = view.rows.find(row => row.kind === 'op');
         const { start, duration } = row.slices; const i = start.length >> 1;
         view.app.state.set({ window: [start[i] - 1000, start[i] + duration[i] + 1000] });
         const at = view.canvas.getBoundingClientRect();
         return [at.x + view.x(start[i] + duration[i] / 2), at.y + row.y + row.height / 2, row.slices.id(i)]; })()");
    browser.click((point[0].as_f64().expect("x"), point[1].as_f64().expect("y")));
    assert_eq!(browser.js(&format!("{STATE}.sel")), json!({ "kind": "o", "id": point[2] }));
    let details = browser.text("document.getElementById('details').textContent");
    assert!(details.contains("after its launch") && details.contains(" › "), "{details}");
    browser.js("app.showFlame(app.state.values.sel)");
    assert_eq!(browser.number("app.current.view.selected().size"), 1.0);
    no_errors(&mut browser);
}

/// Check that the page follows the system's colours, and that the button overrides them.
#[test]
fn page_is_light_or_dark() {
    let scene = recorded();
    let mut browser = Browser::start(1280, 720);
    let background = "getComputedStyle(document.body).backgroundColor";
    let mut seen = Vec::new();
    for scheme in ["light", "dark"] {
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        browser.call("Emulation.setEmulatedMedia", features);
        browser.open(&url(&scene, "x.html", ""));
        assert_eq!(browser.js("theme.dark"), scheme == "dark");
        seen.push(browser.text(background));
    }
    assert_ne!(seen[0], seen[1]);
    browser.click_on("document.getElementById('theme')");
    assert_eq!((browser.js("theme.dark"), browser.text(background)), (Value::Bool(false), seen[0].clone()));
    no_errors(&mut browser);
}

/// Check that a report without GPU work says why, and one of nothing at all that there is nothing.
#[test]
fn empty_reports_say_why() {
    let scene = Scene::new();
    Ended::of(&mut scene.record("-q -o x.html", "true")).exits(0);
    let mut browser = Browser::start(1280, 720);
    browser.open(&url(&scene, "x.html", ""));
    let findings = browser.text("document.getElementById('findings').textContent");
    assert!(findings.contains("No GPU work was recorded"), "{findings}");
    for tab in ["flame", "ledger"] {
        browser.js(&format!("app.state.set({{ tab: '{tab}' }})"));
    }
    no_errors(&mut browser);
}

/// Check that names cannot become markup or break the page.
#[test]
fn hostile_names_are_text() {
    let scene = Scene::new();
    let programs = crate::support::programs::sources().join("programs");
    std::fs::write(
        scene.path("evil.py"),
        "import sys\n\
         sys.path.insert(0, sys.argv[1])\n\
         from cudart import ONE, cudart, register\n\
         for name in ['</script><img src=x onerror=document.body.dataset.hacked=1>', 'q\"\\'`;\\n{{data}}', 'x' * 10000, '\\udcff', '=1+1', '-2+3,\"4\"', '@a\\tb']:\n\
         \x20   cudart.cudaLaunchKernel(register(name.encode('utf-8', 'surrogateescape').decode('latin-1')), ONE, ONE, None, 0, None)\n",
    )
    .expect("written");
    let command = ["python3", &scene.text("evil.py"), programs.to_str().expect("a path")];
    Ended::of(&mut scene.record_words("--sim -q -o x.html -o x.wscope", &command)).exits(0);
    let kernels = number(&scene.report("x.wscope"), "kernels");
    let mut browser = Browser::start(1280, 720);
    browser.open(&url(&scene, "x.html", ""));
    for tab in ["time", "kernels", "paths", "functions", "ledger", "flame"] {
        browser.js(&format!("app.state.set({{ tab: '{tab}', sel: {{ kind: 'n', id: app.recording.gpu.node[0] }} }})"));
    }
    browser.js("app.state.set({ q: '</script>' })");
    assert!(browser.number("app.current.view.matches.nodes.size") > 0.0);
    browser.js("app.state.set({ q: '', tab: 'kernels' })");
    assert_eq!(browser.number("app.current.view.rows.reduce((sum, row) => sum + row.count, 0)"), kernels as f64);
    // What is copied is no formula, and has a line for each row.
    let table = browser.text("app.current.view.csv()");
    for cell in [",'=1+1\n", ",\"'-2+3,\"\"4\"\"\"\n", ",'@a b\n"] {
        assert!(table.contains(cell), "{cell} is not in {table}");
    }
    assert!(!table.contains(|c: char| c.is_control() && c != '\n'), "{table:?}");
    assert_eq!(browser.js("document.body.dataset.hacked"), Value::Null);
    assert_eq!(browser.number("document.querySelectorAll('img').length"), 0.0);
    assert!(browser.number("document.documentElement.scrollWidth") <= 1280.0);
    no_errors(&mut browser);
    // A script that is not the page's own does not run, though it has the attribute that was once enough.
    let insert = "(() => { const script = document.createElement('script'); script.nonce = 'warpscope'; \
                  script.textContent = 'document.body.dataset.injected = 1'; document.body.append(script); \
                  return document.body.dataset.injected ?? 'none'; })()";
    assert_eq!(browser.text(insert), "none");
}

/// Check that `open` serves the report of a recording to its user, only under the address that it printed, until it is
/// interrupted.
#[test]
fn open_serves_the_report_to_its_user() {
    let scene = recorded();
    let mut running = Running::start(&mut scene.warpscope(&["open", "x.wscope", "--no-browser"]));
    let url = running.stdout_line();
    assert!(url.starts_with("http://localhost:"), "{url}");
    running.stderr_until("ssh -L ");
    let script = "import sys, urllib.error, urllib.request\n\
         try: print(len(urllib.request.urlopen(sys.argv[1]).read()))\n\
         except urllib.error.HTTPError as error: print(-error.code)";
    let get = |url: &str, uid: u32| {
        let mut command = scene.bare("/usr/bin/python3");
        let run = Ended::of(command.args(["-c", script, url]).uid(uid).gid(uid)).exits(0);
        run.out().trim().parse::<i64>().expect("a number")
    };
    let size = std::fs::metadata(scene.path("x.html")).expect("the report").len() as i64;
    assert_eq!(get(&url, 0), size);
    assert_eq!(get(&url, 65534), -403);
    // A web page that has rebound its name to this address.
    let (address, path) = url["http://".len()..].split_once('/').expect("a path");
    let mut stream = std::net::TcpStream::connect(address).expect("it listens");
    write!(stream, "GET /{path} HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 421 "), "{answer}");
    let (front, token) = url.trim_end_matches('/').rsplit_once('/').expect("a token");
    assert_eq!(token.len(), 32, "{url}");
    let other = "0".repeat(32);
    assert_eq!((get(&format!("{front}/"), 0), get(&format!("{front}/{other}/"), 0)), (-404, -404));
    let mut browser = Browser::start(1280, 720);
    browser.open(&url);
    assert_eq!(browser.js("document.body.dataset.ready"), "yes");
    no_errors(&mut browser);
    running.signal(libc::SIGINT);
    running.wait().dies_of(libc::SIGINT);
}

/// Check that `open` refuses files that are neither a recording nor a report.
#[test]
fn open_refuses_other_files() {
    let scene = Scene::new();
    for (file, message) in [("x.svg", "give a recording"), ("x.html", "cannot open x.html"), ("x.wscope", "x.wscope")] {
        Ended::of(&mut scene.warpscope(&["open", file])).exits(1).says(&[message]);
    }
}
