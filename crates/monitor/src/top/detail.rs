//! The details of one process: its recent history, kernels, memory by line with stacks, copies and errors.

use std::cmp::Reverse;

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Style},
    text::{Line, Span},
    widgets::Paragraph,
};
use text::{
    names::{clean, printable},
    short::short,
    units::{bytes, count, counted, time},
};

use super::{
    App,
    parts::{BOLD, DIM},
};
use crate::{
    console::{byte_rate, cut, rate, shape, speed, unseen_text},
    snapshot::{Process, nanoseconds, rates::Pace, site::site},
};

/// Rows of each section.
const ROWS: usize = 12;
/// Frames of each stack, innermost only.
const FRAMES: usize = 12;

/// The width from which the shape of kernels is shown beside their names.
const SHAPES: usize = 90;
/// The width of a direction of copies, such as `HtoD, async`.
const MAX_DIRECTION: usize = 11;

impl App {
    pub(super) fn draw_detail(&self, frame: &mut Frame<'_>, area: Rect, pace: &Pace<'_>) {
        let graphs = if area.height >= 12 { 3 } else { 0 };
        let [top, text] = Layout::vertical([Constraint::Length(graphs), Constraint::Min(0)]).areas(area);
        if graphs > 0 {
            self.draw_graphs(frame, &[top], pace);
        }
        let lines = lines(pace, usize::from(text.width));
        let most = u16::try_from(lines.len()).unwrap_or(u16::MAX).saturating_sub(text.height);
        frame.render_widget(Paragraph::new(lines).scroll((self.scroll.min(most), 0)), text);
    }
}

fn lines(pace: &Pace<'_>, width: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    memory(pace, width, &mut lines);
    kernels(pace, width, &mut lines);
    suspects(pace.process, width, &mut lines);
    copies(pace, width, &mut lines);
    failures(pace.process, &mut lines);
    calls(pace.process, &mut lines);
    lines
}

fn heading(lines: &mut Vec<Line<'static>>, title: &'static str, columns: &str) {
    if !lines.is_empty() {
        lines.push(Line::default());
    }
    let columns = columns.get(title.len()..).unwrap_or_default().to_owned();
    lines.push(Line::from(vec![Span::styled(title, BOLD), Span::styled(columns, DIM)]));
}

/// Joins cells that are aligned to the right. Those for which there is no room are left out, the last one first.
fn row(cells: &[(&str, usize)], width: usize) -> String {
    let mut text = String::new();
    for (cell, columns) in cells {
        let cell = format!("{}{cell:>columns$}", if text.is_empty() { "" } else { "  " });
        if text.chars().count() + cell.chars().count() > width {
            break;
        }
        text += &cell;
    }
    text
}

fn memory(pace: &Pace<'_>, width: usize, lines: &mut Vec<Line<'static>>) {
    let process = pace.process;
    let unseen = pace.unseen_memory();
    if process.memory.is_empty() && unseen.is_none() {
        return;
    }
    let row = |[space, live, peak, allocations, failed, frees, failed_frees]: [&str; 7]| {
        let failed = [(allocations, 12), (failed, 7), (frees, 12), (failed_frees, 7)];
        row(&[&[(space, 10), (live, 9), (peak, 9)], &failed[..]].concat(), width)
    };
    heading(lines, "Memory", &row(["", "live", "peak", "allocations", "failed", "frees", "failed"]));
    for memory in &process.memory {
        lines.push(Line::from(row([
            memory.space.name(),
            &bytes(memory.live_bytes),
            &bytes(memory.peak_bytes),
            &count(memory.allocations),
            &count(memory.failed),
            &count(memory.frees),
            &count(memory.failed_frees),
        ])));
    }
    if let Some((all, unseen)) = unseen {
        lines.push(Line::styled(format!("{:>10}  {:>9}  {}", "", bytes(unseen), unseen_text(all)), DIM));
    }
}

fn kernels(pace: &Pace<'_>, width: usize, lines: &mut Vec<Line<'static>>) {
    let mut kernels = pace.kernels();
    if kernels.is_empty() {
        return;
    }
    kernels.sort_by(|a, b| b.1.total_cmp(&a.1).then(b.0.launches.cmp(&a.0.launches)));
    // On a narrow terminal the name needs the room of the shape.
    let shapes = |grid: &str, block: &str| match width {
        SHAPES.. => format!("  {grid:>14}  {block:>9}"),
        _ => String::new(),
    };
    let columns = format!("{:>18}  {:>12}{}", "launches/s", "launches", shapes("grid", "block"));
    let room = width.saturating_sub(columns.len() + 2).max(20);
    heading(lines, "Kernels", &format!("{columns}  name"));
    for (kernel, per_second) in kernels.iter().take(ROWS) {
        let (per_second, launches) = (rate(*per_second), count(kernel.launches));
        let (shapes, name) = (shapes(&shape(kernel.grid), &shape(kernel.block)), short(&clean(&kernel.name), room));
        lines.push(Line::from(format!("{per_second:>18}  {launches:>12}{shapes}  {name}")));
    }
}

