//! Recordings that are truncated, damaged or not recordings at all.

use std::fs;

use export::Format;
use model::{event::Event, recording::Reader};

use crate::support::{
    Ended, Scene,
    oracle::Walk,
    program,
    scene::{lost, number},
};

/// A scene with a recording of many chunks, and the recording's bytes.
fn recorded() -> (Scene, Vec<u8>) {
    let scene = Scene::new();
    let command = format!("{} {}", program("truth"), Walk::of(2_500).arguments());
    Ended::of(scene.record("--sim -q -o x.wscope", &command).env("WARPSCOPE_SIM", "devices=2")).exits(0);
    let bytes = fs::read(scene.path("x.wscope")).expect("the recording");
    (scene, bytes)
}

/// Check that `report` and `export` reject files that are not recordings, each with its reason.
#[test]
fn other_files_are_rejected() {
    let scene = Scene::new();
    fs::write(scene.path("empty.wscope"), "").expect("a file");
    fs::write(scene.path("header.wscope"), b"WSCOPE\x1a\n\x01\0").expect("a file");
    fs::write(scene.path("text.wscope"), "flame;graph 12\n").expect("a file");
    fs::write(scene.path("newer.wscope"), b"WSCOPE\x1a\n\xff\0\0\0\0\0\0\0").expect("a file");
    fs::create_dir(scene.path("directory.wscope")).expect("a directory");
    let before = scene.files();
    for (file, words) in [
        ("missing.wscope", "No such file"),
        ("empty.wscope", "the recording is empty"),
        ("header.wscope", "ends within its header"),
        ("text.wscope", "this is not a warpscope recording"),
        ("newer.wscope", "this recording has format 255.0"),
        ("directory.wscope", "it is a directory"),
    ] {
        for arguments in [&["report", file][..], &["report", "--json", file], &["export", file, "-o", "x.svg"]] {
            let run = Ended::of(&mut scene.warpscope(arguments)).exits(1).says(&[file, words]);
            assert_eq!(run.out(), "");
        }
    }
    assert_eq!(scene.files(), before);
}

/// Check that a recording truncated anywhere is readable up to its last whole chunk and says so, and that a longer part
/// never has fewer launches.
#[test]
fn truncated_recordings_are_readable() {
    let (scene, bytes) = recorded();
    let whole = number(&scene.report("x.wscope"), "launches");
    assert_eq!(whole, 40_000);
    let mut last = 0;
    let length = bytes.len();
    for cut in [16, 17, 27, 1000, length / 5, length / 2, length * 3 / 4, length - 1000, length - 1] {
        fs::write(scene.path("cut.wscope"), &bytes[..cut]).expect("a file");
        let report = scene.report("cut.wscope");
        let launches = number(&report, "launches");
        assert!(last <= launches && launches <= whole, "{launches} of {whole} launches in {cut} of {length} bytes");
        last = launches;
        assert_eq!(report["cut_off"].as_bool(), Some(true), "{cut}");
        let notes = report["notes"].to_string();
        assert!(notes.contains("the recording is incomplete"), "{cut}: {notes}");
        assert!(cut == 16 || notes.contains("the recording can be read up to byte"), "{cut}: {notes}");
        let text = Ended::of(&mut scene.warpscope(&["report", "cut.wscope"])).exits(0);
        assert!(text.out().contains("the recording is incomplete"), "{cut}: {}", text.out());
    }
    assert!(last > whole / 2, "most of the recording is in chunks before the last");
}

/// Returns the position just after the beginning of the first chunk with names. Every launch, kernel and stack is before
/// it, however late the tables were that a stack needed.
fn within_names(bytes: &[u8]) -> usize {
    let (header, of_chunk) = (16, 12);
    let mut at = header;
    loop {
        let length = bytes[at + 4..at + 8].try_into().map(u32::from_le_bytes).expect("four bytes") as usize;
        let next = at + of_chunk + length;
        let mut events = Reader::new(&bytes[..next]).expect("a recording");
        if events.any(|event| matches!(event, Event::Symbol(_))) {
            return at + of_chunk + 1;
        }
        at = next;
    }
}

