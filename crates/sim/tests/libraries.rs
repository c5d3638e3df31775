//! The linked libraries, used by C programs and by a small CUPTI client (`client.c`).

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use cupti::ids::kind;
use cupti::release::RELEASES;

/// Runs a compiler, which must succeed.
fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Returns a directory with the libraries, the client, the workload and the test programs, created once.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let sim = Path::new(env!("CARGO_MANIFEST_DIR"));
        let workspace = sim.join("../..");
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sim");
        std::fs::create_dir_all(&out).expect("a folder for the libraries");
        embedded::write_sim(&out).expect("the libraries");
        embedded::write_executable(&out.join("workload"), embedded::WORKLOAD).expect("the workload");
        let flags =
            ["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls"];
        for program in ["truth", "calls", "behave"] {
            run(Command::new("cc")
                .args(flags)
                .arg(workspace.join(format!("tests/programs/{program}.c")))
                .arg("-o")
                .arg(out.join(program))
                .args([out.join("libcudart.so.13"), out.join("libcuda.so.1")])
                .arg("-pthread"));
        }
        run(Command::new("cc")
            .args(flags)
            .args(["-fPIC", "-shared"])
            .arg(sim.join("tests/client.c"))
            .arg("-o")
            .arg(out.join("client.so"))
            .arg(out.join("libcupti.so.13"))
            .arg("-pthread"));
        out
    })
}

/// The results of a run.
struct Run {
    output: Output,
    /// The truth, one map of flattened fields (`delivered.kernel`) for each process.
    truth: Vec<HashMap<String, u64>>,
    /// The client's counts.
    client: HashMap<String, String>,
}

impl Run {
    fn client(&self, key: &str) -> u64 {
        self.client[key].parse().unwrap_or_else(|_| panic!("{key} is not a number"))
    }

    fn truth(&self, key: &str) -> u64 {
        self.truth.iter().map(|t| t[key]).sum()
    }
}

/// Flattens one line of the truth: objects nest once, and every value is a number.
fn flatten(line: &str) -> HashMap<String, u64> {
    let mut fields = HashMap::new();
    let mut prefix = String::new();
    for token in line.trim().trim_matches(['{', '}']).split(',') {
        let (mut key, mut rest) = token.split_once(':').expect("key and value");
        if let Some(inner) = rest.strip_prefix('{') {
            prefix = format!("{}.", key.trim_matches('"'));
            (key, rest) = inner.split_once(':').expect("key and value");
        }
        let name = format!("{prefix}{}", key.trim_matches('"'));
        fields.insert(name, rest.trim_end_matches('}').parse().expect("a number"));
        if rest.ends_with('}') {
            prefix.clear();
        }
    }
    fields
}

/// Runs a program on the simulated GPU with the client injected. `name` separates the files of tests.
fn simulate(name: &str, program: &str, arguments: &str, script: &str, environment: &[(&str, &str)]) -> Run {
    let folder = folder();
    let (truth, counted) = (folder.join(format!("{name}.truth")), folder.join(format!("{name}.client")));
    for file in [&truth, &counted] {
        let _ = std::fs::remove_file(file);
    }
    let output = Command::new(folder.join(program))
        .args(arguments.split_whitespace())
        .env("LD_LIBRARY_PATH", folder)
        .env("CUDA_INJECTION64_PATH", folder.join("client.so"))
        .env("CLIENT_OUT", &counted)
        .env("WARPSCOPE_SIM", format!("truth={},{script}", truth.display()))
        .envs(environment.iter().copied())
        .output()
        .expect("the program runs");
    let truth = std::fs::read_to_string(truth).unwrap_or_default();
    let client = std::fs::read_to_string(counted).unwrap_or_default();
    let pair = |line: &str| line.split_once(' ').map(|(k, v)| (k.to_string(), v.to_string()));
    Run { output, truth: truth.lines().map(flatten).collect(), client: client.lines().filter_map(pair).collect() }
}

