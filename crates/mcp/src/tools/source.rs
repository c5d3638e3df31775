//! `source`: the lines around a frame, from a file below a directory that the user has given.

use model::event::FrameKind;
use serde::Deserialize;
use serde_json::{Value, json};
use text::short::split_place;

use super::{
    frames::is_frame,
    tool::{About, Tool, arguments, properties},
};
use crate::{
    answer::{Answer, text},
    library::Opened,
};

/// Lines before and after, if not given, and at most.
const AROUND: usize = 15;
const MOST_AROUND: usize = 200;

#[derive(Deserialize)]
struct Asked {
    frame: String,
    around: Option<usize>,
}

pub fn tool() -> Tool {
    Tool::new(
        "source",
        "Returns the lines of source code around a frame with a line, such as load (data.py:88), if the file is below a directory \
         that the user has given. The file may have been changed since the recording.",
        properties(json!({
            "frame": {"type": "string", "description": "a frame as it is shown, or its frame_id"},
            "around": {"type": "integer", "description": "lines before and after; 15 if not given"},
        })),
        &["recording", "frame"],
        |library, given, _| {
            let known = ["recording", "filter", "max_bytes", "frame", "around"];
            let asked: About<Asked> = arguments(given, &known)?;
            let opened = asked.open(library)?;
            let (frame, module) = named(&opened, &asked.more.frame).ok_or("the recording has no such frame")?;
            let place = split_place(&frame).1.trim_matches([' ', '(', ')']);
            let line = place.rsplit_once(':').and_then(|(file, line)| Some((file, line.parse::<usize>().ok()?)));
            let (file, line) = line.ok_or("this frame has no line: compile with -g")?;
            // Python frames know the path of their file, others only its name.
            let path = if module.is_empty() { file } else { &module };
            let source = library.source(path)?;
            let around = asked.more.around.unwrap_or(AROUND).min(MOST_AROUND);
            let lines = source.text.lines().count();
            if line == 0 || line > lines {
                return Err(format!("the file has {lines} lines: it has been changed since the recording"));
            }
            let from = line.saturating_sub(around + 1);
            let around_it = source.text.lines().enumerate().skip(from).take(2 * around + 1);
            let rows: Vec<Value> =
                around_it.map(|(at, code)| json!([at + 1, text(&code.replace('\t', "    "))])).collect();
            let mut answer = Answer::default();
            answer.say("line", line);
            answer.say("columns", json!(["line", "text"]));
            answer.tell("frame", text(&frame));
            answer.tell("file", text(&source.path));
            let all = rows.len();
            answer.rows("rows", rows, (0, all));
            Ok(answer.text(asked.most()))
        },
    )
}

/// Returns a frame of the recording, and the path of its file if it is one of Python.
fn named(opened: &Opened, meant: &str) -> Option<(String, String)> {
    let profile = &opened.profile;
    let frames = profile.stacks.iter().flat_map(|stack| profile.frames(stack.id));
    let mut found = frames.filter_map(|frame| {
        let name = analysis::names::frame(&frame);
        let module = if frame.kind == FrameKind::Python { frame.module.to_string() } else { String::new() };
        is_frame(&name, meant).then_some((name, module))
    });
    found.next()
}
