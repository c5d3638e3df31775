//! A program with one known bottleneck, or none, and what must be said about it: these findings and no others.
//!
//! The program measures itself: it prints when it was in which function. Shares are compared with that, so they hold on a busy
//! machine, too. Each program is recorded once, and reported as a whole, in parts (`parts.rs`) and in time ranges.

use std::{
    fs::{self, File},
    io::BufReader,
    time::{Duration, Instant},
};

use model::{event::Event, recording::Reader};
use serde_json::{Value, json};

use super::{
    parts,
    report::{self, findings, text},
    says::{Says, stated},
};
use crate::support::{
    Ended, Scene,
    agent::Agent,
    coverage::not_covered,
    program,
    programs::sources,
    pythons::installed,
    scene::{lost, number},
};

/// How far a stated share may be from the true one, in points.
const POINTS: f64 = 3.0;

/// A program and what must be said about it.
#[derive(Clone, Default)]
pub struct Scenario {
    /// The scripts of its threads: see `programs/findings.c`. A kernel must be called `work`.
    threads: Vec<String>,
    /// Or a reason for `programs/findings.py`.
    python: Option<&'static str>,
    sim: String,
    options: String,
    says: Vec<Says>,
    never: Vec<&'static str>,
    phases: Vec<Phase>,
    steady: bool,
}

/// What must be said about the time between two marks of the program.
#[derive(Clone)]
struct Phase {
    from: &'static str,
    to: &'static str,
    says: Vec<Says>,
    never: Vec<&'static str>,
}

impl Scenario {
    /// A program of threads that follow scripts.
    pub fn of<T: ToString>(threads: impl IntoIterator<Item = T>) -> Self {
        let threads = threads.into_iter().map(|thread| thread.to_string()).collect();
        Self { threads, steady: true, ..Self::default() }
    }

    /// A Python program whose GPU waits for a reason.
    pub fn python(reason: &'static str) -> Self {
        Self { python: Some(reason), steady: true, ..Self::default() }
    }

    /// The configuration of the simulated GPU; `{scene}` is the directory of the test, and `{cubin}` a cubin with lines.
    pub fn sim(self, sim: impl Into<String>) -> Self {
        Self { sim: sim.into(), ..self }
    }

    /// More options of `record`.
    pub fn options(self, options: impl Into<String>) -> Self {
        Self { options: options.into(), ..self }
    }

    /// Adds a finding that must be said.
    pub fn says(mut self, finding: Says) -> Self {
        self.says.push(finding);
        self
    }

