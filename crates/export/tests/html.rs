//! The HTML report: its numbers are those of the other formats, and names in it are harmless.

mod support;

use std::{collections::BTreeMap, io};

use analysis::{EventView, Events, Flames, View, flame_tree::Flame};
use export::Format;
use model::{
    event::{Dump, Event, KernelName, LaunchKind, Pause, Rank, SessionId},
    fold::Fold,
};
use serde_json::Value;
use support::html;

/// The decoded data of a report.
struct Report {
    page: String,
    head: Value,
    columns: BTreeMap<String, Vec<u64>>,
}

impl Report {
    fn of(events: &[Event]) -> Self {
        Self::read(support::export(Format::Html, events, View::default()))
    }

    fn read(page: String) -> Self {
        let (_, data) = page.split_once("id=\"data\">").expect("the data");
        let (head, columns) = html::read(data.split('<').next().expect("the data"));
        Self { page, head, columns }
    }

    /// The stack of a node, as in folded stacks.
    fn stack(&self, node: u64) -> String {
        let mut frames = Vec::new();
        let mut node = node as usize;
        while node != 0 {
            let parent = self.columns["node.parent"][node] as usize;
            assert!(parent < node, "parents precede children");
            frames.push(self.head["names"][self.columns["node.frame"][node] as usize].as_str().expect("a name"));
            node = parent;
        }
        frames.reverse();
        frames.join(";")
    }

    /// Sums by stack.
    fn sums(&self, nodes: &str, amounts: &str) -> BTreeMap<String, u64> {
        let mut sums = BTreeMap::new();
        for (node, amount) in self.columns[nodes].iter().zip(&self.columns[amounts]) {
            *sums.entry(self.stack(*node)).or_default() += amount;
        }
        sums
    }
}

fn lines(flame: &Flame, of: fn(&analysis::flame_tree::Line) -> u64) -> BTreeMap<String, u64> {
    flame.lines.iter().map(|line| (line.frames.join(";"), of(line))).collect()
}

/// Check that the sums of every stack are those of the flame graph, and their total that of the folded stacks.
#[test]
fn sums_equal_those_of_other_formats() {
    let events = fixtures::events();
    let report = Report::of(&events);
    let profile = fixtures::fold(&events);
    let flames = Flames::new(&profile);
    assert_eq!(report.sums("gpu.node", "gpu.ns"), lines(&flames.gpu(), |line| line.weight.amount));
    assert_eq!(report.sums("gpu.node", "gpu.count"), lines(&flames.gpu(), |line| line.weight.operations));
    assert_eq!(report.sums("cpu.node", "cpu.ns"), lines(&flames.cpu(), |line| line.weight.amount));
    assert_eq!(report.sums("cpu.node", "cpu.count"), lines(&flames.cpu(), |line| line.weight.samples));
    let idle = flames.of(View { idle: true, ..View::default() });
    assert_eq!(report.sums("idle.node", "idle.ns"), lines(&idle, |line| line.weight.amount));
    let charged = |node| report.columns["charge.node"].contains(node);
    assert!(report.columns["idle.node"].iter().all(charged), "the page can charge a part of the time in the same way");
    let folded = support::export(Format::Folded, &events, View::default());
    let total: u64 = folded.lines().map(|line| line.rsplit(' ').next().expect(line).parse::<u64>().expect(line)).sum();
    let ns: u64 = report.columns["gpu.ns"].iter().chain(&report.columns["cpu.ns"]).sum();
    assert_eq!(total, (ns + 500) / 1000);
}

/// Check that the single events add up to the sums, so that a range over the whole time shows the same.
#[test]
fn events_add_up_to_the_sums() {
    let report = Report::of(&fixtures::events());
    let mut sums = report.sums("gpu.node", "gpu.ns");
    // Work without times is in the sums, with a duration of 0, but has no place on the timeline.
    sums.retain(|_, ns| *ns > 0);
    let mut events = report.sums("op.node", "op.duration");
    events.retain(|_, ns| *ns > 0);
    assert_eq!(events, sums);
    assert_eq!(report.sums("sample.node", "sample.weight"), report.sums("cpu.node", "cpu.ns"));
    assert_eq!(report.head["stride"], serde_json::json!([1, 1, 1, 1, 1, 1, 1, 1]));
    let tracks = &report.columns["op.track"];
    let order: Vec<_> = tracks.iter().zip(&report.columns["op.start"]).collect();
    assert!(order.is_sorted(), "by track and time");
    assert!(tracks.iter().all(|track| report.head["tracks"][*track as usize].is_object()));
}

