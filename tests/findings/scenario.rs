//! A program with one known bottleneck, or none, and what must be said about it.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::support::{
    Ended, Scene, program,
    scene::{lost, number},
};

/// How far a stated share may be from the true one, in points.
const POINTS: f64 = 3.0;

/// Kinds of findings that need everything that happened: a part of a recording cannot have them.
const OF_THE_WHOLE: [&str; 6] = ["gpu-idle", "start", "launch-bound", "synchronization", "copies-alone", "imbalance"];

/// The same of those that need the counters of whole GPUs.
const OF_COUNTERS: [&str; 3] = ["memory-bound", "latency-bound", "too-small"];

/// A program and what must be said about it: these findings and no others.
#[derive(Default)]
pub struct Scenario<'a> {
    /// The scripts of its threads: see `programs/findings.c`. A kernel must be called `work`.
    pub threads: &'a [&'a str],
    /// The configuration of the simulated GPU; `{scene}` is the directory of the test.
    pub sim: &'a str,
    /// More options of `record`.
    pub options: &'a str,
    /// All findings, in any order.
    pub says: &'a [Says<'a>],
    /// Words that no finding and no advice contains.
    pub never: &'a [&'a str],
}

/// A finding.
#[derive(Default)]
pub struct Says<'a> {
    /// Its kind.
    pub kind: &'a str,
    /// Words of its title or its advice.
    pub words: &'a [&'a str],
    /// A function that the title names with its share of the GPU's time, which the program measures itself.
    pub place: Option<&'a str>,
}

/// What a scenario gave.
pub struct Recorded {
    pub scene: Scene,
    pub report: Value,
}

