//! `.svg`: an interactive flame graph of CPU and GPU time, drawn by inferno. Click to zoom, Ctrl-F to search.
//!
//! What inferno does not support is added afterwards: tool tips (time and counts of each frame, not only its width),
//! labels shorter than names, a legend of the colour families, and the ledger as JSON in the file's metadata.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io::{self, Write},
    rc::Rc,
    sync::Arc,
};

use inferno::flamegraph::{
    self, Options, TextTruncateDirection,
    color::{BackgroundColor, Color, PaletteMap},
};
use model::{
    event::{Counter, OFF_CPU},
    idle::Phase,
    memory::Use,
    profile::{DeviceInfo, Profile},
};
use text::{
    short::short_frame,
    units::{bytes, count, counted, percent, time},
};

use crate::{
    family::Family,
    flame::{Flame, Line, Measure, MemoryView, View, Weight},
    flames::Flames,
    helpers, losses, names, palette, recursion, stalls, waits,
};

const FRAME_HEIGHT: usize = 18;
const LEGEND_HEIGHT: usize = 26;
const WIDTH: usize = 1200;
/// Maximum length of the title and the subtitle that fit at 1200 pixels.
const TITLE_LENGTH: usize = 84;
/// Maximum length of a label, where it can be shortened to that: no frame is wider than about 170 characters.
const LABEL_LENGTH: usize = 100;
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
    if let Some(folded) = helpers::folded(&flame) {
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

/// A frame of the graph, with everything above it.
struct Node<'a> {
    name: &'a str,
    weight: Weight,
    /// For the work of graphs: the stacks that launched the graphs, with their amounts.
    launches: BTreeMap<&'a [Arc<str>], u64>,
}

/// The most launching stacks in a tool tip, and the most frames of each.
const TIP_LAUNCHES: usize = 3;
const TIP_FRAMES: usize = 8;

/// `launched by main > replay [train.py:31] > cudaGraphLaunch`: the stacks that launched a graph, by time. The text after
/// the last opening parenthesis is not part of the name, so there are none in it.
fn launched_by(launches: &BTreeMap<&[Arc<str>], u64>) -> String {
    let mut stacks: Vec<_> = launches.iter().collect();
    stacks.sort_by_key(|(_, amount)| std::cmp::Reverse(**amount));
    let path = |frames: &[Arc<str>]| {
        // What the CUDA libraries call inside the launch says nothing.
        let inner = frames.iter().rev().take_while(|frame| frame.starts_with("[lib")).count();
        let frames = &frames[..frames.len() - inner];
        let left_out = frames.len().saturating_sub(TIP_FRAMES);
        let shown = frames[left_out..].iter().map(|frame| short_frame(frame, LABEL_LENGTH)).collect::<Vec<_>>();
        let path = format!("{}{}", if left_out > 0 { "… > " } else { "" }, shown.join(" > "));
        path.replace('(', "[").replace(')', "]")
    };
    let shown: Vec<String> = stacks.iter().take(TIP_LAUNCHES).map(|(frames, _)| path(frames)).collect();
    let more = stacks.len().saturating_sub(TIP_LAUNCHES);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("launched by {}{more}", shown.join(" and by "))
}

impl Node<'_> {
    /// `name (12.3 ms, 45.6 %, 1,234 GPU operations, 56 CPU samples)`. The script in the file uses the text before the
    /// last bracket as the name.
    fn tip(&self, total: u64, measure: Measure, names: (&str, &str)) -> String {
        let Weight { amount, samples, operations, hits } = self.weight;
        let mut tip = format!("{} ({}, {}", self.name, measure.text(amount), percent(amount, total));
        if let Some(meaning) = stalls::frame_meaning(self.name) {
            return format!("{tip}: {})", meaning.replace('(', "[").replace(')', "]"));
        }
        if operations > 0 {
            tip += &format!(", {}", counted(operations, "GPU operation", "GPU operations"));
        }
        if samples > 0 {
            tip += &format!(", {}", counted(samples, "CPU sample", "CPU samples"));
        }
        if hits > 0 {
            tip += &format!(", {}", counted(hits, names.0, names.1));
        }
        if !self.launches.is_empty() {
            tip += &format!(", {}", launched_by(&self.launches));
        }
        tip + ")"
    }
}

/// Returns the frames of the graph by depth and start. Lines are sorted, so equal prefixes are adjacent.
fn nodes(flame: &Flame, shift: u32) -> HashMap<(usize, u64), Node<'_>> {
    let mut nodes: HashMap<(usize, u64), Node<'_>> = HashMap::new();
    let mut open: Vec<(&str, u64)> = vec![("all", 0)];
    let mut now = 0;
    for line in &flame.lines {
        let same = line.frames.iter().zip(&open[1..]).take_while(|(name, (known, _))| ***name == **known).count();
        open.truncate(1 + same);
        open.extend(line.frames[same..].iter().map(|name| (&**name, now)));
        for (depth, &(name, start)) in open.iter().enumerate() {
            let new = || Node { name, weight: Weight::default(), launches: BTreeMap::new() };
            let node = nodes.entry((depth, start)).or_insert_with(new);
            node.weight.add(line.weight);
        }
        // The boundary and the work within.
        for (stack, amount) in flame.launches.get(&line.frames).into_iter().flatten() {
            for (depth, (_, start)) in open.iter().enumerate().skip(open.len() - 2) {
                if let Some(node) = nodes.get_mut(&(depth, *start)) {
                    let sum = node.launches.entry(stack).or_default();
                    *sum = sum.saturating_add(*amount);
                }
            }
        }
        now += line.weight.amount >> shift;
    }
    nodes
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

