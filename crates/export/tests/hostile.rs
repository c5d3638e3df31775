//! Hostile names: each is right in the formats that can contain it, and harmless in all of them.

mod support;

use analysis::View;
use export::Format;
use model::event::Event;
use serde_json::Value;
use support::proto::Message;

fn names() -> Vec<String> {
    vec![
        "say \"hello\", 'world' \\ %s".to_owned(),
        "a;b;c".to_owned(),
        "line one\nline two\r\n\tthree".to_owned(),
        String::from_utf8_lossy(b"broken \xff\xfe\xc3 bytes").into_owned(),
        "</script><script>alert(1)</script><!-- <![CDATA[ ]]> &amp;".to_owned(),
        "x".repeat(10_000),
        "=1+1,\"two\"".to_owned(),
        "\u{1b}[31m\u{7}\u{0}\u{202e}\u{2028}end 5".to_owned(),
        "-".to_owned(),
        "\t@SUM(1)".to_owned(),
        "+cmd|' /C calc'!A1".to_owned(),
        "kernel 5".to_owned(),
    ]
}

/// The example recording, with `name` for its first kernel, a function, a process, a thread and an argument.
fn events(name: &str) -> Vec<Event> {
    let mut events = fixtures::events();
    for event in &mut events {
        match event {
            Event::Start(start) => start.command.push(name.to_owned()),
            Event::KernelName(kernel) if kernel.id == 1 => name.clone_into(&mut kernel.name),
            Event::Symbol(symbol) if &*symbol.names[0].name == "load_weights" => symbol.names[0].name = name.into(),
            Event::Process(process) if process.pid == 4712 => name.clone_into(&mut process.comm),
            Event::Thread(thread) if thread.tid == 4720 => name.clone_into(&mut thread.comm),
            _ => {}
        }
    }
    events
}

/// Reads CSV: quoted cells may contain separators, quotes and line breaks.
fn csv(text: &str) -> Vec<Vec<String>> {
    let (mut rows, mut row, mut cell, mut quoted) = (Vec::new(), Vec::new(), String::new(), false);
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' if quoted && characters.peek() == Some(&'"') => cell.extend(characters.next()),
            '"' => quoted = !quoted,
            ',' if !quoted => row.push(std::mem::take(&mut cell)),
            '\n' if !quoted => {
                row.push(std::mem::take(&mut cell));
                rows.push(std::mem::take(&mut row));
            }
            other => cell.push(other),
        }
    }
    assert!(!quoted && row.is_empty() && cell.is_empty(), "the file ends within a row");
    rows
}

fn strings(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) => found.push(text.clone()),
        Value::Array(values) => values.iter().for_each(|value| strings(value, found)),
        Value::Object(map) => map.values().for_each(|value| strings(value, found)),
        _ => {}
    }
}

/// Check that formats for any text contain the names as they are.
#[test]
fn names_are_right_where_any_text_is_possible() {
    for name in names() {
        let events = events(&name);
        let text = |format| support::export(format, &events, View::default());
        for format in [Format::Speedscope, Format::Chrome] {
            let mut found = Vec::new();
            strings(&serde_json::from_str(&text(format)).expect("JSON"), &mut found);
            assert!(found.iter().any(|text| text.contains(&name)), "{format:?}: {name:?}");
        }
        let lines: Vec<Value> =
            text(Format::Jsonl).lines().map(|line| serde_json::from_str(line).expect(line)).collect();
        assert!(lines.iter().any(|line| line["type"] == "kernel" && line["name"] == *name), "{name:?}");
        let pprof = support::gunzip(&support::bytes(Format::Pprof, &events, View::default()));
        let kernel = format!("[GPU0_Kernel] {name}");
        let strings = Message::read(&pprof).texts(6).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert!(strings.contains(&kernel) && strings.contains(&name), "{name:?}");
        let perfetto = support::bytes(Format::Perfetto, &events, View::default());
        let packets = Message::read(&perfetto).messages(1);
        let interned = packets.iter().flat_map(|packet| packet.messages(12)).flat_map(|data| data.messages(2));
        assert!(interned.into_iter().any(|entry| entry.text(2) == Some(name.as_str())), "{name:?}");
    }
}

/// Check that names cannot break lines, frames, markup or scripts.
#[test]
fn names_are_harmless_in_text_and_markup() {
    let plain = fixtures::events();
    let count =
        |format, events: &[Event], part: &str| support::export(format, events, View::default()).matches(part).count();
    for name in names() {
        let events = events(&name);
        for format in [Format::Folded, Format::CpuText] {
            let text = support::export(format, &events, View::default());
            assert_eq!(
                text.lines().count(),
                support::export(format, &plain, View::default()).lines().count(),
                "{name:?}"
            );
            assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{name:?}");
            let blanks = if format == Format::CpuText { 5 } else { 1 };
            assert!(text.lines().all(|line| line.split(' ').count() > blanks), "{name:?}");
        }
        for part in ["<script", "</script", "<!--"] {
            let (with, without) = (count(Format::Html, &events, part), count(Format::Html, &plain, part));
            assert_eq!(with, without, "{part} {name:?}");
        }
        let svg = support::export(Format::Svg, &events, View::default());
        assert_eq!(svg.matches("<script").count(), count(Format::Svg, &plain, "<script"), "{name:?}");
        assert!(!svg.chars().any(|c| c.is_control() && !c.is_whitespace()), "{name:?}");
    }
}

/// Check that a spreadsheet takes no name for a formula or a control character, and that all other names are in a table as they
/// are.
#[test]
fn names_are_no_formulas() {
    for name in names() {
        let text = support::export(Format::Csv, &events(&name), View::default());
        assert!(!text.contains(|c: char| (c.is_control() && c != '\n') || c == '\u{202e}'), "{name:?}: {text:?}");
        let rows = csv(&text);
        assert!(rows.iter().all(|row| row.len() == rows[0].len()), "{rows:?}");
        let first = |row: &[String]| row[0].trim_start().chars().next();
        assert!(rows.iter().all(|row| !matches!(first(row), Some('=' | '+' | '-' | '@'))), "{name:?}: {rows:?}");
        let shown = text::names::printable(&name);
        assert!(rows.iter().any(|row| row[0].strip_prefix('\'').unwrap_or(&row[0]) == shown), "{name:?}: {rows:?}");
    }
}
