//! The endpoints: `/metrics`, `/healthz`, `/map`, and a page with links.

use text::names::printable;

use crate::{
    http::{Method, Peer, Refusal, Request, Response},
    map::Map,
    openmetrics::Format,
};

/// The source of the answers.
pub trait Source {
    /// The text of a scrape; `None` if it could not be produced in time. Stale values would pass for current ones.
    fn metrics(&self, format: Format) -> Option<String>;
    /// Whether the monitor works; otherwise one sentence.
    fn health(&self) -> Result<(), String>;
    /// The memory map of a process by address, for this user; otherwise a status and one sentence.
    fn map(&self, pid: u32, user: u32) -> Result<Map, (u16, String)>;
}

const PAGE: &str = "<!DOCTYPE html>
<html lang=\"en\">
<head><meta charset=\"utf-8\"><title>warpscope monitor</title></head>
<body>
<h1>warpscope monitor</h1>
<ul>
<li><a href=\"/metrics\">/metrics</a>: every GPU process on this machine, for Prometheus</li>
<li><a href=\"/healthz\">/healthz</a>: whether warpscope is working</li>
<li>/map?pid=PID: the live GPU memory of a process by address, for root and its owner on this machine;
/map?pid=PID&amp;format=json: with exact sizes and whole stacks</li>
</ul>
</body>
</html>
";

/// Returns the answer to a request.
pub fn answer(request: &Request, source: &dyn Source) -> Response {
    if request.method == Method::Post {
        return Refusal::Method.response();
    }
    match request.path.as_str() {
        "/metrics" => {
            let format = Format::negotiate(&request.header("accept"));
            match source.metrics(format) {
                Some(text) => {
                    let body = text.into_bytes().into();
                    Response { content_type: format.content_type(), body, shared: true, ..Response::text(200, "") }
                }
                None => Response::text(503, "the monitor is busy or shutting down: try again\n"),
            }
        }
        "/healthz" => match source.health() {
            Ok(()) => Response::text(200, "ok\n"),
            Err(reason) => Response::text(503, &format!("{}\n", printable(&reason))),
        },
        // Addresses are shown only to the owner.
        "/map" => match (request.peer, request.parameter("pid").and_then(|pid| pid.parse().ok())) {
            (_, None) => Response::text(400, "the pid is missing: use /map?pid=PID\n"),
            _ if request.parameter("format").is_some_and(|format| format != "json") => {
                Response::text(400, "the format is not known: use /map?pid=PID&format=json, or no format for text\n")
            }
            (Peer::User(user), Some(pid)) => match source.map(pid, user) {
                Ok(map) if request.parameter("format").is_some() => {
                    Response { content_type: "application/json", ..Response::text(200, &map.json()) }
                }
                Ok(map) => Response::text(200, &map.text()),
                Err((status, reason)) => Response::text(status, &format!("{}\n", printable(&reason))),
            },
            _ => {
                Response::text(403, "the memory of a process is shown only on its own machine, to root and its owner\n")
            }
        },
        "/" => Response { content_type: "text/html; charset=utf-8", shared: true, ..Response::text(200, PAGE) },
        _ => Response::text(404, "not found: use /metrics, /healthz, /map?pid=PID or /\n"),
    }
}
