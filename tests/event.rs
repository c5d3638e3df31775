//! `record --event`: every hit of a function, a return, a static tracepoint or a tracepoint, with its stack and its weight.

use std::{collections::BTreeMap, fs};

use serde_json::Value;

use crate::support::{
    Ended, Running, Scene, folded, program, programs,
    pythons::installed,
    scene::{lost, number},
};

/// Amounts by path: functions of `tests/programs/event.c`, from below `main` or the thread's start to the function that was hit.
type Paths = BTreeMap<String, u64>;

/// Records a single event, and returns its folded stacks.
#[track_caller]
fn alone(scene: &Scene, event: &str, command: &str) -> Paths {
    let options = format!("-q --events-only --event {event} -o e.folded -o e.wscope");
    Ended::of(&mut scene.record(&options, command)).exits(0);
    paths(&scene.read("e.folded"))
}

fn paths(text: &str) -> Paths {
    let mut paths = Paths::new();
    for line in folded::read(text) {
        let ours = line.frames.iter().position(|name| matches!(*name, "main" | "start_thread"));
        let from = ours.unwrap_or_else(|| panic!("not a whole stack: {line:?}")) + 1;
        *paths.entry(line.frames[from..].join(" > ")).or_default() += line.weight;
    }
    paths
}

fn expected(paths: &[(&str, u64)]) -> Paths {
    paths.iter().map(|(path, amount)| ((*path).to_owned(), *amount)).collect()
}

/// The only event of a recording, as `report` shows it. Nothing is lost.
#[track_caller]
fn reported(scene: &Scene, recording: &str) -> Value {
    let report = scene.report(recording);
    assert_eq!((lost(&report), number(&report, "stacks_missing")), (0, 0), "{}", report["ledger"]);
    assert_eq!(report["events"].as_array().map(Vec::len), Some(1), "{}", report["events"]);
    report["events"][0].clone()
}

/// Check the calls of a function from every path, in threads and in a child: their number, and the sum of an argument.
#[test]
fn calls_and_arguments_are_exact() {
    let (scene, event) = (Scene::new(), program("event"));
    let weights = alone(&scene, &format!("uprobe:{event}:take,weight=arg1"), &event);
    let four_threads = 4 * (10 + 11 + 12);
    let by_weight = [
        ("from_one > take", 10 + 11 + 12),
        ("from_two > deeper > take", 500),
        ("in_thread > from_one > take", four_threads),
        ("in_child > from_two > deeper > take", 500),
    ];
    assert_eq!(weights, expected(&by_weight));
    let row = reported(&scene, "e.wscope");
    assert_eq!((number(&row, "count"), number(&row, "sum"), number(&row, "outside")), (27, 1033 + four_threads, 2));
    assert_eq!((number(&row, "stacks"), &row["weight"], &row["name"]), (5, &"arg1".into(), &"take".into()));
    assert_eq!(row["top_stacks"].as_array().map(Vec::len), Some(5));

    // The same recording, weighted by the number of hits, which include those with negative weights.
    let export = ["export", "e.wscope", "--event", "take", "--count", "-o", "count.folded", "-o", "count.svg"];
    Ended::of(&mut scene.warpscope(&export)).exits(0);
    let by_count = [
        ("from_one > take", 3),
        ("from_two > deeper > take", 5),
        ("in_thread > from_one > take", 12),
        ("in_child > from_two > deeper > take", 5),
        ("below_zero > take", 2),
    ];
    assert_eq!(paths(&scene.read("count.folded")), expected(&by_count));
    assert!(scene.read("count.svg").contains("27 hits"));
    assert_eq!(alone(&scene, &format!("uprobe:{event}:take"), &event), expected(&by_count));
}

