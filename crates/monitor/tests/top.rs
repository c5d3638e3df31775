//! The interactive view on a test terminal: screens, and that no key and no size breaks it.

mod support;

use std::collections::BTreeMap;

use monitor::top::{App, Column, Flow};
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
    let mut app = App::default();
    for step in 1..8 {
        app.update(support::machine(step));
    }
    app
}

/// Check the screens: all processes, the details and the history of one, the list of columns, the help, and no processes.
#[test]
fn screens_match_golden_files() {
    let mut app = watched();
    support::check("top.txt", &screen(&app, 130, 12));
    support::check("top.narrow.txt", &screen(&app, 80, 12));
    support::check("top.sixty.txt", &screen(&app, 60, 12));
    press(&mut app, KeyCode::Down);
    press(&mut app, KeyCode::Enter);
    support::check("top.detail.txt", &screen(&app, 130, 60));
    support::check("top.detail.narrow.txt", &screen(&app, 80, 24));
    support::check("top.detail.sixty.txt", &screen(&app, 60, 50));
    press(&mut app, KeyCode::Char('t'));
    support::check("top.history.txt", &screen(&app, 80, 24));
    support::check("top.history.sixty.txt", &screen(&app, 60, 24));
    press(&mut app, KeyCode::Char('c'));
    support::check("top.columns.txt", &screen(&app, 80, 24));
    press(&mut app, KeyCode::Esc);
    press(&mut app, KeyCode::Char('?'));
    support::check("top.help.txt", &screen(&app, 60, 24));
    support::check("top.nothing.txt", &screen(&App::default(), 80, 6));
}

/// The cells of each process before its name, by pid.
fn numbers(screen: &str) -> BTreeMap<String, Vec<String>> {
    let header = screen.lines().find(|line| line.trim_start().starts_with("pid")).expect("a header");
    let name = header.chars().count() - header.split("name").last().map_or(0, |rest| rest.chars().count()) - 4;
    let row = |line: &str| -> Option<(String, Vec<String>)> {
        let cells = line.chars().take(name).collect::<String>();
        let cells: Vec<String> = cells.split_whitespace().map(str::to_owned).collect();
        Some((cells.first().filter(|pid| pid.parse::<u32>().is_ok())?.clone(), cells))
    };
    screen.lines().filter_map(row).collect()
}

/// Check that no width cuts a number: columns are left out instead. The sorted column is marked and stays, and the keys are
/// always named.
#[test]
fn numbers_are_never_cut() {
    let mut app = App::new(&Column::ALL);
    (1..8).for_each(|step| app.update(support::machine(step)));
    let whole = numbers(&screen(&app, 250, 30));
    assert!(whole.len() >= 2, "{whole:?}");
    for mark in ["live▾", "launches/s▾", "HtoD/s▾", "errors▾", "pid▾"] {
        for width in 60..=200 {
            let text = screen(&app, width, 24);
            let header = text.lines().find(|line| line.contains("pid")).expect("a header");
            assert!(header.contains(mark) && header.contains("name"), "{width}: {header}");
            assert!(text.lines().last().is_some_and(|foot| foot.ends_with("? help")), "{width}: {text}");
            for (pid, cells) in numbers(&text) {
                let all = &whole[&pid];
                assert!(cells.iter().all(|cell| all.contains(cell)), "{width}: {cells:?} of {all:?}");
            }
        }
        press(&mut app, KeyCode::Char('s'));
    }
}

/// Check that columns can be shown and hidden in their list, and that the list says which ones have no room.
#[test]
fn columns_are_shown_and_hidden() {
    let mut app = watched();
    let header = |app: &App, width| {
        let text = screen(app, width, 24);
        text.lines().find(|line| line.contains("pid")).expect("a header").to_owned()
    };
    assert!(!header(&app, 200).contains("used") && header(&app, 200).contains("peak"));
    press(&mut app, KeyCode::Char('c'));
    let list = screen(&app, 60, 24);
    assert!(list.contains("[x] peak           peak of live memory (no room)"), "{list}");
    assert!(list.contains("[ ] used") && list.lines().last().is_some_and(|foot| foot.ends_with("Esc close")), "{list}");
    for _ in 0..4 {
        press(&mut app, KeyCode::Down);
    }
    press(&mut app, KeyCode::Char(' '));
    press(&mut app, KeyCode::Up);
    press(&mut app, KeyCode::Char(' '));
    press(&mut app, KeyCode::Enter);
    assert!(header(&app, 200).contains("used") && !header(&app, 200).contains("peak"));
    let text = screen(&app, 200, 24);
    assert!(text.lines().any(|line| line.contains("4711") && line.contains("11.0 GiB")), "{text}");
}

/// Check that a lost GPU is named on a narrow terminal, and that GPUs for which there is no line are counted.
#[test]
fn gpus_are_not_left_out_silently() {
    let mut machine = support::machine(1);
    machine.devices[0].lost = true;
    let device = machine.devices[0].clone();
    machine.devices.resize(16, device);
    let mut app = App::default();
    app.update(machine);
    let text = screen(&app, 60, 24);
    assert!(text.contains("lost: the GPU no longer responds"), "{text}");
    assert!(screen(&app, 80, 24).contains("8 of 16 GPUs shown"), "{text}");
}

/// Check that the foot has a message of any length, whole or marked as cut, beside the key for help.
#[test]
fn messages_leave_room_for_help() {
    let mut app = watched();
    for length in [10, 50, 51, 52, 53, 200] {
        app.say("1".repeat(length));
        let text = screen(&app, 60, 24);
        let foot = text.lines().last().expect("a foot");
        assert!(foot.ends_with("? help"), "{foot}");
        assert_eq!(foot.contains('…'), length > 52, "{foot}");
        assert!(length > 52 || foot.contains(&"1".repeat(length)), "{foot}");
    }
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
        "[qjkgGsrptc?/h a\u{e9}]".prop_map(|key| KeyCode::Char(key.chars().next().unwrap_or('x'))),
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
        let mut app = App::default();
        for (step, key) in keys.into_iter().enumerate() {
            if step % 5 == 1 {
                app.update(support::machine(step as u64));
            }
            press(&mut app, key);
        }
        screen(&app, width, height);
    }
}
