//! The state of the view and its key bindings.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::{column::Column, history::Past, sort::Sort};
use crate::snapshot::{
    Snapshot,
    rates::{Pace, errors, live_bytes},
};

/// The maximum length of the filter.
const MAX_FILTER: usize = 64;

/// Whether to continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Keep showing the view.
    Continue,
    /// Record this process.
    Record(u32),
    /// The user quits.
    Quit,
}

/// What is shown of the selected process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pane {
    Closed,
    Details,
    History,
}

/// The view.
pub struct App {
    pub(super) now: Snapshot,
    pub(super) before: Option<Snapshot>,
    pub(super) past: Past,
    /// The chosen columns, in order.
    pub(super) columns: Vec<Column>,
    /// The highlighted row of the list of columns, while it is open.
    pub(super) choosing: Option<usize>,
    pub(super) sort: Sort,
    pub(super) reverse: bool,
    pub(super) filter: String,
    pub(super) filtering: bool,
    pub(super) pane: Pane,
    pub(super) scroll: u16,
    pub(super) help: bool,
    pub(super) paused: bool,
    /// What became of a recording, until the next key; empty if there was none.
    pub(super) message: String,
    /// The selected process. Stored by id, because rows change places.
    selected: Option<u32>,
}

impl Default for App {
    fn default() -> Self {
        Self::new(&[])
    }
}

impl App {
    /// An empty view with these columns; without any, with the usual ones.
    pub fn new(columns: &[Column]) -> Self {
        let is_chosen = |column: &Column| match columns {
            [] => column.is_default(),
            columns => column.is_fixed() || columns.contains(column),
        };
        let mut app = Self {
            now: Snapshot::default(),
            before: None,
            past: Past::default(),
            columns: Column::ALL.into_iter().filter(is_chosen).collect(),
            choosing: None,
            sort: Sort::Memory,
            reverse: false,
            filter: String::new(),
            filtering: false,
            pane: Pane::Closed,
            scroll: 0,
            help: false,
            paused: false,
            message: String::new(),
            selected: None,
        };
        app.sort_by_shown();
        app
    }

    /// Whether new snapshots are ignored.
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Shows a new snapshot; ignored while the view is paused.
    pub fn update(&mut self, snapshot: Snapshot) {
        if self.paused {
            return;
        }
        let first = self.now.time_ns == 0;
        let before = std::mem::replace(&mut self.now, snapshot);
        self.before = (!first).then_some(before);
        self.past.push(&self.now, self.before.as_ref());
    }

