//! `--driver`: requests to device files, which are recognised by their names.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::support::{
    Ended, Scene,
    calls::{Call, Trace, account, end, start},
    program,
    scene::number,
};

/// Check each ioctl, mmap, open (by three system calls) and close of three devices on two threads, in order: names, arguments and
/// results match the program's own account, which passes the numbers of requests sign-extended. Requests in a watched call are one level deeper; other files are not traced.
#[test]
fn driver_requests_are_exact() {
    let scene = Scene::new();
    let program = program("devices");
    let options = format!("--sim -q --driver --uprobe {program}:inside -o t.jsonl");
    Ended::of(&mut scene.trace(&options, &format!("{program} account 2"))).exits(0);
    let trace = Trace::read(&scene.read("t.jsonl"));
    let accounts = account(&scene.read("account"));
    assert_eq!(accounts.len(), 2);
    for (thread, calls) in accounts {
        // The account marks where a watched function begins and ends.
        let mut expected: Vec<(u64, Call)> = Vec::new();
        let mut depth = 0;
        for call in calls {
            match call.name.as_str() {
                "inside" => depth = 1,
                "outside" => depth = 0,
                _ => expected.push((depth, call)),
            }
        }
        assert_eq!(expected.len(), 3 + 10 * (9 + 9 + 2) + 2 + 3);
        let mut events: Vec<_> = trace.of("kernel").filter(|event| number(event, "tid") == thread.1).collect();
        events.sort_by_key(|event| start(event));
        let seen: Vec<(u64, Call)> = events
            .iter()
            .map(|event| {
                let name = event["name"].as_str().expect("a name").to_owned();
                (number(event, "depth"), Call { name, args: event["args"].clone(), ret: event["ret"].clone() })
            })
            .collect();
        for (place, (seen, made)) in seen.iter().zip(&expected).enumerate() {
            assert_eq!(seen, made, "request {place}");
        }
        assert_eq!(seen.len(), expected.len());
        assert!(events.iter().all(|event| event["phase"] == "X"));
    }
    let mut devices = BTreeMap::<&str, usize>::new();
    for event in trace.of("kernel") {
        *devices.entry(event["library"].as_str().expect("a device")).or_default() += 1;
        assert_eq!(
            event["error"] == true,
            event["ret"].is_string() && event["ret"].as_str().is_some_and(|r| r.starts_with('E')),
            "{event}"
        );
    }
    // On each thread: open and close, requests twenty times, 2 mmaps eleven times.
    assert_eq!(
        devices,
        BTreeMap::from([
            ("nvidiactl", 2 * (2 + 20 * 4)),
            ("nvidia0", 2 * (2 + 20 * 2 + 22)),
            ("nvidia-uvm", 2 * (2 + 20 * 3))
        ])
    );
    assert_eq!(trace.named("inside").filter(|call| call["depth"] == 0).count(), 20);
}

/// Check that each request has a row with its count, errors and percentiles, and a row in the chart of latencies.
#[test]
fn requests_have_a_table() {
    let scene = Scene::new();
    let program = program("devices");
    Ended::of(&mut scene.trace("--sim -q --driver -o t.wscope -o t.jsonl", &format!("{program} account 1"))).exits(0);
    let table = Ended::of(&mut scene.warpscope(&["report", "--by", "requests", "--json", "t.wscope"])).exits(0);
    let rows: Vec<Value> = serde_json::from_str(table.out()).expect("JSON");
    let trace = Trace::read(&scene.read("t.jsonl"));
    assert_eq!(rows.iter().map(|row| number(row, "requests")).sum::<u64>(), trace.of("kernel").count() as u64);
    for row in &rows {
        let of_row = |event: &&Value| {
            let args = &event["args"];
            let command = args.get("command").or(args.get("class")).and_then(Value::as_str).unwrap_or_default();
            event["name"] == row["request"] && command == row["command"] && event["library"] == row["device"]
        };
        let mut times: Vec<u64> =
            trace.of("kernel").filter(of_row).map(|event| (end(event) - start(event)) as u64).collect();
        times.sort_unstable();
        let failed = trace.of("kernel").filter(of_row).filter(|event| event["error"] == true).count() as u64;
        assert_eq!((times.len() as u64, failed), (number(row, "requests"), number(row, "errors")), "{row}");
        assert_eq!(
            (times.iter().sum::<u64>(), times[times.len() - 1]),
            (number(row, "ns"), number(row, "max_ns")),
            "{row}"
        );
        for (key, share) in [("p50_ns", 0.5), ("p90_ns", 0.9), ("p99_ns", 0.99)] {
            let exact = times[((share * times.len() as f64).ceil() as usize).max(1) - 1];
            let found = number(row, key);
            // Within a bucket: an eighth, or 8 ns of the shortest.
            assert!(found.abs_diff(exact) <= exact / 7 + 16, "{key}: {exact} in {row}");
        }
    }
    let text = Ended::of(&mut scene.warpscope(&["report", "t.wscope"])).exits(0);
    let chart = text.out().split("\nLatency").nth(1).and_then(|rest| rest.split("\n\n").next()).expect("latencies");
    let busiest = rows[0]["request"].as_str().expect("a name").trim_start_matches("NV_ESC_");
    assert!(chart.contains(&busiest[..busiest.len().min(20)]), "{busiest}: {chart}");
}

/// Check that nothing is traced without --driver.
#[test]
fn driver_requests_need_the_option() {
    let scene = Scene::new();
    Ended::of(&mut scene.trace("--sim -q -o t.jsonl", &format!("{} account 1", program("devices")))).exits(0);
    assert_eq!(Trace::read(&scene.read("t.jsonl")).of("kernel").count(), 0);
}
