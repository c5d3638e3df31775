//! The tables for SQL.

mod support;

use std::{collections::BTreeSet, fs, process::Command};

use analysis::View;
use export::formats::parquet::FILES;
use fixtures::job::{HostClock, Job, Late};
use model::{
    event::{Activity, Event, KernelCounter, Launch, Work},
    steps::{Series, Step, Steps},
};
use support::{
    parquet::Value,
    sql::{files, tables, tables_of},
};

/// Check that every file exists, also without any event, and that references lead to rows.
#[test]
fn tables_are_complete() {
    for events in [fixtures::events(), fixtures::events()[..2].to_vec(), Vec::new()] {
        let tables = tables(&events);
        assert_eq!(tables.len(), FILES.len());
        let known: BTreeSet<i64> = tables["stacks"].numbers("stack").into_iter().collect();
        let framed: BTreeSet<i64> = tables["frames"].numbers("stack").into_iter().collect();
        assert!(framed.is_subset(&known));
        for name in ["kernels", "copies", "launches", "samples", "waits", "calls"] {
            let used = tables[name].numbers("stack");
            assert!(used.iter().all(|stack| known.contains(stack)), "{name}");
        }
        let names: BTreeSet<&str> = tables.values().flat_map(|table| table.texts("recording")).collect();
        assert!(names.len() <= 1, "{names:?}");
    }
}

/// Check names and paths of a known launch, and that work without times has none.
#[test]
fn rows_have_names_and_stacks() {
    let tables = tables(&fixtures::events());
    let kernels = &tables["kernels"];
    let evil = "evil;kernel \"quoted\" <b>&amp;\n\u{1b}[31m 5";
    assert!(kernels.texts("name").contains(&evil));
    assert_eq!(kernels.columns["start_ns"].iter().filter(|value| **value == Value::Null).count(), 1);
    assert_eq!(tables["recordings"].texts("host"), ["gpu-box"]);
    assert_eq!(tables["processes"].texts("comm"), ["python3", "tok worker"]);
    let path = "_start;main;generate(Model&);forward(Transformer*, int, int);matmul;cudaLaunchKernel";
    assert!(tables["stacks"].texts("path").contains(&path));
    assert!(tables["frames"].texts("kind").contains(&"kernel"));
    assert!(tables["copies"].texts("direction").contains(&"HtoD"));
}

/// Check that a measured launch has a row for each value, by the name of its metric, and that its announcement has none.
#[test]
fn counters_have_names() {
    let mut events = fixtures::events();
    let kernel = events.iter().find_map(|event| match event {
        Event::Activity(activity) if matches!(activity.work, Work::Kernel { .. }) => Some(*activity),
        _ => None,
    });
    let Activity { session, correlation, .. } = kernel.expect("a kernel");
    for (metric, value) in [(255, 0.0_f64), (0, 12_345.0), (5, 81.25), (99, 1.0)] {
        events.push(Event::KernelCounter(KernelCounter { session, correlation, metric, value: value.to_bits() }));
    }
    let tables = tables(&events);
    let counters = &tables["kernel_counters"];
    assert_eq!(counters.texts("metric"), ["gpu__time_duration.sum", model::limits::METRICS[5]]);
    assert_eq!(counters.numbers("thousandths"), [12_345_000, 81_250]);
    assert_eq!(counters.numbers("correlation"), [i64::from(correlation); 2]);
}

/// Check that GPU work has the number of the step that launched it, and the thread of the step: only work that a step launched.
#[test]
fn work_has_its_step() {
    let events = fixtures::events();
    let launches = events.iter().filter_map(|event| match event {
        Event::Launch(launch) => Some(*launch),
        _ => None,
    });
    let first = launches.min_by_key(|launch| launch.time).expect("a launch");
    let step = Step { number: 812, start: first.time, end: first.time + 1, is_followed: true, ..Step::default() };
    let series = Series { process: first.process, tid: first.tid, place: "train".into(), steps: vec![step] };
    let mut profile = fixtures::fold(&events);
    profile.steps = Some(Steps { series: vec![series], ..Steps::default() });
    let tables = tables_of(&profile, &events);
    let steps = &tables["steps"];
    assert_eq!((steps.numbers("step"), steps.texts("place")), (vec![812], vec!["train"]));
    let mut found = 0;
    for table in ["kernels", "copies"] {
        let columns = &tables[table].columns;
        for ((launched, step), tid) in columns["launch_ns"].iter().zip(&columns["step"]).zip(&columns["step_tid"]) {
            let is_in = *launched == Value::Number(first.time as i64);
            let expected = |value: u32| if is_in { Value::Number(value.into()) } else { Value::Null };
            assert_eq!((step, tid), (&expected(812), &expected(first.tid)));
            found += u32::from(is_in);
        }
    }
    assert!(found > 0, "it launched something");
}

