//! `timeline`: what happened around a moment.

use analysis::{
    names::{self, SessionKernels},
    user_code::UserCode,
};
use model::event::{Event, ProcessId, StackId};
use serde::Deserialize;
use serde_json::{Value, json};
use text::units::parse_seconds;

use super::tool::{About, Tool, arguments, cursor, properties};
use crate::answer::{Answer, text};

/// The length of the time that is shown, if not given.
const WINDOW_NS: u64 = 10_000_000;
/// The most events that are kept.
const MOST: usize = 20_000;

#[derive(Deserialize)]
struct Asked {
    at: String,
    window_ns: Option<u64>,
    cursor: Option<String>,
}

pub fn tool() -> Tool {
    Tool::new(
        "timeline",
        "Lists GPU work, launches and CPU samples around a moment, by start. A launch and its GPU work have the same `correlation`.",
        properties(json!({
            "at": {"type": "string", "description": "a time after the start, such as 1.5s or 20ms"},
            "window_ns": {"type": "integer", "description": "the length of the time shown; 10000000 if not given"},
            "cursor": {"type": "string"},
        })),
        &["recording", "at"],
        |library, given, cancel| {
            let asked: About<Asked> =
                arguments(given, &["recording", "filter", "max_bytes", "at", "window_ns", "cursor"])?;
            let wanted = &asked.more;
            let from = cursor(wanted.cursor.as_deref())?;
            let at = parse_seconds(&wanted.at).filter(|ns| (0.0..1e18).contains(ns));
            let at = at.ok_or("at: give a time after the start, such as 1.5s or 20ms")?;
            let half = wanted.window_ns.unwrap_or(WINDOW_NS) / 2;
            let opened = asked.open(library)?;
            let profile = &opened.profile;
            let start = profile.start.as_ref().map_or(0, |start| start.time);
            let middle = start.saturating_add(at as u64);
            let (begin, end) = (middle.saturating_sub(half).max(start), middle.saturating_add(half));
            let code = UserCode::new(profile);
            let mut kernels = SessionKernels::new(profile);
            let mut rows: Vec<(u64, Value)> = Vec::new();
            let mut left_out = 0_u64;
            for event in (opened.events)().map_err(|error| error.to_string())? {
                if cancel.is_cancelled() {
                    return Err("cancelled".to_owned());
                }
                let place = |process: ProcessId, stack: StackId| text(&code.place(process, stack).frame);
                let thread = |process: ProcessId, tid: u32| text(&names::thread(profile, process, tid));
                let (time, row) = match &event {
                    Event::KernelName(name) => {
                        kernels.learn(name);
                        continue;
                    }
                    Event::Activity(work) if work.start < end && work.end > begin && work.start > 0 => {
                        let row = json!({
                            "kind": "gpu",
                            "name": text(kernels.operation(work)),
                            "start_ns": work.start.saturating_sub(start),
                            "duration_ns": work.duration(),
                            "stream": work.stream,
                            "correlation": work.correlation,
                        });
                        (work.start, row)
                    }
                    Event::Launch(launch) if (begin..end).contains(&launch.time) => {
                        let row = json!({
                            "kind": "launch",
                            "line": place(launch.process, launch.stack),
                            "start_ns": launch.time.saturating_sub(start),
                            "thread": thread(launch.process, launch.tid),
                            "correlation": launch.correlation,
                        });
                        (launch.time, row)
                    }
                    Event::Sample(sample) if (begin..end).contains(&sample.time) => {
                        let row = json!({
                            "kind": "cpu_sample",
                            "line": place(sample.process, sample.stack),
                            "start_ns": sample.time.saturating_sub(start),
                            "stands_for_ns": sample.weight,
                            "thread": thread(sample.process, sample.tid),
                        });
                        (sample.time, row)
                    }
                    _ => continue,
                };
                match rows.len() < MOST {
                    true => rows.push((time, row)),
                    false => left_out += 1,
                }
            }
            rows.sort_by_key(|(time, _)| *time);
            let mut answer = Answer::about(profile);
            answer.say("from_ns", begin.saturating_sub(start));
            answer.say("to_ns", end.saturating_sub(start));
            answer.say("events_left_out", left_out);
            let all = rows.len();
            answer.rows("events", rows.into_iter().skip(from).map(|(_, row)| row).collect(), (from, all));
            Ok(answer.text(asked.most()))
        },
    )
}