/// Check narrow arguments, arguments on the stack, and return values.
#[test]
fn every_kind_of_weight_is_exact() {
    let (scene, event) = (Scene::new(), program("event"));
    let on_stack = alone(&scene, &format!("uprobe:{event}:many,weight=arg7"), &event);
    assert_eq!(on_stack, expected(&[("many", 71 + 72 + 73 + 74)]));
    let on_stack = alone(&scene, &format!("uprobe:{event}:many,weight=arg8"), &event);
    assert_eq!(on_stack, expected(&[("many", 3200)]));
    // The tag is an int: 0, 1, 2 and -7, whose lowest byte is 249.
    let narrow = alone(&scene, &format!("uprobe:{event}:take,weight=arg2:u8"), &event);
    let bytes = [
        ("from_one > take", 3),
        ("from_two > deeper > take", 5 * 249),
        ("in_thread > from_one > take", 12),
        ("in_child > from_two > deeper > take", 5 * 249),
    ];
    assert_eq!(narrow, expected(&bytes));
    alone(&scene, &format!("uprobe:{event}:take,weight=arg2:s32"), &event);
    let row = reported(&scene, "e.wscope");
    assert_eq!((number(&row, "count"), number(&row, "sum"), number(&row, "outside")), (27, 15, 10));
    let returned = alone(&scene, &format!("uretprobe:{event}:take,weight=retval,name=twice"), &event);
    let twice = [
        ("from_one > take", 66),
        ("from_two > deeper > take", 1000),
        ("in_thread > from_one > take", 264),
        ("in_child > from_two > deeper > take", 1000),
    ];
    assert_eq!(returned, expected(&twice));
    assert_eq!(reported(&scene, "e.wscope")["name"], "twice");
}

/// Check functions by demangled name and by pattern, an instruction by its offset, and a program by its file name.
#[test]
fn functions_are_found_by_name_pattern_and_offset() {
    let (scene, event) = (Scene::new(), program("event"));
    for name in ["work::run", "work::run(int)", "_ZN4work3runEi", "work::*"] {
        let calls = alone(&scene, &format!("uprobe:{event}:{name},weight=arg1:s32"), &event);
        assert_eq!(calls, expected(&[("work::run(int)", 21)]), "{name}");
    }
    let picked = alone(&scene, "uprobe:event:pick_*", &event);
    assert_eq!(picked, expected(&[("pick_first", 1), ("pick_second", 2)]));
    let data = fs::read(&event).expect("the program");
    let offset = probes::find(data.as_slice(), "take", &elf::Budget::RECORDING)
        .expect("an ELF file")
        .expect("a function")
        .offset;
    let hits = alone(&scene, &format!("uprobe:{event}:{offset:#x},name=there,weight=arg1"), &event);
    assert_eq!(hits["from_two > deeper > take > [event there]"], 500);
    assert_eq!(hits.values().sum::<u64>(), 33 + 132 + 1000);
}

/// Check static tracepoints: all their locations, arguments in registers, in memory and constant, and that the program sees
/// its semaphore raised from its first instruction on.
#[test]
fn static_tracepoints_are_counted() {
    let scene = Scene::new();
    // The kernel raises the semaphore for every process that maps the file: other tests record it, too.
    let event = scene.text("event");
    programs::copy(program("event"), scene.path("event"));
    let hits_seen = |run: Ended| run.out().trim().parse::<u64>().expect("a number");
    assert_eq!(hits_seen(Ended::of(scene.bare(&event).arg("usdt"))), 0);
    let command = format!("{event} usdt");
    for (place, argument, sum) in [("step", "arg1", 28 + 100), ("warp:step", "arg1", 128)] {
        let options =
            format!("-q --events-only --event usdt:{event}:{place},weight={argument} -o e.folded -o e.wscope");
        assert_eq!(hits_seen(Ended::of(&mut scene.record(&options, &command)).exits(0)), 7);
        let name = format!("static_points > [event {place}]");
        assert_eq!(paths(&scene.read("e.folded")), expected(&[(name.as_str(), sum)]));
        let row = reported(&scene, "e.wscope");
        assert_eq!((number(&row, "count"), number(&row, "points")), (8, 2));
    }
    let quiet = alone(&scene, &format!("usdt:{event}:quiet"), &command);
    assert_eq!(quiet, expected(&[("static_points > [event quiet]", 1)]));
    assert_eq!(hits_seen(Ended::of(scene.bare(&event).arg("usdt"))), 0, "the semaphore is lowered again");
}

