//! Reading a recording back into a profile.

use std::{
    fs::File,
    io::{BufReader, Seek},
    path::Path,
};

use anyhow::Context;
use model::{
    event::{Event, Loss, LossCause},
    fold::Fold,
    profile::Profile,
    recording::Reader,
};
use symbols::Kept;

/// A recording: its file, positioned at the start, and its profile.
pub struct Loaded {
    /// The file.
    pub file: File,
    /// The profile.
    pub profile: Profile,
}

/// Reads a recording. A damaged end is reported but does not fail the load; addresses without a name are resolved now.
pub fn load(path: &Path) -> anyhow::Result<Loaded> {
    let name = || path.display().to_string();
    let mut file = File::open(path).with_context(|| format!("cannot open {}", name()))?;
    if file.metadata().is_ok_and(|info| info.is_dir()) {
        anyhow::bail!("cannot read {}: it is a directory", name());
    }
    let mut reader = Reader::new(BufReader::with_capacity(1 << 20, &file)).with_context(name)?;
    let mut fold = Fold::new();
    for event in reader.by_ref() {
        fold.push(&event);
    }
    if reader.skipped() > 0 {
        fold.push(&Event::Loss(Loss { cause: LossCause::RecordsSkipped, count: reader.skipped() }));
    }
    let mut profile = fold.finish();
    if let Some(damage) = reader.damage() {
        profile.notes.push(damage.to_string());
    }
    drop(reader);
    if profile.end.is_none() {
        profile.notes.push("the recording is incomplete: warpscope was stopped while it recorded".into());
        let naming = symbols::Options { injector: collect::INJECTOR, ..symbols::Options::default() };
        for symbol in symbols::resolve(&profile, &mut Kept::default(), &naming).symbols {
            profile.symbols.add(symbol);
        }
    }
    symbols::name_kernels(&mut profile);
    file.rewind()?;
    Ok(Loaded { file, profile })
}
