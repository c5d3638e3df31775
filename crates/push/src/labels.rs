//! Labels of series: whose work it is. They are the same for every run of a service, so that its profiles add up.
//!
//! Names are those of OpenTelemetry's resource attributes. What differs from run to run by nature, such as a pid, is no label.

use std::collections::BTreeMap;

use text::names::printable;

/// Labels by name.
pub type Labels = BTreeMap<String, String>;

/// The most labels from variables: receivers accept about 30 for a series, and some are added.
const MOST: usize = 20;
/// The most characters of a name and of a value.
const LONGEST_NAME: usize = 64;
const LONGEST_VALUE: usize = 200;

/// The service, by OpenTelemetry's name.
pub const SERVICE: &str = "service.name";
/// The machine.
pub const HOST: &str = "host.name";
/// What differs from run to run, and names that labels have in profiles.
const IGNORED: [&str; 4] = ["process.pid", "pid", "rank", "device"];

/// Labels from the environment of the recorded service: `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES` and `WARPSCOPE_LABELS`
/// (`name=value,name=value`, with percent-encoding). The first that has a name wins. Returns also what was ignored.
pub fn of_service(variable: impl Fn(&str) -> Option<String>) -> (Labels, Vec<String>) {
    let (mut labels, mut ignored) = (Labels::new(), Vec::new());
    let mut add = |name: &str, value: &str, from: &str| {
        let (name, value) = (cut(name, LONGEST_NAME), cut(value, LONGEST_VALUE));
        let name = if name == "service_name" { SERVICE.to_owned() } else { name };
        if name.is_empty() || value.is_empty() || IGNORED.contains(&name.as_str()) {
            ignored.push(format!("{from}: `{name}` is not used as a label"));
        } else if labels.len() == MOST && !labels.contains_key(&name) {
            ignored.push(format!("{from}: there are more than {MOST} labels, so `{name}` is not used"));
        } else {
            labels.entry(name).or_insert(value);
        }
    };
    if let Some(name) = variable("OTEL_SERVICE_NAME").filter(|name| !name.trim().is_empty()) {
        add(SERVICE, name.trim(), "OTEL_SERVICE_NAME");
    }
    for from in ["OTEL_RESOURCE_ATTRIBUTES", "WARPSCOPE_LABELS"] {
        let list = variable(from).unwrap_or_default();
        for pair in list.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            add(name.trim(), &decoded(value.trim()), from);
        }
    }
    (labels, ignored)
}

/// Labels from the environment and the control group in which something is recorded: pod, namespace, job, container. They are not
/// those of a recording that is pushed from elsewhere.
pub fn of_place(variable: impl Fn(&str) -> Option<String>, control_groups: &str) -> Labels {
    // By the downward API, as manifests usually name it; Slurm's own.
    let names =
        [("POD_NAME", "k8s.pod.name"), ("POD_NAMESPACE", "k8s.namespace.name"), ("SLURM_JOB_ID", "slurm.job.id")];
    let known = names.into_iter().filter_map(|(from, name)| {
        let value = cut(variable(from)?.trim(), LONGEST_VALUE);
        (!value.is_empty()).then(|| (name.to_owned(), value))
    });
    let of_group = [("container.id", container(control_groups)), ("k8s.pod.uid", pod(control_groups))];
    known.chain(of_group.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)))).collect()
}

/// Returns the name of a service whose name is not given: that of its command, without its directory. A running process is
/// described as `name (pid)`.
pub fn command(command: &[String]) -> String {
    let first = command.first().map_or("", String::as_str);
    let first = match first.rsplit_once(" (") {
        Some((name, pid)) if pid.trim_end_matches(')').parse::<u32>().is_ok() => name,
        _ => first,
    };
    let name = cut(first.rsplit('/').next().unwrap_or_default(), LONGEST_VALUE);
    if name.is_empty() { "unknown_service".to_owned() } else { name }
}

/// Docker, containerd, CRI-O and Podman put 64 hexadecimal digits into the name of a group.
fn container(groups: &str) -> Option<String> {
    let is_id = |text: &&str| text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit());
    groups.split(['/', '-', '.', ':', '\n']).find(is_id).map(|id| id[..12].to_owned())
}

