//! Lines of a trace's `.jsonl`, read as events again.

mod support;

use analysis::{CallView, Flames, Summary, Table, View};
use export::{Format, ReadError, read_back, table};
use fixtures::{fold, trace};
use model::event::{Call, Event};
use serde_json::{Value, json};

const START: &str = r#"{"type":"start","ts_ns":5,"unix_ns":9,"mode":"trace"}"#;

fn read(text: &[u8]) -> Result<Vec<Event>, ReadError> {
    let mut events = Vec::new();
    read_back(text, &mut |event| {
        events.push(event.clone());
        Ok(())
    })?;
    Ok(events)
}

/// Everything that `report` shows of events.
fn reported(events: &[Event]) -> Value {
    let profile = fold(events);
    let flames = Flames::new(&profile);
    let mut all = || -> std::io::Result<analysis::Events<'_>> { Ok(Box::new(events.iter().cloned())) };
    let mut summary = serde_json::to_value(Summary::with_events(&flames, &mut all).expect("a summary")).expect("JSON");
    for by in [Table::Calls, Table::Requests, Table::Kernels, Table::Copies, Table::Streams, Table::Devices] {
        summary[format!("--by {by:?}")] = table::json(&by.rows(&flames, &mut all).expect("rows"));
    }
    summary
}

