//! What to try, in the words of the program: PyTorch's functions are named only where PyTorch is loaded.

use std::collections::BTreeSet;

use model::{
    event::{Origin, ProcessId},
    profile::Profile,
};

use crate::waits;

/// What advice depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Setting {
    /// Every process that used CUDA runs Python and has PyTorch loaded.
    pub torch: bool,
    /// Waits of threads were recorded.
    pub waits: bool,
    /// CPU samples were recorded.
    pub samples: bool,
}

impl Setting {
    /// Reads it from a profile.
    pub fn of(profile: &Profile) -> Self {
        let users: BTreeSet<ProcessId> = profile.sessions.values().map(|session| session.process).collect();
        let has_torch = |process: &ProcessId| {
            let images = images(profile, *process);
            let loaded = |is: &dyn Fn(&str) -> bool| {
                let mappings = profile.mappings.iter().filter(|mapping| images.contains(&mapping.process));
                mappings.into_iter().any(|mapping| is(mapping.path.rsplit('/').next().unwrap_or_default()))
            };
            // LibTorch without Python is a C++ program.
            loaded(&|file| file.starts_with("libtorch_python."))
        };
        Self {
            torch: !users.is_empty() && users.iter().all(has_torch),
            waits: waits::counter(profile).is_some(),
            samples: profile.start.as_ref().is_some_and(|start| start.frequency > 0),
        }
    }

    /// Returns the first text if PyTorch is used, otherwise the second.
    pub fn torch_or(self, torch: &'static str, other: &'static str) -> &'static str {
        if self.torch { torch } else { other }
    }
}

/// Returns an image and those that it was forked from: it has their mappings.
fn images(profile: &Profile, process: ProcessId) -> BTreeSet<ProcessId> {
    let mut images = BTreeSet::from([process]);
    let mut image = process;
    while let Some(info) = profile.processes.get(&image).filter(|info| info.origin == Origin::Fork) {
        // A damaged recording may contain a circle.
        match info.parent.filter(|parent| images.insert(*parent)) {
            Some(parent) => image = parent,
            None => break,
        }
    }
    images
}
