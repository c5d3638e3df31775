//! `sql`, with the `duckdb` program in PATH, and with one that misbehaves.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use serde_json::{Value, json};

use super::recorded;
use crate::support::{Scene, agent::Agent, coverage::not_covered, scene::number};

fn query(text: &str) -> Value {
    json!({"recording": "x.wscope", "query": text})
}

fn offers_sql(agent: &mut Agent) -> bool {
    agent.send("tools/list", json!({}));
    agent.answer().to_string().contains(r#""sql""#)
}

/// Starts a server with a shell script as `duckdb`. It answers what is required of it, if `works`.
fn with_program(scene: &Scene, works: bool, script: &str) -> Agent {
    let path = scene.path("bin");
    fs::create_dir_all(&path).expect("a directory");
    let program = path.join("duckdb");
    let answer = if works { "case $query in *works*) echo '{\"row\":{\"works\":42}}'; exit;; esac" } else { "" };
    fs::write(&program, format!("#!/bin/sh\nquery=$(cat)\n{answer}\n{script}\n")).expect("a file");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let path = format!("{}:/usr/bin:/bin", path.display());
    Agent::of(scene.warpscope(&["mcp", "runs"]).env("PATH", path))
}

/// Check that the tool is offered only if there is a DuckDB that can be restricted.
#[test]
fn it_is_offered_only_with_duckdb() {
    let scene = recorded();
    let mut without = Agent::of(scene.warpscope(&["mcp", "runs"]).env("PATH", scene.path("runs")));
    assert!(!offers_sql(&mut without));
    without.send("tools/call", json!({"name": "sql", "arguments": query("SELECT 1")}));
    assert_eq!(without.answer()["error"]["code"], -32602);
    let old = "echo 'Catalog Error: unrecognized configuration parameter \"allowed_paths\"' >&2; exit 1";
    assert!(!offers_sql(&mut with_program(&scene, false, old)));
    assert!(offers_sql(&mut with_program(&scene, true, "")));
}

/// Check that output without an end is cut off with a cursor, that a failure is reported as data, and that a query which is cancelled
/// ends at once.
#[test]
fn programs_that_misbehave_end() {
    let scene = recorded();
    let script = r#"case $query in
        *endless*) while :; do echo '{"row":{"name":"IGNORE ALL","ns":1}}'; done;;
        *wrong*) echo '{"row":{"name":"before"}}'; printf 'Parser Error: \033[2J wrong\n\nLINE 1: FROM query(\n' >&2; exit 1;;
        *slow*) sleep 1000;;
        esac"#;
    let mut agent = with_program(&scene, true, script);
    let endless = agent.call("sql", query("endless"));
    assert!(endless["server"]["next_cursor"].is_string() && endless["server"]["rows_total"].is_null(), "{endless}");
    assert!(number(&endless["server"], "rows_shown") > 100 && !endless["server"].to_string().contains("IGNORE"));
    let (is_error, text) = agent.called("sql", query("wrong"));
    let answer: Value = serde_json::from_str(&text).expect("JSON");
    let reason = answer["recorded"]["reason"].as_str().expect("a reason");
    assert!(is_error && reason.contains("Parser Error") && !reason.contains(['\u{1b}', '\n']), "{text}");
    assert!(!reason.contains("query("), "{reason}");
    cancelled(&mut agent, "slow");
}

/// Check that a query that takes very long has no answer when it is cancelled, and that the next request has one.
fn cancelled(agent: &mut Agent, text: &str) {
    let id = agent.send("tools/call", json!({"name": "sql", "arguments": query(text)}));
    let next = agent.send("tools/list", json!({}));
    agent.line(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}));
    assert_eq!(agent.answer()["id"], json!(next));
}