/// Check that rows of several groups, numbers of any size, and texts that are too many for one group are read back.
#[test]
fn large_tables_have_several_groups() {
    let mut events = fixtures::events();
    let template = events.iter().find_map(|event| match event {
        Event::Activity(activity) if activity.graph_node == 0 && matches!(activity.work, Work::Kernel { .. }) => {
            Some(*activity)
        }
        _ => None,
    });
    let template = template.expect("an activity");
    let mut starts = Vec::new();
    for number in 0..150_000_u32 {
        let start = 6_000_000_000 + u64::from(number) * u64::from(number % 1_000);
        let correlation = 1_000_000 + number;
        starts.push(start as i64);
        let launch = Launch { session: template.session, correlation, time: start, ..Launch::default() };
        let activity = Activity { correlation, start, end: start + u64::from(number), ..template };
        events.extend([Event::Launch(launch), Event::Activity(activity)]);
    }
    let last = u64::MAX - 1;
    events.push(Event::Activity(Activity { correlation: 9_999_999, start: 1, end: last, ..template }));
    let tables = tables(&events);
    let kernels = &tables["kernels"];
    assert_eq!((kernels.groups, tables["launches"].groups), (3, 3));
    // Those of the example are earlier.
    let read = kernels.numbers("start_ns").into_iter().filter(|start| *start >= 6_000_000_000).collect::<Vec<_>>();
    assert!(read == starts, "the times are read back");
    assert!(kernels.numbers("end_ns").contains(&i64::MAX), "a time that no clock has");
}

/// Check that DuckDB and Arrow, where they are installed (`pip install duckdb pyarrow`), read the same totals.
#[test]
fn databases_read_the_tables() {
    const SCRIPT: &str = r"
import glob, sys
try:
    import duckdb, pyarrow.parquet
except ImportError:
    sys.exit(77)
for file in glob.glob(sys.argv[1] + '/*'):
    rows = duckdb.sql(f'SELECT * FROM {file!r}').fetchall()
    table = pyarrow.parquet.read_table(file)
    assert rows == list(zip(*table.to_pydict().values())), file
print(*duckdb.sql(f'''
    SELECT sum(end_ns - start_ns)::BIGINT, count(*), count(DISTINCT name) FROM '{sys.argv[1]}/kernels.parquet'
''').fetchall()[0])
";
    let events = fixtures::events();
    let directory = tempfile::tempdir().expect("a directory");
    for (name, bytes) in files(&events, View::default()) {
        fs::write(directory.path().join(name), bytes).expect("written");
    }
    let python = std::env::var("WARPSCOPE_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let run = match Command::new(python).args(["-c", SCRIPT]).arg(directory.path()).output() {
        Ok(run) if run.status.code() != Some(77) => run,
        _ => return support::coverage::not_covered("Parquet's readers: `pip install duckdb pyarrow`"),
    };
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let kernels = &tables(&events)["kernels"];
    let (ends, starts) = (kernels.numbers("end_ns"), kernels.numbers("start_ns"));
    let names: BTreeSet<&str> = kernels.texts("name").into_iter().collect();
    let total = ends.iter().sum::<i64>() - starts.iter().sum::<i64>();
    let expected = format!("{total} {} {}", kernels.rows, names.len());
    assert_eq!(String::from_utf8_lossy(&run.stdout).trim(), expected);
}

/// Check that operations of communicators have a row for each member, with what it waited for whom, and the kernel's own times.
#[test]
fn operations_have_their_members() {
    let job = Job { hosts: vec![HostClock::default()], steps: 3, late: Late::Rank(5), late_ns: 10_000_000, seed: 1 };
    let (events, truth) = job.events();
    let tables = tables(&events[0]);
    let (collectives, members) = (&tables["collectives"], &tables["collective_members"]);
    assert_eq!(collectives.numbers("collective"), (1..=truth.len() as i64).collect::<Vec<_>>());
    assert_eq!(members.numbers("start_ns").len(), truth.len() * 8);
    assert_eq!(collectives.numbers("waited_ns").iter().sum::<i64>(), members.numbers("waited_ns").iter().sum::<i64>());
    let kernels: BTreeSet<i64> = tables["kernels"].numbers("start_ns").into_iter().collect();
    assert!(members.numbers("start_ns").iter().all(|start| kernels.contains(start)));
    // The first operation of the second step is late: in the first step, nothing is.
    let late = 5;
    assert_eq!(collectives.columns["last_rank"][late], Value::Number(5));
    let is_late = |row: &usize| members.columns["collective"][*row] == Value::Number(late as i64 + 1);
    let rows: Vec<usize> = (0..truth.len() * 8).filter(is_late).collect();
    for row in rows {
        let value = |name: &str| members.columns[name][row].clone();
        let (rank, waited) = (value("rank"), value("waited_for_rank"));
        assert_eq!(waited, if rank == Value::Number(5) { Value::Null } else { Value::Number(5) });
    }
    let known: BTreeSet<i64> = tables["stacks"].numbers("stack").into_iter().collect();
    assert!(members.numbers("stack").iter().all(|stack| known.contains(stack)));
}
