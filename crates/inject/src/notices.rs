//! Notices for warpscope, collected while a session starts.

use cupti::ids::result;
use cupti::types::CuptiResult;
use wire::Notice;

use crate::library::Cupti;
use crate::queue::QUEUE;

/// Notices that are not in the queue yet.
#[derive(Default)]
pub struct Notices(Vec<(Notice, String)>);

impl Notices {
    /// Adds a notice.
    pub fn add(&mut self, notice: Notice, text: String) {
        self.0.push((notice, text));
    }

    /// Whether a call succeeded; if not, adds a notice.
    pub fn check(&mut self, cupti: &Cupti, call: &str, outcome: CuptiResult) -> bool {
        if outcome != result::SUCCESS {
            self.add(Notice::CuptiFailed, format!("{call}: {}", cupti.describe(outcome)));
        }
        outcome == result::SUCCESS
    }

    /// Queues all notices.
    pub fn send(self) {
        for (notice, text) in self.0 {
            let mut bytes = vec![0; wire::text_size(text.as_bytes())];
            wire::encode_notice(notice, text.as_bytes(), &mut bytes);
            QUEUE.append(&bytes, 0);
        }
    }
}
