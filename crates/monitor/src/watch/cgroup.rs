//! Looks up a control group by its path.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use bpf::Cgroup;

/// Finds a cgroup v2 group by its directory or by its name below the root.
pub fn find(name: &str) -> anyhow::Result<Cgroup> {
    let mounts = fs::read_to_string("/proc/self/mounts").context("cannot read the list of mounts")?;
    let Some(root) = root(&mounts) else {
        bail!("--cgroup requires cgroup v2, which is not mounted here");
    };
    let below =
        Path::new(name).strip_prefix(&root).map_or_else(|_| name.trim_start_matches('/').into(), Path::to_owned);
    let directory = root.join(&below);
    let info =
        fs::metadata(&directory).with_context(|| format!("there is no control group {}", directory.display()))?;
    let level = below.components().count() as u32;
    Ok(Cgroup { id: info.ino(), level })
}

/// `cgroup2 /sys/fs/cgroup cgroup2 rw,relatime 0 0`
fn root(mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let place = fields.next()?;
        (fields.next()? == "cgroup2").then(|| PathBuf::from(place))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that cgroup v2 is distinguished from v1.
    #[test]
    fn cgroup_v2_is_distinguished_from_v1() {
        let both = "cgroup /sys/fs/cgroup/cpu cgroup rw 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        assert_eq!(root(both).as_deref(), Some(Path::new("/sys/fs/cgroup/unified")));
        assert_eq!(root("cgroup /sys/fs/cgroup/cpu cgroup rw 0 0\n"), None);
    }
}
