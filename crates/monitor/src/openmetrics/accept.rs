//! Selects the text format for a scraper (RFC 9110, 12.5.1).

/// A text format for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus text 0.0.4, which every scraper supports.
    Prometheus,
}

impl Format {
    /// Returns the format for an `Accept` header: the one with the greater weight, OpenMetrics if they are equal.
    /// Prometheus text if the header is missing or names neither, since a browser can also show it.
    pub fn negotiate(accept: &str) -> Self {
        let (mut open, mut plain) = (None, None);
        // The more specific range counts, in any order: type, then `text/*`, then `*/*`.
        let (mut open_rank, mut plain_rank) = (0, 0);
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default().to_ascii_lowercase();
            let (mut weight, mut version) = (1.0, None);
            for part in parts {
                match part.split_once('=') {
                    Some((name, value)) if name.trim().eq_ignore_ascii_case("q") => {
                        weight = value.trim().parse().ok().filter(|q| (0.0..=1.0).contains(q)).unwrap_or(0.0);
                    }
                    Some((name, value)) if name.trim().eq_ignore_ascii_case("version") => {
                        version = Some(value.trim().trim_matches('"').to_owned());
                    }
                    _ => {}
                }
            }
            let take = |best: &mut Option<f64>, best_rank: &mut u8, rank: u8| {
                if rank > *best_rank || (rank == *best_rank && best.is_none_or(|b| weight > b)) {
                    (*best, *best_rank) = (Some(weight), rank);
                }
            };
            match (media.as_str(), version.as_deref()) {
                ("application/openmetrics-text", None | Some("1.0.0" | "0.0.1")) => take(&mut open, &mut open_rank, 3),
                ("text/plain", None | Some("0.0.4")) => take(&mut plain, &mut plain_rank, 3),
                ("text/*", _) => take(&mut plain, &mut plain_rank, 2),
                ("*/*", _) => take(&mut plain, &mut plain_rank, 1),
                _ => {}
            }
        }
        match (open.unwrap_or(0.0), plain.unwrap_or(0.0)) {
            (open, plain) if open > 0.0 && open >= plain => Self::OpenMetrics,
            _ => Self::Prometheus,
        }
    }

    /// Returns its `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the headers of real scrapers, and malformed ones.
    #[test]
    fn accept_headers_are_negotiated() {
        use Format::*;
        for (accept, format) in [
            // Prometheus 2.42, 3.0 and curl.
            (
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                OpenMetrics,
            ),
            (
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
                OpenMetrics,
            ),
            ("*/*", Prometheus),
            ("", Prometheus),
            ("text/plain;version=0.0.4;q=0.8, application/openmetrics-text;q=0.2", Prometheus),
            ("text/plain;q=0.2, application/openmetrics-text ; Q=0.3", OpenMetrics),
            ("application/openmetrics-text;q=0, */*;q=0.1", Prometheus),
            ("application/openmetrics-text;version=2.0.0", Prometheus),
            ("application/openmetrics-text;q=abc", Prometheus),
            ("application/openmetrics-text;q=NaN, ,;;=,q", Prometheus),
            ("application/openmetrics-text;version=\"1.0.0\", */*", OpenMetrics),
            ("text/html,application/xhtml+xml,*/*;q=0.8", Prometheus),
        ] {
            assert_eq!(Format::negotiate(accept), format, "{accept}");
        }
    }
}