/// Checks that the client's counts equal those delivered according to the truth.
fn assert_exact(run: &Run) {
    let pairs = [
        ("kernels", "delivered.kernel"),
        ("copies", "delivered.copy"),
        ("memsets", "delivered.memset"),
        ("syncs", "delivered.sync"),
        ("dropped", "dropped"),
        ("zero_time", "zero_time"),
        ("unfinished", "unfinished"),
        ("kernel_ns", "kernel_ns"),
        ("callbacks", "callbacks"),
    ];
    for (counted, truth) in pairs {
        assert_eq!(run.client(counted), run.truth(truth), "{counted}");
    }
    let sum =
        |of: &str| ["kernel", "copy", "memset", "sync"].iter().map(|k| run.truth(&format!("{of}.{k}"))).sum::<u64>();
    assert_eq!(sum("produced"), sum("delivered") + run.truth("dropped"));
    for never in ["unrequested", "unbalanced", "unpaired", "backwards"] {
        assert_eq!(run.client(never), 0, "{never}");
    }
    assert_eq!(run.client("enters"), run.client("exits"));
}

/// Threads, streams, both APIs and graphs: every launch, record and callback is counted the same on both sides.
#[test]
fn truth_equals_the_clients_counts() {
    let run = simulate("exact", "truth", "1 8 3 2 5000 --mixed --graphs", "devices=2", &[]);
    assert!(run.output.status.success(), "{:?}", run.output);
    assert_eq!(String::from_utf8_lossy(&run.output.stdout), "launched 40000\n");
    assert_exact(&run);
    let launched = ["kernel", "copy", "memset", "graph"].map(|k| run.truth(&format!("launched.{k}")));
    assert_eq!(launched.iter().sum::<u64>(), 40000);
    assert_eq!(run.truth("delivered.kernel"), launched[0] + 3 * launched[3]);
    assert_eq!(run.client("graph_kernels"), 3 * launched[3]);
    // Instantiation reports each node as created, and then as cloned.
    assert_eq!(run.client("nodes_created"), 2 * run.truth("captured"));
    assert_eq!(run.client("nodes_cloned"), run.truth("captured"));
    assert_eq!(run.client("launched"), 40000 + run.truth("captured"));
    assert_eq!(run.truth("dropped") + run.truth("zero_time") + run.truth("unfinished") + run.truth("failed"), 0);
}

/// Each release has its own version, record lengths and driver; records are valid in all of them.
#[test]
fn every_release_has_its_strides() {
    for release in RELEASES {
        let script = format!("release={}", release.name);
        let run = simulate(&format!("release-{}", release.name), "truth", "1 2 2 1 500", &script, &[]);
        assert!(run.output.status.success(), "{:?}", run.output);
        assert_exact(&run);
        assert_eq!(run.client("version"), u64::from(release.version), "{}", release.name);
        let kinds = [
            ("stride_kernel", kind::CONCURRENT_KERNEL),
            ("stride_memcpy", kind::MEMCPY),
            ("stride_peer", kind::MEMCPY2),
            ("stride_memset", kind::MEMSET),
            ("stride_sync", kind::SYNCHRONIZATION),
        ];
        for (key, kind) in kinds {
            assert_eq!(Some(run.client(key) as usize), release.stride(kind), "{} {key}", release.name);
        }
        assert_eq!(run.client("kernels"), run.truth("launched.kernel"));
    }
}

/// Callbacks arrive only for the enabled ids, and a second subscriber is rejected.
#[test]
fn callbacks_only_for_enabled_ids() {
    let only = [("CLIENT_CALLBACKS", "2:211")];
    let run = simulate("ids", "truth", "1 2 1 1 1000 --runtime --kernels", "", &only);
    assert_exact(&run);
    assert_eq!((run.client("subscribed"), run.client("second")), (0, 39));
    assert_eq!(run.client("callbacks"), 2 * 2000);
    let none = simulate("no-ids", "truth", "1 2 1 1 1000 --driver --kernels", "", &only);
    assert_eq!(none.client("callbacks"), 0);
    assert_eq!(none.client("kernels"), 2000);
}

/// With another client, subscribing fails and nothing is called.
#[test]
fn another_subscriber_blocks_subscribing() {
    let run = simulate("other", "truth", "1 1 1 1 100", "subscriber=other", &[]);
    assert!(run.output.status.success());
    assert_eq!((run.client("subscribed"), run.client("callbacks")), (39, 0));
}

