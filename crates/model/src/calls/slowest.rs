//! A bounded list of the slowest calls.

use crate::event::Call;

/// How many calls are kept.
const MOST: usize = 32;

/// The slowest calls, longest first.
#[derive(Clone, Debug, Default)]
pub struct Slowest(Vec<(u64, Call)>);

impl Slowest {
    /// Keeps the call if it is among the slowest. Of two with the same duration, the earlier is kept.
    pub(crate) fn offer(&mut self, call: &Call, ns: u64) {
        let Self(list) = self;
        if list.len() == MOST && list.last().is_some_and(|(least, _)| ns <= *least) {
            return;
        }
        let at = list.partition_point(|(longer, _)| *longer >= ns);
        list.insert(at, (ns, call.clone()));
        list.truncate(MOST);
    }

    /// Returns durations and calls, longest first.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Call)> {
        self.0.iter().map(|(ns, call)| (*ns, call))
    }
}