/// Check that a query has the numbers of the report, and that nothing but the tables is read, whatever it tries; that nothing is
/// written, and that memory is limited.
#[test]
fn queries_read_the_tables_and_nothing_else() {
    let scene = recorded();
    let mut agent = Agent::new(&scene, &["runs"]);
    if !offers_sql(&mut agent) {
        not_covered("SQL over recordings: `pip install duckdb-cli`");
        return;
    }
    let report = scene.report("runs/x.wscope");
    let sum = "SELECT name, sum(end_ns - start_ns) AS ns, count(*) AS runs, 1 / 0 AS z -- comment\nFROM kernels GROUP BY name";
    let kernels = agent.call("sql", query(sum));
    let row = &kernels["recorded"]["rows"][0];
    assert_eq!((&row["ns"], &row["name"]), (&report["top_kernels"][0]["ns"], &report["top_kernels"][0]["name"]));
    assert_eq!(kernels["recorded"]["losses"][0], report["ledger"][0]);
    assert_eq!(kernels["server"]["rows_total"], 1);
    let joined = "SELECT s.line FROM kernels k JOIN stacks s USING (recording, stack) LIMIT 1";
    assert_eq!(agent.call("sql", query(joined))["server"]["rows_total"], 1);
    // The agent's cursor leads on in the order of the query.
    let numbers = "SELECT i FROM range(10000) t(i) ORDER BY i DESC";
    let first = agent.call("sql", query(numbers));
    let mut more = query(numbers);
    more["cursor"] = first["server"]["next_cursor"].clone();
    let next = agent.call("sql", more);
    let shown = number(&first["server"], "rows_shown");
    assert_eq!(next["recorded"]["rows"][0]["i"], 9_999 - shown, "{next}");
    let mut filtered = query("SELECT count(*) AS n FROM kernels");
    filtered["filter"] = json!({"from": "10s"});
    let part = agent.call("sql", filtered);
    assert_eq!(part["recorded"]["rows"][0]["n"], 0);

    fs::write(scene.path("secret.csv"), "SECRET\n1\n").expect("a file");
    fs::copy(scene.path("runs/x.wscope"), scene.path("copy.wscope")).expect("a copy");
    let before = everything(&scene);
    let [secret, written] = ["secret.csv", "written"].map(|name| scene.text(name));
    for text in [
        format!("SELECT * FROM read_text('{secret}')"),
        format!("SELECT * FROM read_csv('{secret}')"),
        format!("SELECT * FROM '{secret}'"),
        format!("SELECT * FROM glob('{}/*')", scene.text(".")),
        "SELECT * FROM read_text('/proc/self/environ')".into(),
        "SELECT * FROM read_csv('/dev/stdin')".into(),
        "SELECT getenv('PATH')".into(),
        "SELECT * FROM 'http://127.0.0.1:1/x.parquet'".into(),
        "SELECT * FROM sniff_csv('/etc/passwd')".into(),
        format!("COPY kernels TO '{written}.csv'"),
        format!("ATTACH '{written}.db'"),
        format!("EXPORT DATABASE '{written}'"),
        "INSTALL httpfs".into(),
        "LOAD httpfs".into(),
        "SET enable_external_access = true".into(),
        "RESET lock_configuration".into(),
        "PRAGMA enable_profiling".into(),
        "CREATE TABLE t AS SELECT 1".into(),
        "DROP VIEW kernels".into(),
        "SELECT 1; SELECT 2".into(),
        "SELECT 1') LIMIT 1; CREATE TABLE t AS SELECT ('1".into(),
        r"SELECT 1\') LIMIT 1; CREATE TABLE t AS SELECT (\'1".into(),
        format!(".shell touch {written}"),
        format!("\n.shell touch {written}\n"),
        format!("SELECT 1\n.output {written}\n"),
        format!("SELECT 1');\n.shell touch {written}\n"),
        "SELECT * FROM json_execute_serialized_sql(json_serialize_sql('SET threads = 1'))".into(),
        "SELECT list(i) FROM range(10000000000) t(i)".into(),
        "SELECT repeat('x', 1000000000)".into(),
        "SELECT nothing FROM kernels".into(),
        String::new(),
    ] {
        let (is_error, answer) = agent.called("sql", query(&text));
        assert!(is_error && !answer.contains("SECRET"), "{text}: {answer}");
    }
    // These succeed in some versions, and would write.
    for text in [
        format!("FROM enable_logging('QueryLog', storage = 'file', storage_config = {{'path': '{written}'}})"),
        format!("FROM enable_profiling(save_location = '{written}.txt')"),
    ] {
        agent.called("sql", query(&text));
    }
    assert_eq!(everything(&scene), before, "nothing is written");
    cancelled(&mut agent, "SELECT count(*) FROM range(1000000000000) t(i) WHERE hash(i) = 7");
    assert_eq!(agent.call("sql", query("SELECT 1 AS one"))["recorded"]["rows"], json!([{"one": 1}]));
}

/// Returns all files of a scene and of its temporary directory.
fn everything(scene: &Scene) -> Vec<String> {
    fn add(path: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(path).expect("a directory").flatten() {
            match entry.path() {
                path if path.is_dir() => add(&path, found),
                path => found.push(path.display().to_string()),
            }
        }
    }
    let mut found = Vec::new();
    add(&scene.path("."), &mut found);
    add(&scene.temporary(), &mut found);
    found.sort();
    found
}
