//! The launches within NVTX ranges: `--nvtx`.

use std::collections::{HashMap, HashSet};

use super::{error::Error, launches::Launches, patterns::Patterns};
use crate::event::{Event, SessionId};

/// The most ranges around a range. A damaged recording may contain a circle.
const DEEPEST: usize = 64;

/// The ranges that match, and the launches in them.
#[derive(Debug, Default)]
pub struct Ranges {
    paths: HashSet<(SessionId, u32)>,
    launches: Launches,
}

impl Ranges {
    /// Finds the ranges whose name, or that of a range around them, matches.
    pub fn learn<I: Iterator<Item = Event>, E: From<Error>>(
        patterns: &[String],
        events: &mut impl FnMut() -> Result<I, E>,
    ) -> Result<Self, E> {
        let names = Patterns::parse(patterns).map_err(Error::from)?;
        let mut parents: HashMap<(SessionId, u32), (u32, bool)> = HashMap::new();
        for event in events()? {
            if let Event::RangeName(range) = event {
                parents.insert((range.session, range.id), (range.parent, names.matches(&range.name)));
            }
        }
        let mut found = Self::default();
        for &(session, id) in parents.keys() {
            let around = std::iter::successors(Some(id), |id| Some(parents.get(&(session, *id))?.0));
            if around.take(DEEPEST).any(|id| parents.get(&(session, id)).is_some_and(|(_, matches)| *matches)) {
                found.paths.insert((session, id));
            }
        }
        if parents.is_empty() {
            return Err(Error::NoRanges.into());
        }
        if found.paths.is_empty() {
            return Err(Error::NoMatch { what: "NVTX range", patterns: patterns.to_vec() }.into());
        }
        for event in events()? {
            if let Event::RangedLaunch(launch) = event
                && found.paths.contains(&(launch.session, launch.path))
            {
                found.launches.insert(launch.session, launch.correlation);
            }
        }
        Ok(found)
    }

    /// Whether a launch was made in such a range.
    pub fn contain(&self, session: SessionId, correlation: u32) -> bool {
        self.launches.contains(session, correlation)
    }

    /// Whether this is such a range.
    pub fn has_path(&self, session: SessionId, path: u32) -> bool {
        self.paths.contains(&(session, path))
    }
}
