//! Source lines and stall reasons below kernels (`record --stalls`), on a GPU whose samples are known.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::support::{
    Ended, Scene,
    attacker::{id, with_sudo},
    browser::Browser,
    folded,
    jsonl::Events,
    program,
    programs::sources,
    scene::{lost, number},
};

/// The samples of each run. The cubin has line 7 of tri.py at 0x5b0 and line 8 at 0xae0, and nothing about `plain`.
const SAMPLES: &str = "kernel[gather]=8us\nkernel[plain]=4us\n\
    stall[gather]=0x5b0:long_scoreboard:20\nstall[gather]=0x5c0:long_scoreboard:10\nstall[gather]=0xae0:selected:10\n\
    stall[plain]=0x10:barrier:5\n";

fn cubin() -> PathBuf {
    sources().join("../crates/symbols/tests/cubins/triton.cubin").canonicalize().expect("it is there")
}

/// Records the program with samples that are known, in all formats.
pub fn record(scene: &Scene, script: &str, options: &str, argument: &str) -> Value {
    record_cubin(scene, &cubin(), script, options, argument)
}

fn record_cubin(scene: &Scene, cubin: &Path, script: &str, options: &str, argument: &str) -> Value {
    let text = format!("cubin={}\n{SAMPLES}{script}\n", cubin.display());
    std::fs::write(scene.path("script"), text).expect("the directory is writable");
    let outputs = "-o x.wscope -o x.folded -o x.jsonl -o x.html -o x.svg";
    let options = format!("--sim -q --gpu-only {options} {outputs}");
    let mut command = scene.record(&options, &format!("{} {argument}", program("stalled")));
    // Whatever is installed here, no disassembler is used but the test's own.
    let disassembler = scene.path("nvdisasm");
    let disassembler = if disassembler.exists() { scene.text("nvdisasm") } else { String::new() };
    command.env("WARPSCOPE_NVDISASM", disassembler);
    Ended::of(command.env("WARPSCOPE_SIM", format!("@{}", scene.text("script")))).exits(0);
    let report = scene.report("x.wscope");
    assert_eq!((number(&report, "kernels"), number(&report, "gpu_time_ns")), (6, 40_000));
    // The kernel's buffers for records of mapped files are shared by the machine.
    assert_eq!(lost(&report) - number(&report["lost"], "mappings"), 0, "{}", report["lost"]);
    report
}

/// GPU time in microseconds by launching function, kernel and what is below it.
fn below(scene: &Scene) -> BTreeMap<String, u64> {
    let text = scene.read("x.folded");
    let mut sums = BTreeMap::new();
    for line in folded::read(&text) {
        let kernel = line.frames.iter().position(|frame| frame.starts_with("[GPU_Kernel] ")).expect("a kernel");
        let caller = line.frames.iter().find(|frame| ["first", "second", "third"].contains(*frame)).expect("a caller");
        *sums.entry([&[*caller][..], &line.frames[kernel..]].concat().join(";")).or_default() += line.weight;
    }
    sums
}

fn expected<const N: usize>(rows: [(&str, u64); N]) -> BTreeMap<String, u64> {
    rows.map(|(path, time)| (path.to_owned(), time)).into()
}

