//! How long it takes to read the recordings of a distributed program as one, and whether every operation has its members, and the
//! rank that is late is found. `ranks_bench [DIRECTORY]`; the recordings of the last size stay there.

use std::{
    env, fs,
    fs::File,
    io::{self, BufReader, BufWriter},
    path::{Path, PathBuf},
    time::Instant,
};

use analysis::{Flames, Summary, collectives, findings::Kind};
use fixtures::{
    job::{HostClock, Job, Late, Truth},
    joined::check,
};
use model::{
    clocks::Clocks,
    communication::clocks::estimate,
    fold::Fold,
    merge::Merged,
    profile::Profile,
    recording::{Reader, Writer},
};

/// 100,000 operations on eight hosts.
const STEPS: u64 = 885;
const MS: u64 = 1_000_000;

fn job(hosts: u64, late: Late) -> Job {
    let clock = |host: u64| HostClock {
        offset: (host * 377_000_000 % 2_000_000_000) as i64 - if host == 0 { 0 } else { 1_000_000_000 },
        ppm: (host * 61 % 201) as f64 - if host == 0 { 0.0 } else { 100.0 },
    };
    Job { hosts: (0..hosts).map(clock).collect(), steps: STEPS, late, late_ns: 10 * MS, seed: 1 }
}

fn write(job: &Job, directory: &Path) -> io::Result<(Vec<PathBuf>, Vec<Truth>)> {
    let paths: Vec<PathBuf> = (0..job.hosts.len()).map(|host| directory.join(format!("node{host}.wscope"))).collect();
    let open = |path| Writer::new(BufWriter::new(File::create(path)?)).map_err(io::Error::other);
    let mut writers = paths.iter().map(open).collect::<io::Result<Vec<_>>>()?;
    let mut result = Ok(());
    let truth = job.run(&mut |host, event| {
        if let Err(error) = writers[host as usize].push(&event) {
            result = Err(io::Error::other(error));
        }
    });
    result?;
    for writer in writers {
        writer.finish().map_err(io::Error::other)?;
    }
    Ok((paths, truth))
}

type Recordings = Merged<Reader<BufReader<File>>>;

fn open(paths: &[PathBuf], clocks: &Clocks) -> io::Result<Recordings> {
    let reader = |path| Reader::new(BufReader::with_capacity(1 << 20, File::open(path)?)).map_err(io::Error::other);
    Merged::with_clocks(paths.iter().map(reader).collect::<io::Result<Vec<_>>>()?, clocks).map_err(io::Error::other)
}

/// Reads recordings as `report` does.
fn read(paths: &[PathBuf]) -> io::Result<Profile> {
    let fold = |clocks: &Clocks| -> io::Result<Profile> {
        let mut fold = Fold::new();
        fold.keep_communication();
        fold.set_clocks(clocks.clone());
        open(paths, clocks)?.for_each(|event| fold.push(&event));
        Ok(fold.finish())
    };
    let mut clocks = open(paths, &Clocks::default())?.clocks().clone();
    if clocks.are_several() {
        clocks = estimate(clocks, &fold(&Clocks::default())?.communication);
    }
    let mut profile = fold(&clocks)?;
    let mut events = || Ok(Box::new(open(paths, &clocks)?) as analysis::Events<'_>);
    profile.communication.reasons = collectives::reasons(&profile, &mut events)?;
    Ok(profile)
}

/// Returns the most memory that this process had, in MiB.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) >> 10
}

fn main() -> io::Result<()> {
    let kept = env::args().nth(1).map(PathBuf::from);
    let directory = kept.clone().unwrap_or_else(|| env::temp_dir().join(format!("ranks_bench-{}", std::process::id())));
    fs::create_dir_all(&directory)?;
    println!("ranks  operations  kernels  recordings     read      summed up    memory      bound  late rank");
    for hosts in [1, 2, 4, 8] {
        for late in [Late::Nobody, Late::Rank(5)] {
            let job = job(hosts, late);
            let (paths, truth) = write(&job, &directory)?;
            let bytes: u64 = paths.iter().map(|path| fs::metadata(path).map_or(0, |info| info.len())).sum();
            let begin = Instant::now();
            let profile = read(&paths)?;
            let read = begin.elapsed();
            let summary = Summary::of(&Flames::new(&profile));
            let all = begin.elapsed();
            let memory = peak();
            let bound = check(&job, &profile.communication, &truth);
            let found = summary.findings.iter().find(|finding| finding.kind == Kind::LateRank);
            let found = found.map_or("none", |finding| finding.title.split(" is late").next().unwrap_or_default());
            assert_eq!(found, if late == Late::Nobody { "none" } else { "rank 5" });
            println!(
                "{:>5}  {:>10}  {:>7}  {:>6} MiB  {:>6.2} s  {:>9.2} s      {:>4} MiB  {:>6.1} µs  {found}",
                job.ranks(),
                profile.communication.operations.len(),
                profile.communication.kernels,
                bytes >> 20,
                read.as_secs_f64(),
                (all - read).as_secs_f64(),
                memory,
                bound as f64 / 1e3,
            );
        }
    }
    if kept.is_none() {
        fs::remove_dir_all(&directory)?;
    }
    Ok(())
}
