//! Loading and attaching what `record` needs, and reading what it sends.

use std::{
    cell::RefCell,
    collections::HashMap,
    mem::MaybeUninit,
    os::fd::{AsRawFd, IntoRawFd, RawFd},
    path::{Path, PathBuf},
    rc::Rc,
    sync::Mutex,
};

use libbpf_rs::{
    Link, MapCore, MapFlags, OpenObject, PrintLevel, RingBuffer, RingBufferBuilder, UprobeMultiOpts, UprobeOpts,
    skel::{OpenSkel, SkelBuilder},
};

use crate::{
    Error, Losses, PythonMaps, Record, Result, UnwindMaps, features,
    hooks::Hook,
    perf,
    sums::USERS,
    tracing::{self, Tracing},
    unwind_maps::Shared,
};

#[allow(missing_docs, clippy::all, clippy::pedantic, clippy::restriction, unused_qualifications)]
pub(crate) mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/record.skel.rs"));
}
use skeleton::{RecordSkel, RecordSkelBuilder};

/// Records taken off the ring at a time, so that one call stays short.
const BATCH: usize = 16 * 1024;

const MARKER: &str = "launch marker";

/// What to record.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Samples per second on every CPU; none without.
    pub sample_hz: Option<u32>,
    /// The marker function to watch.
    pub marker: Option<Marker>,
    /// Size of the ring buffer in bytes, a power of two.
    pub ring_bytes: u32,
    /// Size of the ring buffer for stacks that come as raw memory, a power of two; 16 MiB without.
    pub raw_ring_bytes: Option<u32>,
    /// What to trace.
    pub tracing: Option<Tracing>,
    /// Running processes to follow; they are the images 1, 2 and so on.
    pub found: Vec<u32>,
}

/// A function of a library, called with (correlation, work, session).
#[derive(Clone, Debug)]
pub struct Marker {
    /// The library's file.
    pub library: PathBuf,
    /// The function.
    pub symbol: String,
}

/// Programs in the kernel, and their ring buffer.
pub struct Recorder {
    // Order matters: links detach before the programs go, the ring is closed before its map.
    pub(crate) links: Vec<Link>,
    pub(crate) watches: HashMap<u64, Vec<Link>>,
    pub(crate) next_watch: u64,
    pub(crate) hooks: Vec<Hook>,
    ring: RingBuffer<'static>,
    records: Rc<RefCell<Vec<Record>>>,
    pub(crate) skel: RecordSkel<'static>,
    /// Allocations by user, of all that are in the kernel's map.
    pub(crate) held_by_user: Shared,
    pub(crate) multi: bool,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder").field("multi", &self.multi).finish_non_exhaustive()
    }
}

/// What libbpf had to say; it would print to stderr otherwise.
static LIBBPF_SAYS: Mutex<String> = Mutex::new(String::new());

fn keep_warning(_level: PrintLevel, text: String) {
    if let Ok(mut says) = LIBBPF_SAYS.lock()
        && says.len() < 16 << 20
    {
        says.push_str(&text);
    }
}

/// The verifier explains itself at length; its verdict comes last.
fn last_lines(text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(16)..].join("\n")
}

fn load_error(error: libbpf_rs::Error) -> Error {
    let says = LIBBPF_SAYS.lock().map(|s| s.clone()).unwrap_or_default();
    // The verifier, too, calls what it does not like not permitted (EACCES); then it gives its reasons.
    let refused = says.contains("BEGIN PROG LOAD LOG");
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        Error::NoBtf
    } else if error.kind() == libbpf_rs::ErrorKind::PermissionDenied && !refused {
        Error::NotPermitted
    } else {
        Error::Load(error, last_lines(&says))
    }
}

impl Recorder {
    /// Loads and attaches. Nothing is followed yet.
    pub fn start(options: &Options) -> Result<Self> {
        let multi = (options.marker.is_some() || options.tracing.is_some()) && features::uprobe_multi();
        match Self::start_with(options, multi) {
            // What this kernel does not know, it refuses: then the plain probe must do.
            Err(Error::Load(..) | Error::Attach { what: MARKER, .. }) if multi => Self::start_with(options, false),
            other => other,
        }
    }

    fn start_with(options: &Options, multi: bool) -> Result<Self> {
        libbpf_rs::set_print(Some((PrintLevel::Warn, keep_warning)));
        // The skeleton borrows this for as long as it lives; a recorder lives as long as the process.
        let storage: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = RecordSkelBuilder::default().open(storage).map_err(load_error)?;
        open.maps.events.set_max_entries(options.ring_bytes).map_err(load_error)?;
        if let Some(bytes) = options.raw_ring_bytes {
            open.maps.raw_stacks.set_max_entries(bytes).map_err(load_error)?;
        }
        tracing::prepare(&mut open, options.tracing.as_ref(), multi).map_err(load_error)?;
        if let Some(data) = open.maps.data_data.as_deref_mut() {
            data.next_image += options.found.len() as u32;
        }
        open.progs.launch_multi.set_autoload(options.marker.is_some() && multi);
        open.progs.launch_single.set_autoload(options.marker.is_some() && !multi);
        open.progs.sample.set_autoload(options.sample_hz.is_some());
        let skel = open.load().map_err(load_error)?;

        let records = Rc::new(RefCell::new(Vec::new()));
        let ring = {
            let mut builder = RingBufferBuilder::new();
            for map in [&skel.maps.events, &skel.maps.raw_stacks] {
                let records = Rc::clone(&records);
                let take = move |bytes: &[u8]| {
                    records.borrow_mut().extend(Record::parse(bytes));
                    0
                };
                builder.add(map, take).map_err(load_error)?;
            }
            builder.build().map_err(load_error)?
        };
        let held_by_user = Shared::map(&skel.maps.held_by_user, USERS * 8).map_err(load_error)?;
        let mut recorder = Self {
            links: Vec::new(),
            watches: HashMap::new(),
            next_watch: 0,
            hooks: Vec::new(),
            ring,
            records,
            skel,
            held_by_user,
            multi,
        };
        for (pid, image) in options.found.iter().zip(1..) {
            recorder.follow_as(*pid, image, false)?;
        }
        recorder.attach(options)?;
        Ok(recorder)
    }