/// Check the exact tree, table and ledger, in both layouts of CUPTI's structures: the time of each call path is divided by
/// the samples of the kernel, and adds up to what it was.
#[test]
fn kernels_continue_with_lines_and_stalls() {
    for (release, argument) in [("13.0", ""), ("12.3", ""), ("13.0", "reset")] {
        let scene = Scene::new();
        let report = record(&scene, &format!("release={release}"), "--stalls=19", argument);
        let tree = [
            ("first;[GPU_Kernel] gather;tri.py:7;[stall: long scoreboard]", 18),
            ("first;[GPU_Kernel] gather;tri.py:8;[issuing]", 6),
            ("second;[GPU_Kernel] gather;tri.py:7;[stall: long scoreboard]", 6),
            ("second;[GPU_Kernel] gather;tri.py:8;[issuing]", 2),
            ("third;[GPU_Kernel] plain;[stall: barrier]", 8),
        ];
        assert_eq!(below(&scene), expected(tree), "{release}");
        let stalls = &report["stalls"];
        let counts =
            ["samples", "without_line", "in_functions", "dropped", "unsent", "buffer_full", "contexts", "period"];
        assert_eq!(counts.map(|name| number(stalls, name)), [170, 10, 0, 0, 0, 0, 1, 19], "{release}: {stalls}");
        // The simulator takes 70 MiB besides the buffer of 32 MiB.
        assert_eq!(number(stalls, "memory_bytes"), 102 << 20, "{stalls}");
        let lines = stalls["lines"].as_array().expect("lines");
        let texts: Vec<[&str; 3]> =
            lines.iter().map(|line| ["kernel", "line", "stall"].map(|key| line[key].as_str().expect("text"))).collect();
        let table =
            [["gather", "tri.py:7", "long scoreboard"], ["gather", "tri.py:8", "selected"], ["plain", "", "barrier"]];
        assert_eq!(texts, table);
        let numbers: Vec<[u64; 2]> = lines.iter().map(|line| ["samples", "ns"].map(|key| number(line, key))).collect();
        assert_eq!(numbers, [[120, 24_000], [40, 8_000], [10, 8_000]]);
        assert!(lines[0]["meaning"].as_str().is_some_and(|text| text.contains("global")), "{}", lines[0]);
    }
}

/// Check that every output has them: events, flame graph, table and report.
#[test]
fn outputs_have_lines_and_stalls() {
    let scene = Scene::new();
    record(&scene, "", "--stalls", "");
    let events = Events::read(&scene.read("x.jsonl"));
    let samples: Vec<&Value> = events.of("stallsamples").collect();
    let total: u64 = samples.iter().map(|event| number(event, "count")).sum();
    assert_eq!(total, 170, "{samples:?}");
    assert!(samples.iter().any(|event| event["lines"][0] == "tri.py:7" && event["reason"] == "long_scoreboard"));
    let svg = scene.read("x.svg");
    assert!(svg.contains("[stall: long scoreboard] (") && svg.contains("waits for data from global"));
    Ended::of(&mut scene.warpscope(&["export", "x.wscope", "--table", "stalls", "-o", "x.csv"])).exits(0);
    let rows = scene.read("x.csv");
    assert!(rows.contains("gather,tri.py:7,120,24000,0.750000,long scoreboard,1.000000,"), "{rows}");
    Ended::of(&mut scene.warpscope(&["export", "x.wscope", "--table", "occupancy", "-o", "x.csv"])).exits(0);
    let rows = scene.read("x.csv");
    // Blocks of one warp: an SM of the simulated H200 holds 32 of them, and 64 warps.
    let expected = "gather,0,4,32000,0.500000,blocks per SM,0.00,1,132,1,32,32,0\n\
                    plain,0,2,8000,0.500000,blocks per SM,0.00,1,132,1,32,32,0\n";
    assert!(rows.ends_with(expected), "{rows}");
    let text = Ended::of(&mut scene.warpscope(&["report", "x.wscope"])).exits(0);
    let text = text.out();
    assert!(text.contains("Stalls") && text.contains("long scoreboard 100 %"), "{text}");
    assert!(text.contains("sampling took 102 MiB of device memory per context"), "{text}");
    assert!(text.contains("170 samples inside kernels, one every 2^17 cycles"), "{text}");
    assert!(text.contains("10 samples inside kernels have no source line"), "{text}");
}

/// Writes a stand-in for nvdisasm that checks its arguments and the cubin, runs `before`, and prints instructions of `gather`.
fn stand_in(scene: &Scene, before: &str) {
    let text = "#!/bin/sh\n\
        test \"$1 $2\" = '-c -ndf' && test \"$(head -c 4 \"$3\" | tail -c 3)\" = ELF || exit 1\n";
    let printed = "printf '%s\\n' '\t.section\t.text.gather,\"ax\",@progbits' 'gather:' '.text.gather:' \
        '        /*05b0*/                   LDG.E R2, desc[UR4][R4.64] ;' \
        '        /*05c0*/              @!P0 BRA `(.L_x_1) ;' '.L_x_1:' \
        '        /*0ae0*/                   STG.E desc[UR4][R8.64], R2 ;'\n";
    let path = scene.path("nvdisasm");
    std::fs::write(&path, format!("{text}{before}\n{printed}")).expect("the directory is writable");
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("it is ours");
}