/// Check that a static tracepoint's arguments are those of the location that was hit.
#[test]
fn static_tracepoint_arguments_belong_to_the_location() {
    let (scene, event) = (Scene::new(), program("event"));
    let refuse = |argument: &str, words: &[&str]| {
        let options = format!("--events-only --event usdt:{event}:step,weight={argument}");
        Ended::of(&mut scene.record(&options, "true")).exits(1).says(words);
    };
    // The second location of the same name has two arguments.
    refuse("arg3", &["warp:step has 2 arguments: there is no arg3"]);
    refuse("arg5", &["arg5 of warp:step cannot be read"]);
    let signed = alone(&scene, &format!("usdt:{event}:step,weight=arg2"), &format!("{event} usdt"));
    assert_eq!(signed, Paths::new(), "all are below 0, but for one that is 0");
    let row = reported(&scene, "e.wscope");
    assert_eq!((number(&row, "count"), number(&row, "sum"), number(&row, "outside")), (8, 0, 7));
}

/// Check a kernel tracepoint weighted by a field: it counts the system calls of the command and of no other process.
#[test]
fn kernel_tracepoints_are_weighted_by_a_field() {
    let (scene, event) = (Scene::new(), program("event"));
    let writes = alone(&scene, "tracepoint:syscalls:sys_enter_write,weight=count,unit=bytes", &event);
    assert_eq!(writes.values().sum::<u64>(), 210);
    for path in writes.keys() {
        assert!(path.starts_with("writes > ") && path.ends_with(" > [event syscalls:sys_enter_write]"), "{path}");
    }
    let row = reported(&scene, "e.wscope");
    assert_eq!((number(&row, "count"), &row["unit"]), (20, &"bytes".into()));
    // A tracepoint that is not at the kernel's entry has kernel frames.
    let options = "-q --events-only --event tracepoint:sched:sched_process_fork -o fork.folded";
    Ended::of(&mut scene.record(options, &event)).exits(0);
    let text = scene.read("fork.folded");
    assert_eq!(folded::read(&text).iter().map(|line| line.weight).sum::<u64>(), 5, "{text}");
    assert!(folded::read(&text).iter().all(|line| line.frames.iter().any(|name| name.ends_with("_[k]"))), "{text}");
}

/// Check that a million hits from four threads are counted to the unit. The threads begin as soon as the C library is mapped: on a
/// busy machine the first stacks end there, because its unwind table is not loaded yet.
#[test]
fn a_million_hits_are_counted() {
    let (scene, event) = (Scene::new(), program("event"));
    let options = format!("-q --events-only --event uprobe:{event}:take,weight=arg1 -o e.folded -o e.wscope");
    Ended::of(&mut scene.record(&options, &format!("{event} storm 250000"))).exits(0);
    let text = scene.read("e.folded");
    let lines = folded::read(&text);
    assert!(lines.iter().all(|line| line.frames.ends_with(&["in_storm", "take"])), "{text}");
    assert_eq!(lines.iter().map(|line| line.weight).sum::<u64>(), 3_500_000);
    assert_eq!(number(&reported(&scene, "e.wscope"), "count"), 1_000_000);
}

/// Check that stacks of events have Python frames, also for a process that exits before the sums are read. Only the first
/// ones may be without: the program does not wait until warpscope has found the interpreter.
#[test]
fn events_have_python_frames() {
    const TIMES: u64 = 5_000;
    let script = format!(
        "import os\nfd = os.open('/dev/null', os.O_WRONLY)\ndef put(n):\n    os.write(fd, b'x' * n)\n\
         def many():\n    for i in range(1, 11):\n        put(i)\nfor i in range({TIMES}):\n    many()\n"
    );
    let pythons = installed();
    assert!(!pythons.is_empty(), "no CPython is installed");
    for python in pythons {
        let scene = Scene::new();
        fs::write(scene.path("put.py"), &script).expect("a script");
        for event in ["tracepoint:syscalls:sys_enter_write,weight=count", "uprobe:libc.so.6:write,weight=arg3"] {
            let options = format!("-q --events-only --event {event} -o e.folded");
            Ended::of(&mut scene.record(&options, &format!("{python} put.py"))).exits(0);
            let text = scene.read("e.folded");
            let lines = folded::read(&text);
            let ours = |line: &&folded::Line<'_>| line.frames.contains(&"put (put.py:4)");
            assert!(lines.iter().filter(ours).all(|line| line.frames.contains(&"many (put.py:7)")), "{text}");
            let all: u64 = lines.iter().map(|line| line.weight).sum();
            let found: u64 = lines.iter().filter(ours).map(|line| line.weight).sum();
            assert_eq!(all, 55 * TIMES, "{text}");
            assert!(found > all / 10, "{text}");
        }
    }
}

