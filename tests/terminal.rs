//! On a terminal, the command owns it as without warpscope, and Ctrl-C reaches the command once.

use crate::support::{Ended, Running, Scene, Terminal, program, scene::number};

/// Check that after Ctrl-C the CUDA program cleans up and exits normally, then the summary is printed and all outputs are written.
#[test]
fn ctrl_c_ends_the_command_normally() {
    let scene = Scene::new();
    let mut command = scene.record("--sim -o x.wscope -o x.svg", &format!("{} interrupt", program("behave")));
    let (mut terminal, run) = Terminal::start(&mut command);
    terminal.expect("ready");
    terminal.send(b"\x03");
    let text = terminal.rest();
    run.wait().exits(7);
    let (cleaned, matched) = (text.find("cleaned up"), text.find("matched 100 %"));
    assert!(cleaned.is_some() && cleaned < matched, "{text}");
    assert_eq!(scene.files(), ["x.svg", "x.wscope"]);
    let report = scene.report("x.wscope");
    assert_eq!(number(&report, "matched"), number(&report, "launches"));
}

/// Check that Ctrl-C sends the command one SIGINT, not two, and does not end warpscope before the command.
#[test]
fn ctrl_c_reaches_the_command_once() {
    let scene = Scene::new();
    let script = r#"n=0; trap 'n=$((n+1)); echo "int $n"' INT; echo ready; read line; echo "$line, $n in all"; exit 5"#;
    let (mut terminal, run) = Terminal::start(&mut scene.record_words("-q -o x.svg", &["bash", "-c", script]));
    terminal.expect("ready");
    terminal.send(b"\x03");
    terminal.expect("int 1");
    terminal.send(b"hello\n");
    terminal.expect("hello, 1 in all");
    run.wait().exits(5);
}

/// Check that the command's input and output are still the terminal, that it can read from it, and that warpscope writes nothing
/// to it before the command has ended.
#[test]
fn command_keeps_the_terminal() {
    let scene = Scene::new();
    let script = r#"for i in 0 1 2; do test -t $i || echo "no terminal: $i"; done; read line; echo "got $line"; tty > /dev/null"#;
    let (mut terminal, run) = Terminal::start(&mut scene.record_words("-o x.svg", &["bash", "-c", script]));
    terminal.send(b"hello\n");
    let text = terminal.rest();
    run.wait().exits(0);
    let (before, _) = text.split_once("got hello").expect("an answer");
    // Only the echo of the input.
    assert_eq!(before.trim(), "hello", "{text:?}");
}

/// Check that a recording, a trace and the flight recorder of a running process have a status line on a terminal, which is erased
/// at the end, and none in a pipe, with -q, or on a terminal that cannot erase a line.
#[test]
fn running_processes_have_a_status_line() {
    let sleeper = Running::start(Scene::new().bare("sleep").arg("60"));
    let pid = sleeper.pid().to_string();
    for (command, what) in [
        ("record --cpu-only", "recording 0:00, "),
        ("record --cpu-only --last 5s", "recording 0:00, "),
        ("trace --sched", "tracing 0:00, 0 calls"),
    ] {
        let scene = Scene::new();
        let common = ["-d", "300ms", "-o", "x.wscope", "-p", &pid];
        let options: Vec<&str> = command.split(' ').chain(common).collect();
        let (terminal, run) = Terminal::start(&mut scene.warpscope(&options));
        let text = terminal.rest();
        run.wait().exits(0);
        let (line, erased) = (text.find(what), text.rfind("\r\x1b[K"));
        assert!(line.is_some() && line < erased && erased < text.find("wrote x.wscope"), "{command}: {text:?}");

        let (terminal, run) = Terminal::start(scene.warpscope(&options).env("TERM", "dumb"));
        let text = terminal.rest();
        run.wait().exits(0);
        assert!(!text.contains('\x1b') && !text.contains(what), "{command}: {text:?}");
        let (terminal, run) = Terminal::start(scene.warpscope(&options).arg("-q"));
        let text = terminal.rest();
        run.wait().exits(0);
        assert_eq!(text, "", "{command}");
        let run = Ended::of(&mut scene.warpscope(&options)).exits(0);
        assert!(!run.err().contains(what), "{command}: {}", run.err());
    }
}

/// Check the summary on a narrow terminal, and without colours or other characters than ASCII where they are not wanted.
#[test]
fn summaries_suit_the_terminal() {
    let scene = Scene::new();
    Ended::of(&mut scene.record("--sim -q -o x.wscope", &format!("{} status", program("behave")))).exits(42);
    let report = |variables: &[(&str, &str)]| {
        let mut command = scene.warpscope(&["report", "x.wscope"]);
        command.envs(variables.iter().copied());
        let (terminal, run) = Terminal::start(&mut command);
        let text = terminal.rest();
        run.wait().exits(0);
        text
    };
    let coloured = report(&[("TERM", "xterm")]);
    assert!(coloured.contains("\x1b[1m") && coloured.contains('█'), "{coloured:?}");
    for variables in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let text = report(&[variables]);
        assert!(!text.contains('\x1b') && text.contains('█'), "{text:?}");
    }
    let plain = report(&[("LC_ALL", "C")]);
    assert!(plain.is_ascii() && plain.contains(" us"), "{plain:?}");
    let narrow = report(&[("NO_COLOR", "1"), ("COLUMNS", "60")]);
    // Sentences are wrapped by the terminal; rows of tables must fit.
    let rows: Vec<&str> =
        narrow.lines().filter(|line| line.starts_with(['█', '▏']) || line.contains(" of GPU ")).collect();
    assert!(rows.len() >= 5, "{narrow}");
    for row in rows {
        assert!(row.trim_end().chars().count() <= 60, "{row}");
    }
}
