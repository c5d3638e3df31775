//! The files under deploy/: they use existing metrics, and their tools accept them.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    process::Command,
};

use monitor::{config::Settings, openmetrics::definitions};

fn deploy(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name)
}

fn read(name: &str) -> String {
    std::fs::read_to_string(deploy(name)).expect(name)
}

/// Words that look like metric names.
fn metrics(text: &str) -> HashSet<&str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("warpscope_")).collect()
}

/// Check that dashboard, alerts and README only use metrics that are served, and that the dashboard omits few.
#[test]
fn metric_names_exist() {
    let served: HashSet<String> = definitions().flat_map(|definition| definition.series()).collect();
    for file in ["grafana/warpscope.json", "prometheus/alerts.yml", "prometheus/alerts.test.yml", "README.md"] {
        let text = read(file);
        let named = metrics(&text);
        assert!(!named.is_empty(), "{file}");
        for name in named {
            assert!(served.contains(name), "{file} uses {name}, which is not served");
        }
    }
}

/// Check that the labels used by dashboard and alerts exist on the series.
#[test]
fn labels_exist() {
    let known: HashSet<&str> = [
        "instance",
        "job",
        "pid",
        "comm",
        "user",
        "container",
        "space",
        "function",
        "site",
        "stack_id",
        "remark",
        "kernel",
        "direction",
        "mode",
        "code",
        "le",
        "device",
        "uuid",
        "name",
        "kind",
        "xid",
        "metric",
        "map",
        "severity",
    ]
    .into();
    for file in ["grafana/warpscope.json", "prometheus/alerts.yml"] {
        let text = read(file).replace("\\\"", "\"");
        for (place, _) in text.match_indices("=~\"").chain(text.match_indices("!~\"")) {
            let label =
                text[..place].rsplit(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).next().unwrap_or_default();
            assert!(known.contains(label), "{file}: {label}");
        }
        for (place, _) in text.match_indices("{{") {
            let name = text[place + 2..].trim_start_matches([' ', '$']).trim_start_matches("labels.");
            let name: String = name.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
            let is_template = ["value", "if", "else", "end"].contains(&name.as_str());
            assert!(is_template || known.contains(name.as_str()), "{file}: {name}");
        }
    }
}

/// Check that the dashboard is valid: panels with a position, a title and queries, and unique ids.
#[test]
fn dashboard_is_valid() {
    let dashboard: serde_json::Value = serde_json::from_str(&read("grafana/warpscope.json")).expect("JSON");
    assert_eq!(dashboard["uid"], "warpscope");
    let panels = dashboard["panels"].as_array().expect("panels");
    let mut ids = HashSet::new();
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().expect("an id")));
        assert!(!panel["title"].as_str().expect("a title").is_empty());
        assert!(panel["gridPos"]["x"].as_u64().expect("x") + panel["gridPos"]["w"].as_u64().expect("w") <= 24);
        if panel["type"] != "row" {
            let targets = panel["targets"].as_array().expect("targets");
            assert!(!targets.is_empty() && targets.iter().all(|target| target["expr"].is_string()));
        }
    }
}

/// Check that the daemon's options are parsed, and equal the defaults except for the quiet console.
#[test]
fn options_are_parsed() {
    let settings = Settings::read(&deploy("monitor.toml")).expect("good");
    let options = settings.options().expect("good");
    let defaults = Settings { display_interval: Some(0.0), ..Settings::default() }.options().expect("good");
    assert_eq!(options, defaults);
    // The commented-out options are valid too.
    let all: String = read("monitor.toml")
        .lines()
        .filter_map(|line| line.strip_prefix('#'))
        .filter(|line| !line.starts_with(' '))
        .map(|line| line.to_owned() + "\n")
        .collect();
    assert_eq!(
        Settings::parse(&all).and_then(Settings::options).expect("good"),
        Settings::default().options().expect("good")
    );
}

/// Runs promtool in the directory of the rules.
fn promtool(arguments: [&str; 3]) {
    let output = Command::new("promtool").args(arguments).current_dir(deploy("prometheus")).output();
    let output = output.expect("promtool is missing: install Debian's prometheus");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
}

/// Check the rules, when they fire, and the example configuration.
#[test]
fn alert_rules_are_valid() {
    promtool(["check", "rules", "alerts.yml"]);
    promtool(["test", "rules", "alerts.test.yml"]);
    promtool(["check", "config", "prometheus.yml"]);
}

/// Check that Prometheus accepts every query of the dashboard, by making a rule of each.
#[test]
fn dashboard_queries_are_valid() {
    let dashboard: serde_json::Value = serde_json::from_str(&read("grafana/warpscope.json")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let rules: Vec<serde_json::Value> = targets
        .enumerate()
        .map(|(place, target)| {
            let query = target["expr"].as_str().expect("a query");
            let query = query.replace("$__rate_interval", "5m").replace("$__range", "1h");
            serde_json::json!({ "record": format!("query:{place}"), "expr": query })
        })
        .collect();
    assert!(rules.len() > 30);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("queries.yml");
    // JSON is YAML.
    let rules = serde_json::json!({ "groups": [{ "name": "queries", "rules": rules }] });
    std::fs::write(&file, rules.to_string()).expect("written");
    promtool(["check", "rules", file.to_str().expect("a path")]);
}