    /// Words that no finding and no advice contains.
    pub fn never(self, words: &[&'static str]) -> Self {
        Self { never: words.to_vec(), ..self }
    }

    /// It does not do the same all the time, so that nothing is known about the middle of it.
    pub fn unsteady(self) -> Self {
        Self { steady: false, ..self }
    }

    /// What must be said about the time between two marks, and the words that must not.
    pub fn between(
        mut self,
        from: &'static str,
        to: &'static str,
        says: impl IntoIterator<Item = Says>,
        never: &[&'static str],
    ) -> Self {
        self.phases.push(Phase { from, to, says: says.into_iter().collect(), never: never.to_vec() });
        self.unsteady()
    }

    /// The kinds of findings that must be said, for the table in docs/findings.md.
    pub fn kinds(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.says.iter().map(|says| says.kind)
    }

    /// Records the program and checks it, unless the host took CPU time from this machine meanwhile: then the program was slower
    /// than its own times say, and nothing is known about it.
    #[track_caller]
    pub fn judge(&self) -> Option<Recorded> {
        self.record_alone().map(|recorded| self.check_recorded(recorded))
    }

    /// The same without the checks: returns the report.
    pub fn measure(&self) -> Option<Value> {
        self.record_alone().map(|recorded| recorded.scene.report("x.wscope"))
    }

    fn record_alone(&self) -> Option<Recorded> {
        let (before, started) = (stolen(), Instant::now());
        let recorded = self.record();
        let is_alone = (stolen() - before) * 100 <= started.elapsed();
        if !is_alone {
            not_covered("some findings: the host of this virtual machine took CPU time from it");
        }
        is_alone.then_some(recorded)
    }

    /// Records the program and checks what is said about the whole, about parts and about times.
    #[track_caller]
    pub fn check(&self) -> Recorded {
        self.check_recorded(self.record())
    }

    #[track_caller]
    fn check_recorded(&self, recorded: Recorded) -> Recorded {
        let report = recorded.scene.report("x.wscope");
        let missed = number(&report["lost"], "missed_switches");
        assert_eq!(lost(&report) - missed, 0, "{}", report["lost"]);
        self.check_said(&recorded, &report, &self.says, &self.never);
        self.check_agent(&recorded);
        parts::check(&recorded.scene, &report);
        self.check_times(&recorded, &report);
        Recorded { report, ..recorded }
    }

    fn record(&self) -> Recorded {
        let scene = Scene::new();
        let mut command: Vec<String> = match self.python {
            Some(reason) => {
                let script = sources().join("programs/findings.py").canonicalize().expect("it is there");
                let python = installed().pop().expect("at least one");
                vec![python.to_string(), script.display().to_string(), reason.to_owned(), "20".to_owned()]
            }
            None => vec![program("findings")],
        };
        command.extend(self.threads.iter().cloned());
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        let options = format!("--sim -q -F 999 -o x.wscope {}", self.options);
        let mut record = scene.record_words(&options, &command);
        let cubin = sources().join("../crates/symbols/tests/cubins/triton.cubin").canonicalize().expect("it is there");
        let sim = self.sim.replace("{scene}", &scene.text("")).replace("{cubin}", &cubin.display().to_string());
        let sim = if sim.contains("devices=") { sim } else { format!("devices=8,{sim}") };
        let run = Ended::of(record.env("WARPSCOPE_SIM", sim).env("WARPSCOPE_NVDISASM", "")).exits(0);
        let notes = run.out().lines().map(Note::parse).collect();
        let start = start(&scene);
        Recorded { scene, report: Value::Null, notes, start }
    }

    /// Checks what is said about a time.
    #[track_caller]
    fn check_said(&self, recorded: &Recorded, report: &Value, says: &[Says], never: &[&str]) {
        // A loaded machine takes long to start a program, and that is true.
        let expects_start = says.iter().any(|says| says.kind == "start");
        let mut found: Vec<&Value> =
            findings(report).filter(|finding| expects_start || finding["kind"] != "start").collect();
        for expected in says {
            let at = found.iter().position(|finding| expected.matches(finding));
            let at = at.unwrap_or_else(|| panic!("not said{}: {expected:?}\n{}", time(report), titles(&found)));
            recorded.check_shares(report, expected, found.remove(at));
        }
        assert!(found.is_empty(), "too much is said{}:\n{}", time(report), titles(&found));
        for finding in findings(report) {
            let text = format!("{} {}", text(finding, "title"), text(finding, "advice"));
            assert!(!never.iter().any(|word| text.contains(word)), "{text}");
        }
    }

    /// Checks that an agent that asks what to change first gets one of these findings, with its line.
    #[track_caller]
    fn check_agent(&self, recorded: &Recorded) {
        let summary = Agent::new(&recorded.scene, &[]).call("summary", json!({"recording": "x.wscope"}));
        let next = summary["recorded"]["where_to_look_next"].as_array().into_iter().flatten();
        let expects_start = self.says.iter().any(|says| says.kind == "start");
        let mut next = next.filter(|finding| expects_start || finding["kind"] != "start").map(|finding| {
            json!({"kind": finding["kind"], "title": finding["title"], "advice": finding["try"], "place": {"frame": finding["line"]}})
        });
        match next.next() {
            Some(first) => assert!(self.says.iter().any(|says| says.matches(&first)), "an agent gets: {first}"),
            None => assert!(self.says.is_empty(), "an agent gets nothing: {summary}"),
        }
    }

    /// Whether its bottleneck is a function or line of the program.
    pub fn has_line(&self) -> bool {
        self.says.iter().any(Says::has_line)
    }

    /// Checks time ranges: one that is the whole, the middle of a program that always does the same, and those between marks.
    #[track_caller]
    fn check_times(&self, recorded: &Recorded, report: &Value) {
        let all = recorded.range(0, number(report, "wall_ns") + 1);
        let lasting = |report: &Value| {
            let kinds = findings(report).map(|finding| text(finding, "kind").to_owned());
            kinds.filter(|kind| !parts::NOT_IN_RANGES.contains(&kind.as_str())).collect::<Vec<_>>()
        };
        assert_eq!((lasting(&all), &all["cost"]), (lasting(report), &report["cost"]), "{:#?}", all["findings"]);
        for key in ["gpu_time_ns", "gpu_busy_ns", "kernels", "host_waits", "host_wait_ns", "idle"] {
            assert_eq!(all[key], report[key], "{key}");
        }
        if self.steady {
            let idle = &report["idle"][0];
            let (before, span) = (number(idle, "before_ns"), number(idle, "span_ns"));
            let middle = recorded.range(before + span / 4, before + span - span / 4);
            let of_time = |says: &&Says| !parts::NOT_IN_RANGES.contains(&says.kind);
            let says: Vec<Says> = self.says.iter().filter(of_time).cloned().collect();
            self.check_said(recorded, &middle, &says, &self.never);
        }
        for Phase { from, to, says, never } in &self.phases {
            let at = |mark: &str| recorded.note(mark).start - recorded.start;
            self.check_said(recorded, &recorded.range(at(from), at(to)), says, never);
        }
    }
}

/// The CPU time that the host of a virtual machine has given to others, over all CPUs.
fn stolen() -> Duration {
    let all = fs::read_to_string("/proc/stat").expect("proc");
    let ticks = all.lines().next().and_then(|line| line.split_whitespace().nth(8)?.parse().ok());
    // Hundredths of a second on all architectures.
    Duration::from_millis(10 * ticks.unwrap_or(0_u64))
}

/// A time of the program.
#[derive(Debug)]
pub struct Note {
    pub thread: u64,
    pub name: String,
    pub start: u64,
    pub end: u64,
}

impl Note {
    fn parse(line: &str) -> Self {
        let words: Vec<&str> = line.split(' ').collect();
        let [thread, name, start, end] = words[..] else { panic!("not a note: {line}") };
        let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("not a number: {line}"));
        Self { thread: number(thread), name: name.to_owned(), start: number(start), end: number(end) }
    }
}

/// What a scenario gave.
pub struct Recorded {
    pub scene: Scene,
    pub report: Value,
    notes: Vec<Note>,
    /// When the recording started.
    start: u64,
}

impl Recorded {
    /// The report of a time range, in nanoseconds since the start.
    #[track_caller]
    fn range(&self, from: u64, to: u64) -> Value {
        let (from, to) = (format!("{from}ns"), format!("{to}ns"));
        let mut report = report::json(&self.scene, &["report", "--json", "x.wscope", "--from", &from, "--to", &to]);
        report["range"] = json!([from.trim_end_matches("ns"), to.trim_end_matches("ns")]);
        report
    }

