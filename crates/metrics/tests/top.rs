//! The interactive view on a test terminal: screens, and that no key and no size breaks it.

mod support;

use metrics::top::{App, Flow};
use proptest::prelude::*;
use ratatui::{
    Terminal,
    backend::TestBackend,
    crossterm::event::{KeyCode, KeyEvent, KeyModifiers},
};

fn screen(app: &App, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
    terminal.draw(|frame| app.draw(frame)).expect("drawn");
    let buffer = terminal.backend().buffer();
    let mut text = String::new();
    for y in 0..height {
        let line: String = (0..width).map(|x| buffer[(x, y)].symbol()).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn press(app: &mut App, code: KeyCode) -> Flow {
    app.key(KeyEvent::new(code, KeyModifiers::NONE))
}

fn watched() -> App {
    let mut app = App::new();
    for step in 1..8 {
        app.update(support::machine(step));
    }
    app
}

/// Check the screens: all processes, the details of one, the help, and no processes.
#[test]
fn screens_match_golden_files() {
    let mut app = watched();
    support::check("top.txt", &screen(&app, 130, 12));
    support::check("top.narrow.txt", &screen(&app, 80, 12));
    press(&mut app, KeyCode::Down);
    press(&mut app, KeyCode::Enter);
    support::check("top.detail.txt", &screen(&app, 130, 60));
    press(&mut app, KeyCode::Char('?'));
    support::check("top.help.txt", &screen(&app, 100, 16));
    support::check("top.nothing.txt", &screen(&App::new(), 80, 6));
}

/// Check that hostile names produce no control characters on the screen.
#[test]
fn hostile_names_are_cleaned() {
    let mut app = watched();
    press(&mut app, KeyCode::Enter);
    let text = screen(&app, 200, 70);
    assert!(text.contains("a\"b\\c d [2J"));
    assert!(!text.contains(|c: char| (c.is_control() && c != '\n') || c == '\u{202e}'));
}

fn any_key() -> impl Strategy<Value = KeyCode> {
    prop_oneof![
        "[qjkgGsrp?/h a\u{e9}]".prop_map(|key| KeyCode::Char(key.chars().next().unwrap_or('x'))),
        Just(KeyCode::Up),
        Just(KeyCode::Down),
        Just(KeyCode::Enter),
        Just(KeyCode::Tab),
        Just(KeyCode::Esc),
        Just(KeyCode::Backspace),
        Just(KeyCode::PageDown),
        Just(KeyCode::PageUp),
        Just(KeyCode::End),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Check that no sequence of keys at any terminal size panics.
    #[test]
    fn any_keys_are_handled_without_panic(keys in proptest::collection::vec(any_key(), 0..30), width in 1_u16..150, height in 1_u16..50) {
        let mut app = App::new();
        for (step, key) in keys.into_iter().enumerate() {
            if step % 5 == 1 {
                app.update(support::machine(step as u64));
            }
            press(&mut app, key);
        }
        screen(&app, width, height);
    }
}