/// Check that a library that is found only when it is loaded is watched from then on, and that the recording says so.
#[test]
fn libraries_loaded_later_are_watched() {
    let scene = Scene::new();
    fs::create_dir(scene.path("unusual")).expect("a directory");
    let source = programs::sources().join("programs/tiny.c");
    let mut compiler = scene.bare("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-DLIBRARY", "-o"]).arg(scene.path("unusual/libtiny.so")).arg(source);
    Ended::of(&mut compiler).exits(0);
    let tiny = format!("{} ./unusual/libtiny.so stop", program("tiny"));
    let mut run = Running::start(&mut scene.record("--events-only --event uprobe:libtiny:tiny_add -o e.wscope", &tiny));
    assert_eq!(run.stdout_line(), "ready");
    // Hits are in the recording within a second, even while it is being written.
    crate::support::wait_until("the library is watched", || {
        let row = Ended::of(&mut scene.warpscope(&["report", "--json", "e.wscope.partial"]));
        let report: Value = serde_json::from_str(row.out()).unwrap_or_default();
        report["events"][0]["count"].as_u64().is_some_and(|count| count > 0)
    });
    fs::write(scene.path("stop"), "").expect("a file");
    run.wait().exits(0);
    let report = scene.report("e.wscope");
    let late = |note: &&Value| note.as_str().is_some_and(|note| note.contains("libtiny.so was probed "));
    assert_eq!(report["notes"].as_array().expect("notes").iter().filter(late).count(), 1, "{}", report["notes"]);
}

/// Check that an event recorded with CPU samples adds nothing to the time, and that the summary shows how to draw it.
#[test]
fn events_add_nothing_to_cpu_time() {
    let (scene, event) = (Scene::new(), program("event"));
    let options =
        format!("--event uprobe:{event}:take --event uprobe:{event}:many,weight=arg7 -F 999 -o t.folded -o t.wscope");
    let run = Ended::of(&mut scene.record(&options, &format!("{event} storm 30000"))).exits(0);
    assert!(run.err().contains("warpscope export t.wscope --event 'take' -o FILE.svg"), "{}", run.err());
    let report = scene.report("t.wscope");
    assert_eq!(number(&report["events"][0], "count"), 120_000);
    assert_eq!((number(&report["events"][1], "count"), number(&report["events"][1], "sum")), (0, 0));
    let text = scene.read("t.folded");
    let lines = folded::read(&text);
    let time: u64 = lines.iter().map(|line| line.weight).sum();
    // The probes' own cost is not the program's time.
    let cpu = number(&report, "cpu_time_ns");
    // Each line is rounded to microseconds.
    assert!(cpu > 0 && time.abs_diff(cpu / 1000) <= lines.len() as u64, "{time} us of {cpu} ns");
    Ended::of(&mut scene.warpscope(&["export", "t.wscope", "--event", "take", "-o", "x.folded"])).exits(0);
    // The first stacks end early if more of them are copied than fit while warpscope reads the program's mappings.
    let text = scene.read("x.folded");
    let lines = folded::read(&text);
    assert_eq!(lines.iter().map(|line| line.weight).sum::<u64>(), 120_000);
    assert!(lines.iter().all(|line| line.frames.ends_with(&["in_storm", "take"])), "{text}");
}

/// Check that GPU launches are recorded as without events, and that their calls are counted as events.
#[test]
fn events_and_gpu_work_are_recorded_together() {
    let scene = Scene::new();
    let options = "-q --sim --gpu-only --event uprobe:libcudart:cudaLaunchKernel \
                   --event uprobe:libcudart:cudaMalloc,weight=arg2,unit=bytes -o g.wscope";
    Ended::of(&mut scene.record(options, &program("calls"))).exits(0);
    let report = scene.report("g.wscope");
    assert_eq!((number(&report, "kernels"), &report["matched_percent"]), (5, &100.0.into()));
    let (launches, allocations) = (&report["events"][0], &report["events"][1]);
    assert_eq!(number(launches, "count"), 3);
    assert_eq!((number(allocations, "count"), number(allocations, "sum")), (2, 4096 + (1 << 50)));

    // Allocations of the injected library are excluded.
    let options = "-q --sim --gpu-only --event uprobe:libc.so.6:malloc -o m.wscope";
    Ended::of(&mut scene.record(options, &program("calls"))).exits(0);
    let malloc = &scene.report("m.wscope")["events"][0];
    assert!(number(malloc, "own") > 0, "{malloc}");
    Ended::of(&mut scene.warpscope(&["export", "m.wscope", "--event", "malloc", "-o", "m.folded"])).exits(0);
    let text = scene.read("m.folded");
    assert!(!text.contains("inject::") && !text.contains("InitializeInjection"), "{text}");
    assert_eq!(folded::read(&text).iter().map(|line| line.weight).sum::<u64>(), number(malloc, "count"));
}

