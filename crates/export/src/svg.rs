//! `.svg`: an interactive flame graph of CPU and GPU time, drawn by inferno. Click to zoom, Ctrl-F to search.
//!
//! What inferno does not support is added afterwards: tool tips (time and counts of each frame, not only its width),
//! labels shorter than names, a legend of the colour families, and the ledger as JSON in the file's metadata.

mod tips;
mod titles;

use std::{
    collections::BTreeSet,
    io::{self, Write},
    rc::Rc,
};

use inferno::flamegraph::{
    self, Options, TextTruncateDirection,
    color::{BackgroundColor, Color, PaletteMap},
};
use model::{event::OFF_CPU, profile::Profile};
use text::short::short_frame;

use self::{
    tips::{LABEL_LENGTH, nodes},
    titles::{TITLE_LENGTH, cut, event_subtitle, event_title, idle_subtitle, memory_subtitle, subtitle, title},
};
use crate::{
    family::Family,
    flame::{Flame, Line, Measure, MemoryView, View},
    flames::Flames,
    helper_programs, palette, recursion, waits,
};

const FRAME_HEIGHT: usize = 18;
const LEGEND_HEIGHT: usize = 26;
const WIDTH: usize = 1200;
/// How inferno's script makes a label from a tool tip, and its replacement: a label that differs from the name has its
/// own attribute.
const LABEL_OF_TIP: &str = r#"find_child(e, "title").textContent.replace(/\([^(]*\)$/,"")"#;
const LABEL: &str = r#"(t.getAttribute("fg:l") || find_child(e, "title").textContent.replace(/\([^(]*\)$/,""))"#;
const NO_TIME: &str = "no CPU sample and no finished GPU work";
const NO_MEMORY: &str = "no GPU memory was allocated";
const NO_IDLE: &str = "no GPU worked, or none was idle";
const NO_HITS: &str = "the event did not occur, or all its weights are 0";
const STYLE: &str = "<style type=\"text/css\">
text { font-family:ui-monospace,\"SF Mono\",Menlo,Consolas,\"DejaVu Sans Mono\",monospace; fill:#1d232b }
#title { font-weight:600 }
#subtitle { fill:#5a6472 }
#legend text { font-size:11px; fill:#5a6472 }
#frames text { pointer-events:none }
#frames rect { rx:2px }
#search { opacity:0.55 }
</style>";

/// Draws the stacks of a profile. A profile without any time still gives a valid picture, which says so.
pub fn write(flames: &Flames<'_>, view: View, out: &mut dyn Write) -> io::Result<()> {
    let (profile, mut flame) = (flames.profile, flames.of(view));
    if let Some(folded) = helper_programs::folded(&flame) {
        flame = Rc::new(folded);
    }
    if !view.unfold_recursion {
        flame = Rc::new(recursion::folded(&flame));
    }
    let shift = shift(&flame.lines);
    let is_drawn = |line: &Line| line.weight.amount >> shift > 0;
    if !flame.lines.iter().all(is_drawn) {
        Rc::make_mut(&mut flame).lines.retain(is_drawn);
    }
    let counter = view.event.and_then(|event| profile.counters.all.get(&event.counter));
    let (title, subtitle) = match counter {
        None if view.idle => (cut(&format!("GPU idle: {}", title(profile)), TITLE_LENGTH), idle_subtitle(profile)),
        None if view.memory.is_some() => {
            let when = if view.memory == Some(MemoryView::End) { "at the end" } else { "at its peak" };
            let title = cut(&format!("GPU memory {when}: {}", title(profile)), TITLE_LENGTH);
            (title, memory_subtitle(&flame))
        }
        None => (title(profile), subtitle(profile)),
        Some(counter) => (event_title(counter, profile), event_subtitle(counter, profile, &flame)),
    };
    if flame.lines.is_empty() {
        let nothing = match counter {
            Some(_) => NO_HITS,
            None if view.idle => NO_IDLE,
            None if view.memory.is_some() => NO_MEMORY,
            None => NO_TIME,
        };
        write_empty(profile, &title, &subtitle, nothing, out)?;
        return out.flush();
    }
    let drawn = draw(&flame, shift, title, subtitle)?;
    // Of the events, only waits are drawn together with other time.
    let hits = waits::hits(counter.map_or(OFF_CPU, |counter| &counter.source));
    finish(&drawn, profile, &flame, shift, hits, out)?;
    out.flush()
}

/// Returns how far to shift weights so that their sum is exact in the script's numbers: 0 up to 104 days of time, more
/// only for a recording with nonsensical values.
fn shift(lines: &[Line]) -> u32 {
    let total: u128 = lines.iter().map(|line| u128::from(line.weight.amount)).sum();
    (u128::BITS - total.leading_zeros()).saturating_sub(53)
}

/// Returns the graph as drawn by inferno, with nanoseconds as its samples.
fn draw(flame: &Flame, shift: u32, title: String, subtitle: String) -> io::Result<String> {
    let shown: BTreeSet<&str> = flame.lines.iter().flat_map(|line| line.frames.iter().map(|name| &**name)).collect();
    let mut colours = PaletteMap::default();
    colours.insert("", Color { r: 228, g: 231, b: 236 });
    for name in &shown {
        colours.insert(name, palette::colour(family(flame, name), name));
    }
    let mut options = Options::default();
    options.palette_map = Some(&mut colours);
    options.bgcolors = Some(BackgroundColor::Flat(Color { r: 252, g: 252, b: 253 }));
    options.title = title;
    options.subtitle = Some(subtitle);
    options.frame_height = FRAME_HEIGHT;
    options.name_type = String::new();
    options.search_color = "#f08cf0".parse().map_err(io::Error::other)?;
    options.text_truncate_direction = TextTruncateDirection::Right;
    // Our order, by frames, keeps equal frames adjacent. inferno's own order, by lines, separates `f;x` from `f;y` by
    // `f g;z`. Only for a "chart" does inferno accept lines in the given order, from the last to the first.
    options.flame_chart = true;
    let lines: Vec<String> = flame
        .lines
        .iter()
        .rev()
        .map(|line| format!("{} {}", line.frames.join(";"), line.weight.amount >> shift))
        .collect();
    let mut drawn = Vec::new();
    flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), &mut drawn)?;
    String::from_utf8(drawn).map_err(io::Error::other)
}

