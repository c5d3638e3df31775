//! The picture itself: title, legend, and a rectangle for each frame. It is complete without its script, which fits the width
//! to the window, zooms and searches.

use std::{
    collections::BTreeSet,
    io::{self, Write},
};

use analysis::{
    family::Family,
    flame_tree::{Flame, Measure},
};
use model::profile::Profile;
use text::short::short_frame;

use super::tips::{LABEL_LENGTH, Node, nodes};
use crate::palette::{self, Color};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
const WIDTH: f64 = 1200.0;
const MARGIN: f64 = 10.0;
const FRAME_HEIGHT: usize = 18;
/// Where the first frame is, below the title and the legend.
const TOP: usize = 88;
/// The width of a character, and of the smallest frame that is drawn, as a share of all.
const CHARACTER: f64 = 7.25;
const LEAST: f64 = 0.0001;
/// The frame around all.
const ALL: Color = Color { r: 228, g: 231, b: 236 };

/// What is above the graph, and in the metadata.
pub(super) struct Page<'a> {
    pub profile: &'a Profile,
    pub title: String,
    pub subtitle: String,
}

pub(super) fn draw(
    page: &Page<'_>,
    flame: &Flame,
    shift: u32,
    hits: (&str, &str),
    out: &mut dyn Write,
) -> io::Result<()> {
    let nodes = nodes(flame, shift);
    let Some(all) = nodes.get(&(0, 0)) else { return Ok(()) };
    let is_drawn = |node: &Node<'_>| node.width as f64 >= all.width as f64 * LEAST;
    let deepest = nodes.iter().filter(|(_, node)| is_drawn(node)).map(|((_, depth), _)| *depth).max().unwrap_or(0);
    begin(page, TOP + (deepest + 1) * FRAME_HEIGHT + 12, out)?;
    out.write_all(legend(flame).as_bytes())?;
    write!(
        out,
        "<text id=\"reset\" class=\"control hidden\" x=\"{MARGIN}\" y=\"24\">Reset zoom</text>\
         <text id=\"search\" class=\"control\" x=\"{right}\" y=\"24\" text-anchor=\"end\">Search</text>\
         <text id=\"matched\" x=\"{right}\" y=\"48\"></text><g id=\"frames\">",
        right = WIDTH - MARGIN
    )?;
    let scale = (WIDTH - 2.0 * MARGIN) / all.width as f64;
    for ((start, depth), node) in nodes.iter().filter(|(_, node)| is_drawn(node)) {
        let Color { r, g, b } = if *depth == 0 { ALL } else { palette::colour(family(flame, node.name), node.name) };
        let (x, width, y) = (MARGIN + *start as f64 * scale, node.width as f64 * scale, TOP + depth * FRAME_HEIGHT);
        let label = short_frame(node.name, LABEL_LENGTH);
        let attribute = if label == node.name {
            String::new()
        } else {
            format!(" data-label=\"{}\"", escape(&label).replace('"', "&quot;"))
        };
        write!(
            out,
            "\n<g><title>{}</title><rect x=\"{x:.2}\" y=\"{y}\" width=\"{width:.2}\" height=\"{}\" fill=\"rgb({r},{g},{b})\" \
             data-start=\"{start}\" data-amount=\"{}\" data-depth=\"{depth}\"/><text x=\"{:.2}\" y=\"{}\"{attribute}>{}</text></g>",
            escape(&node.tip(all.weight.amount, flame.measure, hits)),
            FRAME_HEIGHT - 1,
            node.width,
            x + 3.0,
            y + 13,
            escape(&fitting(&label, width))
        )?;
    }
    write!(out, "</g><script><![CDATA[{SCRIPT}]]></script></svg>")
}

/// Says that there is nothing to draw, and why.
pub(super) fn write_empty(page: &Page<'_>, nothing: &str, out: &mut dyn Write) -> io::Result<()> {
    begin(page, 110, out)?;
    write!(out, "<text x=\"{}\" y=\"84\" text-anchor=\"middle\">Nothing to draw: {nothing}.</text></svg>", WIDTH / 2.0)
}

fn begin(page: &Page<'_>, height: usize, out: &mut dyn Write) -> io::Result<()> {
    let (title, subtitle) = (escape(&page.title), escape(&page.subtitle));
    let ledger = escape(&serde_json::to_string(&page.profile.ledger)?);
    let middle = WIDTH / 2.0;
    write!(
        out,
        "<?xml version=\"1.0\" standalone=\"no\"?>\n\
         <svg width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" xmlns=\"http://www.w3.org/2000/svg\">\
         <title id=\"page\">{title}</title><style>{STYLE}</style><metadata id=\"ledger\">{ledger}</metadata>\
         <rect width=\"100%\" height=\"100%\" fill=\"#fcfcfd\"/>\
         <text id=\"title\" x=\"{middle}\" y=\"24\">{title}</text><text id=\"subtitle\" x=\"{middle}\" y=\"48\">{subtitle}</text>"
    )
}

/// As much of a label as has room.
fn fitting(label: &str, width: f64) -> String {
    let room = ((width - 6.0) / CHARACTER).max(0.0) as usize;
    match label.chars().count() {
        _ if room < 3 => String::new(),
        length if length <= room => label.to_owned(),
        _ => label.chars().take(room - 2).collect::<String>() + "..",
    }
}

fn family(flame: &Flame, name: &str) -> Family {
    flame.families.get(name).copied().unwrap_or(Family::Unknown)
}

/// Draws a row of swatches, for the families in the picture.
fn legend(flame: &Flame) -> String {
    let shown: BTreeSet<Family> =
        flame.lines.iter().flat_map(|line| line.frames.iter().map(|name| family(flame, name))).collect();
    let mut text = "<g id=\"legend\">".to_owned();
    let mut x = MARGIN;
    for family in shown {
        let label = match family {
            // Copies and allocations have one hue.
            Family::GpuMemory if flame.measure == Measure::Bytes => "GPU memory",
            family => palette::label(family),
        };
        let Color { r, g, b } = palette::middle(family);
        text += &format!(
            "<rect x=\"{x}\" y=\"64\" width=\"11\" height=\"11\" rx=\"2\" fill=\"rgb({r},{g},{b})\"/><text x=\"{}\" y=\"73\">{}</text>",
            x + 16.0,
            escape(label)
        );
        x += 38.0 + 7.0 * label.len() as f64;
    }
    text + "</g>"
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
