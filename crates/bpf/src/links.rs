//! Attaches programs to tracepoints, runs iterators, and detaches programs.

use std::{
    io::Read as _,
    os::fd::{AsRawFd, IntoRawFd},
    sync::Mutex,
    thread,
};

use libbpf_rs::{Iter, Link, PerfEventOpts, ProgramMut};

use crate::{Error, Result, perf};

/// How many programs are detached at the same time.
const AT_A_TIME: usize = 32;

/// Detaches programs: those of one group one after the other, in reverse order, and the groups at the same time. For each program the
/// kernel waits until no CPU runs it, which takes tens of milliseconds; threads that wait at the same time wait together.
pub fn detach(groups: Vec<Vec<Link>>) {
    let threads = groups.len().min(AT_A_TIME);
    let groups = Mutex::new(groups);
    let next = || groups.lock().ok().and_then(|mut groups| groups.pop());
    let work = || {
        while let Some(mut links) = next() {
            while links.pop().is_some() {}
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            // Without more threads it takes longer.
            if thread::Builder::new().name("detach".into()).spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        work();
    });
}

/// Attaches a program to a tracepoint, by its number in tracefs.
pub fn attach_tracepoint(program: &ProgramMut<'_>, tracepoint: u64, cookie: u32) -> Result<Link> {
    let what = "tracepoint";
    let event = perf::tracepoint(tracepoint).map_err(|source| Error::Attach { what, source: source.into() })?;
    let opts = PerfEventOpts { cookie: cookie.into(), ..Default::default() };
    let link = program.attach_perf_event_with_opts(event.as_raw_fd(), opts);
    let link = link.map_err(|source| Error::Attach { what, source })?;
    // The link owns it now, and closes it.
    let _ = event.into_raw_fd();
    Ok(link)
}

/// Runs an iterator over all threads.
pub fn run_for_threads(program: &ProgramMut<'_>) -> Result<()> {
    let fail = |source| Error::Attach { what: "iterator over threads", source };
    let link = program.attach_trace().map_err(fail)?;
    let mut nothing = Vec::new();
    Iter::new(&link)
        .map_err(fail)?
        .read_to_end(&mut nothing)
        .map(drop)
        .map_err(|source| Error::Read { path: "the kernel's list of threads".into(), source })
}