fn title(profile: &Profile) -> String {
    let command = profile.start.as_ref().map(|start| start.command.join(" ")).unwrap_or_default();
    let name = if command.is_empty() {
        let mut processes: Vec<String> = profile.processes.keys().map(|id| names::process(profile, *id)).collect();
        processes.sort_unstable();
        processes.dedup();
        processes.join(", ")
    } else {
        names::printable(&command).into_owned()
    };
    if name.is_empty() { "warpscope".to_owned() } else { cut(&name, TITLE_LENGTH) }
}

/// `1.21 GiB: tensors 1.00 GiB · cached 215 MiB`
fn memory_subtitle(flame: &Flame) -> String {
    let sum = |name: Option<&str>| -> u64 {
        let is_meant = |line: &&Line| name.is_none_or(|name| line.frames.last().is_some_and(|frame| **frame == *name));
        flame.lines.iter().filter(is_meant).fold(0, |sum, line| sum.saturating_add(line.weight.amount))
    };
    let parts = Use::ALL.map(|what| (what.name(), sum(Some(names::memory(what)))));
    let parts = parts.iter().filter(|(_, amount)| *amount > 0);
    let parts: Vec<String> = parts.map(|(name, amount)| format!("{name} {}", bytes(*amount))).collect();
    cut(&format!("{}: {}", bytes(sum(None)), parts.join(" · ")), TITLE_LENGTH)
}

/// `GPU 0 idle 4.21 s of 10.2 s (41.3 %)`
fn idle_subtitle(profile: &Profile) -> String {
    let idle = |device: &DeviceInfo| {
        let idle = device.idle.of(Phase::Between);
        let span = device.busy_ns.saturating_add(idle);
        format!("GPU {} idle {} of {} ({})", device.label, time(idle), time(span), percent(idle, span))
    };
    let working = profile.devices.values().filter(|device| device.busy_ns > 0);
    cut(&working.map(idle).collect::<Vec<_>>().join(" · "), TITLE_LENGTH)
}

/// `10.0 s recorded · GPU busy 3.27 s · 92,732 launches · matched 100 % · nothing lost`
fn subtitle(profile: &Profile) -> String {
    let ledger = &profile.ledger;
    let mut parts = vec![format!("{} recorded", time(profile.wall_ns()))];
    let busy: u64 = profile.devices.values().map(|device| device.busy_ns).sum();
    if busy > 0 {
        parts.push(format!("GPU busy {}", time(busy)));
    }
    if let Some(counter) = waits::counter(profile) {
        let all = profile.counters.of(counter).filter(|(_, _, stack, _)| !profile.is_injected(*stack));
        let waited = all.fold(0, |sum: u64, (.., hits)| sum.saturating_add(hits.weight));
        parts.push(format!("off the CPU {}", time(waited)));
    }
    if ledger.launches > 0 {
        parts.push(counted(ledger.launches, "launch", "launches"));
    }
    if ledger.samples > 0 {
        parts.push(counted(ledger.samples, "CPU sample", "CPU samples"));
    }
    if let Some(matched) = losses::matched(ledger) {
        parts.push(matched.split("  (").next().unwrap_or_default().to_owned());
    }
    if ledger.launches_pending > 0 {
        parts.push(format!("{} pending", count(ledger.launches_pending)));
    }
    parts.push(lost(profile));
    parts.join("  ·  ")
}

/// `malloc, by arg1: ./program 5`
fn event_title(counter: &Counter, profile: &Profile) -> String {
    let by = if counter.weight.is_empty() { String::new() } else { format!(", by {}", counter.weight) };
    cut(&format!("{}{by}: {}", names::printable(&counter.name), title(profile)), TITLE_LENGTH)
}

/// `10.0 s recorded · 1,234 hits · 12.3 MiB · nothing lost`
fn event_subtitle(counter: &Counter, profile: &Profile, flame: &Flame) -> String {
    let mut sum = Weight::default();
    flame.lines.iter().for_each(|line| sum.add(line.weight));
    let mut parts = vec![format!("{} recorded", time(profile.wall_ns())), counted(sum.hits, "hit", "hits")];
    if !counter.weight.is_empty() {
        parts.push(flame.measure.text(sum.amount));
    }
    parts.push(lost(profile));
    parts.join("  ·  ")
}

fn lost(profile: &Profile) -> String {
    match profile.ledger.lost.total() {
        0 => "nothing lost".to_owned(),
        lost => format!("{} lost", count(lost)),
    }
}

fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most { text.to_owned() } else { text.chars().take(most - 1).collect::<String>() + "…" }
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
