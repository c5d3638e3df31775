//! Limits on what injected libraries may send: per session, and in total.
//!
//! Any process of the command's user can open a session, so any number in it may be hostile. Frequent records are
//! summed as they arrive and need no limit; data kept for the whole recording does.

use model::event::LossCause;

/// Data sent by a session that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Kernel names.
    Names,
    /// Their bytes.
    NameBytes,
    /// Names of GPUs.
    Devices,
    /// Notices for the user.
    Notes,
    /// Streams of GPU records.
    Streams,
    /// Bytes of cubins.
    CubinBytes,
}

const KINDS: usize = 6;

/// The limits per session. The injected library enforces the first two itself.
const OF_SESSION: [u64; KINDS] = [65_536, 16 << 20, 256, 32, 4_096, wire::MOST_CUBINS as u64];
/// The limits for all sessions of a recording.
const IN_ALL: [u64; KINDS] = [262_144, 64 << 20, 4_096, 1_024, 65_536, 64 << 20];

/// GPUs with this index or above are not recorded. No machine has that many.
pub const MOST_DEVICES: u32 = 128;
/// The most bytes of a notice or of a GPU's name.
pub const MOST_TEXT: usize = 1_024;

/// How much was sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Used([u64; KINDS]);

impl Used {
    /// Whether a session may send this much more, given the total of all sessions. If so, it is counted.
    #[must_use]
    pub fn take(&mut self, all: &mut Self, wanted: &[(Kind, u64)]) -> bool {
        let fits = |&(kind, amount): &(Kind, u64)| {
            let at = kind as usize;
            self.0[at].saturating_add(amount) <= OF_SESSION[at] && all.0[at].saturating_add(amount) <= IN_ALL[at]
        };
        let allowed = wanted.iter().all(fits);
        if allowed {
            for &(kind, amount) in wanted {
                self.0[kind as usize] += amount;
                all.0[kind as usize] += amount;
            }
        }
        allowed
    }
}

/// What was rejected since the last call.
#[derive(Debug, Default)]
pub struct Refused(Vec<(LossCause, u64)>);

impl Refused {
    /// Counts one more.
    pub fn count(&mut self, cause: LossCause) {
        self.add(cause, 1);
    }

    /// Counts several.
    pub fn add(&mut self, cause: LossCause, more: u64) {
        match self.0.iter_mut().find(|(known, _)| *known == cause) {
            _ if more == 0 => {}
            Some((_, count)) => *count += more,
            None => self.0.push((cause, more)),
        }
    }

    /// Returns and resets the counts.
    pub fn drain(&mut self) -> impl Iterator<Item = (LossCause, u64)> + '_ {
        self.0.drain(..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a session gets its share, all of it or nothing, and that sessions share the total.
    #[test]
    fn sessions_are_limited_separately_and_together() {
        let (mut all, mut one) = (Used::default(), Used::default());
        assert!(one.take(&mut all, &[(Kind::Names, 1), (Kind::NameBytes, 16 << 20)]));
        assert!(!one.take(&mut all, &[(Kind::Names, 1), (Kind::NameBytes, 1)]));
        assert_eq!((one.0[Kind::Names as usize], all.0[Kind::Names as usize]), (1, 1));
        let sessions = (0..100).filter(|_| Used::default().take(&mut all, &[(Kind::NameBytes, 16 << 20)])).count();
        assert_eq!(sessions, 3, "64 MiB in all");
        assert!(!one.take(&mut all, &[(Kind::Notes, u64::MAX)]));
    }
}
