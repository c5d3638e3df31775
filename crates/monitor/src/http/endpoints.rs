//! What is where: `/metrics`, `/healthz`, and a page with links.

use export::names::printable;

use super::{Request, Response};
use crate::openmetrics::Format;

/// Who knows the answers.
pub trait Source {
    /// The text of a scrape.
    fn metrics(&self, format: Format) -> String;
    /// Whether all is well; otherwise one sentence.
    fn health(&self) -> Result<(), String>;
}

const PAGE: &str = "<!DOCTYPE html>
<html lang=\"en\">
<head><meta charset=\"utf-8\"><title>warpscope monitor</title></head>
<body>
<h1>warpscope monitor</h1>
<ul>
<li><a href=\"/metrics\">/metrics</a>: every GPU process on this machine, for Prometheus</li>
<li><a href=\"/healthz\">/healthz</a>: whether warpscope is well</li>
</ul>
</body>
</html>
";

/// The answer to a request.
pub fn answer(request: &Request, source: &dyn Source) -> Response {
    match request.path.as_str() {
        "/metrics" => {
            let format = Format::negotiate(&request.header("accept"));
            let body = source.metrics(format).into_bytes().into();
            Response { status: 200, content_type: format.content_type(), body, shared: true }
        }
        "/healthz" => match source.health() {
            Ok(()) => Response::text(200, "ok\n"),
            Err(reason) => Response::text(503, &format!("{}\n", printable(&reason))),
        },
        "/" => Response {
            status: 200,
            content_type: "text/html; charset=utf-8",
            body: PAGE.as_bytes().into(),
            shared: true,
        },
        _ => Response::text(404, "there is only /metrics, /healthz and /\n"),
    }
}
