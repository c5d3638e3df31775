//! Reading a recording back into a profile.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{BufReader, Seek},
    path::Path,
    sync::Arc,
};

use anyhow::Context;
use model::{
    event::{Event, Loss, LossCause},
    fold::Fold,
    profile::Profile,
    ranks::Selection,
    recording::Reader,
};
use symbols::Kept;

/// A recording: its file, positioned at the start, and its profile.
pub struct Loaded {
    /// The file.
    pub file: File,
    /// The profile.
    pub profile: Profile,
    /// The events that the profile is made of, if not all.
    pub selection: Option<Arc<Selection>>,
}

/// Reads a recording, or what belongs to one rank of it. A damaged end is reported but does not fail the load; addresses without a name are resolved now.
pub fn load(path: &Path, rank: Option<u32>) -> anyhow::Result<Loaded> {
    let name = || path.display().to_string();
    let mut file = File::open(path).with_context(|| format!("cannot open {}", name()))?;
    if file.metadata().is_ok_and(|info| info.is_dir()) {
        anyhow::bail!("cannot read {}: it is a directory", name());
    }
    let open = || Reader::new(BufReader::with_capacity(1 << 20, &file)).with_context(name);
    let selection = match rank {
        None => None,
        Some(rank) => {
            let selection = Selection::of(rank, open()?).map_err(|ranks| no_rank(rank, &ranks))?;
            (&file).rewind()?;
            Some(Arc::new(selection))
        }
    };
    let mut reader = open()?;
    let mut fold = Fold::new();
    for event in reader.by_ref().filter(|event| selection.as_ref().is_none_or(|selection| selection.includes(event))) {
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
    Ok(Loaded { file, profile, selection })
}

/// Explains that a recording has no such rank.
fn no_rank(rank: u32, ranks: &BTreeSet<u32>) -> anyhow::Error {
    let all: Vec<String> = ranks.iter().take(20).map(u32::to_string).collect();
    match &all[..] {
        [] => anyhow::anyhow!("the recording has no ranks: none of its CUDA processes had RANK or a similar variable"),
        _ => anyhow::anyhow!("the recording has no rank {rank}; it has: {}", all.join(", ")),
    }
}
