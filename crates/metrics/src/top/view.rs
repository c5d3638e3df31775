//! The screen: GPUs, processes, and the selected one's details.
//!
//! ```text
//!   warpscope top    3 GPU processes                                  07:51:32
//!   GPU 0 NVIDIA H200 ████████ 93 %   ███ 12.0 of 141 GiB   412 W   61 °C
//!    pid   user   live   peak   launches/s   HtoD/s   DtoH/s   errors   history   name
//!   ────────────────────────────── details, on Enter ──────────────────────────────
//!   sorted by live memory   filter: train                               ? for help
//! ```

use ratatui::{
    Frame,
    layout::{Alignment, Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    text::{Line, Span},
    widgets::{Block, Borders, Clear, Gauge, Paragraph, Row, Table, TableState, Wrap},
};
use text::{
    names::printable,
    units::{bytes, count, counted},
};

use super::{App, app::Sort, column::Column, history::sparkline};
use crate::{
    clock::stamp,
    console::{byte_rate, rate},
    rates::{Pace, errors, live_bytes, peak_bytes},
    snapshot::{Device, Process},
};

/// Maximum number of GPUs shown.
const MOST_DEVICES: usize = 8;
const HISTORY: usize = 16;
/// The keys, as many as fit.
const HINTS: [&str; 3] = [
    "q quit  ↑↓ select  Enter details  r record  s sort  / filter  ? help",
    "q quit  r record  s sort  ? help",
    "? help",
];

const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

impl App {
    /// Draws the screen.
    pub fn draw(&self, frame: &mut Frame<'_>) {
        let rows = self.rows();
        let devices = self.now.devices.len().min(MOST_DEVICES) as u16;
        let detail = if self.detail && !rows.is_empty() { Constraint::Percentage(60) } else { Constraint::Length(0) };
        let [head, gpus, table, details, foot] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(devices),
            Constraint::Min(2),
            detail,
            Constraint::Length(1),
        ])
        .areas(frame.area());
        self.draw_head(frame, head);
        for (line, device) in self.now.devices.iter().take(MOST_DEVICES).enumerate() {
            let area = Rect { y: gpus.y.saturating_add(line as u16), height: 1, ..gpus };
            draw_device(frame, area.intersection(gpus), device);
        }
        self.draw_table(frame, table, &rows);
        if let (true, Some(place)) = (self.detail, self.place(&rows)) {
            self.draw_detail(frame, details, &rows[place]);
        }
        self.draw_foot(frame, foot);
        if self.help {
            draw_help(frame);
        }
    }

    fn draw_head(&self, frame: &mut Frame<'_>, area: Rect) {
        let living = self.now.processes.iter().filter(|process| !process.ended).count() as u64;
        let mut spans = vec![
            Span::styled("warpscope top", BOLD),
            Span::raw("  "),
            Span::raw(counted(living, "GPU process", "GPU processes")),
        ];
        let lost: u64 = self.now.health.lost.iter().map(|(_, calls)| *calls).sum();
        if lost > 0 {
            let text = format!("  {} not counted", counted(lost, "call", "calls"));
            spans.push(Span::styled(text, Style::new().fg(Color::Yellow)));
        }
        if self.paused {
            spans.push(Span::styled("  paused", Style::new().fg(Color::Yellow)));
        }
        let (left, right) = (Line::from(spans), Line::styled(stamp(self.now.unix_ns), DIM));
        let both = left.width() + right.width() + 2;
        frame.render_widget(left, area);
        if self.now.unix_ns > 0 && both <= area.width.into() {
            frame.render_widget(right.alignment(Alignment::Right), area);
        }
    }

    fn draw_table(&self, frame: &mut Frame<'_>, area: Rect, rows: &[Pace<'_>]) {
        if rows.is_empty() {
            let text = if self.now.processes.is_empty() {
                "No process uses CUDA. Processes appear here when they do."
            } else {
                "No process matches the filter; press Esc to clear it."
            };
            frame.render_widget(Paragraph::new(text).style(DIM), area);
            return;
        }
        let shown = self.columns(rows, area.width);
        let header = shown.iter().map(|column| {
            let title = match (column.sort == Some(self.sort), self.reverse) {
                (false, _) => return column.cell(column.title.to_owned()).style(DIM),
                (true, false) => format!("{}▾", column.title),
                (true, true) => format!("{}▴", column.title),
            };
            column.cell(title).style(BOLD)
        });
        let row = |(place, pace): (usize, &Pace<'_>)| {
            let cells = shown.iter().map(|column| {
                let style = match column.title {
                    "errors" if errors(pace.process) > 0 => Style::new().fg(Color::Red),
                    "launches" => Style::new().fg(Color::Blue),
                    _ => Style::new(),
                };
                column.cell(column.texts[place].clone()).style(style)
            });
            let row = Row::new(cells);
            if pace.process.ended { row.style(DIM) } else { row }
        };
        let table = Table::new(rows.iter().enumerate().map(row), shown.iter().map(Column::constraint))
            .header(Row::new(header))
            // Not reversed: an empty history would look full.
            .row_highlight_style(BOLD.bg(Color::DarkGray));
        let mut state = TableState::new().with_selected(self.place(rows));
        frame.render_stateful_widget(table, area, &mut state);
    }

    /// Returns the columns that fit. A number that is cut is a wrong number, so columns are left out instead; the one that
    /// is sorted by stays.
    fn columns(&self, rows: &[Pace<'_>], width: u16) -> Vec<Column> {
        let kinds = self.now.kinds;
        let texts = |text: &dyn Fn(&Pace<'_>) -> String| rows.iter().map(text).collect::<Vec<_>>();
        let history = |pace: &Pace<'_>| {
            self.histories.get(&pace.process.id).map(|h| sparkline(&h.launches, HISTORY)).unwrap_or_default()
        };
        let name = |pace: &Pace<'_>| match pace.process.container.as_str() {
            "" => title(pace.process),
            container => format!("{}: {}", printable(container), title(pace.process)),
        };
        // The last number is the order in which they are left out, the highest first.
        let all = [
            (true, Column::number("pid", Some(Sort::Pid), texts(&|pace| pace.process.pid.to_string()), 0)),
            (true, Column::text("user", texts(&|pace| printable(&pace.process.user).into_owned()), 7)),
            (
                kinds.memory,
                Column::number("live", Some(Sort::Memory), texts(&|pace| bytes(live_bytes(pace.process))), 1),
            ),
            (kinds.memory, Column::number("peak", None, texts(&|pace| bytes(peak_bytes(pace.process))), 6)),
            (
                kinds.launches,
                Column::number("launches/s", Some(Sort::Launches), texts(&|pace| rate(pace.launches())), 2),
            ),
            (
                kinds.copies,
                Column::number("HtoD/s", Some(Sort::Bandwidth), texts(&|pace| byte_rate(pace.to_device())), 3),
            ),
            (
                kinds.copies,
                Column::number("DtoH/s", Some(Sort::Bandwidth), texts(&|pace| byte_rate(pace.to_host())), 4),
            ),
            (kinds.errors, Column::number("errors", Some(Sort::Errors), texts(&|pace| count(errors(pace.process))), 5)),
            (kinds.launches, Column::text("launches", texts(&history), 8)),
            (true, Column::text("name", texts(&name), 0)),
        ];
        let mut shown: Vec<Column> = all.into_iter().filter(|(shown, _)| *shown).map(|(_, column)| column).collect();
        let needed = |shown: &[Column]| shown.iter().map(|column| column.least() + 1).sum::<u16>();
        while needed(&shown) > width.saturating_add(1) {
            let dispensable = |column: &&Column| column.order > 0 && column.sort != Some(self.sort);
            let Some(order) = shown.iter().filter(dispensable).map(|column| column.order).max() else { break };
            shown.retain(|column| column.order != order);
        }
        shown
    }

    fn draw_foot(&self, frame: &mut Frame<'_>, area: Rect) {
        let mut text = format!("sorted by {}{}", self.sort.name(), if self.reverse { ", reversed" } else { "" });
        if self.filtering || !self.filter.is_empty() {
            let end = if self.filtering { "_" } else { "" };
            text = format!("{text}   filter: {}{end}", printable(&self.filter));
        }
        if !self.message.is_empty() {
            frame.render_widget(Line::styled(printable(&self.message).into_owned(), BOLD), area);
            return;
        }
        let room = usize::from(area.width).saturating_sub(text.chars().count() + 2);
        frame.render_widget(Line::styled(text, DIM), area);
        // The last one is shown in any case.
        let hints = HINTS.iter().find(|hint| hint.chars().count() <= room).unwrap_or(&HINTS[HINTS.len() - 1]);
        let length = (hints.chars().count() as u16).min(area.width);
        let right = Rect { x: area.x + area.width - length, width: length, ..area };
        frame.render_widget(Clear, right);
        frame.render_widget(Line::styled(*hints, DIM), right);
    }
}