/// Dropped, timeless and unfinished records appear as often as the script says, and each is counted.
#[test]
fn faults_are_counted() {
    let script = "drop=1/10,zero_time=1/7,unfinished=1/9,order=shuffle";
    let run = simulate("faults", "truth", "1 4 2 1 5000 --driver", script, &[]);
    assert_exact(&run);
    let produced: u64 = ["kernel", "copy", "memset", "sync"].iter().map(|k| run.truth(&format!("produced.{k}"))).sum();
    assert_eq!(run.truth("dropped"), produced / 10);
    let kept = produced - produced / 10;
    // Waits always have times and finish; a handful of them was kept or dropped.
    assert!(run.truth("unfinished").abs_diff(kept / 9) <= 2);
    assert!(run.truth("zero_time") > kept / 8 && run.truth("zero_time") <= kept / 7);
    assert!(run.client("disorder") > 1000);
}

/// A plain flush delivers only finished records; unfinished ones are kept.
#[test]
fn a_plain_flush_keeps_the_unfinished() {
    let environment = [("CLIENT_FLUSH", "finished")];
    let run = simulate("plain", "truth", "1 1 1 1 1000 --driver --kernels", "unfinished=1/4", &environment);
    assert_eq!((run.truth("produced.kernel"), run.truth("delivered.kernel")), (1000, 750));
    assert_eq!((run.client("kernels"), run.client("unfinished")), (750, 0));
}

/// Correlation ids wrap after the largest and skip 0.
#[test]
fn correlation_ids_wrap() {
    let run = simulate("wrap", "truth", "1 2 1 1 5000", "correlation=4294962296", &[]);
    assert_exact(&run);
    assert_eq!(run.truth("first_correlation"), 4294962296);
    assert_eq!(run.truth("last_correlation"), run.truth("correlations") - 5000);
    assert!(run.client("lowest") >= 1 && run.client("lowest") < 10);
    assert_eq!(run.client("highest"), u64::from(u32::MAX));
    assert_eq!(run.client("kernels"), run.truth("launched.kernel"));
}

/// A failing API function returns its error to the program and to the exit callback, and produces no activity.
#[test]
fn failing_calls_produce_no_activity() {
    let run = simulate("fail", "truth", "1 2 1 1 1000 --driver --kernels", "fail=cuLaunchKernel:1/8", &[]);
    assert_exact(&run);
    assert_eq!(String::from_utf8_lossy(&run.output.stdout), "launched 1750\n");
    assert_eq!((run.truth("failed"), run.client("failures"), run.client("kernels")), (250, 250, 1750));
}

/// Older buffer modes and delivery on the launching thread lose nothing either.
#[test]
fn buffer_modes_lose_nothing() {
    for script in ["per_thread=0", "deliver=launcher", "per_thread=0,deliver=launcher,order=shuffle"] {
        let run = simulate(&script.replace([',', '='], "-"), "truth", "1 8 2 1 4000", script, &[]);
        assert_exact(&run);
        assert!(run.client("buffers") > 10);
        assert_eq!(run.client("kernels"), run.truth("launched.kernel"));
    }
}

/// CUPTI's refusals can be requested.
#[test]
fn refusals_are_simulated() {
    let run = simulate("clock", "calls", "", "clock=refuse", &[]);
    assert_ne!(run.client("clock_result"), 0);
    assert_eq!(run.client("kernels"), 5);
    let run = simulate("buffer", "calls", "", "buffer=refuse", &[]);
    assert_ne!(run.client("register_result"), 0);
    assert_eq!((run.client("kernels"), run.client("dropped")), (0, run.truth("dropped")));
}

/// From the callback, a stack leads through all three libraries to the program, by frame pointers and by unwind tables.
#[test]
fn stacks_lead_through_the_libraries() {
    let run = simulate("stack", "truth", "1 1 1 1 200 --runtime", "", &[]);
    assert_eq!(
        run.client("return_probes"),
        0,
        "another tool, such as `warpscope monitor`, has return probes on the simulator's libraries, and the C library cannot \
         unwind through them: stop that tool and run this test again"
    );
    let expected = "client.so>libcupti.so.13>libcuda.so.1>libcudart.so.13>truth>";
    for walk in ["by_frame_pointer", "by_tables"] {
        assert!(run.client[walk].starts_with(expected), "{walk}: {}", run.client[walk]);
    }
}

