//! `demo`, the first command that a new user runs.

use std::{collections::BTreeSet, path::Path, process::Command};

use quick_xml::{Reader, events::Event};

use crate::support::{Ended, Scene, browser::Browser, programs, scene::number};

/// Asserts that a file is well-formed XML from its first to its last byte, and counts its elements.
#[track_caller]
fn elements(scene: &Scene, file: &str) -> usize {
    let text = scene.read(file);
    let mut reader = Reader::from_str(&text);
    reader.config_mut().check_comments = true;
    let (mut depth, mut count) = (0, 0);
    loop {
        match reader.read_event().unwrap_or_else(|error| panic!("{file} at byte {}: {error}", reader.error_position()))
        {
            Event::Start(element) => {
                element.attributes().for_each(|attribute| drop(attribute.expect("valid attributes")));
                depth += 1;
                count += 1;
            }
            Event::Empty(_) => count += 1,
            Event::End(_) => depth -= 1,
            Event::Text(text) => drop(text.decode().expect("valid text")),
            Event::Eof => break,
            _ => {}
        }
    }
    assert_eq!(depth, 0, "every element is closed");
    count
}

/// Check that `demo`, in an empty directory, exits with 0 and gives a report that opens in a browser, a recording and a
/// summary with `matched 100 %`.
#[test]
fn demo_writes_a_report_and_a_summary() {
    let scene = Scene::new();
    let run = Ended::of(&mut scene.warpscope(&["demo"])).exits(0);
    assert_eq!(scene.files(), ["demo.html", "demo.wscope"]);
    assert!(run.err().contains("matched 100 %"), "{}", run.err());
    assert!(run.err().contains("Open demo.html in a browser"), "{}", run.err());
    let mut browser = Browser::start(1280, 720);
    browser.open(&format!("file://{}", scene.text("demo.html")));
    assert_eq!(browser.js("document.body.dataset.drawn"), "flame");
    assert_eq!(browser.errors(), Vec::<String>::new());
    let report = scene.report("demo.wscope");
    assert_eq!(number(&report, "matched"), number(&report, "launches"));
    // The answer comes first, and names code. Which code depends on how busy the machine is.
    let first = report["findings"][0]["title"].as_str().unwrap_or_default();
    assert!(first.contains("llm.cpp") && !first.contains("[unknown]"), "{first}");
    assert!(number(&report, "kernels") > 100 && number(&report, "copies") > 0 && number(&report, "cpu_samples") > 0);
}

/// Check that flame graphs of nothing, of little and of much are well-formed.
#[test]
fn flame_graphs_are_well_formed() {
    let scene = Scene::new();
    for (options, command) in [
        ("-o nothing.svg", "true".to_owned()),
        ("--sim -o little.svg", format!("{} status", programs::program("behave"))),
        ("--sim -F 999 -o much.svg", format!("{} 2 8 3 2 600", programs::program("truth"))),
    ] {
        let mut command = scene.record(&format!("-q {options}"), &command);
        Ended::of(command.env("WARPSCOPE_SIM", "devices=2,kernel[*]=1ms"));
    }
    for name in ["nothing.svg", "little.svg", "much.svg"] {
        assert!(elements(&scene, name) > 3, "{name}");
    }
}