/// Check that the events of a trace's lines are summed up as those of the trace, in every table and in the timeline, whether
/// begin and end are one line or two. Only what lines do not contain is different: stacks, and how much of the GPU a kernel
/// can use.
#[test]
fn lines_have_the_sums_of_their_trace() {
    let events = trace::events();
    let mut expected = reported(&events);
    assert!(expected["trace"]["calls"].as_u64() > Some(10) && expected["trace"]["errors"][0]["enclosed"].is_u64());
    for begin_end in [false, true] {
        let view = View { calls: CallView { begin_end, ..CallView::default() }, ..View::default() };
        let text = support::export(Format::Jsonl, &events, view);
        let again = read(text.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
        let mut reported = reported(&again);
        for key in ["stacks", "gpu_stack_ends", "top_paths", "top_lines"] {
            (reported[key], expected[key]) = (Value::Null, Value::Null);
        }
        let (reported, expected) = (reported.as_object().expect("fields"), expected.as_object().expect("fields"));
        assert_eq!(reported.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
        for (key, value) in expected {
            assert_eq!(&reported[key], value, "{key}");
        }
    }
}

/// Check that calls of a file without `parent_ts` have the same totals, and that the difference is reported.
#[test]
fn lines_of_earlier_versions_have_the_same_totals() {
    let events = trace::events();
    let text = support::export(Format::Jsonl, &events, View::default());
    let lines = text.lines().map(|line| {
        let mut line: Value = serde_json::from_str(line).expect("JSON");
        line.as_object_mut().expect("fields").remove("parent_ts");
        line.to_string() + "\n"
    });
    let earlier = reported(&read(lines.collect::<String>().as_bytes()).expect("events"));
    let row = |report: &Value| report["trace"]["functions"][0]["ns"].clone();
    assert_eq!(row(&earlier), row(&reported(&events)));
    let notes = earlier["notes"].to_string();
    assert!(notes.contains("without `parent_ts`"), "{notes}");
}

/// Check that what is wrong with a line is said in one sentence with its number.
#[test]
fn wrong_lines_are_reported_by_number() {
    let call = r#"{"type":"userspace","phase":"X","name":"f","pid":1,"tid":1,"ts":0.5,"duration_us":1}"#;
    let long = format!("{START}\n{{\"type\":\"{}\"}}\n", "x".repeat(17 << 20));
    let deep = format!("{START}\n{}\n", "[".repeat(100_000));
    for (text, error) in [
        ("{}\n".to_owned(), "line 1: it has no `type`: it is not of warpscope"),
        ("{\"type\":\"kernel\"}\n".to_owned(), "line 1: the .jsonl of a trace begins with `start`"),
        ("{".to_owned(), "line 1: it is not a JSON object"),
        (
            START.replace("trace", "merged"),
            "line 1: it begins a file of mode merged, which cannot be read again: give its .wscope",
        ),
        (
            START.replace("trace", "trace-sums"),
            "line 1: it begins a file of mode trace-sums, which cannot be read again: give its .wscope",
        ),
        (format!("{START}\n{START}\n"), "line 2: the trace starts again"),
        (format!("{START}\n[1]\n{call}\n"), "line 2: it is not a JSON object"),
        (format!("{START}\n{call}\n{}\n", call.replace("\"pid\":1,", "")), "line 3: it has no `pid`"),
        (
            format!("{START}\n{}\n", call.replace("\"tid\":1", "\"tid\":-1")),
            "line 2: `tid` has a value of the wrong type or size",
        ),
        (
            format!("{START}\n{}\n", call.replace("\"X\"", "\"E\"")),
            "line 2: it is the end of an event whose begin is not in the line before",
        ),
        (long, "line 2: it is longer than 16 MiB"),
        (deep, "line 2: it is not a JSON object"),
    ] {
        match read(text.as_bytes()) {
            Err(found) => assert_eq!(found.to_string(), error),
            Ok(events) => panic!("{events:?} instead of {error}"),
        }
    }
    let cut = read(format!("{START}\n{call}\n{}", &call[..40]).as_bytes()).expect("what precedes the cut");
    assert_eq!(cut.iter().filter(|event| matches!(event, Event::Call(_))).count(), 1);
    let notes = reported(&cut)["notes"].clone();
    assert_eq!(notes, json!(["the file is cut off in line 3"]));
}

/// Check that types and fields of a newer version are counted by name, and the rest is read.
#[test]
fn what_a_newer_version_wrote_is_counted() {
    let call = r#"{"type":"userspace","phase":"X","name":"f","pid":1,"tid":1,"ts":0.5,"duration_us":1,"colour":"red"}"#;
    let events = read(format!("{START}\n{call}\n{call}\n{{\"type\":\"pulse\",\"x\":1}}\n").as_bytes()).expect("events");
    let report = reported(&events);
    assert_eq!(report["trace"]["calls"], 2);
    assert_eq!(
        report["notes"],
        json!(["not shown, because this version does not know it: field colour (2), type pulse (1)"])
    );
}

/// Check that no value of any field of any line panics, grows without bound, or is taken without its line number, and that
/// a file may end anywhere.
#[test]
fn hostile_lines_are_survived() {
    let text = support::export(Format::Jsonl, &trace::events(), View::default());
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let hostile =
        [json!(null), json!(-1), json!(u64::MAX), json!(1e308), json!("x"), json!([]), json!({"kernel": [1, {}]})];
    let mut wrong = 0;
    for (at, line) in lines.iter().enumerate() {
        for key in line.as_object().expect("fields").keys() {
            for value in &hostile {
                let mut changed = line.clone();
                changed[key] = value.clone();
                // What follows depends on the numbers of processes and sessions.
                let text: String = lines[..at].iter().chain([&changed]).map(|line| format!("{line}\n")).collect();
                match read(text.as_bytes()) {
                    Ok(events) => drop(reported(&events)),
                    Err(error) => {
                        wrong += 1;
                        assert!(error.to_string().starts_with(&format!("line {}: ", at + 1)), "{error}: {changed}");
                    }
                }
            }
        }
    }
    assert!(wrong > 100, "{wrong}");
    for end in (0..text.len()).step_by(97) {
        let _ = read(&text.as_bytes()[..end]);
    }
    let mut many = format!("{START}\n");
    for name in 0..140_000 {
        many += &format!(
            "{{\"type\":\"userspace\",\"phase\":\"B\",\"name\":\"f{name}\",\"pid\":1,\"tid\":1,\"ts\":0.5}}\n"
        );
    }
    let error = read(many.as_bytes()).expect_err("too many names").to_string();
    assert_eq!(error, "line 131073: there are more names than a trace can have");
}

/// Check that the call of a kernel by name has that kernel, and that its launch precedes it once.
#[test]
fn launches_are_found_again() {
    let lines = [
        r#"{"type":"session","session":0,"pid":1,"process":1}"#,
        r#"{"type":"userspace","phase":"X","name":"cuLaunchKernel","pid":1,"tid":1,"ts":0.51,"duration_us":1,"args":{"kernel":"f(int)"},"correlation":7,"nested":true,"parent_id":1,"parent_ts":0.5}"#,
        r#"{"type":"userspace","phase":"X","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":0.5,"duration_us":9,"args":{"kernel":"f(int)"},"correlation":7}"#,
    ];
    let events = read(format!("{START}\n{}\n", lines.join("\n")).as_bytes()).expect("events");
    let at = |wanted: fn(&Event) -> bool| events.iter().position(wanted);
    assert!(
        at(|event| matches!(event, Event::Launch(_)))
            < at(|event| matches!(event, Event::Call(Call { nested: true, .. })))
    );
    assert_eq!(events.iter().filter(|event| matches!(event, Event::Launch(_))).count(), 1);
    assert_eq!(reported(&events)["trace"]["launches"], json!([{ "kernel": "f(int)", "count": 1 }]));
}
