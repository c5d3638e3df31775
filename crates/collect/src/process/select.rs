//! Selects running processes by what `/proc` says about them.

use std::fs;

use text::pattern::Selection;

use super::procfs;

/// Where cgroup v2 is mounted, beside cgroup v1 or alone: users give paths with and without it.
const CGROUPS: [&str; 2] = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
/// The shortest part of a container's id that identifies it, as in the listings of container engines.
const SHORTEST_ID: usize = 12;

/// What identifies a process.
#[derive(Clone, Debug, Default)]
pub struct Criteria {
    /// It has loaded CUDA.
    pub cuda: bool,
    /// Patterns for its short name; one must match.
    pub names: Vec<String>,
    /// A cgroup that it is in, or below.
    pub cgroup: Option<String>,
    /// The id of its container, or the beginning of it.
    pub container: Option<String>,
}

impl Criteria {
    /// Whether anything is selected.
    pub fn any(&self) -> bool {
        self.cuda || !self.names.is_empty() || self.cgroup.is_some() || self.container.is_some()
    }

    /// Returns all processes that meet every criterion, except this one.
    pub fn processes(&self) -> anyhow::Result<Vec<u32>> {
        if let Some(id) = self.container.as_deref().filter(|id| id.len() < SHORTEST_ID) {
            anyhow::bail!("--container {id}: give at least the first {SHORTEST_ID} characters of the container's id");
        }
        let names = if self.names.is_empty() { None } else { Some(Selection::parse(&self.names, &[])?) };
        let own = std::process::id();
        let meets = |pid: &u32| {
            let named = || names.as_ref().is_none_or(|names| procfs::comm(*pid).is_some_and(|comm| names.takes(&comm)));
            let grouped = || {
                let group = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
                self.is_in_group(&group)
            };
            *pid != own && named() && grouped() && (!self.cuda || procfs::has_cuda(*pid)) && procfs::runs(*pid)
        };
        let mut found: Vec<u32> = procfs::all().into_iter().filter(meets).collect();
        found.sort_unstable();
        Ok(found)
    }

    /// Whether the cgroup of a process, as `/proc/PID/cgroup` has it, meets the criteria.
    fn is_in_group(&self, text: &str) -> bool {
        let mut groups = text.lines().filter_map(|line| line.splitn(3, ':').nth(2));
        let in_cgroup = self.cgroup.as_deref().is_none_or(|wanted| {
            let below = CGROUPS.into_iter().find_map(|mount| wanted.strip_prefix(mount));
            let wanted = below.unwrap_or(wanted).trim_matches('/');
            groups.clone().any(|group| {
                let rest = group.trim_start_matches('/').strip_prefix(wanted);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || wanted.is_empty())
            })
        });
        // `docker-ID.scope`, `cri-containerd-ID.scope`, `libpod-ID.scope`, or the bare id.
        let has_id = |group: &str, id: &str| {
            group.split(['/', '-', '.', ':']).any(|part| part.len() >= SHORTEST_ID && part.starts_with(id))
        };
        in_cgroup && self.container.as_deref().is_none_or(|id| groups.any(|group| has_id(group, id)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a group contains those below it, but not those whose name begins alike.
    #[test]
    fn groups_contain_those_below() {
        let within = |wanted: &str, group: &str| {
            let criteria = Criteria { cgroup: Some(wanted.into()), ..Criteria::default() };
            criteria.is_in_group(&format!("0::{group}\n"))
        };
        assert!(within("/a", "/a") && within("a/", "/a/b") && within("/sys/fs/cgroup/a", "/a/b"));
        assert!(within("/sys/fs/cgroup/unified/a", "/a/b"));
        assert!(within("/", "/a"));
        assert!(!within("/a", "/ab") && !within("/a/b", "/a"));
    }

    /// Check the forms in which container engines name their groups.
    #[test]
    fn containers_are_found_by_their_id() {
        let id = "4f5e6d7c8b9a";
        let long = format!("{id}0123456789abcdef");
        let criteria = Criteria { container: Some(id.into()), ..Criteria::default() };
        for group in [
            format!("0::/system.slice/docker-{long}.scope"),
            format!("0::/docker/{long}"),
            format!("1:cpu:/kubepods/besteffort/pod1/{long}"),
            format!("0::/kubepods.slice/cri-containerd-{long}.scope"),
            format!("0::/machine.slice/libpod-{long}.scope/container"),
        ] {
            assert!(criteria.is_in_group(&group), "{group}");
        }
        assert!(!criteria.is_in_group("0::/system.slice/docker-0000000000000000.scope"));
        assert!(Criteria { container: Some("4f5e".into()), ..Criteria::default() }.processes().is_err());
    }

    /// Check that processes are found by name, and that this one is not.
    #[test]
    fn processes_are_found_by_name() {
        let own = std::process::id();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("a process");
        let found = |name: &str| {
            let criteria = Criteria { names: vec![name.to_owned()], ..Criteria::default() };
            criteria.processes().expect("valid")
        };
        // The child has another name until it has executed its program.
        while !found("slee?").contains(&child.id()) {
            std::thread::yield_now();
        }
        assert!(!found(&procfs::comm(own).expect("this process")).contains(&own));
        child.kill().expect("our child");
        child.wait().expect("our child");
    }
}