/// Copies the drawing and inserts tool tips, legend and ledger.
fn finish(
    drawn: &str,
    profile: &Profile,
    flame: &Flame,
    shift: u32,
    hits: (&str, &str),
    out: &mut dyn Write,
) -> io::Result<()> {
    let frames_at = drawn.find("<svg id=\"frames\"").ok_or_else(changed)?;
    let (head, frames) = drawn.split_at(frames_at);
    let height: usize = between(head, " height=\"", "\"").and_then(|h| h.parse().ok()).ok_or_else(changed)?;

    let taller = height + LEGEND_HEIGHT;
    if !head.contains(LABEL_OF_TIP) {
        return Err(changed());
    }
    let head = head
        .replace(LABEL_OF_TIP, LABEL)
        .replacen(&format!(" height=\"{height}\" onload"), &format!(" height=\"{taller}\" onload"), 1)
        .replacen(&format!("viewBox=\"0 0 {WIDTH} {height}\""), &format!("viewBox=\"0 0 {WIDTH} {taller}\""), 1)
        .replacen(&format!("width=\"100%\" height=\"{height}\""), &format!("width=\"100%\" height=\"{taller}\""), 1)
        .replacen("</style>", &format!("</style>{STYLE}{}", metadata(profile)?), 1);
    out.write_all(head.as_bytes())?;
    out.write_all(legend(flame, height + LEGEND_HEIGHT / 2).as_bytes())?;

    let nodes = nodes(flame, shift);
    let total = nodes.get(&(0, 0)).map_or(0, |node| node.weight.amount);
    let rows: Vec<(&str, usize, u64)> =
        frames.split("<title>").skip(1).map(row).collect::<Option<_>>().ok_or_else(changed)?;
    // The outermost frame is the lowest.
    let bottom = rows.iter().map(|(_, y, _)| *y).max().unwrap_or(0);
    out.write_all(frames.split("<title>").next().unwrap_or_default().as_bytes())?;
    for (rest, y, start) in rows {
        let node = nodes.get(&((bottom - y) / FRAME_HEIGHT, start)).ok_or_else(changed)?;
        write!(out, "<title>{}", escape(&node.tip(total, flame.measure, hits)))?;
        write_label(rest, node.name, out)?;
    }
    Ok(())
}

