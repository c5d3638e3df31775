//! The place of a process in a distributed program, by the environment it was started with.

use std::{collections::HashMap, fs, fs::File, io::Read as _, os::unix::fs::MetadataExt};

use model::hang::RankPlace;

/// The most bytes of an environment that are read.
const MOST_BYTES: u64 = 4 << 20;
/// The size that belongs to each of [`wire::RANK_VARIABLES`], and the number of ranks of a host.
const SIZES: [(&str, &str); 4] = [
    ("WORLD_SIZE", "LOCAL_WORLD_SIZE"),
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_SIZE", "MPI_LOCALNRANKS"),
    ("SLURM_NTASKS", ""),
];
/// What the ranks of a program have in common, and how it is called.
const JOBS: [(&str, &[&str]); 3] = [
    ("slurm", &["SLURM_JOB_ID", "SLURM_STEP_ID"]),
    ("mpi", &["PMIX_NAMESPACE"]),
    ("pmi", &["PMI_ID", "HYDI_CONTROL_FD"]),
];

/// Returns the place of a process.
pub(super) fn of(pid: u32, host: &str) -> RankPlace {
    place(&environment(pid), || local(pid, host))
}

/// Whether a process has a rank.
pub(super) fn has_rank(pid: u32) -> bool {
    place(&environment(pid), String::new).rank.is_some()
}

fn environment(pid: u32) -> HashMap<String, String> {
    let mut bytes = Vec::new();
    // Without it, the process has no rank.
    let _ = File::open(format!("/proc/{pid}/environ")).and_then(|file| file.take(MOST_BYTES).read_to_end(&mut bytes));
    let text = String::from_utf8_lossy(&bytes);
    text.split('\0').filter_map(|variable| variable.split_once('=')).map(|(k, v)| (k.into(), v.into())).collect()
}

/// The address of the first rank means the host of this process; in a network of its own another one.
fn local(pid: u32, host: &str) -> String {
    let network = |pid: &str| fs::metadata(format!("/proc/{pid}/ns/net")).map(|info| info.ino()).ok();
    let own = network(&pid.to_string());
    match own.filter(|own| Some(*own) != network("self")) {
        Some(network) => format!("{host}, network {network}"),
        None => host.to_owned(),
    }
}

fn place(variables: &HashMap<String, String>, local: impl Fn() -> String) -> RankPlace {
    let text = |name: &str| variables.get(name).map(|value| value.trim()).filter(|value| !value.is_empty());
    let number = |name: &str| text(name)?.parse::<u32>().ok();
    let found =
        wire::RANK_VARIABLES.iter().zip(SIZES).find_map(|(names, sizes)| Some((number(names.0)?, names.1, sizes)));
    let Some((rank, local_rank, (size, local_size))) = found else { return RankPlace::default() };
    let master = || {
        let (address, port) = (text("MASTER_ADDR")?, text("MASTER_PORT")?);
        let run = text("TORCHELASTIC_RUN_ID").filter(|run| *run != "none");
        let run = run.map_or_else(String::new, |run| format!("{run} at "));
        let is_local = address == "localhost" || address == "::1" || address.starts_with("127.");
        let on = if is_local { format!(" on {}", local()) } else { String::new() };
        Some(format!("{run}{address}:{port}{on}"))
    };
    let launched = || {
        let of = |(name, keys): &(&str, &[&str])| {
            let values: Vec<&str> = keys.iter().filter_map(|key| text(key)).collect();
            text(keys[0]).map(|_| format!("{name} {}", values.join(".")))
        };
        JOBS.iter().find_map(of)
    };
    RankPlace {
        job: master().or_else(launched).unwrap_or_default(),
        rank: Some(rank),
        world_size: number(size).filter(|size| *size > rank),
        local_rank: number(local_rank),
        local_world_size: number(local_size),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> RankPlace {
        let variables = variables.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        place(&variables, || "here".into())
    }

    /// Check the variables of torchrun, Slurm and Open MPI, and that what contradicts itself is not believed.
    #[test]
    fn launchers_are_known() {
        let torch = [
            ("RANK", "5"),
            ("LOCAL_RANK", "1"),
            ("WORLD_SIZE", "8"),
            ("LOCAL_WORLD_SIZE", "4"),
            ("MASTER_ADDR", "gpu1"),
            ("MASTER_PORT", "29500"),
            ("TORCHELASTIC_RUN_ID", "none"),
        ];
        let place = of(&torch);
        assert_eq!(
            (place.rank, place.world_size, place.local_rank, place.local_world_size),
            (Some(5), Some(8), Some(1), Some(4))
        );
        assert_eq!(place.job, "gpu1:29500");
        assert_eq!(of(&[&torch[..], &[("MASTER_ADDR", "127.0.0.1")]].concat()).job, "127.0.0.1:29500 on here");
        let slurm = of(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "2"), ("SLURM_JOB_ID", "77"), ("SLURM_STEP_ID", "0")]);
        assert_eq!((slurm.rank, slurm.world_size, &*slurm.job), (Some(0), Some(2), "slurm 77.0"));
        assert_eq!(of(&[("OMPI_COMM_WORLD_RANK", "3"), ("OMPI_COMM_WORLD_SIZE", "4")]).world_size, Some(4));
        assert_eq!(of(&[("RANK", "4"), ("WORLD_SIZE", "4")]).world_size, None);
        assert_eq!(of(&[("WORLD_SIZE", "4"), ("RANK", "first")]), RankPlace::default());
    }
}