/// Check that processes appear below their ranks, as in the flame graph.
#[test]
fn ranks_are_the_outermost_frames() {
    let mut events = fixtures::events();
    let end = events.pop().expect("an end");
    for rank in [0, 1] {
        let (session, variable) = (SessionId(rank), "RANK".into());
        events.push(Event::Rank(Rank { session, rank: Some(rank), local: None, variable, mps: false }));
    }
    events.push(end);
    let report = Report::of(&events);
    let profile = fixtures::fold(&events);
    let sums = report.sums("gpu.node", "gpu.ns");
    assert!(sums.keys().any(|stack| stack.starts_with("[rank 1];")), "{sums:?}");
    assert_eq!(sums, lines(&Flames::new(&profile).gpu(), |line| line.weight.amount));
}

/// Check that counted events are in the report, with their own amounts.
#[test]
fn counted_events_are_included() {
    let events = fixtures::counted::events();
    let report = Report::of(&events);
    let profile = fixtures::fold(&events);
    let flames = Flames::new(&profile);
    let mut from = 0;
    for (info, counter) in
        report.head["counters"].as_array().expect("counters").iter().zip(profile.counters.all.values())
    {
        assert_eq!(info["name"], counter.name);
        let to = from + info["rows"].as_u64().expect("rows") as usize;
        let mut sums = BTreeMap::<String, u64>::new();
        for row in from..to {
            let (weight, count) = (report.columns["hits.weight"][row], report.columns["hits.count"][row]);
            let amount = if counter.weight.is_empty() { count } else { weight };
            *sums.entry(report.stack(report.columns["hits.node"][row])).or_default() += amount;
        }
        let flame = flames.event(EventView { counter: counter.id, by_count: false });
        assert_eq!(sums, lines(&flame, |line| line.weight.amount));
        from = to;
    }
    assert!(from > 0);
}

/// Check that no name becomes markup, that the page needs no network, and that long names are kept.
#[test]
fn names_are_harmless() {
    let mut events = fixtures::events();
    let long = "x".repeat(10_000);
    let evil = "</script><script>alert(1)</script>\"'{{script}}\n";
    for event in &mut events {
        match event {
            Event::KernelName(name) if name.id == 3 => name.name = long.clone(),
            Event::KernelName(KernelName { session: SessionId(0), id: 1, name }) => *name = evil.into(),
            Event::Start(start) => start.command = vec![evil.into()],
            _ => {}
        }
    }
    let report = Report::of(&events);
    assert!(!report.page.contains("alert(1)</script>") && report.page.contains("&lt;script&gt;alert(1)"));
    assert_eq!(report.page.matches("</script>").count(), 2);
    assert_eq!(report.page.matches("<script").count(), 2);
    assert!(report.page.contains("default-src 'none'"));
    assert!(!report.page.contains("http:") && !report.page.contains("https:"));
    let names: Vec<&str> = report.head["names"].as_array().expect("names").iter().filter_map(Value::as_str).collect();
    assert!(names.iter().any(|name| name.ends_with(&long)));
    assert!(names.iter().any(|name| name.contains("</script>")));
}

/// Check that a recording of nothing gives a page that can say so.
#[test]
fn empty_recordings_give_a_page() {
    let report = Report::of(&fixtures::events()[..2]);
    assert!(report.columns["gpu.node"].is_empty() && report.columns["op.start"].is_empty());
    assert_eq!(report.head["summary"]["launches"], 0);
}

