//! Which requests are admitted: not too many, no id twice, and none that was cancelled before its answer.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use serde_json::Value;

use crate::message::{Error, Id, Message, Request, failure, parse};

/// The most requests that wait for their answers.
const MOST: usize = 32;

/// Whether a request has been cancelled.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Whether it has been cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What to do with a line.
#[derive(Debug)]
pub enum Admitted {
    /// Answer it in turn.
    Request(Request, Cancel),
    /// Answer with this line now.
    Answer(String),
    /// Nothing.
    Nothing,
}

/// The requests that wait for their answers.
#[derive(Debug, Default)]
pub struct Inbox {
    waiting: HashMap<Id, Cancel>,
}

impl Inbox {
    /// Decides about a line.
    pub fn admit(&mut self, line: &[u8]) -> Admitted {
        let refuse = |id: Option<&Id>, error: Error| Admitted::Answer(failure(id, &error));
        let request = match parse(line) {
            Message::Request(request) => request,
            Message::Wrong(id, error) => return refuse(id.as_ref(), error),
            Message::Notification(method, params) => {
                let id = params.get("requestId").and_then(Id::of).filter(|_| method == "notifications/cancelled");
                if let Some(cancel) = id.and_then(|id| self.waiting.get(&id)) {
                    cancel.cancel();
                }
                return Admitted::Nothing;
            }
            Message::Answer => return Admitted::Nothing,
        };
        if self.waiting.contains_key(&request.id) {
            return refuse(Some(&request.id), Error::new(Error::REQUEST, "a request with this id is in progress"));
        }
        if self.waiting.len() >= MOST {
            let text = format!("{MOST} requests are in progress: wait for their answers");
            return refuse(Some(&request.id), Error::new(Error::BUSY, text));
        }
        let cancel = Cancel::default();
        self.waiting.insert(request.id.clone(), cancel.clone());
        Admitted::Request(request, cancel)
    }

    /// Answers a line that is too long to be read.
    pub fn refuse_long(limit: usize) -> String {
        failure(None, &Error { data: Some(Value::from(limit)), ..Error::new(Error::REQUEST, "the line is too long") })
    }

    /// Forgets a request. Returns whether it is to be answered: one that was cancelled is not.
    pub fn done(&mut self, id: &Id) -> bool {
        self.waiting.remove(id).is_none_or(|cancel| !cancel.is_cancelled())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(id: usize) -> Vec<u8> {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#).into_bytes()
    }

    /// Check that a cancelled request is not answered, that an id cannot be used twice, and that the queue is bounded.
    #[test]
    fn requests_are_admitted_once_and_up_to_a_limit() {
        let mut inbox = Inbox::default();
        let Admitted::Request(request, cancel) = inbox.admit(&line(1)) else { panic!("a request") };
        assert!(matches!(inbox.admit(&line(1)), Admitted::Answer(text) if text.contains("-32600")));
        let other = br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#;
        assert!(matches!(inbox.admit(other), Admitted::Nothing) && !cancel.is_cancelled());
        let this = br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
        assert!(matches!(inbox.admit(this), Admitted::Nothing) && cancel.is_cancelled());
        assert!(!inbox.done(&request.id));
        for id in 0..MOST {
            assert!(matches!(inbox.admit(&line(id)), Admitted::Request(..)));
        }
        assert!(matches!(inbox.admit(&line(99)), Admitted::Answer(text) if text.contains("-32000")));
        assert!(inbox.done(&Id::Number(0)) && matches!(inbox.admit(&line(99)), Admitted::Request(..)));
    }
}