/// Check that instructions are between lines and stall reasons, in flame graphs, tables and events, also after the
/// disassembler is gone.
#[test]
fn kernels_continue_with_instructions() {
    let scene = Scene::new();
    stand_in(&scene, "");
    let report = record(&scene, "", "--stalls", "");
    let tree = [
        ("first;[GPU_Kernel] gather;tri.py:7;LDG.E R2, desc[UR4][R4.64] +0x5b0;[stall: long scoreboard]", 12),
        ("first;[GPU_Kernel] gather;tri.py:7;@!P0 BRA 0xae0 +0x5c0;[stall: long scoreboard]", 6),
        ("first;[GPU_Kernel] gather;tri.py:8;STG.E desc[UR4][R8.64], R2 +0xae0;[issuing]", 6),
        ("second;[GPU_Kernel] gather;tri.py:7;LDG.E R2, desc[UR4][R4.64] +0x5b0;[stall: long scoreboard]", 4),
        ("second;[GPU_Kernel] gather;tri.py:7;@!P0 BRA 0xae0 +0x5c0;[stall: long scoreboard]", 2),
        ("second;[GPU_Kernel] gather;tri.py:8;STG.E desc[UR4][R8.64], R2 +0xae0;[issuing]", 2),
        ("third;[GPU_Kernel] plain;[stall: barrier]", 8),
    ];
    assert_eq!(below(&scene), expected(tree));
    assert_eq!(report["notes"], Value::Array(Vec::new()));
    std::fs::remove_file(scene.path("nvdisasm")).expect("it is there");
    Ended::of(&mut scene.warpscope(&["export", "x.wscope", "-o", "x.folded"])).exits(0);
    assert_eq!(below(&scene), expected(tree), "from the recording");
    // The table of lines is still by line.
    assert_eq!(report["stalls"]["lines"].as_array().map(Vec::len), Some(3));
    let hottest = &report["stalls"]["instructions"][0];
    assert_eq!(
        ["instruction", "line", "stall"].map(|key| hottest[key].as_str().unwrap_or_default()),
        ["LDG.E R2, desc[UR4][R4.64] +0x5b0", "tri.py:7", "long scoreboard"]
    );
    assert_eq!(["samples", "ns"].map(|key| number(hottest, key)), [80, 16_000]);
    Ended::of(&mut scene.warpscope(&["export", "x.wscope", "--table", "instructions", "-o", "x.csv"])).exits(0);
    let rows = scene.read("x.csv");
    let row = "gather,\"LDG.E R2, desc[UR4][R4.64] +0x5b0\",tri.py:7,80,16000,0.500000,long scoreboard,1.000000,";
    assert!(rows.contains(row) && rows.lines().count() == 4, "{rows}");
    let text = Ended::of(&mut scene.warpscope(&["report", "--by", "instructions", "x.wscope"])).exits(0);
    assert!(text.out().contains("STG.E desc[UR4][R8.64], R2 +0xae0"), "{}", text.out());
    let events = Events::read(&scene.read("x.jsonl"));
    assert!(events.of("stallsamples").any(|event| event["instruction"] == "STG.E desc[UR4][R8.64], R2"));
}