/// Returns a process's title on the terminal: its command line, or its short name if it has none.
pub(super) fn title(process: &Process) -> String {
    let name = if process.command.is_empty() { &process.comm } else { &process.command };
    printable(name).into_owned()
}

fn draw_device(frame: &mut Frame<'_>, area: Rect, device: &Device) {
    let widths = match area.width {
        100.. => [Constraint::Length(24), Constraint::Fill(2), Constraint::Fill(3), Constraint::Length(26)],
        // The numbers fit; the name gets the rest.
        width => [
            Constraint::Length(width.saturating_sub(51).clamp(6, 24)),
            Constraint::Length(11),
            Constraint::Length(22),
            Constraint::Fill(1),
        ],
    };
    let [name, busy, memory, rest] = Layout::horizontal(widths).spacing(1).areas(area);
    frame.render_widget(Line::from(format!("GPU {} {}", device.index, printable(&device.name))), name);
    if device.lost {
        frame.render_widget(Line::styled("lost: the GPU no longer responds", Style::new().fg(Color::Red)), busy);
        return;
    }
    let gauge = |share: f64, label: String, colour| {
        let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
        Gauge::default().ratio(share).label(label).gauge_style(Style::new().fg(colour).bg(Color::DarkGray))
    };
    if let Some(share) = device.utilisation {
        frame.render_widget(gauge(share, format!("{:.0} % busy", share * 100.0), Color::Green), busy);
    }
    if let (Some(used), Some(total)) = (device.memory_used, device.memory_total) {
        let label = format!("{} of {}", bytes(used), bytes(total));
        frame.render_widget(gauge(used as f64 / total.max(1) as f64, label, Color::Blue), memory);
    }
    let mut parts = Vec::new();
    parts.extend(device.power.map(|watts| format!("{watts:.0} W")));
    parts.extend(device.temperature.map(|degrees| format!("{degrees:.0} °C")));
    parts.extend(device.xids.iter().map(|(xid, _)| format!("Xid {xid}")));
    // A part that does not fit is left out: half a number is a wrong one.
    while !parts.is_empty() && parts.join("  ").chars().count() > rest.width.into() {
        parts.pop();
    }
    frame.render_widget(Line::from(parts.join("  ")), rest);
}

