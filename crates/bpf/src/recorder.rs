//! The running programs: attaches them, selects the processes to follow, and reads their records.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    io::Read,
    os::fd::{AsFd, AsRawFd, IntoRawFd, RawFd},
    rc::Rc,
};

use libbpf_rs::{
    Iter, Link, MapCore, MapFlags, ProgramInput, RingBuffer, RingBufferBuilder, UprobeMultiOpts, UprobeOpts,
};

use crate::{
    Error, Losses, PythonMaps, Record, Result, UnwindMaps,
    contract::{
        Plain, bytes_of, read,
        types::{image, limit, loss},
    },
    features,
    hooks::Hook,
    map,
    options::{Marker, Options},
    perf,
    programs::{self, load_error, skeleton::RecordSkel},
    shared_memory::Shared,
};

/// Records read from the ring at a time, to keep one call short.
const BATCH: usize = 16 * 1024;
/// The same for raw stacks, which are large. They are read separately: a ring that never empties must not starve them.
const RAW_BATCH: usize = 1024;

const MARKER: &str = "launch marker";

/// The loaded programs and their ring buffers.
pub struct Recorder {
    // Order matters: links detach before the programs are unloaded, the ring is closed before its map.
    pub(crate) links: Vec<Link>,
    pub(crate) watches: HashMap<u64, Vec<Link>>,
    pub(crate) next_watch: u64,
    pub(crate) hooks: Vec<Hook>,
    /// Present while waits are recorded.
    pub(crate) waits: Option<Link>,
    ring: RingBuffer<'static>,
    raw_ring: RingBuffer<'static>,
    records: Rc<RefCell<Vec<Record>>>,
    /// Records that could not be parsed.
    unparsed: Rc<Cell<u64>>,
    /// Records that were not passed on.
    discarded: Losses,
    /// Maps that could not be read completely.
    pub(crate) unread: Cell<u64>,
    pub(crate) skel: RecordSkel<'static>,
    /// The programs that watch handed-over work, once they are needed.
    pub(crate) handover: Option<RecordSkel<'static>>,
    /// Whether they find the code that created a piece of it.
    pub(crate) forward: bool,
    /// The number of allocations in the kernel's map, by user.
    pub(crate) held_by_user: Shared,
    pub(crate) multi: bool,
    pub(crate) session: bool,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder").field("multi", &self.multi).finish_non_exhaustive()
    }
}

impl Recorder {
    /// Loads and attaches the programs. No process is followed yet.
    pub fn start(options: &Options) -> Result<Self> {
        let launches = options.marker.is_some() || options.later_markers;
        let multi =
            (launches || options.tracing.is_some() || options.hits.is_some() || options.handover || options.tensors)
                && features::uprobe_multi();
        let skips = options.tracing.is_some_and(|tracing| tracing.skip_returns && tracing.sums_only);
        let session = multi && skips && features::uprobe_session();
        // A kernel without a feature rejects it: fall back to simpler probes.
        let rejects = |error: &Error| {
            matches!(error, Error::Load(..) | Error::OldKernel { .. } | Error::Attach { what: MARKER, .. })
        };
        match Self::start_with(options, multi, session) {
            Err(error) if session && rejects(&error) => Self::start_with(options, multi, false),
            Err(error) if multi && rejects(&error) => Self::start_with(options, false, false),
            other => other,
        }
    }