/// Check that the disassembler runs as the user who called sudo, and that one that fails is explained once.
#[test]
fn disassemblers_run_without_privileges() {
    let scene = Scene::new();
    stand_in(&scene, &format!("test \"$(id -u)\" = {} || exit 1", id("-u")));
    let text = format!("cubin={}\n{SAMPLES}\n", cubin().display());
    std::fs::write(scene.path("script"), text).expect("the directory is writable");
    let mut command = scene.record("--sim -q --gpu-only --as-root --stalls -o x.wscope", &program("stalled"));
    command
        .env("WARPSCOPE_NVDISASM", scene.text("nvdisasm"))
        .env("WARPSCOPE_SIM", format!("@{}", scene.text("script")));
    Ended::of(with_sudo(&mut command)).exits(0);
    let report = scene.report("x.wscope");
    assert_eq!(report["stalls"]["instructions"].as_array().map(Vec::len), Some(3), "{}", report["notes"]);
    let scene = Scene::new();
    stand_in(&scene, "exit 1");
    let report = record(&scene, "", "--stalls", "");
    let notes: Vec<&str> = report["notes"].as_array().expect("notes").iter().filter_map(Value::as_str).collect();
    assert!(
        matches!(notes[..], [one] if one.starts_with("the instructions of 1 of 1 cubins are missing")),
        "{notes:?}"
    );
    assert_eq!(report["stalls"]["instructions"], Value::Null);
}

/// The samples of one kernel that behaves differently in its fourth run, which second() launches.
const DIFFERENT: &str = "kernel[gather]=8us\nkernel[plain]=4us\n\
    stall[gather]=0x5b0:long_scoreboard:20:1-3\nstall[gather]=0xae0:wait:20:1-3\nstall[gather]=0xae0:wait:40:4\n";

/// Check that each call path has the lines of its own launches if kernels are serialised, and that they share the mean if
/// they are not, or if CUPTI does not identify launches.
#[test]
fn serialised_kernels_have_lines_of_their_own_launches() {
    let mean = [
        ("first;[GPU_Kernel] gather;tri.py:7;[stall: long scoreboard]", 9),
        ("first;[GPU_Kernel] gather;tri.py:8;[stall: wait]", 15),
        ("second;[GPU_Kernel] gather;tri.py:7;[stall: long scoreboard]", 3),
        ("second;[GPU_Kernel] gather;tri.py:8;[stall: wait]", 5),
        ("third;[GPU_Kernel] plain", 8),
    ];
    let own = [
        ("first;[GPU_Kernel] gather;tri.py:7;[stall: long scoreboard]", 12),
        ("first;[GPU_Kernel] gather;tri.py:8;[stall: wait]", 12),
        ("second;[GPU_Kernel] gather;tri.py:8;[stall: wait]", 8),
        ("third;[GPU_Kernel] plain", 8),
    ];
    for (release, option, tree, serialised) in [
        ("13.0", "--stalls", &mean[..], false),
        ("13.0", "--stalls=serialised", &own[..], true),
        ("13.0", "--stalls=serialised,19", &own[..], true),
        ("12.3", "--stalls=serialised", &mean[..], false),
    ] {
        let scene = Scene::new();
        let script = format!("cubin={}\n{DIFFERENT}release={release}\n", cubin().display());
        std::fs::write(scene.path("script"), script).expect("the directory is writable");
        let options = format!("--sim -q --gpu-only {option} -o x.wscope -o x.jsonl");
        let mut command = scene.record(&options, &program("stalled"));
        command.env("WARPSCOPE_NVDISASM", "").env("WARPSCOPE_SIM", format!("@{}", scene.text("script")));
        Ended::of(&mut command).exits(0);
        Ended::of(&mut scene.warpscope(&["export", "x.wscope", "-o", "x.folded"])).exits(0);
        let expected: BTreeMap<String, u64> = tree.iter().map(|(path, us)| ((*path).to_owned(), *us)).collect();
        assert_eq!(below(&scene), expected, "{release} {option}");
        let report = scene.report("x.wscope");
        let stalls = &report["stalls"];
        assert_eq!(stalls["serialised"], serialised, "{stalls}");
        assert_eq!((number(stalls, "samples"), number(stalls, "without_launch")), (160, 0));
        let text = Ended::of(&mut scene.warpscope(&["report", "x.wscope"])).exits(0);
        assert_eq!(text.out().contains("Kernels ran one at a time"), serialised, "{}", text.out());
        let notes = report["notes"].to_string();
        assert_eq!(notes.contains("only CUPTI 12.4 or later identifies launches"), release == "12.3", "{notes}");
        let events = Events::read(&scene.read("x.jsonl"));
        let launches: std::collections::BTreeSet<u64> =
            events.of("stallsamples").filter_map(|event| event["correlation"].as_u64()).collect();
        assert_eq!(launches.len(), if serialised { 4 } else { 0 });
    }
}

