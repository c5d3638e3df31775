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
    widgets::{Block, Borders, Cell, Clear, Gauge, Paragraph, Row, Table, TableState},
};
use text::{
    names::printable,
    units::{bytes, count, counted},
};

use super::{App, history::sparkline};
use crate::{
    clock::stamp,
    console::{byte_rate, rate},
    rates::{Pace, errors, live_bytes, peak_bytes},
    snapshot::{Device, Process},
};

/// Maximum number of GPUs shown.
const MOST_DEVICES: usize = 8;
const HISTORY: usize = 16;

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
        frame.render_widget(Line::from(spans), area);
        if self.now.unix_ns > 0 {
            frame.render_widget(Line::styled(stamp(self.now.unix_ns), DIM).alignment(Alignment::Right), area);
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
        let (wide, kinds) = (area.width >= 110, self.now.kinds);
        let column = |shown, width| Constraint::Length(if shown { width } else { 0 });
        let widths = [
            Constraint::Length(7),
            column(wide, 10),
            column(kinds.memory, 9),
            column(kinds.memory && wide, 9),
            column(kinds.launches, 10),
            column(kinds.copies, 11),
            column(kinds.copies, 11),
            column(kinds.errors && wide, 7),
            column(kinds.launches && area.width >= 90, HISTORY as u16),
            Constraint::Min(8),
        ];
        let right = |text: &str| Cell::from(Line::from(text.to_owned()).alignment(Alignment::Right));
        let header = Row::new([
            right("pid"),
            Cell::from("user"),
            right("live"),
            right("peak"),
            right("launches/s"),
            right("HtoD/s"),
            right("DtoH/s"),
            right("errors"),
            Cell::from("launches"),
            Cell::from("name"),
        ]);
        let row = |pace: &Pace<'_>| {
            let process = pace.process;
            let failed = errors(process);
            let alarm = if failed > 0 { Style::new().fg(Color::Red) } else { Style::new() };
            let line = self.histories.get(&process.id).map(|history| sparkline(&history.launches, HISTORY));
            let mut name = title(process);
            if !process.container.is_empty() {
                name = format!("{}: {name}", printable(&process.container));
            }
            let row = Row::new([
                right(&process.pid.to_string()),
                Cell::from(printable(&process.user).into_owned()),
                right(&bytes(live_bytes(process))),
                right(&bytes(peak_bytes(process))),
                right(&rate(pace.launches())),
                right(&byte_rate(pace.to_device())),
                right(&byte_rate(pace.to_host())),
                right(&count(failed)).style(alarm),
                Cell::from(Span::styled(line.unwrap_or_default(), Style::new().fg(Color::Blue))),
                Cell::from(name),
            ]);
            if process.ended { row.style(DIM) } else { row }
        };
        let table = Table::new(rows.iter().map(row), widths)
            .header(header.style(DIM))
            // Not reversed: an empty history would look full.
            .row_highlight_style(BOLD.bg(Color::DarkGray));
        let mut state = TableState::new().with_selected(self.place(rows));
        frame.render_stateful_widget(table, area, &mut state);
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
        frame.render_widget(Line::styled(text, DIM), area);
        let help = Line::styled("q quit  ↑↓ select  Enter details  r record  s sort  / filter  ? help", DIM);
        if area.width > 100 {
            frame.render_widget(help.alignment(Alignment::Right), area);
        }
    }
}

/// Returns a process's title on the terminal: its command line, or its short name if it has none.
pub(super) fn title(process: &Process) -> String {
    let name = if process.command.is_empty() { &process.comm } else { &process.command };
    printable(name).into_owned()
}

fn draw_device(frame: &mut Frame<'_>, area: Rect, device: &Device) {
    let [name, busy, memory, rest] =
        Layout::horizontal([Constraint::Length(24), Constraint::Fill(2), Constraint::Fill(3), Constraint::Length(26)])
            .spacing(1)
            .areas(area);
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
    let (width, height) = (86.min(whole.width), (KEYS.len() as u16 + 2).min(whole.height));
    let area = Rect { x: (whole.width - width) / 2, y: (whole.height - height) / 2, width, height };
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines).block(Block::default().borders(Borders::ALL).title(" keys ")), area);
}