fn draw_help(frame: &mut Frame<'_>) {
    const KEYS: [(&str, &str); 11] = [
        ("q, Ctrl-C", "quit"),
        ("↑ ↓, j k", "select a process"),
        ("Home End, g G", "select the first or last process"),
        ("Enter, Tab", "show details: kernels, memory by line, copies, errors"),
        ("PgUp PgDn", "scroll the details"),
        ("s", "sort by the next column"),
        ("R", "reverse the order"),
        ("r", "record the process for some seconds; the files are named in the last line"),
        ("/", "filter by name, user, container, pid or kernel; Esc clears the filter"),
        ("p", "pause"),
        ("?", "show this help; any key closes it"),
    ];
    let lines: Vec<Line<'_>> = KEYS
        .iter()
        .map(|(key, what)| Line::from(vec![Span::styled(format!(" {key:<14}"), BOLD), Span::raw(*what)]))
        .collect();
    let whole = frame.area();
    let width = 86.min(whole.width);
    let inside = usize::from(width.saturating_sub(2)).max(1);
    let wrapped: usize = lines.iter().map(|line| line.width().div_ceil(inside)).sum();
    let height = (wrapped as u16 + 2).min(whole.height);
    let area = Rect { x: (whole.width - width) / 2, y: (whole.height - height) / 2, width, height };
    frame.render_widget(Clear, area);
    let block = Block::default().borders(Borders::ALL).title(" keys ");
    frame.render_widget(Paragraph::new(lines).block(block).wrap(Wrap { trim: false }), area);
}