/// Check that dropped samples and a full hardware buffer are counted, and that GPU time stays exact.
#[test]
fn lost_samples_are_counted() {
    let scene = Scene::new();
    let report = record(&scene, "stall_drop=1/6", "--stalls", "");
    // The last kernel is `plain`.
    assert_eq!(["samples", "dropped"].map(|name| number(&report["stalls"], name)), [165, 5]);
    assert_eq!(below(&scene).values().sum::<u64>(), 40);
    let scene = Scene::new();
    let report = record(&scene, "stall_full=1", "--stalls", "");
    let stalls = &report["stalls"];
    assert_eq!(number(stalls, "buffer_full"), 1, "{stalls}");
    assert_eq!(below(&scene).values().sum::<u64>(), 40);
    let ledger = report["ledger"].to_string();
    assert!(ledger.contains("1 time the hardware buffer for samples was full"), "{ledger}");
}

/// Check that each reason why kernels cannot be sampled is one sentence with a remedy, and that the rest of the recording is
/// whole.
#[test]
fn refusals_are_explained() {
    for (fault, remedy) in [
        ("permission", "NVreg_RestrictProfilingToAdminUsers=0"),
        ("unsupported", "does not support PC sampling"),
        ("busy", "another tool uses the GPU's counters"),
    ] {
        let scene = Scene::new();
        let report = record(&scene, &format!("stalls={fault}"), "--stalls", "");
        let notes: Vec<&str> = report["notes"].as_array().expect("notes").iter().filter_map(Value::as_str).collect();
        assert!(matches!(notes[..], [one] if one.starts_with("no stall reasons") && one.contains(remedy)), "{notes:?}");
        assert_eq!(number(&report["stalls"], "contexts_refused"), 1);
        let tree =
            [("first;[GPU_Kernel] gather", 24), ("second;[GPU_Kernel] gather", 8), ("third;[GPU_Kernel] plain", 8)];
        assert_eq!(below(&scene), expected(tree));
    }
}

/// The sentences of a report about samples inside kernels.
fn about_samples(report: &Value) -> Vec<&str> {
    let lines = report["ledger"].as_array().expect("a ledger").iter().filter_map(Value::as_str);
    lines.filter(|line| line.contains("stall reasons") || line.contains("samples inside")).collect()
}

/// Check that a recording without a single sample says why: no kernel was long enough, or there was no context to sample.
#[test]
fn missing_samples_are_explained() {
    let scene = Scene::new();
    std::fs::write(scene.path("script"), "kernel_ns=1us").expect("the directory is writable");
    let record = |command: &str| {
        let mut run = scene.record("--sim -q --gpu-only --stalls=18 -o x.wscope", command);
        Ended::of(run.env("WARPSCOPE_SIM", format!("@{}", scene.text("script")))).exits(0);
        scene.report("x.wscope")
    };
    let report = record(&program("stalled"));
    let sentences = about_samples(&report);
    assert_eq!(["samples", "contexts", "period"].map(|name| number(&report["stalls"], name)), [0, 1, 18]);
    assert!(
        matches!(sentences[..], [one] if one.starts_with("no stall reasons: ") && one.contains("2^18 cycles") && one.contains("--stalls=N")),
        "{sentences:?}"
    );
    let report = record(&format!("{} init", program("stalled")));
    let sentences = about_samples(&report);
    assert_eq!(number(&report["stalls"], "contexts"), 0, "{report}");
    assert!(
        matches!(sentences[..], [one] if *one == *"no stall reasons: the program created no CUDA context"),
        "{sentences:?}"
    );
}

