//! The Limits tab: kernels by what they use, and what limits them.

use super::{no_errors, url};
use crate::support::{Ended, Scene, browser::Browser, program, scene::number};

/// Check that the tab has each kernel with its limit, that a dot is where its values are, and that a click selects its kernel.
#[test]
fn kernels_are_dots() {
    let scene = Scene::new();
    let words = [&*program("findings"), "grid:1056 80( kernel:gather kernel:plain ) sync"];
    let mut command = scene.record_words("--sim --limits --gpu-only -q -o x.html -o x.wscope", &words);
    let script =
        "kernel[gather]=60us,kernel[plain]=20us,limits[gather]=1=99:2=60:5=85:3=10,limits[plain]=1=98:4=90:3=20:5=10";
    Ended::of(command.env("WARPSCOPE_SIM", script)).exits(0);
    let report = scene.report("x.wscope");
    let mut browser = Browser::start(1280, 900);
    browser.open(&url(&scene, "x.html", "#tab=limits"));
    assert_eq!(browser.text("document.body.dataset.drawn"), "limits");
    let rows = report["limits"]["kernels"].as_array().expect("rows");
    assert_eq!(browser.number("app.current.view.table.rows.length"), rows.len() as f64);
    let text = browser.text("document.querySelector('.limits [role=grid]').textContent");
    assert!(text.contains("gather") && text.contains("DRAM") && text.contains("85.0 %"), "{text}");

    let dot = "app.current.view.dots(app.current.view.chart.clientWidth).find(dot => dot.row.kernel === 'plain')";
    let scale = "app.current.view.scale(app.current.view.chart.clientWidth)";
    assert_eq!(browser.number(&format!("{dot}.x - {scale}.x(10)")).round(), 0.0);
    assert_eq!(browser.number(&format!("{dot}.y - {scale}.y(90)")).round(), 0.0);
    assert_eq!(number(&rows[0], "ns") as f64, browser.number("app.current.view.table.rows[0].ns"));
    browser.js(&format!(
        "(() => {{ const {{ canvas }} = app.current.view, at = canvas.getBoundingClientRect(), dot = {dot};
          canvas.dispatchEvent(new MouseEvent('click', {{ clientX: at.x + dot.x, clientY: at.y + dot.y, bubbles: true }})); }})()"
    ));
    let chosen = "workName(app.recording.names[(app.state.values.sel || { id: -1 }).id] || '')";
    assert_eq!(browser.text(chosen), "plain");
    no_errors(&mut browser);
}