    fn note(&self, name: &str) -> &Note {
        self.notes.iter().find(|note| note.name == name).unwrap_or_else(|| panic!("the program notes no {name}"))
    }

    /// How long the program was in a function, in a part of the time of a report.
    fn spent(&self, report: &Value, (from, to): (u64, u64), place: &str, thread: Option<u64>) -> f64 {
        let bound = |at: usize| report["range"][at].as_str().map(|text| text.parse::<u64>().expect("a time"));
        let start = self.start + bound(0).unwrap_or(0);
        let end = bound(1).map_or(u64::MAX, |to| to + self.start);
        let (from, to) = (start + from, end.min(start.saturating_add(to)));
        let own = |note: &&Note| note.name == place && thread.is_none_or(|thread| thread == note.thread);
        let ns = |note: &Note| note.end.min(to).saturating_sub(note.start.max(from));
        self.notes.iter().filter(own).map(ns).sum::<u64>() as f64
    }

    /// Checks the shares that a finding states.
    #[track_caller]
    fn check_shares(&self, report: &Value, expected: &Says, finding: &Value) {
        let device = &report["idle"][expected.gpu];
        let near = |what: &str, said: f64, is: f64| {
            let time = time(report);
            assert!(
                (said - is).abs() <= POINTS,
                "{what}{time}: said {said:.1} %, is {is:.1} %: {}",
                titles(&[finding])
            );
        };
        for (name, function) in &expected.places {
            let said = stated(finding, name).expect("it is stated");
            let (before, span) = (number(device, "before_ns"), number(device, "span_ns"));
            let spent = self.spent(report, (before, before + span), function, expected.thread);
            near(name, said, 100.0 * spent / span as f64);
        }
        let wall = number(report, "wall_ns") as f64;
        let said = 100.0 * finding["share"].as_f64().expect("a share");
        if let Some(place) = expected.takes {
            near(place, said, 100.0 * self.spent(report, (0, u64::MAX), place, expected.thread) / wall);
        }
        if let Some(ns) = expected.ns.filter(|_| report["range"].is_null()) {
            near("its share", said, 100.0 * ns as f64 / wall);
        }
    }
}

/// Names the time of a report in messages.
fn time(report: &Value) -> String {
    if report["range"].is_null() { String::new() } else { format!(" in {}", report["filters"]) }
}

/// Lists findings in messages.
fn titles(findings: &[&Value]) -> String {
    let title = |finding: &&Value| {
        format!("{}: {} [{}] {}", finding["kind"], finding["title"], finding["place"]["frame"], finding["advice"])
    };
    findings.iter().map(title).collect::<Vec<_>>().join("\n")
}

/// Returns when a recording started, by CLOCK_MONOTONIC.
fn start(scene: &Scene) -> u64 {
    let file = File::open(scene.path("x.wscope")).expect("the recording can be opened");
    let mut events = Reader::new(BufReader::new(file)).expect("it is a recording");
    let start = events.find_map(|event| if let Event::Start(start) = event { Some(start.time) } else { None });
    start.expect("it starts")
}