/// Check that a truncated recording can be exported to every format, and that its ledger still adds up.
#[test]
fn truncated_recordings_are_exported() {
    let (scene, bytes) = recorded();
    fs::write(scene.path("cut.wscope"), &bytes[..within_names(&bytes)]).expect("a file");
    let outputs = Format::ALL.map(|format| (format, format!("all{}", format.extension())));
    let mut command = scene.warpscope(&["export", "cut.wscope"]);
    for (_, name) in &outputs {
        command.args(["-o", name]);
    }
    let run = Ended::of(&mut command).exits(0);
    assert!(run.err().contains("can be read up to byte"), "{}", run.err());
    for (format, name) in &outputs {
        // There may be no sample, and so no line of text.
        let written = fs::metadata(scene.path(name)).expect("it is written");
        assert!(written.len() > 0 || *format == Format::CpuText, "{name}");
    }
    // The functions have names although no names were recorded yet: the program's file still exists.
    assert!(scene.read("all.folded").contains(";worker;"), "functions have names");
    let report = scene.report("cut.wscope");
    let activities = ["kernels", "copies", "memsets"].map(|key| number(&report, key)).iter().sum::<u64>();
    assert_eq!(activities, number(&report, "matched") + number(&report, "unmatched_activities"));
}

/// Check that a changed byte is detected: only the events of its chunk are missing, a note says where it is, and the exit
/// status is not 0.
#[test]
fn changed_bytes_are_detected() {
    let (scene, mut bytes) = recorded();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    fs::write(scene.path("changed.wscope"), &bytes).expect("a file");
    let run = Ended::of(&mut scene.warpscope(&["report", "--json", "changed.wscope"])).exits(1);
    let report: serde_json::Value = serde_json::from_str(run.out()).expect("the report is JSON");
    let notes = report["notes"].to_string();
    assert!(notes.contains("has a wrong checksum") || notes.contains("invalid length"), "{notes}");
    assert!((1..40_000).contains(&number(&report, "launches")));
    let run = Ended::of(&mut scene.warpscope(&["export", "changed.wscope", "-o", "x.folded"])).exits(1);
    assert!(run.err().contains("the recording") && run.err().contains("wrote x.folded"), "{}", run.err());
    assert_eq!(lost(&report), 0);
}

/// Check that bytes after the end are detected or harmless, and never read as events.
#[test]
fn trailing_bytes_are_ignored() {
    let (scene, mut bytes) = recorded();
    bytes.extend_from_slice(&[0x5a; 333]);
    fs::write(scene.path("longer.wscope"), &bytes).expect("a file");
    let (whole, longer) = (scene.report("x.wscope"), scene.report("longer.wscope"));
    for key in ["launches", "matched", "cpu_samples", "kernel_time_ns", "cut_off"] {
        assert_eq!(longer[key], whole[key], "{key}");
    }
}

/// Check that records of a newer version are skipped and counted in the ledger.
#[test]
fn newer_records_are_skipped_and_counted() {
    let (scene, mut bytes) = recorded();
    // A chunk of two records with a tag that this version does not know.
    let payload = [200, 3, 1, 2, 3, 200, 1, 9];
    let head = [&b"EVTS"[..], &8_u32.to_le_bytes()].concat();
    let crc = [&head[..], &payload]
        .concat()
        .iter()
        .fold(!0_u32, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 * (crc & 1))));
    bytes.extend([&head[..], &(!crc).to_le_bytes(), &payload].concat());
    fs::write(scene.path("newer.wscope"), bytes).expect("a file");
    let report = scene.report("newer.wscope");
    assert_eq!((number(&report["lost"], "records_skipped"), lost(&report)), (2, 2), "{}", report["lost"]);
    assert!(report["ledger"].to_string().contains("2 records were skipped"), "{}", report["ledger"]);
}
