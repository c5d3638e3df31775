//! On a terminal, the command owns it as without warpscope, and Ctrl-C reaches the command once.

use crate::support::{Scene, Terminal, program, scene::number};

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

/// Check that the command's input and output are still the terminal, and that it can read from it.
#[test]
fn command_keeps_the_terminal() {
    let scene = Scene::new();
    let script = r#"for i in 0 1 2; do test -t $i || echo "no terminal: $i"; done; read line; echo "got $line"; tty > /dev/null"#;
    let (mut terminal, run) = Terminal::start(&mut scene.record_words("-q -o x.svg", &["bash", "-c", script]));
    terminal.send(b"hello\n");
    let text = terminal.rest();
    run.wait().exits(0);
    assert!(text.contains("got hello") && !text.contains("no terminal"), "{text}");
}