impl Scenario<'_> {
    /// Records the program and checks what is said about the whole, about parts, and about all of its time.
    #[track_caller]
    pub fn check(&self) -> Recorded {
        let scene = Scene::new();
        let findings = program("findings");
        let command: Vec<&str> = std::iter::once(findings.as_str()).chain(self.threads.iter().copied()).collect();
        let options = format!("--sim -q -F 999 -o x.wscope {}", self.options);
        let mut record = scene.record_words(&options, &command);
        let sim = self.sim.replace("{scene}", &scene.text(""));
        let sim = if sim.contains("devices=") { sim } else { format!("devices=8,{sim}") };
        let run = Ended::of(record.env("WARPSCOPE_SIM", sim)).exits(0);
        let report = scene.report("x.wscope");
        let missed = number(&report["lost"], "missed_switches");
        assert_eq!(lost(&report) - missed, 0, "{}", report["lost"]);
        self.check_findings(&report, &truth(run.out()));
        let recorded = Recorded { scene, report };
        self.check_parts(&recorded);
        recorded
    }

    #[track_caller]
    fn check_findings(&self, report: &Value, truth: &BTreeMap<String, f64>) {
        // A loaded machine takes long to start a program, and that is true.
        let mut found: Vec<&Value> = findings(report).filter(|finding| finding["kind"] != "start").collect();
        for expected in self.says {
            let words = |finding: &Value| {
                let text = format!("{} {}", text(finding, "title"), text(finding, "advice"));
                expected.words.iter().all(|words| text.contains(words))
            };
            let place = |finding: &Value| expected.place.is_none_or(|place| stated(finding, place).is_some());
            let at = found.iter().position(|f| f["kind"] == expected.kind && words(f) && place(f));
            let at = at.unwrap_or_else(|| panic!("{} {:?} not said: {found:#?}", expected.kind, expected.words));
            let finding = found.remove(at);
            if let Some(place) = expected.place {
                let span = number(&report["idle"][0], "span_ns") as f64;
                let (said, is) = (stated(finding, place).expect("it is stated"), 100.0 * truth[place] / span);
                assert!((said - is).abs() <= POINTS, "{place} took {is:.1} %: {finding}");
            }
        }
        assert!(found.is_empty(), "too much is said: {found:#?}");
        for finding in findings(report) {
            let text = format!("{} {}", text(finding, "title"), text(finding, "advice"));
            assert!(!self.never.iter().any(|word| text.contains(word)), "{text}");
        }
    }

    /// Check that filters change what is shown, and nothing about what is true; and that a time range without limits is the
    /// whole.
    #[track_caller]
    fn check_parts(&self, Recorded { scene, report }: &Recorded) {
        let threads = rows(scene, &["report", "--json", "--by", "thread", "x.wscope"]);
        let tid = text(&threads[0], "tid").to_owned();
        for filter in [["--kernel", "work"], ["--tid", &tid], ["--path", "launch"]] {
            let part = json(scene, &[&["report", "--json", "x.wscope"], &filter[..]].concat());
            assert_eq!(part["filters"], serde_json::json!([filter.join(" ")]));
            let whole = |finding: &&Value| OF_THE_WHOLE.iter().chain(&OF_COUNTERS).any(|kind| finding["kind"] == *kind);
            assert_eq!(findings(&part).find(whole), None, "{filter:?}");
            for key in ["cost", "host_wait_ns", "host_waits", "launch_each_ns", "wall_ns", "lost"] {
                assert_eq!(part[key], report[key], "{filter:?}: {key}");
            }
            for key in ["busy_ns", "kernels", "time_ns"] {
                for (device, of_whole) in same(&part["devices"], &report["devices"], "index") {
                    if number(device, "streams") > 0 {
                        assert_eq!(device[key], of_whole[key], "{filter:?}: {key}");
                    }
                }
            }
            for (device, of_whole) in same(&part["idle"], &report["idle"], "device") {
                assert_eq!(device, of_whole, "{filter:?}");
            }
            let text = Ended::of(&mut scene.warpscope(&[&["report", "x.wscope"], &filter[..]].concat())).exits(0);
            assert!(text.out().replace('\n', " ").contains(&filter.join(" ")), "{}", text.out());
        }
        let range = json(scene, &["report", "--json", "x.wscope", "--from", "0s"]);
        // The counters of GPUs are not part of a time range.
        let kinds = |report: &Value| {
            let kinds = findings(report).map(|finding| text(finding, "kind").to_owned());
            kinds.filter(|kind| !OF_COUNTERS.contains(&kind.as_str())).collect::<Vec<_>>()
        };
        assert_eq!((kinds(&range), &range["cost"]), (kinds(report), &report["cost"]));
    }
}

/// The findings of a report.
pub fn findings(report: &Value) -> impl Iterator<Item = &Value> {
    report["findings"].as_array().into_iter().flatten()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// The share that a title gives for a function: `23 % load`.
fn stated(finding: &Value, place: &str) -> Option<f64> {
    let title = text(finding, "title");
    let before = title.split([':', ',']).find_map(|part| part.trim().strip_suffix(&format!(" % {place}")))?;
    before.rsplit(' ').next()?.parse().ok()
}

/// What the program says about its functions, in nanoseconds.
fn truth(out: &str) -> BTreeMap<String, f64> {
    let line = |line: &str| {
        let (name, ns) = line.split_once(' ')?;
        Some((name.to_owned(), ns.parse().ok()?))
    };
    out.lines().filter_map(line).collect()
}

/// The rows of two tables that are about the same.
fn same<'a>(part: &'a Value, whole: &'a Value, key: &'a str) -> impl Iterator<Item = (&'a Value, &'a Value)> {
    let whole = whole.as_array().into_iter().flatten();
    let of = move |row: &'a Value| Some((row, whole.clone().find(|other| other[key] == row[key])?));
    part.as_array().into_iter().flatten().filter_map(of)
}

#[track_caller]
pub fn json(scene: &Scene, arguments: &[&str]) -> Value {
    let run = Ended::of(&mut scene.warpscope(arguments)).exits(0);
    serde_json::from_str(run.out()).unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
}

#[track_caller]
fn rows(scene: &Scene, arguments: &[&str]) -> Vec<Value> {
    json(scene, arguments).as_array().expect("rows").clone()
}