    /// Returns the processes in display order.
    pub(super) fn rows(&self) -> Vec<Pace<'_>> {
        let needle = self.filter.to_lowercase();
        let mut rows = Pace::of(&self.now, self.before.as_ref());
        rows.retain(|pace| {
            let process = pace.process;
            let contains = |text: &str| text.to_lowercase().contains(&needle);
            needle.is_empty()
                || contains(&process.comm)
                || contains(&process.command)
                || contains(&process.user)
                || contains(&process.container)
                || process.pid.to_string().contains(&needle)
                || process.kernels.iter().any(|kernel| contains(&kernel.name))
        });
        rows.sort_by(|a, b| {
            let greatest_first = match self.sort {
                Sort::Memory => live_bytes(b.process).cmp(&live_bytes(a.process)),
                Sort::Launches => b.launches().total_cmp(&a.launches()),
                Sort::Bandwidth => (b.to_device() + b.to_host()).total_cmp(&(a.to_device() + a.to_host())),
                Sort::Errors => errors(b.process).cmp(&errors(a.process)),
                Sort::Pid => a.process.pid.cmp(&b.process.pid),
            };
            let order = if self.reverse { greatest_first.reverse() } else { greatest_first };
            order.then(a.process.id.cmp(&b.process.id))
        });
        rows
    }

    /// Returns the index of the selected process in `rows`; the first if it has ended.
    pub(super) fn place(&self, rows: &[Pace<'_>]) -> Option<usize> {
        let place = rows.iter().position(|pace| Some(pace.process.id) == self.selected);
        place.or((!rows.is_empty()).then_some(0))
    }

    /// Shows a message in the last line.
    pub fn say(&mut self, message: String) {
        self.message = message;
    }

    /// Handles a key.
    pub fn key(&mut self, key: KeyEvent) -> Flow {
        if key.kind == KeyEventKind::Release {
            return Flow::Continue;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return if key.code == KeyCode::Char('c') { Flow::Quit } else { Flow::Continue };
        }
        self.message.clear();
        if self.filtering {
            self.filter_key(key.code);
            return Flow::Continue;
        }
        if self.help {
            // Any key closes the help.
            self.help = false;
            return Flow::Continue;
        }
        if let Some(row) = self.choosing {
            self.choice_key(key.code, row);
            return Flow::Continue;
        }
        match key.code {
            KeyCode::Char('q') => return Flow::Quit,
            KeyCode::Down | KeyCode::Char('j') => self.select(1),
            KeyCode::Up | KeyCode::Char('k') => self.select(-1),
            KeyCode::Home | KeyCode::Char('g') => self.select(isize::MIN),
            KeyCode::End | KeyCode::Char('G') => self.select(isize::MAX),
            KeyCode::PageDown | KeyCode::Char(' ') => self.scroll = self.scroll.saturating_add(10),
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(10),
            KeyCode::Char('s') => {
                self.sort = self.sort.next();
                self.sort_by_shown();
            }
            KeyCode::Char('R') => self.reverse = !self.reverse,
            KeyCode::Char('r') => {
                let rows = self.rows();
                let running = self.place(&rows).map(|place| rows[place].process).filter(|process| !process.ended);
                return running.map_or(Flow::Continue, |process| Flow::Record(process.pid));
            }
            KeyCode::Char('p') => self.paused = !self.paused,
            KeyCode::Char('?' | 'h') => self.help = true,
            KeyCode::Char('/') => self.filtering = true,
            KeyCode::Char('c') => self.choosing = Some(0),
            KeyCode::Enter | KeyCode::Tab => self.toggle(Pane::Details),
            KeyCode::Char('t') => self.toggle(Pane::History),
            KeyCode::Esc if self.pane != Pane::Closed => self.pane = Pane::Closed,
            KeyCode::Esc => self.filter.clear(),
            _ => {}
        }
        Flow::Continue
    }

    fn toggle(&mut self, pane: Pane) {
        self.pane = if self.pane == pane { Pane::Closed } else { pane };
        self.scroll = 0;
    }

    /// Moves on to an order whose column is chosen; one by pid always is.
    pub(super) fn sort_by_shown(&mut self) {
        while !self.columns.iter().any(|column| column.sort() == Some(self.sort)) {
            self.sort = self.sort.next();
        }
    }

    fn filter_key(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.filtering = false,
            KeyCode::Esc => {
                self.filtering = false;
                self.filter.clear();
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(c) if !c.is_control() && self.filter.chars().count() < MAX_FILTER => self.filter.push(c),
            _ => {}
        }
    }

    fn select(&mut self, by: isize) {
        let rows = self.rows();
        let Some(place) = self.place(&rows) else { return };
        let place = place.saturating_add_signed(by).min(rows.len() - 1);
        let selected = rows[place].process.id;
        (self.selected, self.scroll) = (Some(selected), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{Memory, Process, Space};

    fn process(id: u32, comm: &str, live_bytes: u64, launches: u64) -> Process {
        let memory = Memory {
            space: Space::Device,
            live_bytes,
            live: 1,
            peak_bytes: live_bytes,
            allocations: 1,
            allocated_bytes: live_bytes,
            ..Memory::default()
        };
        Process {
            id,
            pid: 100 - id,
            comm: comm.to_owned(),
            memory: vec![memory],
            other_launches: launches,
            ..Process::default()
        }
    }

    fn snapshot(second: u64) -> Snapshot {
        let processes = vec![
            process(1, "train", 10, 100 * second),
            process(2, "serve", 30, 5),
            process(3, "Bench", 20, 50 * second),
        ];
        Snapshot { time_ns: second * 1_000_000_000, processes, ..Snapshot::default() }
    }

    fn press(app: &mut App, keys: &str) -> Flow {
        let keys = keys.chars().map(|c| match c {
            '\n' => KeyCode::Enter,
            '\u{1b}' => KeyCode::Esc,
            '\u{8}' => KeyCode::Backspace,
            c => KeyCode::Char(c),
        });
        keys.map(|code| app.key(KeyEvent::new(code, KeyModifiers::NONE))).last().unwrap_or(Flow::Continue)
    }

    fn order(app: &App) -> Vec<u32> {
        app.rows().iter().map(|pace| pace.process.id).collect()
    }

    /// Check every sort order and its reverse.
    #[test]
    fn processes_are_sorted() {
        let mut app = App::default();
        app.update(snapshot(1));
        app.update(snapshot(2));
        assert_eq!(order(&app), [2, 3, 1]);
        press(&mut app, "s");
        assert_eq!(order(&app), [1, 3, 2]);
        press(&mut app, "R");
        assert_eq!(order(&app), [2, 3, 1]);
        press(&mut app, "Rsss");
        assert_eq!((app.sort, order(&app)), (Sort::Pid, vec![3, 2, 1]));
        press(&mut app, "s");
        assert_eq!(app.sort, Sort::Memory);
    }

    /// Check that the selection stays with its process when rows move.
    #[test]
    fn selection_follows_its_process() {
        let mut app = App::default();
        press(&mut app, "jk");
        app.update(snapshot(1));
        press(&mut app, "j");
        assert_eq!(app.place(&app.rows()), Some(1));
        press(&mut app, "ss");
        assert_eq!(app.rows()[app.place(&app.rows()).expect("one")].process.id, 3);
        press(&mut app, "Gj");
        assert_eq!(app.place(&app.rows()), Some(2));
        press(&mut app, "kg");
        assert_eq!(app.place(&app.rows()), Some(0));
        assert_eq!(press(&mut app, "r"), Flow::Record(app.rows()[0].process.pid));
        app.update(Snapshot { time_ns: 9, ..Snapshot::default() });
        assert_eq!(app.place(&app.rows()), None);
        assert_eq!(press(&mut app, "r"), Flow::Continue, "nothing to record");
    }

    /// Check that a filter can be typed, applied and cleared, and that its letters are not commands.
    #[test]
    fn filter_is_typed_and_cleared() {
        let mut app = App::default();
        app.update(snapshot(1));
        assert_eq!(press(&mut app, "/bENqq\u{8}\u{8}"), Flow::Continue);
        assert_eq!(order(&app), [3]);
        press(&mut app, "\n");
        assert_eq!(press(&mut app, "x"), Flow::Continue);
        assert_eq!(order(&app), [3]);
        press(&mut app, "\u{1b}");
        assert_eq!(order(&app).len(), 3);
        press(&mut app, "/99\n");
        assert_eq!(order(&app), [1]);
    }

    /// Check that a paused view does not change, and that only q and Ctrl-C quit.
    #[test]
    fn pause_and_quit() {
        let mut app = App::default();
        app.update(snapshot(1));
        press(&mut app, "p");
        app.update(snapshot(2));
        assert_eq!(app.now.time_ns, 1_000_000_000);
        press(&mut app, "p");
        app.update(snapshot(3));
        assert_eq!(app.rows().iter().map(|pace| pace.launches() as u64).max(), Some(100));
        assert_eq!(press(&mut app, "?q"), Flow::Continue);
        assert_eq!(press(&mut app, "\n\u{1b}\u{1b}q"), Flow::Quit);
        assert_eq!(app.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Flow::Quit);
    }

    /// Check that columns can be chosen at the start and by key, that those that identify a process stay, and that the table is
    /// never sorted by a column that is not shown.
    #[test]
    fn columns_are_chosen() {
        let mut app = App::new(&[Column::Errors, Column::Gpus]);
        assert_eq!(app.columns, [Column::Pid, Column::Gpus, Column::Errors, Column::Name]);
        assert_eq!(app.sort, Sort::Errors);
        press(&mut app, "s");
        assert_eq!(app.sort, Sort::Pid);
        // The list begins with user, gpus, live.
        press(&mut app, "cj j \u{1b}");
        assert_eq!(app.columns, [Column::Pid, Column::Live, Column::Errors, Column::Name]);
        assert_eq!(app.choosing, None);
        press(&mut app, "s");
        assert_eq!(app.sort, Sort::Memory);
        assert_eq!(press(&mut app, "cjj q"), Flow::Continue, "q closes the list");
        assert_eq!((app.sort, app.columns.len()), (Sort::Errors, 3));
        press(&mut app, "ck GGj");
        assert_eq!(app.columns.first(), Some(&Column::Pid));
    }

    /// Check that one pane replaces the other, and that a message stays until the next key.
    #[test]
    fn panes_and_messages() {
        let mut app = App::default();
        for (keys, pane) in
            [("\n", Pane::Details), ("t", Pane::History), ("t", Pane::Closed), ("t\u{1b}", Pane::Closed)]
        {
            press(&mut app, keys);
            assert_eq!(app.pane, pane, "{keys:?}");
        }
        app.say("recorded".to_owned());
        app.update(snapshot(1));
        assert_eq!(app.message, "recorded");
        press(&mut app, "j");
        assert_eq!(app.message, "");
    }
}