/// Kubernetes names the group of a pod by its uid: `kubepods-burstable-podUID.slice`, or `kubepods/burstable/podUID`.
fn pod(groups: &str) -> Option<String> {
    groups.split(['/', '\n']).filter(|_| groups.contains("kubepods")).find_map(|group| {
        let uid = group.rsplit_once("pod").map(|(_, uid)| uid.trim_end_matches(".slice").replace('_', "-"))?;
        let is_uid = uid.len() == 36 && uid.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
        is_uid.then_some(uid)
    })
}

fn cut(text: &str, most: usize) -> String {
    printable(text).chars().take(most).collect()
}

/// Decodes `%2C`.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let digits = (first == b'%').then(|| after.get(..2)).flatten().and_then(|hex| std::str::from_utf8(hex).ok());
        match digits.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(variables: &'static [(&str, &str)]) -> impl Fn(&str) -> Option<String> {
        |name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
    }

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    /// Check which variable names the service, and that a pid or a broken pair is no label.
    #[test]
    fn variables_become_labels() {
        let (found, ignored) = of_service(environment(&[
            ("OTEL_SERVICE_NAME", "llm"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=other, team=a%2Cb%,process.pid=4711,broken"),
            ("WARPSCOPE_LABELS", "team=late,zone=eu"),
        ]));
        assert_eq!(found, labels(&[("service.name", "llm"), ("team", "a,b%"), ("zone", "eu")]));
        let expected = ["`process.pid` is not used as a label", "`broken` is not used as a label"];
        assert_eq!(ignored, expected.map(|text| format!("OTEL_RESOURCE_ATTRIBUTES: {text}")));
        let (found, _) = of_service(environment(&[("WARPSCOPE_LABELS", "service_name=x,rank=9")]));
        assert_eq!(found, labels(&[("service.name", "x")]));
        assert_eq!(of_service(|_| None), (Labels::new(), Vec::new()));
    }

    /// Check that names, values and their number are bounded and have no control characters.
    #[test]
    fn labels_are_bounded() {
        let (found, ignored) = of_service(|name| {
            let pair = |i: usize| format!("{i}{}={}\u{1b}", "n".repeat(100), "v".repeat(1_000));
            (name == "WARPSCOPE_LABELS").then(|| (0..100).map(pair).collect::<Vec<_>>().join(","))
        });
        assert_eq!((found.len(), ignored.len()), (MOST, 80));
        for (name, value) in found {
            assert!(name.len() <= LONGEST_NAME && value.len() <= LONGEST_VALUE && !value.contains('\u{1b}'));
        }
    }

    /// Check that containers and pods are found in the groups of each runtime, and nothing elsewhere.
    #[test]
    fn places_are_found() {
        let id = "0123456789abcdef".repeat(4);
        let uid = "0a1b2c3d-1111-2222-3333-444455556666";
        let slices = uid.replace('-', "_");
        for (group, pod) in [
            (format!("0::/docker/{id}\n"), None),
            (format!("0::/system.slice/docker-{id}.scope\n"), None),
            (format!("0::/kubepods.slice/kubepods-burstable-pod{slices}.slice/cri-containerd-{id}.scope\n"), Some(uid)),
            (format!("5:cpu:/kubepods/burstable/pod{uid}/{id}\n"), Some(uid)),
        ] {
            let found = of_place(|_| None, &group);
            assert_eq!(found.get("container.id").map(String::as_str), Some("0123456789ab"), "{group}");
            assert_eq!(found.get("k8s.pod.uid").map(String::as_str), pod, "{group}");
        }
        assert_eq!(of_place(|_| None, "0::/user.slice/podcast.service\n"), Labels::new());
        let found =
            of_place(environment(&[("POD_NAME", "llm-0"), ("POD_NAMESPACE", "ml"), ("SLURM_JOB_ID", "77")]), "");
        assert_eq!(found, labels(&[("k8s.namespace.name", "ml"), ("k8s.pod.name", "llm-0"), ("slurm.job.id", "77")]));
    }

    /// Check that a service without a name is named by its command, without a directory or a pid.
    #[test]
    fn commands_name_services() {
        let name = |words: &[&str]| command(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(name(&["/usr/bin/python3", "train.py"]), "python3");
        assert_eq!(name(&["pt main (4711)", "x (1)"]), "pt main");
        assert_eq!(name(&["odd (name)"]), "odd (name)");
        assert_eq!(name(&[]), "unknown_service");
    }
}
