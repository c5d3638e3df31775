//! One request and its answer.

use std::{
    io::{self, Read, Write},
    sync::Arc,
    time::{Duration, SystemTime},
};

use flate2::{Compression, write::GzEncoder};
use ureq::{
    Agent, Error, Proxy, Timeout,
    http::{Response, header},
    tls::{Certificate, RootCerts, TlsConfig, TlsProvider},
};

use crate::{
    answer::{Answer, Received},
    credentials::Headers,
};

/// The most bytes of an answer that are read. What a receiver says about an error is in the first of them.
const MOST_ANSWER: u64 = 64 << 10;
/// The most bytes of the headers of an answer.
const MOST_HEADERS: usize = 64 << 10;
/// The time to connect, including TLS.
const CONNECT: Duration = Duration::from_secs(10);

/// How requests are sent.
pub struct Client {
    agent: Agent,
    url: String,
    content_type: &'static str,
    compress: bool,
    headers: Headers,
}

/// How to create a client.
pub struct Setup {
    /// Where requests are posted.
    pub url: String,
    /// The type of their contents.
    pub content_type: &'static str,
    /// They are compressed with gzip.
    pub compress: bool,
    /// Headers of each request.
    pub headers: Headers,
    /// The authorities whose certificates are accepted. Empty if requests are not encrypted.
    pub authorities: Vec<Certificate<'static>>,
    /// The proxy on the way.
    pub proxy: Option<Proxy>,
}

impl Client {
    /// Creates a client. It follows no redirects: profiles and credentials go to the given server only. Each request has a
    /// connection of its own: a server may close one that is kept at any time, and then it is not known what it has accepted.
    pub fn new(setup: Setup) -> Self {
        let Setup { url, content_type, compress, headers, authorities, proxy } = setup;
        let tls = TlsConfig::builder()
            .provider(TlsProvider::Rustls)
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .root_certs(RootCerts::Specific(Arc::new(authorities)))
            .build();
        let agent = Agent::config_builder()
            .tls_config(tls)
            .proxy(proxy)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .http_status_as_error(false)
            .max_idle_connections(0)
            .max_response_header_size(MOST_HEADERS)
            .user_agent(concat!("warpscope/", env!("CARGO_PKG_VERSION")))
            .build();
        Self { agent: agent.into(), url, content_type, compress, headers }
    }

    /// Sends a request, and waits so long for its answer.
    pub fn post(&self, body: &[u8], patience: Duration) -> Answer {
        let mut request = self.agent.post(&self.url).header(header::CONTENT_TYPE, self.content_type);
        for (name, value) in &self.headers.all {
            request = request.header(name, value);
        }
        let mut compressed = Vec::new();
        let body = match self.compress {
            true => {
                request = request.header(header::CONTENT_ENCODING, "gzip");
                let mut encoder = GzEncoder::new(&mut compressed, Compression::default());
                match encoder.write_all(body).and_then(|()| encoder.finish().map(drop)) {
                    Ok(()) => &compressed,
                    Err(error) => return Answer::Refused(format!("cannot compress it: {error}")),
                }
            }
            false => body,
        };
        let request =
            request.config().timeout_connect(Some(CONNECT.min(patience))).timeout_global(Some(patience)).build();
        match request.send(body) {
            Ok(mut response) => {
                let mut start = Vec::new();
                // What is missing of the text does not matter: the status is known.
                let _ = response.body_mut().as_reader().take(MOST_ANSWER).read_to_end(&mut start);
                let text = |name| header_text(&response, name);
                let received = Received {
                    status: response.status().as_u16(),
                    content_type: &text(header::CONTENT_TYPE),
                    retry_after: &text(header::RETRY_AFTER),
                    location: &text(header::LOCATION),
                    body: &start,
                };
                Answer::of(&received, SystemTime::now(), &|text| self.headers.redact(text))
            }
            Err(error) => failure(&error),
        }
    }
}

fn header_text<T>(response: &Response<T>, name: header::HeaderName) -> String {
    response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

/// Interprets a failure without an answer.
fn failure(error: &Error) -> Answer {
    const PROXY: &str = "the proxy does not connect to the receiver: check HTTPS_PROXY and NO_PROXY";
    match error {
        Error::HostNotFound => Answer::Unreachable("the name of the host is not known: check the URL".into()),
        Error::Timeout(Timeout::Resolve | Timeout::Connect) => Answer::Unreachable(
            "no connection in time: check the URL, firewalls, and whether a proxy is needed (HTTPS_PROXY)".into(),
        ),
        Error::Timeout(_) => Answer::Unclear("there was no answer in time".into()),
        Error::ConnectionFailed => Answer::Unreachable("no connection: check the URL".into()),
        Error::ConnectProxyFailed(_) => Answer::Unreachable(PROXY.into()),
        Error::Rustls(error) => not_trusted(error),
        Error::Tls(why) => Answer::Refused(format!("no encrypted connection: {why}")),
        Error::LargeResponseHeader(..) => {
            Answer::Refused("the headers of the answer are too large: check the URL".into())
        }
        Error::Protocol(_) | Error::Http(_) => {
            Answer::Unclear("the answer is not HTTP: check the port, and http:// or https://".into())
        }
        Error::Io(error) => io_failure(error),
        other => Answer::Unclear(format!("the request failed: {other}")),
    }
}

fn io_failure(error: &io::Error) -> Answer {
    if let Some(error) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        return not_trusted(error);
    }
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            Answer::Unreachable("the connection was refused: check the URL, and that the receiver runs".into())
        }
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable | io::ErrorKind::NetworkDown => {
            Answer::Unreachable("there is no route to the receiver: check the URL and the network".into())
        }
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            Answer::Unclear("the connection was closed before there was an answer".into())
        }
        _ => Answer::Unclear(format!("the connection failed: {error}")),
    }
}

/// Explains why there is no encrypted connection.
fn not_trusted(error: &rustls::Error) -> Answer {
    use rustls::CertificateError as Certificate;
    let why = match error {
        rustls::Error::InvalidCertificate(Certificate::UnknownIssuer) => {
            "its certificate is signed by an authority that is not trusted: name the file with that authority's certificate with \
             --push-ca"
                .to_owned()
        }
        rustls::Error::InvalidCertificate(Certificate::NotValidForName | Certificate::NotValidForNameContext { .. }) => {
            "its certificate belongs to another host: use the name in the certificate".to_owned()
        }
        rustls::Error::InvalidCertificate(
            Certificate::Expired
            | Certificate::ExpiredContext { .. }
            | Certificate::NotValidYet
            | Certificate::NotValidYetContext { .. },
        ) => "its certificate is not valid today: renew it, or set the clock of this machine".to_owned(),
        rustls::Error::InvalidCertificate(other) => format!("its certificate is not accepted: {other}"),
        rustls::Error::InvalidMessage(_) => {
            "it does not answer with TLS: use http:// if the receiver has no certificate".to_owned()
        }
        other => format!("no encrypted connection: {other}"),
    };
    Answer::Refused(why)
}
