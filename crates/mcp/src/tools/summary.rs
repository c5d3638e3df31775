//! `summary` and `findings`.

use analysis::{
    Flames, Summary, Table,
    findings::{Finding, Unit},
    summary::Cost,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    frames::frame_id,
    tool::{About, Tool, arguments, cursor, properties},
};
use crate::{
    Cancel, Library,
    answer::{Answer, text},
    library::Opened,
};

/// The findings of a summary, its notes, and the rows of its lists.
const FINDINGS: usize = 5;
const NOTES: usize = 5;
const ROWS: usize = 5;

#[derive(Deserialize)]
struct Nothing {}

#[derive(Deserialize)]
struct Paged {
    cursor: Option<String>,
}

pub fn summary() -> Tool {
    Tool::new(
        "summary",
        "Says what was lost and what the recording cost, then where to look next: the findings with the line that causes each, the \
         most that can be gained, and what to try; then GPUs, kernels and paths with most time, and which tables have rows. Call \
         this first.",
        properties(json!({})),
        &["recording"],
        run_summary,
    )
}

pub fn findings() -> Tool {
    Tool::new(
        "findings",
        "Lists all findings with their evidence, the most important first.",
        properties(json!({"cursor": {"type": "string"}})),
        &["recording"],
        |library, given, _| {
            let asked: About<Paged> = arguments(given, &["recording", "filter", "max_bytes", "cursor"])?;
            let opened = asked.open(library)?;
            let all = Summary::of(&Flames::new(&opened.profile)).findings;
            let from = cursor(asked.more.cursor.as_deref())?;
            let mut answer = Answer::about(&opened.profile);
            let wall = opened.profile.recording().wall_ns();
            answer.rows("findings", all.iter().skip(from).map(|one| finding(one, wall)).collect(), (from, all.len()));
            Ok(answer.text(asked.most()))
        },
    )
}

fn run_summary(
    library: &mut dyn Library,
    given: serde_json::Map<String, Value>,
    cancel: &Cancel,
) -> Result<String, String> {
    let asked: About<Nothing> = arguments(given, &["recording", "filter", "max_bytes"])?;
    let opened = asked.open(library)?;
    let profile = &opened.profile;
    let flames = Flames::new(profile);
    let summary = Summary::with_events(&flames, &mut || (opened.events)()).map_err(|error| error.to_string())?;
    let mut answer = Answer::about(profile);
    let wall = profile.recording().wall_ns();
    answer.tell("command", text(&summary.command.join(" ")));
    answer.tell("notes", summary.notes.iter().take(NOTES).map(|note| text(note)).collect());
    answer.say("notes", summary.notes.len());
    answer.say("is_cut_off", summary.cut_off);
    answer.say("overhead", summary.cost.as_ref().and_then(Cost::sentence));
    answer.say("no_gpu_work", summary.no_gpu_work);
    answer.say("kernels", summary.kernels);
    answer.say("launches", summary.launches);
    answer.say("cpu_samples", summary.cpu_samples);
    answer.say("host_wait_ns", summary.host_wait_ns);
    answer.say("findings", summary.findings.len());
    if summary.findings.is_empty() {
        answer.say("where_to_look_next", "no finding: look at the tables lines, idle and functions");
    }
    answer.tell("where_to_look_next", summary.findings.iter().take(FINDINGS).map(|one| finding(one, wall)).collect());
    let device = |device: &analysis::summary::Device| json!({"gpu": text(&device.label), "name": text(&device.name), "busy_ns": device.busy_ns, "busy_share_of_wall": rounded(device.busy_share), "kernels": device.kernels});
    answer.tell("gpus", summary.devices.iter().filter(|device| device.streams > 0).take(ROWS).map(device).collect());
    let kernel = |kernel: &analysis::summary::Kernel| json!({"kernel": text(&kernel.name), "total_ns": kernel.ns, "share_of_gpu_time": rounded(kernel.share), "runs": kernel.count, "mean_ns": kernel.mean_ns});
    answer.tell("kernels", summary.top_kernels.iter().take(ROWS).map(kernel).collect());
    let path = |path: &analysis::summary::Path| json!({"path": text(&path.path.join(" > ")), "total_ns": path.ns, "share_of_gpu_time": rounded(path.share), "count": path.count});
    answer.tell("paths", summary.top_lines.iter().take(ROWS).map(path).collect());
    answer.tell("steps", summary.steps.as_ref().map_or(Value::Null, |steps| text(&steps.sentence())));
    answer.say("tables_with_rows", tables(&opened, &flames, cancel));
    Ok(answer.text(asked.most()))
}

/// Returns the tables that have rows, but for those that need another pass over the events.
fn tables(opened: &Opened, flames: &Flames<'_>, cancel: &Cancel) -> Vec<&'static str> {
    let mut events = || -> std::io::Result<analysis::Events<'static>> { (opened.events)() };
    let mut has_rows = |table: Table| match table {
        Table::Threads => !opened.profile.threads.is_empty(),
        Table::Paths => !opened.profile.gpu.is_empty(),
        table => table.rows(flames, &mut events).is_ok_and(|rows| !rows.rows.is_empty()),
    };
    let mut found = Vec::new();
    for (name, table) in Table::ALL {
        if cancel.is_cancelled() {
            break;
        }
        found.extend(has_rows(table).then_some(name));
    }
    found
}

/// Returns a finding. Its title, its line and its advice may have names from the program.
fn finding(finding: &Finding, wall_ns: u64) -> Value {
    let evidence = finding.evidence.iter().map(|one| {
        let unit = match one.unit {
            Unit::Count => "count",
            Unit::Ns => "ns",
            Unit::Bytes => "bytes",
        };
        json!({"name": one.name, "value": one.value, "unit": unit})
    });
    let mut value = json!({
        "kind": finding.kind.name(),
        "title": text(&finding.title),
        "share_of_wall": rounded(finding.share),
        "gain_at_most_ns": (finding.share * wall_ns as f64) as u64,
        "evidence": evidence.collect::<Vec<_>>(),
        "try": text(&finding.advice),
    });
    if let Some(place) = &finding.place {
        value["line"] = text(&place.frame);
        value["file"] = text(&place.file);
        value["frame_id"] = json!(frame_id(&place.frame));
    }
    value
}

/// Returns a share with four digits.
fn rounded(share: f64) -> Value {
    json!((share * 1e4).round() / 1e4)
}
