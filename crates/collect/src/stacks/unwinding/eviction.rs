//! Removes tables that are no longer used, and others if memory is short.

use std::collections::HashSet;

use symbols::FileId;

use super::{Growing, Progress, Unwinding};

impl Unwinding {
    /// Removes the tables of files that no image has mapped, once there are many or memory is short; returns the files
    /// still known.
    pub fn forget_unused(&mut self) -> HashSet<FileId> {
        const MANY: usize = 512;
        let images = self.images.values();
        let mut used: HashSet<FileId> = images.flat_map(|image| image.modules.iter().filter_map(|m| m.file)).collect();
        if self.on_demand || self.files.len() > MANY || self.compiler.room.is_short() {
            let unused = self.files.iter().filter(|(id, progress)| {
                !used.contains(id)
                    && !matches!(progress, Progress::Queued | Progress::Growing(Growing { busy: true, .. }))
            });
            for id in unused.map(|(id, _)| *id).collect::<Vec<_>>() {
                self.remove(id);
            }
        }
        used.extend(self.files.keys());
        used
    }

    /// Removes a table.
    fn remove(&mut self, id: FileId) {
        let (rows, place) = match self.files.remove(&id) {
            Some(Progress::Ready(file, place)) => (file.rows, place),
            Some(Progress::Growing(growing)) => (growing.kept(), growing.place),
            _ => return,
        };
        self.compiler.room.give_back(rows);
        if let Some(place) = place {
            self.maps.remove_rows(place);
        }
        self.changed_file(id);
    }

    /// The mappings of this file are published again.
    pub(super) fn changed_file(&mut self, id: FileId) {
        let users = self.images.iter().filter(|(_, i)| i.modules.iter().any(|m| m.file == Some(id)));
        self.changed.extend(users.map(|(image, _)| *image));
    }

    /// Makes room for tables: removes those that grow on demand, the least recently used first. They grow again when
    /// stacks need them.
    pub(super) fn make_room(&mut self) {
        if !self.compiler.room.is_full() {
            return;
        }
        let growing = self.files.iter().filter_map(|(id, progress)| match progress {
            Progress::Growing(growing) if !growing.busy => Some((growing.used.get(), *id)),
            _ => None,
        });
        let mut growing: Vec<_> = growing.collect();
        growing.sort_unstable_by_key(|(used, _)| *used);
        for (_, id) in growing {
            if !self.compiler.room.is_short() {
                break;
            }
            self.remove(id);
        }
    }
}
