//! Pyroscope's push API: `push.v1.PusherService/Push` with pprof profiles
//! (<https://github.com/grafana/pyroscope/blob/main/api/push/v1/push.proto>).

use std::{collections::BTreeMap, io};

use analysis::weighted::{Frame, series::Type};
use flate2::{Compression, write::GzEncoder};

use super::{Batch, Piece, Source, Used};
use crate::formats::{pprof, proto::Message};

/// Where requests are posted, below the address of the receiver.
pub const PATH: &str = "/push.v1.PusherService/Push";
/// The type of their contents.
pub const CONTENT_TYPE: &str = "application/proto";
/// The profiles inside are compressed already.
pub const COMPRESS: bool = false;

/// Encodes a `PushRequest`.
pub fn encode(source: &Source<'_>, batch: &Batch) -> io::Result<Vec<u8>> {
    let mut request = Message::default();
    for piece in batch.of(source) {
        let profile = profile(source, &piece)?;
        request.message(1, |series| {
            for (name, value) in labels(source, &piece) {
                series.message(1, |label| {
                    label.text(1, &name);
                    label.text(2, &value);
                });
            }
            series.message(2, |sample| {
                sample.octets(1, &profile);
                sample.text(2, &uuid(&piece.id(source)));
            });
        });
    }
    Ok(request.bytes().to_vec())
}

/// Returns a compressed pprof profile.
fn profile(source: &Source<'_>, piece: &Piece<'_>) -> io::Result<Vec<u8>> {
    let mut used = Used::default();
    let stacks: Vec<(Vec<u32>, u64)> = piece.stacks.iter().map(|(path, amount)| (used.path(path), *amount)).collect();
    let frames: Vec<Frame> = used.all(&source.all.frames).cloned().collect();
    let mut out = io::BufWriter::new(GzEncoder::new(Vec::new(), Compression::default()));
    let kind = piece.series.kind;
    let what = (kind.name(), piece.period(source.profile));
    let stacks = stacks.iter().map(|(path, amount)| (path.as_slice(), *amount));
    pprof::write_stacks(source.profile, what, kind.measure(), &frames, stacks, &mut out)?;
    out.into_inner()?.finish()
}

/// Returns the labels by the names that Pyroscope and Grafana use, sorted.
fn labels(source: &Source<'_>, piece: &Piece<'_>) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    for (name, value) in piece.labels(source) {
        let known = KNOWN.iter().find(|(from, _)| *from == name);
        let name = known.map_or_else(|| valid(&name), |(_, to)| (*to).to_owned());
        // If two names become one, the known one wins.
        if known.is_some() || !labels.contains_key(&name) {
            labels.insert(name, value);
        }
    }
    let name = match piece.series.kind {
        // What Grafana shows as the CPU time of a process.
        Type::Cpu => "process_cpu",
        kind => kind.name(),
    };
    labels.insert("__name__".to_owned(), name.to_owned());
    labels
}

/// Names that differ from those of OpenTelemetry.
const KNOWN: [(&str, &str); 6] = [
    ("service.name", "service_name"),
    ("host.name", "host"),
    ("container.id", "container"),
    ("k8s.pod.name", "pod"),
    ("k8s.namespace.name", "namespace"),
    ("slurm.job.id", "job"),
];

/// Returns a name that only has the characters of labels.
fn valid(name: &str) -> String {
    let mut valid: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    // Names with two underscores are Pyroscope's own.
    if valid.starts_with(|c: char| c.is_ascii_digit()) || valid.starts_with("__") {
        valid.insert_str(0, "label_");
    }
    valid
}

fn uuid(id: &[u8; 16]) -> String {
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that any name becomes one that Pyroscope accepts and that is not one of its own.
    #[test]
    fn names_are_valid() {
        let names =
            [("team", "team"), ("k8s.pod.uid", "k8s_pod_uid"), ("9a", "label_9a"), ("__name__", "label___name__")];
        for (name, expected) in names.into_iter().chain([("ä/b", "label___b")]) {
            assert_eq!(valid(name), expected);
        }
        assert_eq!(uuid(&[0xab; 16]), "abababab-abab-abab-abab-abababababab");
    }
}