    fn start_with(options: &Options, multi: bool, session: bool) -> Result<Self> {
        let skel = programs::load(options, multi, session)?;
        let records = Rc::new(RefCell::new(Vec::new()));
        let unparsed = Rc::new(Cell::new(0));
        let ring = |map| {
            let (records, unparsed) = (Rc::clone(&records), Rc::clone(&unparsed));
            let take = move |bytes: &[u8]| {
                match Record::parse(bytes) {
                    Some(record) => records.borrow_mut().push(record),
                    None => unparsed.set(unparsed.get() + 1),
                }
                0
            };
            let mut builder = RingBufferBuilder::new();
            builder.add(map, take).map_err(load_error)?;
            builder.build().map_err(load_error)
        };
        let users = limit::USERS.0 as usize * size_of::<u64>();
        let held_by_user =
            Shared::map(skel.maps.held_by_user.as_fd(), users).map_err(|error| load_error(error.into()))?;
        let (events, raw_ring) = (ring(&skel.maps.events)?, ring(&skel.maps.raw_stacks)?);
        let mut recorder = Self {
            links: Vec::new(),
            watches: HashMap::new(),
            next_watch: 0,
            hooks: Vec::new(),
            waits: None,
            ring: events,
            raw_ring,
            records,
            unparsed,
            discarded: Losses::default(),
            unread: Cell::new(0),
            skel,
            handover: None,
            forward: options.forward,
            held_by_user,
            multi,
            session,
        };
        let found = recorder.skel.progs.find_recorder.test_run(ProgramInput::default());
        found.map_err(|source| Error::Map { what: "find warpscope's own process id", source })?;
        for (tgid, image) in recorder.machine_ids(&options.found)?.into_iter().zip(1..) {
            recorder.follow_as(tgid, image, false)?;
        }
        let frozen = recorder.freeze_handed_calls();
        frozen.map_err(|source| Error::Map { what: "protect the list of calls that hand work over", source })?;
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
        if options.handover {
            for program in [&self.skel.progs.thread_end, &self.skel.progs.thread_start] {
                self.links.push(program.attach_trace().map_err(|source| Error::Attach { what, source })?);
            }
        }
        if let Some(marker) = &options.marker {
            let link = self.attach_marker(marker).map_err(|source| Error::Attach { what: MARKER, source })?;
            self.links.push(link);
        }
        if let Some(tracing) = &options.tracing {
            self.links.extend(programs::attach(&self.skel, tracing)?);
        }
        if options.off_cpu.is_some() {
            let link = self.skel.progs.off_cpu.attach_trace();
            self.waits = Some(link.map_err(|source| Error::Attach { what: "scheduler tracepoint", source })?);
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

    /// Watches another marker function, if [`Options::later_markers`] is set.
    pub fn add_marker(&mut self, marker: &Marker) -> Result<()> {
        let link = self.attach_marker(marker).map_err(|source| Error::Attach { what: MARKER, source })?;
        self.links.push(link);
        Ok(())
    }

    fn attach_marker(&self, marker: &Marker) -> libbpf_rs::Result<Link> {
        const ANY_PROCESS: i32 = -1;
        let offset = marker.offset as usize;
        if self.multi {
            let opts = UprobeMultiOpts { offsets: vec![offset], ..Default::default() };
            self.skel.progs.launch_multi.attach_uprobe_multi_with_opts(ANY_PROCESS, &marker.library, "", opts)
        } else {
            let opts = UprobeOpts::default();
            self.skel.progs.launch_single.attach_uprobe_with_opts(ANY_PROCESS, &marker.library, offset, opts)
        }
    }

    /// Follows every child of this process from now on, but not this process itself.
    pub fn follow_children(&self) -> Result<()> {
        self.follow_as(self.own_tgid(), 0, true)
    }

    /// Returns the id of this process in the initial pid namespace; it differs from the one seen inside a pid
    /// namespace.
    fn own_tgid(&self) -> u32 {
        self.skel.maps.bss_data.as_deref().map_or(std::process::id(), |data| data.recorder_tgid)
    }

    /// Returns the ids of processes in the initial pid namespace, in the same order.
    fn machine_ids(&self, pids: &[u32]) -> Result<Vec<u32>> {
        let translated = self.skel.maps.bss_data.as_deref().is_some_and(|data| data.recorder_level > 0);
        if pids.is_empty() || !translated {
            return Ok(pids.to_vec());
        }
        let fail = |source| Error::Attach { what: "list of processes", source };
        let link = self.skel.progs.list_processes.attach_trace().map_err(fail)?;
        let mut list = Vec::new();
        Iter::new(&link)
            .map_err(fail)?
            .read_to_end(&mut list)
            .map_err(|source| Error::Read { path: "the kernel's list of processes".into(), source })?;
        let number = |bytes: &[u8]| bytes.try_into().map_or(0, u32::from_ne_bytes);
        let known: HashMap<u32, u32> =
            list.as_chunks::<8>().0.iter().map(|p| (number(&p[..4]), number(&p[4..]))).collect();
        // A process that has exited meanwhile gets an id that matches nothing, as outside a namespace.
        Ok(pids.iter().map(|pid| known.get(pid).copied().unwrap_or(u32::MAX)).collect())
    }

    fn follow_as(&self, tgid: u32, id: u32, children_only: bool) -> Result<()> {
        // The address of its mm_struct is not known here.
        let value = image {
            id,
            children_only: children_only.into(),
            raw_left: limit::MAX_RAW_STACKS.0,
            held: 0,
            memory: 0,
            handed: 0,
        };
        self.begin_handed(id)
            .and_then(|()| self.skel.maps.images.update(&tgid.to_ne_bytes(), bytes_of(&value), MapFlags::ANY))
            .map_err(|source| Error::Map { what: "follow the command", source })
    }

    /// Stops following new children of this process; those already followed continue to be.
    pub fn forget_children(&self) -> Result<()> {
        self.skel
            .maps
            .images
            .delete(&self.own_tgid().to_ne_bytes())
            .map_err(|source| Error::Map { what: "stop following new children", source })
    }

    /// Returns the maps of the stack walker.
    pub fn unwind_maps(&self) -> Result<UnwindMaps> {
        let maps = &self.skel.maps;
        UnwindMaps::new(&maps.row_shards, &maps.mappings, &maps.mapping_ranges)
            .map_err(|source| Error::Map { what: "set up the stack walker's tables", source })
    }

    /// Returns the map of Python processes.
    pub fn python_maps(&self) -> Result<PythonMaps> {
        PythonMaps::new(&self.skel.maps.python_processes, &self.skel.maps.python_programs)
            .map_err(|source| Error::Map { what: "set up the reading of Python frames", source })
    }

    /// Returns descriptors that become readable when a large part of a ring has filled, or a rare record was sent.
    pub fn descriptors(&self) -> [RawFd; 2] {
        [self.ring.epoll_fd(), self.raw_ring.epoll_fd()]
    }

    /// Reads records from the rings and passes them on, oldest first, raw stacks last; returns `true` if there may be
    /// more.
    pub fn drain(&mut self, mut each: impl FnMut(Record)) -> bool {
        let taken = self.ring.consume_raw_n(BATCH);
        let raw = self.raw_ring.consume_raw_n(RAW_BATCH);
        for record in self.records.borrow_mut().drain(..) {
            each(record);
        }
        taken >= BATCH as i32 || raw >= RAW_BATCH as i32
    }

    /// Counts what is left in the rings as lost. Nothing may be recording any more.
    pub fn discard(&mut self) {
        let mut discarded = self.discarded;
        while self.drain(|record| discarded.count(&record)) {}
        self.discarded = discarded;
    }

    /// Passes on every entry of a map. A failed read is counted in [`Losses::unread`].
    pub(crate) fn each(&self, map: &impl MapCore, entry: impl FnMut(&[u8], &[u8])) {
        if map::each(map, entry).is_err() {
            self.unread.set(self.unread.get() + 1);
        }
    }

    /// Returns every entry of a map with one value for all CPUs.
    pub(crate) fn entries<K: Plain, V: Plain>(&self, map: &impl MapCore) -> Vec<(K, V)> {
        debug_assert_eq!((map.key_size() as usize, map.value_size() as usize), (size_of::<K>(), size_of::<V>()));
        let mut found = Vec::new();
        self.each(map, |key, value| found.extend(read(key).zip(read(value))));
        found
    }

    /// Returns what was lost since the start.
    pub fn losses(&self) -> Losses {
        let count = |cause: loss| {
            let values = self.skel.maps.losses.lookup_percpu(&cause.0.to_ne_bytes(), MapFlags::ANY);
            values.ok().flatten().unwrap_or_default().iter().filter_map(|value| read::<u64>(value)).sum()
        };
        let discarded = &self.discarded;
        Losses {
            launches: count(loss::LOSS_LAUNCH) + discarded.launches,
            stacks: count(loss::LOSS_STACK) + discarded.stacks,
            samples: count(loss::LOSS_SAMPLE) + discarded.samples,
            processes: count(loss::LOSS_PROCESS) + discarded.processes,
            walks: count(loss::LOSS_WALK),
            calls: count(loss::LOSS_CALL) + discarded.calls,
            deep_calls: count(loss::LOSS_CALL_DEPTH),
            sums: count(loss::LOSS_CALL_SUMS),
            hits: count(loss::LOSS_HIT) + discarded.hits,
            waits: count(loss::LOSS_WAIT) + discarded.waits,
            tensors: count(loss::LOSS_TENSOR) + discarded.tensors,
            switches: count(loss::LOSS_SWITCH),
            unparsed: self.unparsed.get(),
            unread: self.unread.get(),
        }
    }
}