    fn attach(&mut self, options: &Options) -> Result<()> {
        let what = "process tracepoints";
        for program in [
            &self.skel.progs.process_fork,
            &self.skel.progs.process_exec,
            &self.skel.progs.thread_rename,
            &self.skel.progs.process_exit,
        ] {
            self.links.push(program.attach_trace().map_err(|source| Error::Attach { what, source })?);
        }
        if let Some(marker) = &options.marker {
            let link = self.attach_marker(marker).map_err(|source| Error::Attach { what: MARKER, source })?;
            self.links.push(link);
        }
        if let Some(tracing) = &options.tracing {
            self.links.extend(tracing::attach(&self.skel, tracing)?);
        }
        if let Some(hz) = options.sample_hz {
            for cpu in perf::online_cpus()? {
                let timer = perf::cpu_clock(cpu, hz).map_err(|source| Error::Sampling { cpu, hz, source })?;
                let link = self.skel.progs.sample.attach_perf_event(timer.as_raw_fd());
                self.links.push(link.map_err(|source| Error::Attach { what: "CPU sampler", source })?);
                // The link owns the timer now, and closes it.
                let _ = timer.into_raw_fd();
            }
        }
        Ok(())
    }

    fn attach_marker(&self, marker: &Marker) -> libbpf_rs::Result<Link> {
        const ANY_PROCESS: i32 = -1;
        if self.multi {
            let opts = UprobeMultiOpts { syms: vec![marker.symbol.clone()], ..Default::default() };
            self.skel.progs.launch_multi.attach_uprobe_multi_with_opts(ANY_PROCESS, &marker.library, "", opts)
        } else {
            let opts = UprobeOpts { func_name: Some(marker.symbol.clone()), ..Default::default() };
            self.skel.progs.launch_single.attach_uprobe_with_opts(ANY_PROCESS, &marker.library, 0, opts)
        }
    }

    /// From now on every child that `pid` forks is followed, though not `pid` itself.
    pub fn follow_children_of(&self, pid: u32) -> Result<()> {
        self.follow_as(pid, 0, true)
    }

    fn follow_as(&self, pid: u32, image: u32, children_only: bool) -> Result<()> {
        /// Raw stacks that an image may send.
        const RAW_STACKS: u32 = 20_000;
        // `struct image`; where its memory is described is not known to us.
        let value: Vec<u8> = [image, children_only.into(), RAW_STACKS, 0, 0, 0]
            .iter()
            .flat_map(|field: &u32| field.to_ne_bytes())
            .collect();
        self.skel
            .maps
            .images
            .update(&pid.to_ne_bytes(), &value, MapFlags::ANY)
            .map_err(|source| Error::Map { what: "follow the command", source })
    }

    /// Children that `pid` forks are followed no more; those already followed are.
    pub fn forget(&self, pid: u32) -> Result<()> {
        self.skel
            .maps
            .images
            .delete(&pid.to_ne_bytes())
            .map_err(|source| Error::Map { what: "stop following new children", source })
    }

    /// The maps that the stack walker works from.
    pub fn unwind_maps(&self) -> Result<UnwindMaps> {
        let maps = &self.skel.maps;
        UnwindMaps::new(&maps.row_shards, &maps.mappings, &maps.mapping_ranges)
            .map_err(|source| Error::Map { what: "set up the stack walker's tables", source })
    }

    /// The map that tells which processes are Python.
    pub fn python_maps(&self) -> Result<PythonMaps> {
        PythonMaps::new(&self.skel.maps.python_processes)
            .map_err(|source| Error::Map { what: "set up the reading of Python frames", source })
    }

    /// Becomes readable when a good part of the ring has filled, or something rare has happened.
    pub fn descriptor(&self) -> RawFd {
        self.ring.epoll_fd()
    }

    /// Takes records off the ring and hands them over, oldest first; `true` if there may be more.
    pub fn drain(&mut self, mut each: impl FnMut(Record)) -> bool {
        let taken = self.ring.consume_raw_n(BATCH);
        for record in self.records.borrow_mut().drain(..) {
            each(record);
        }
        taken >= BATCH as i32
    }

    /// What did not arrive since the start.
    pub fn losses(&self) -> Losses {
        let count = |cause: u32| {
            let values = self.skel.maps.losses.lookup_percpu(&cause.to_ne_bytes(), MapFlags::ANY);
            let values = values.ok().flatten().unwrap_or_default();
            values.iter().filter_map(|v| Some(u64::from_ne_bytes(v.get(..8)?.try_into().ok()?))).sum()
        };
        Losses {
            launches: count(0),
            stacks: count(1),
            samples: count(2),
            processes: count(3),
            walks: count(4),
            calls: count(5),
            deep_calls: count(6),
            sums: count(7),
        }
    }
}