/// Check that of very many operations the page has a sample, which stays small, while sums stay exact.
#[test]
fn very_many_operations_are_sampled() {
    const LAUNCHES: u64 = 1_200_000;
    let operations = |number: u64| {
        // Irregular times, as a real program's.
        let random = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
        let (at, id) = (200 * fixtures::MS + number * 10_000 + random % 3000, 1000 + number as u32);
        let length = 1000 + random % 5000;
        [
            fixtures::launch(0, id, LaunchKind::Kernel, at, 1 + number % 2),
            fixtures::activity(
                0,
                id,
                0,
                7,
                at + 4000 + random % 500,
                length,
                fixtures::kernel(1 + (number % 2) as u32),
            ),
        ]
    };
    let mut base = fixtures::events();
    let end = base.pop().expect("an end");
    let events = || base.iter().cloned().chain((0..LAUNCHES).flat_map(operations)).chain([end.clone()]);
    let mut fold = Fold::new();
    events().for_each(|event| fold.push(&event));
    let profile = fold.finish();
    let mut out = Vec::new();
    let mut open = || -> io::Result<Events<'_>> { Ok(Box::new(events())) };
    export::write(Format::Html, &Flames::new(&profile), View::default(), &mut open, &mut out).expect("written");
    assert!(out.len() < 20 << 20, "{} bytes", out.len());
    let report = Report::read(String::from_utf8(out).expect("text"));
    assert_eq!(report.columns["gpu.count"].iter().sum::<u64>(), profile.ledger.kernels + 3);
    let (seen, stride) = (&report.head["seen"][0], report.head["stride"][0].as_u64().expect("a number"));
    assert!(seen.as_u64() > Some(LAUNCHES) && stride == 2, "{seen} {stride}");
    let estimate = report.columns["op.start"].len() as u64 * stride;
    assert!(estimate.abs_diff(LAUNCHES) < LAUNCHES / 100, "{estimate}");
}

/// Check that the report and the Firefox Profiler show the times without GPU records, once, and why a dump was written.
#[test]
fn pauses_and_dumps_are_shown() {
    let mut events = fixtures::events();
    let (from, to) = (fixtures::START + 20 * fixtures::MS, fixtures::START + 30 * fixtures::MS);
    let pause = |to| Event::Pause(Pause { session: SessionId(0), number: 1, from, to, client: "kineto".into() });
    let dump = Dump { time: to, text: "a kernel took 3 s".into(), ..Dump::default() };
    events
        .splice(events.len() - 1.., [pause(u64::MAX), pause(to), Event::Dump(dump), events[events.len() - 1].clone()]);
    let report = Report::of(&events);
    let shown = "no GPU records: kineto was using CUPTI";
    let frame = report.head["names"].as_array().expect("names").iter().position(|name| name == shown);
    let frame = frame.expect("a name") as u64;
    let at = report.columns["wait.frame"].iter().enumerate().filter(|(_, known)| **known == frame);
    let times: Vec<(u64, u64)> =
        at.map(|(at, _)| (report.columns["wait.start"][at], report.columns["wait.duration"][at])).collect();
    assert_eq!(times, [(20 * fixtures::MS, 10 * fixtures::MS)]);

    let firefox: Value =
        serde_json::from_str(&support::export(Format::Firefox, &events, View::default())).expect("JSON");
    let markers = |thread: &Value| -> Vec<(String, f64)> {
        let strings = &thread["stringArray"];
        let markers = &thread["markers"];
        let data = markers["data"].as_array().expect("markers").iter().enumerate();
        let notices = data.filter(|(_, data)| data["type"] == "Notice").map(|(at, _)| at);
        let name = |at: usize| strings[markers["name"][at].as_u64().expect("a name") as usize].as_str().expect("text");
        notices.map(|at| (name(at).to_owned(), markers["startTime"][at].as_f64().expect("a time"))).collect()
    };
    let mut notices: Vec<_> = firefox["threads"].as_array().expect("threads").iter().flat_map(markers).collect();
    notices.sort_by(|a, b| a.1.total_cmp(&b.1));
    assert_eq!(notices, [(shown.to_owned(), 20.0), ("a kernel took 3 s".to_owned(), 30.0)]);
}
