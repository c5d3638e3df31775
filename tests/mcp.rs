//! `warpscope mcp`, as an agent uses it.

use std::{fs, os::unix::fs::symlink, process::Command};

use serde_json::{Value, json};

use crate::support::{Ended, Scene, agent::Agent, coverage::not_covered, program, programs::sources, scene::number};

mod sql;

/// The program of the tests: it computes before it launches each kernel.
const SCRIPT: &str = "kernel:work sync 40( compute:3000 kernel:work sync )";

/// A scene with a recording in `runs`.
fn recorded() -> Scene {
    let scene = Scene::new();
    fs::create_dir(scene.path("runs")).expect("a directory");
    let program = program("findings");
    let mut record = scene.record_words("--sim -q -F 999 --off-cpu -o runs/x.wscope", &[&program, SCRIPT]);
    Ended::of(record.env("WARPSCOPE_SIM", "kernel_ns=1ms")).exits(0);
    scene
}

/// Check that an agent finds the recording, the line to change, its callers, its source and its moments, with the numbers of
/// `report`.
#[test]
fn an_agent_finds_the_line_to_change() {
    let scene = recorded();
    let report = scene.report("runs/x.wscope");
    let programs = sources().join("programs").canonicalize().expect("it is there");
    let mut agent = Agent::new(&scene, &["runs", "--source", programs.to_str().expect("UTF-8")]);
    let listed = agent.call("list_recordings", json!({}));
    assert_eq!(listed["recorded"]["recordings"][0]["recording"], "x.wscope");

    let run = json!({"recording": "x.wscope"});
    let with = |more: Value| {
        let mut all = run.clone();
        all.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        all
    };
    let summary = agent.call("summary", run.clone());
    let first = &summary["recorded"]["where_to_look_next"][0];
    assert_eq!(first["kind"], "gpu-idle", "{summary}");
    assert!(first["title"].as_str().is_some_and(|title| title.contains("compute")), "{first}");
    let tables = summary["server"]["tables_with_rows"].as_array().expect("tables");
    assert!(
        ["kernels", "lines", "idle", "waits"].iter().all(|name| tables.iter().any(|table| table == name)),
        "{tables:?}"
    );
    assert_eq!(summary["server"]["denominators"]["gpu_time_ns"], report["gpu_time_ns"]);
    assert_eq!(summary["recorded"]["losses"][0], report["ledger"][0]);

    let kernels = agent.call("table", with(json!({"table": "kernels"})));
    let column = |name: &str| {
        kernels["server"]["columns"].as_array().expect("columns").iter().position(|one| one == name).expect(name)
    };
    assert_eq!(kernels["recorded"]["rows"][0][column("total_ns")], report["top_kernels"][0]["ns"]);
    let idle = agent.call("flame", with(json!({"view": "idle", "direction": "bottom_up", "depth": 3})));
    assert!(idle["recorded"].to_string().contains("compute"), "{idle}");
    let timeline = agent.call("timeline", with(json!({"at": "100ms", "window_ns": 20_000_000})));
    let kinds: Vec<&Value> =
        timeline["recorded"]["events"].as_array().expect("events").iter().map(|event| &event["kind"]).collect();
    assert!(kinds.contains(&&json!("gpu")) && kinds.contains(&&json!("launch")), "{timeline}");
    let same = agent.call("diff", json!({"before": ["x.wscope"], "after": ["x.wscope"]}));
    assert_eq!(same["server"]["rows_total"], 0, "{same}");
    let part = agent.call("summary", with(json!({"filter": {"kernel": "work"}})));
    assert!(part["recorded"]["part"].as_str().is_some_and(|note| note.contains("--kernel work")), "{part}");

    let lines = agent.call("table", with(json!({"table": "lines", "contains": "compute"})));
    let frame = lines["recorded"]["rows"][0]
        .as_array()
        .expect("a row")
        .iter()
        .find_map(Value::as_str)
        .expect("a line")
        .to_owned();
    let (is_error, text) = agent.called("source", with(json!({"frame": frame})));
    assert!(is_error || text.contains("compute"), "{frame}: {text}");
}

/// Check that an agent reads recordings below the given directory only, whatever it asks for, and that nothing is recorded unless
/// the user has allowed it.
#[test]
fn an_agent_stays_within_what_is_allowed() {
    let scene = recorded();
    fs::copy(scene.path("runs/x.wscope"), scene.path("secret.wscope")).expect("a copy");
    symlink(scene.path("secret.wscope"), scene.path("runs/link.wscope")).expect("a link");
    let mut agent = Agent::new(&scene, &["runs"]);
    let outside = scene.text("secret.wscope");
    for name in [
        "../secret.wscope",
        "link.wscope",
        outside.as_str(),
        "/proc/self/fd/3.wscope",
        "x.wscope/../../secret.wscope",
        "",
    ] {
        let (is_error, text) = agent.called("summary", json!({"recording": name}));
        assert!(is_error, "{name}: {text}");
    }
    agent.send("tools/list", json!({}));
    let tools = agent.answer().to_string();
    assert!(
        tools.contains(r#""table""#) && !tools.contains(r#""record""#) && !tools.contains(r#""source""#),
        "{tools}"
    );
    agent.send("tools/call", json!({"name": "record", "arguments": {}}));
    assert_eq!(agent.answer()["error"]["code"], -32602);
    let before = scene.files();
    drop(agent);
    assert_eq!(scene.files(), before, "nothing is written");
}

/// Check that the command that the user has configured is recorded, that the recording can be opened, and that what the command
/// prints does not get between the answers.
#[test]
fn the_configured_command_is_recorded() {
    let scene = Scene::new();
    fs::create_dir(scene.path("runs")).expect("a directory");
    let program = program("findings");
    let mut agent = Agent::new(&scene, &["runs", "--allow-record", "--", "--sim", "--", &program, "kernel:work sync"]);
    let recorded = agent.call("record", json!({}));
    let name = recorded["recorded"]["recording"].as_str().expect("a name").to_owned();
    let summary = agent.call("summary", json!({"recording": name}));
    assert_eq!(number(&summary["server"], "kernels"), 1, "{summary}");
}

/// Check that the client of PyPI's `mcp` lists and calls every tool, in both versions of the protocol. It is Python's own if it can
/// import it, or the one of `WARPSCOPE_MCP_PYTHON`.
#[test]
fn the_python_client_calls_every_tool() {
    let python = std::env::var("WARPSCOPE_MCP_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let imports = Command::new(&python).args(["-c", "import mcp, mcp_types"]).output();
    if !imports.is_ok_and(|output| output.status.success()) {
        not_covered(
            "the client of PyPI's mcp 2: `pip install mcp`, or set WARPSCOPE_MCP_PYTHON to a Python that has it",
        );
        return;
    }
    let scene = recorded();
    let script = sources().join("mcp_client.py").canonicalize().expect("it is there");
    let mut client = scene.bare(&python);
    client.arg(script).arg(crate::support::programs::WARPSCOPE).arg(scene.path("runs")).arg(sources().join("programs"));
    let run = Ended::of(&mut client).exits(0);
    assert!(run.out().contains("2025-11-25: called ") && run.out().contains("2026-07-28: called "), "{}", run.out());
}