/// Each of several processes writes its own line.
#[test]
fn processes_write_a_line_each() {
    let run = simulate("processes", "truth", "3 2 1 1 500 --mixed", "", &[]);
    assert_eq!(String::from_utf8_lossy(&run.output.stdout), "launched 3000\n");
    assert_eq!(run.truth.len(), 3);
    assert!(run.truth.iter().all(|t| t["delivered.kernel"] == t["launched.kernel"] && t["delivered.kernel"] > 0));
}

/// The sequence of `calls.c` produces exactly its records, and its failing call is counted.
#[test]
fn known_calls_produce_their_records() {
    let run = simulate("calls", "calls", "", "", &[]);
    assert_eq!(String::from_utf8_lossy(&run.output.stdout), "ok\n", "{:?}", run.output);
    assert_exact(&run);
    let counts = ["kernels", "copies", "memsets", "syncs"].map(|k| run.client(k));
    assert_eq!(counts, [5, 3, 1, 2]);
    assert_eq!(run.client("copied_bytes"), 4096 + 2048 + 1024);
    assert_eq!(run.truth("failed"), 1);
}

/// Programs behave the same without a client; a forked child has no GPU and writes no truth.
#[test]
fn programs_behave_the_same_without_a_client() {
    for (mode, status, lines) in
        [("none", 0, 0), ("status", 42, 1), ("fork 20", 0, 1), ("quick 20", 0, 0), ("output", 0, 1)]
    {
        let run = simulate(&format!("behave-{}", &mode[..4]), "behave", mode, "", &[]);
        assert_eq!(run.output.status.code(), Some(status), "{mode}: {:?}", run.output);
        assert_eq!(run.truth.len(), lines, "{mode}");
    }
    let run = simulate("behave-fork-counts", "behave", "fork 20", "", &[]);
    assert_eq!(run.client("kernels"), 40);
}

/// Entry points start like the real ones, so that the choice of probe sites is tested.
#[test]
fn prologues_match_the_real_ones() {
    // Symbol values are file offsets here: the code's segment is mapped at its file offset.
    let start = |library: &str, symbol: &str| {
        let path = folder().join(library);
        let symbols = Command::new("nm").args(["-D", "--defined-only"]).arg(&path).output().expect("nm runs");
        let symbols = String::from_utf8_lossy(&symbols.stdout).into_owned();
        let found = symbols.lines().find(|l| l.split(['@', ' ']).nth(2) == Some(symbol)).expect("the symbol");
        let at = usize::from_str_radix(&found[..16], 16).expect("an address");
        std::fs::read(&path).expect("the library")[at..at + 12].to_vec()
    };
    for symbol in ["cuLaunchKernel", "cuMemAlloc_v2", "cuInit", "cuGetProcAddress_v2"] {
        let code = start("libcuda.so.1", symbol);
        assert_eq!((&code[..2], code[10]), (&[0x81, 0x3d][..], 0x74), "{symbol}: cmp, je");
    }
    for symbol in ["cudaLaunchKernel", "cudaMalloc", "__cudaRegisterFatBinary", "cudaGetErrorString"] {
        assert_eq!(start("libcudart.so.13", symbol)[0], 0x55, "{symbol}: push rbp");
    }
}

/// The bundled workload runs, prints its text, and keeps the GPU busy, but not always.
#[test]
fn the_workload_runs() {
    let run = simulate("workload", "workload", "60 40", "", &[]);
    assert!(run.output.status.success(), "{:?}", run.output);
    assert!(String::from_utf8_lossy(&run.output.stdout).contains("40 tokens"));
    assert_exact(&run);
    assert!(run.truth("delivered.kernel") > 40 * 100);
}

/// A script with a typo stops the program instead of running without its fault.
#[test]
fn bad_scripts_stop_the_program() {
    let run = simulate("typo", "calls", "", "dorp=1/7", &[]);
    assert_eq!(run.output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&run.output.stderr).contains("dorp"));
}