/// Check that meaningless events, and events that do not exist, are rejected in one sentence before anything runs.
#[test]
fn bad_events_are_rejected() {
    let event = program("event");
    let refused = |options: &str, words: &[&str]| {
        let scene = Scene::new();
        Ended::of(&mut scene.record(options, "touch ran")).exits(1).says(words);
        assert_eq!(scene.files(), Vec::<String>::new(), "{options}");
    };
    let one = |text: &str, words: &[&str]| refused(&format!("--event {text}"), words);
    one("malloc", &["--event malloc", "expected uprobe:LIB:FUNCTION"]);
    one(&format!("uprobe:{event}:tak"), &["has no function tak", "did you mean take"]);
    one("uprobe:libc.so.6:mallok", &["libc.so.6 has no function mallok", "did you mean malloc"]);
    one("uprobe:libc.so.6:memcpy", &["memcpy of", "is an indirect function"]);
    one("uprobe:libc.so.6:*", &["functions matching *, more than the limit of", "use a narrower pattern"]);
    one("uprobe:/no/such/library.so:f", &["there is no file /no/such/library.so"]);
    one(&format!("uprobe:{event}:0x5"), &["has no code at offset 0x5"]);
    one(&format!("usdt:{event}:stop"), &["no static tracepoint stop", "did you mean warp:step"]);
    one(&format!("uprobe:{event}:take,weight=arg0"), &["arg1 is the first argument"]);
    one(
        "tracepoint:sched:sched_swich",
        &["there is no tracepoint sched:sched_swich", "did you mean sched:sched_switch"],
    );
    one("tracepoint:syscalls:sys_enter_write,weight=size", &["has no numeric field size", "count"]);
    refused("--events-only", &["--events-only requires --event"]);
    let two = format!("--events-only --event uprobe:{event}:take --event uprobe:{event}:many -o two.svg");
    refused(&two, &["two.svg can show only one event, but 2 are recorded", "export --event take"]);
}

/// Check that `export` lists the events of a recording if the requested one is missing.
#[test]
fn bad_event_exports_are_rejected() {
    let (scene, event) = (Scene::new(), program("event"));
    let options = format!("-q --events-only --event uprobe:{event}:take --event uprobe:{event}:many -o e.wscope");
    Ended::of(&mut scene.record(&options, &event)).exits(0);
    let export = |words: &[&str]| Ended::of(&mut scene.warpscope(&[&["export", "e.wscope"], words].concat()));
    export(&["--event", "free", "-o", "x.svg"]).exits(1).says(&["no event called free; it has: take, many"]);
    export(&["-o", "x.svg"]).exits(1).says(&["several events and nothing else: choose one with --event: take, many"]);
    export(&["--event", "many", "-o", "x.svg"]).exits(0);
    assert!(scene.read("x.svg").contains("4 hits"));
    Ended::of(&mut scene.record("-q --cpu-only -o none.wscope", "true")).exits(0);
    let none = ["export", "none.wscope", "--event", "take", "-o", "y.svg"];
    Ended::of(&mut scene.warpscope(&none)).exits(1).says(&["the recording has no events"]);
}

/// Check that an event in a library that no process loads is not an error, but is mentioned.
#[test]
fn events_in_libraries_never_loaded_are_mentioned() {
    let scene = Scene::new();
    let run = Ended::of(&mut scene.record("--events-only --event uprobe:libnobody.so:f -o e.wscope", "true")).exits(0);
    assert!(
        run.err().contains("event f was not recorded: no process loaded a file called libnobody.so"),
        "{}",
        run.err()
    );
}