fn suspects(process: &Process, width: usize, lines: &mut Vec<Line<'static>>) {
    if process.suspects.is_empty() {
        return;
    }
    heading(lines, "Live memory by line", "");
    for suspect in process.suspects.iter().take(ROWS) {
        let growth = match suspect.growth {
            0 => String::new(),
            grown if grown > 0 => format!(" (+{})", bytes(grown.unsigned_abs())),
            shrunk => format!(" (-{})", bytes(shrunk.unsigned_abs())),
        };
        let colour = if suspect.growth > 0 && suspect.remark.is_empty() { Color::Red } else { Color::Reset };
        let age = time(nanoseconds(suspect.oldest));
        let live = format!("{:>11}{growth}", bytes(suspect.bytes));
        let text = format!(
            "  {}: {} by {}, the oldest {age} old",
            site(&suspect.stack).unwrap_or("[unknown line]".into()),
            counted(suspect.count, "allocation", "allocations"),
            printable(&suspect.function),
        );
        let text = cut(&text, Some(width.saturating_sub(live.chars().count())));
        lines.push(Line::from(vec![Span::styled(live, Style::new().fg(colour)), Span::raw(text)]));
        if !suspect.remark.is_empty() {
            lines.push(Line::styled(format!("{:13}{}", "", suspect.remark), DIM));
        }
        for frame in suspect.stack.iter().rev().take(FRAMES) {
            let frame = short(&clean(&frame.name), width.saturating_sub(15).max(20));
            lines.push(Line::styled(format!("{:15}{frame}", ""), DIM));
        }
    }
}

fn copies(pace: &Pace<'_>, width: usize, lines: &mut Vec<Line<'static>>) {
    if pace.process.copies.is_empty() {
        return;
    }
    let row = |[rate, per_second, moved, number, speed]: [&str; 5], direction: &str| {
        let cells = [(rate, 18), (per_second, 10), (moved, 10), (number, 10), (speed, 13)];
        format!("{}  {direction}", row(&cells, width.saturating_sub(2 + MAX_DIRECTION)))
    };
    heading(lines, "Copies", &row(["rate", "copies/s", "bytes", "copies", "while in call"], "direction"));
    for copies in &pace.process.copies {
        let mode = if copies.asynchronous { ", async" } else { "" };
        let (bytes_per_second, per_second) = pace.copies(copies);
        let cells = [
            &*byte_rate(bytes_per_second),
            &rate(per_second),
            &bytes(copies.moved.bytes),
            &count(copies.moved.count),
            &speed(copies),
        ];
        lines.push(Line::from(row(cells, &format!("{}{mode}", copies.direction))));
    }
}

fn failures(process: &Process, lines: &mut Vec<Line<'static>>) {
    if process.errors.is_empty() {
        return;
    }
    let mut errors: Vec<_> = process.errors.iter().collect();
    errors.sort_by_key(|errors| Reverse(errors.count));
    heading(lines, "Errors", &format!("{:>18}  result", "calls"));
    for errors in errors.into_iter().take(ROWS) {
        let text =
            format!("{:>18}  {} from {}", count(errors.count), printable(&errors.code), printable(&errors.function));
        lines.push(Line::styled(text, Style::new().fg(Color::Red)));
    }
}

fn calls(process: &Process, lines: &mut Vec<Line<'static>>) {
    if process.calls.is_empty() {
        return;
    }
    let mut calls: Vec<_> = process.calls.iter().collect();
    calls.sort_by_key(|calls| Reverse(calls.ns));
    heading(lines, "Calls", &format!("{:>18}  {:>10}  {:>12}  function", "time", "mean", "calls"));
    for calls in calls.into_iter().take(ROWS) {
        let mean = time(calls.ns / calls.count.max(1));
        let (all, number) = (time(calls.ns), count(calls.count));
        lines.push(Line::from(format!("{all:>18}  {mean:>10}  {number:>12}  {}", printable(&calls.function))));
    }
}