/// Returns the text after a title, with the label in place of the name.
fn write_label(rest: &str, name: &str, out: &mut dyn Write) -> io::Result<()> {
    let label = short_frame(name, LABEL_LENGTH);
    let Some((before, text)) = rest.split_once("<text ").filter(|_| label != name) else {
        return out.write_all(rest.as_bytes());
    };
    let (attributes, drawn) = text.split_once('>').ok_or_else(changed)?;
    let (drawn, after) = drawn.split_once("</text>").ok_or_else(changed)?;
    // Without the script the label is drawn as written: as many characters as inferno found room for.
    let room =
        drawn.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&").chars().count();
    let shown = match room {
        0 => String::new(),
        room if label.chars().count() <= room => label.clone(),
        room => label.chars().take(room.saturating_sub(2)).collect::<String>() + "..",
    };
    let label = escape(&label).replace('"', "&quot;");
    write!(out, "{before}<text fg:l=\"{label}\" {attributes}>{}</text>{after}", escape(&shown))
}

/// One frame of the drawing: the text after its title, its vertical position, and where it starts.
fn row(frame: &str) -> Option<(&str, usize, u64)> {
    let rest = &frame[frame.find("</title>")?..];
    let y = between(rest, " y=\"", "\"")?.parse().ok()?;
    let start = between(rest, " fg:x=\"", "\"")?.parse().ok()?;
    Some((rest, y, start))
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let rest = &text[text.find(before)? + before.len()..];
    Some(&rest[..rest.find(after)?])
}

fn changed() -> io::Error {
    io::Error::other("cannot finish the flame graph: inferno produced an unexpected SVG")
}

fn family(flame: &Flame, name: &str) -> Family {
    flame.families.get(name).copied().unwrap_or(Family::Unknown)
}

/// Draws a row of swatches, for the families in the picture.
fn legend(flame: &Flame, y: usize) -> String {
    let shown: BTreeSet<Family> =
        flame.lines.iter().flat_map(|line| line.frames.iter().map(|name| family(flame, name))).collect();
    let mut text = "<g id=\"legend\">".to_owned();
    let mut x = 10;
    for family in shown {
        let label = match family {
            // Copies and allocations have one hue.
            Family::GpuMemory if flame.measure == Measure::Bytes => "GPU memory",
            family => palette::label(family),
        };
        let Color { r, g, b } = palette::middle(family);
        text += &format!(
            "<rect x=\"{x}\" y=\"{}\" width=\"11\" height=\"11\" rx=\"2\" fill=\"rgb({r},{g},{b})\"/><text x=\"{}\" y=\"{}\">{}</text>",
            y - 9,
            x + 16,
            y,
            escape(label)
        );
        x += 16 + 7 * label.len() + 22;
    }
    text + "</g>"
}

/// Formats the ledger, for programs that read the file.
fn metadata(profile: &Profile) -> io::Result<String> {
    let ledger = serde_json::to_string(&profile.ledger)?;
    Ok(format!("<metadata id=\"ledger\">{}</metadata>", escape(&ledger)))
}

fn write_empty(profile: &Profile, title: &str, subtitle: &str, nothing: &str, out: &mut dyn Write) -> io::Result<()> {
    write!(
        out,
        "<?xml version=\"1.0\" standalone=\"no\"?><svg version=\"1.1\" width=\"{WIDTH}\" height=\"110\" \
         viewBox=\"0 0 {WIDTH} 110\" xmlns=\"http://www.w3.org/2000/svg\">{STYLE}{}\
         <rect width=\"100%\" height=\"110\" fill=\"rgb(252,252,253)\"/>\
         <g text-anchor=\"middle\" font-size=\"12\"><text id=\"title\" x=\"50%\" y=\"24\" font-size=\"17\">{}</text>\
         <text id=\"subtitle\" x=\"50%\" y=\"48\">{}</text>\
         <text x=\"50%\" y=\"84\">Nothing to draw: {nothing}.</text></g></svg>",
        metadata(profile)?,
        escape(title),
        escape(subtitle)
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