/// Check that kernels are not sampled while another tool uses the counters, because CUPTI would report nothing any more.
#[test]
fn counters_of_another_tool_are_left_alone() {
    let scene = Scene::new();
    let report = record(&scene, "pm=busy", "--stalls", "");
    let notes: Vec<&str> = report["notes"].as_array().expect("notes").iter().filter_map(Value::as_str).collect();
    assert!(
        matches!(notes[..], [one] if one.starts_with("no stall reasons: another tool uses the GPU's counters")),
        "{notes:?}"
    );
    assert_eq!(report["stalls"], Value::Null);
    let tree = [("first;[GPU_Kernel] gather", 24), ("second;[GPU_Kernel] gather", 8), ("third;[GPU_Kernel] plain", 8)];
    assert_eq!(below(&scene), expected(tree));
}

/// Check that nothing is sampled, and no callback about contexts is enabled, unless it is requested.
#[test]
fn nothing_is_sampled_unless_requested() {
    let scene = Scene::new();
    let report = record(&scene, "", "", "");
    assert_eq!((&report["stalls"], &report["notes"]), (&Value::Null, &Value::Array(Vec::new())));
    assert!(!scene.read("x.folded").contains("[stall"));
}

/// Check that the report shows the source that the cubin names, as it was when the command ended, with each line's time and
/// stalls, and line numbers only if there is no such file.
#[test]
fn reports_show_source_code() {
    // The path in the cubin, which is replaced by another of the same length.
    const DIRECTORY: &[u8] = b"/tmp/tmp.C2rgLLwH14";
    let directory = tempfile::Builder::new().prefix("tmp.").rand_bytes(10).tempdir_in("/tmp").expect("a directory");
    let name = directory.path().as_os_str().as_encoded_bytes();
    assert_eq!(name.len(), DIRECTORY.len());
    let mut bytes = std::fs::read(cubin()).expect("it is there");
    let at = bytes.windows(DIRECTORY.len()).position(|part| part == DIRECTORY).expect("the directory");
    bytes[at..at + name.len()].copy_from_slice(name);
    let scene = Scene::new();
    std::fs::write(scene.path("cubin"), bytes).expect("the directory is writable");
    let lines: Vec<String> = (1..30).map(|line| format!("\tcode of line {line} </script>")).collect();
    std::fs::write(directory.path().join("tri.py"), lines.join("\n")).expect("the directory is writable");
    record_cubin(&scene, &scene.path("cubin"), "", "--stalls", "");
    drop(directory);
    Ended::of(&mut scene.warpscope(&["export", "x.wscope", "-o", "y.html"])).exits(0);
    let mut browser = Browser::start(1280, 720);
    let shown =
        "[...document.querySelectorAll('.source .line')].map(line => [...line.children].map(cell => cell.textContent))";
    for report in ["x.html", "y.html"] {
        browser.open(&format!("file://{}", scene.text(report)));
        browser.click_on("document.getElementById('tab-source')");
        let rows = browser.js(shown);
        let rows = rows.as_array().expect("rows");
        let code = |line: usize| format!("    code of line {line} </script>");
        assert_eq!(rows.len(), 16, "8 lines around lines 7 and 8");
        assert_eq!(rows[5], serde_json::json!(["", "", "", "6", code(6)]));
        assert_eq!(rows[6], serde_json::json!(["24.0 µs", "120", "long scoreboard 100.0 %", "7", code(7)]));
        assert_eq!(rows[7], serde_json::json!(["8.00 µs", "40", "selected 100.0 %", "8", code(8)]));
        // The bar is behind the number.
        let front =
            "(() => { const at = document.querySelectorAll('.source .line')[6].firstElementChild.querySelector('b')
             .getBoundingClientRect(); return document.elementFromPoint(at.x + 2, at.y + at.height / 2).tagName; })()";
        assert_eq!(browser.js(front), "B");
        assert_eq!(browser.errors(), Vec::<String>::new());
    }
    let scene = Scene::new();
    record(&scene, "", "--stalls", "");
    browser.open(&format!("file://{}", scene.text("x.html")));
    browser.click_on("document.getElementById('tab-source')");
    let rows = browser.js(shown);
    assert_eq!(rows.as_array().map(Vec::len), Some(2), "{rows}");
    assert_eq!(rows[0][4], "");
    let note = browser.text("document.querySelector('.tab .controls').textContent");
    assert!(note.contains("could not be read"), "{note}");
}
