//! Recordings: read, summarised, and written in one of the formats.
//!
//! A chunk is read only if its checksum is right, so each input is read twice: as a file, and as the payload of a valid chunk.
#![cfg_attr(feature = "libfuzzer", no_main)]

use analysis::{Flames, View};
use export::Format;
use model::{
    fold::Fold,
    recording::{MAGIC, Reader, VERSION},
};
use warpscope_fuzz::Corpus;

/// A valid recording of one chunk.
fn valid(payload: &[u8]) -> Vec<u8> {
    let head = [b"EVTS".as_slice(), &(payload.len() as u32).to_le_bytes()].concat();
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(&head);
    checksum.update(payload);
    let version = [VERSION.0.to_le_bytes(), VERSION.1.to_le_bytes()].concat();
    [&MAGIC, version.as_slice(), &[0; 4], &head, &checksum.finalize().to_le_bytes(), payload].concat()
}

fn read(file: &[u8]) -> Option<usize> {
    let mut reader = Reader::new(file).ok()?;
    let mut fold = Fold::new();
    let mut count = 0;
    for event in reader.by_ref() {
        fold.push(&event);
        count += 1;
    }
    let mut profile = fold.finish();
    symbols::name_kernels(&mut profile);
    let mut events = || {
        let events: analysis::Events<'_> = Box::new(Reader::new(file).expect("it was read before"));
        Ok(events)
    };
    // A single format is fast enough for thousands of inputs a second.
    let format = Format::ALL[file.len() % Format::ALL.len()];
    if format == Format::Recording {
        terminal::report(&Flames::new(&profile), &mut events, false, 100).expect("a profile can be summarised");
    } else if format == Format::Parquet {
        let events = events().expect("it was read before");
        let written =
            export::formats::parquet::write(&profile, View::default(), events, &mut |_| Ok(Box::new(std::io::sink())));
        written.expect("tables can be written");
    } else {
        let written = export::write(format, &Flames::new(&profile), View::default(), &mut events, &mut std::io::sink());
        written.expect("a profile can be written");
    }
    Some(count)
}

warpscope_fuzz::target!(|bytes: &[u8]| -> Corpus {
    read(bytes);
    match read(&valid(bytes)) {
        Some(0) | None => Corpus::Reject,
        Some(_) => Corpus::Keep,
    }
});