/// Check that a flame graph can be zoomed, and searched for text that is no regular expression, without an error; that its width
/// is that of the window, and its root is at the top.
#[test]
fn flame_graphs_zoom_and_search() {
    let scene = Scene::new();
    Ended::of(&mut scene.warpscope(&["demo", "-o", "x.svg"])).exits(0);
    let mut browser = Browser::start(1280, 720);
    browser.load(&format!("file://{}", scene.text("x.svg")));
    assert_eq!(browser.text("document.title"), "llm: a small language model on a simulated GPU");
    // Of several, the widest: a sample at the beginning of a function may have another caller.
    let widest = |name: &str| {
        format!(
            "frames.filter((frame) => frame.name.startsWith('{name}')).reduce((a, b) => a.box.getBBox().width < b.box.getBBox().width ? b : a).box"
        )
    };
    let width = |browser: &mut Browser, name: &str| browser.number(&format!("{}.getBBox().width", widest(name)));
    let all = width(&mut browser, "all");
    assert!((1200.0..1280.0).contains(&all), "{all}");
    assert!(browser.number("whole.box.getBBox().y") < 100.0);
    let before = width(&mut browser, "llm::Model::forward");
    browser.click_on(&widest("llm::Model::forward"));
    assert!(before < all && width(&mut browser, "llm::Model::forward") == all, "{before}");
    browser.press("Escape");
    assert!((width(&mut browser, "llm::Model::forward") - before).abs() < 0.01);
    browser.js("search('gemm<256, 128>(float')");
    let matched = browser.text("document.getElementById('matched').textContent");
    assert!(matched.starts_with("gemm<256, 128>(float: ") && !matched.contains(": 0.0 %"), "{matched}");
    assert!(browser.number("document.querySelectorAll('.found').length") > 0.0);
    browser.press("Escape");
    assert_eq!(browser.number("document.querySelectorAll('.found').length"), 0.0);
    assert_eq!(browser.errors(), Vec::<String>::new());
}

/// Check that each kernel of the demo agrees with its stub, which looks like nvcc's, by the checker for real programs.
#[test]
fn stubs_agree_with_kernels() {
    let scene = Scene::new();
    let checker = programs::sources().join("check_stubs.py");
    let test = Ended::of(scene.bare("python3").arg(&checker).arg("--self-test"));
    test.exits(0);
    Ended::of(&mut scene.warpscope(&["demo", "-o", "demo.folded"])).exits(0);
    let run = Ended::of(scene.bare("python3").arg(&checker).args(["--strict", "demo.folded"])).exits(0);
    assert!(run.out().contains(" 0 without a stub, 0 disagree\n"), "{}", run.out());
    assert!(!run.out().starts_with("checked 0 stacks"), "{}", run.out());
}

/// Check that `demo` needs only the binary: it runs in an empty directory with an empty environment.
#[test]
fn demo_needs_only_the_binary() {
    let scene = Scene::new();
    programs::copy(programs::WARPSCOPE, scene.path("warpscope"));
    let run = Ended::of(scene.bare(scene.path("warpscope")).arg("demo").env_clear()).exits(0);
    assert!(run.err().contains("matched 100 %"), "{}", run.err());
    assert_eq!(scene.files(), ["demo.html", "demo.wscope", "warpscope"]);
}

/// Check that, without TMPDIR, the private directory is in /tmp, has an unpredictable name, and is removed at the end.
#[test]
fn private_directory_is_removed() {
    let scene = Scene::new();
    let mut command = scene.record("-q -o x.svg", "env");
    let run = Ended::of(command.env_remove("TMPDIR")).exits(0);
    let library = run.out().lines().find_map(|line| line.strip_prefix("CUDA_INJECTION64_PATH=")).expect("the variable");
    let directory = Path::new(library).parent().expect("a directory");
    assert!(directory.to_string_lossy().starts_with("/tmp/warpscope."), "{library}");
    assert!(!directory.exists(), "{library} was left behind");
}

/// Check that the binary needs no shared libraries except the C library and libgcc.
#[test]
fn binary_needs_only_the_c_library() {
    let output = Command::new("readelf").args(["-d", programs::WARPSCOPE]).output().expect("readelf can be run");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let needed: BTreeSet<&str> = text
        .lines()
        .filter(|line| line.contains("(NEEDED)"))
        .filter_map(|line| line.split_once('[')?.1.strip_suffix(']'))
        .collect();
    let allowed = BTreeSet::from(["libc.so.6", "libm.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2"]);
    assert!(needed.contains("libc.so.6") && needed.is_subset(&allowed), "{needed:?}");
}
