//! What the monitor serves over HTTP: metrics, health, maps of memory, and recordings on request.

mod endpoints;
mod record;
mod scrapes;

use std::sync::Arc;

use crate::http::{Request, Server};
pub use endpoints::{Source, answer};
pub(crate) use record::Remote;
pub(crate) use scrapes::Scrapes;

/// Starts the server. `remote` makes recordings on request.
pub(crate) fn start(address: &str, scrapes: Arc<Scrapes>, remote: Option<Remote>) -> anyhow::Result<Server> {
    let answer = move |request: &Request| match &remote {
        Some(remote) if is_record(&request.path) => remote.answer(request),
        _ => answer(request, &*scrapes),
    };
    Server::start(address, Arc::new(answer)).map_err(anyhow::Error::msg)
}

/// Whether a path is `/record`, or below it.
fn is_record(path: &str) -> bool {
    path.strip_prefix("/record").is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
