//! Loads the programs, and explains why they could not be loaded.

use std::{mem::MaybeUninit, os::fd::AsFd, path::Path, sync::Mutex};

use libbpf_rs::{
    Link, MapType, OpenObject, PrintLevel,
    skel::{OpenSkel, Skel, SkelBuilder},
};

use crate::{
    Error, Result, features,
    options::{Options, Tracing},
};

#[allow(missing_docs, clippy::all, clippy::pedantic, clippy::restriction, unused_qualifications)]
pub(crate) mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/record.skel.rs"));
}
use skeleton::{OpenRecordSkel, RecordSkel, RecordSkelBuilder};

/// The causes of tasks that are remembered: one for each place that hands tasks over.
const TASK_CAUSES: u32 = 8192;

/// Opens the object file without loading anything.
fn open() -> Result<OpenRecordSkel<'static>> {
    libbpf_rs::set_print(Some((PrintLevel::Warn, keep_warning)));
    // The skeleton borrows this for its lifetime; a recorder lives as long as the process.
    let storage: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
    RecordSkelBuilder::default().open(storage).map_err(load_error)
}

/// Loads the programs that `options` need, with multi-probes if `multi`.
pub(crate) fn load(options: &Options, multi: bool, session: bool) -> Result<RecordSkel<'static>> {
    let mut open = open()?;
    open.maps.events.set_max_entries(options.ring_bytes).map_err(load_error)?;
    if let Some(bytes) = options.raw_ring_bytes {
        open.maps.raw_stacks.set_max_entries(bytes).map_err(load_error)?;
    }
    prepare_tracing(&mut open, options.tracing.as_ref(), multi, session).map_err(load_error)?;
    prepare_hits(&mut open, options.hits, multi).map_err(load_error)?;
    // The kernel allocates all entries of these maps at once.
    if !options.forward {
        open.maps.made_nodes.set_max_entries(1).map_err(load_error)?;
        open.maps.sent_causes.set_max_entries(if options.handover { TASK_CAUSES } else { 1 }).map_err(load_error)?;
    }
    if !options.handover {
        open.maps.scheduled_tasks.set_max_entries(1).map_err(load_error)?;
    }
    open.progs.thread_start.set_autoload(options.handover);
    open.progs.thread_end.set_autoload(options.handover);
    open.progs.tensor_multi.set_autoload(options.tensors && multi);
    open.progs.tensor_single.set_autoload(options.tensors && !multi);
    if let Some(data) = open.maps.rodata_data.as_deref_mut() {
        data.shortest_wait = options.off_cpu.unwrap_or(0);
        data.waits_recorded = options.off_cpu.is_some();
        data.forward_found = options.forward;
    }
    open.progs.off_cpu.set_autoload(options.off_cpu.is_some());
    open.progs.off_cpu_end.set_autoload(options.off_cpu.is_some());
    if let Some(data) = open.maps.data_data.as_deref_mut() {
        data.next_image += options.found.len() as u32;
    }
    let launches = options.marker.is_some() || options.later_markers;
    open.progs.launch_multi.set_autoload(launches && multi);
    open.progs.launch_single.set_autoload(launches && !multi);
    open.progs.sample.set_autoload(options.sample_hz.is_some());
    open.progs.list_processes.set_autoload(!options.found.is_empty());
    open.load().map_err(load_error)
}

/// Loads the programs that watch calls which hand work over. They share the maps of the running ones. Few commands run PyTorch or
/// XLA, and to verify these programs takes the kernel a third of the time of a recording's start.
pub(crate) fn load_handover(running: &RecordSkel<'_>, forward: bool, multi: bool) -> Result<RecordSkel<'static>> {
    let mut open = open()?;
    for mut program in open.open_object_mut().progs_mut() {
        program.set_autoload(false);
    }
    let programs = &mut open.progs;
    for (program, wanted) in [
        (&mut programs.hand_over_multi, multi),
        (&mut programs.hand_back_multi, multi),
        (&mut programs.handed_node_multi, multi),
        (&mut programs.task_handed_multi, multi),
        (&mut programs.task_begun_multi, multi),
        (&mut programs.node_made_multi, multi && forward),
        (&mut programs.hand_over_single, !multi),
        (&mut programs.hand_back_single, !multi),
        (&mut programs.handed_node_single, !multi),
        (&mut programs.task_handed_single, !multi),
        (&mut programs.task_begun_single, !multi),
        (&mut programs.node_made_single, !multi && forward),
    ] {
        program.set_autoload(wanted);
    }
    // The same object file has the same maps.
    for (mut map, running) in open.open_object_mut().maps_mut().zip(running.object().maps()) {
        map.reuse_fd(running.as_fd()).map_err(load_error)?;
    }
    open.load().map_err(load_error)
}

/// Enables what `tracing` needs, before anything is loaded.
fn prepare_tracing(
    open: &mut OpenRecordSkel<'_>,
    tracing: Option<&Tracing>,
    multi: bool,
    session: bool,
) -> libbpf_rs::Result<()> {
    let off = Tracing::default();
    let on = tracing.is_some();
    let tracing = tracing.unwrap_or(&off);
    let allocations = open.maps.allocations.max_entries();
    if let Some(data) = open.maps.rodata_data.as_deref_mut() {
        data.calls_traced = on && !tracing.beside;
        data.call_records = !tracing.sums_only;
        data.call_stacks = tracing.stacks;
        data.call_names = tracing.names;
        data.skip_returns = session;
        data.follow_all = tracing.all;
        data.points_of_all = tracing.all;
        data.callers_only = tracing.callers_only;
        data.only_cgroup = tracing.cgroup.map_or(0, |cgroup| cgroup.id);
        data.cgroup_level = tracing.cgroup.map_or(0, |cgroup| cgroup.level);
        // With processes of other users, no one may use up the room of all.
        if tracing.all {
            data.process_share = allocations / 4;
            data.user_share = u64::from(allocations / 2);
        }
    }
    if tracing.shared_sums {
        open.maps.sums.set_type(MapType::Hash)?;
    }
    let programs = &mut open.progs;
    for program in [&mut programs.enter_multi, &mut programs.leave_multi] {
        program.set_autoload(on && multi);
    }
    for program in [&mut programs.enter_single, &mut programs.leave_single] {
        program.set_autoload(on && !multi);
    }
    for program in [
        &mut programs.enter_kernel,
        &mut programs.leave_kernel,
        &mut programs.enter_kernel_single,
        &mut programs.leave_kernel_single,
    ] {
        program.set_autoload(tracing.kernel_functions);
    }
    for program in [&mut programs.enter_hook, &mut programs.leave_hook] {
        program.set_autoload(tracing.hooks);
    }
    for program in [&mut programs.syscall_enter, &mut programs.syscall_exit] {
        program.set_autoload(tracing.driver);
    }
    programs.thread_switch.set_autoload(tracing.switches);
    programs.point.set_autoload(tracing.points);
    programs.call_session.set_autoload(session);
    programs.add_repeated.set_autoload(session);
    programs.unfinished.set_autoload(on);
    Ok(())
}

/// Loads the programs if hits are requested, otherwise keeps their maps small.
fn prepare_hits(open: &mut OpenRecordSkel<'_>, room: Option<u32>, multi: bool) -> libbpf_rs::Result<()> {
    let wanted = room.is_some();
    open.maps.hits.set_max_entries(room.unwrap_or(1))?;
    if !wanted {
        open.maps.hit_points.set_max_entries(1)?;
    }
    for program in [&mut open.progs.hit_multi, &mut open.progs.hit_return_multi] {
        program.set_autoload(wanted && multi);
    }
    for program in [&mut open.progs.hit_single, &mut open.progs.hit_return_single] {
        program.set_autoload(wanted && !multi);
    }
    open.progs.hit_tracepoint.set_autoload(wanted);
    Ok(())
}

/// Attaches the programs that need no target name.
pub(crate) fn attach(skel: &RecordSkel<'_>, tracing: &Tracing) -> Result<Vec<Link>> {
    let mut links = Vec::new();
    let mut add = |what, link: libbpf_rs::Result<Link>| {
        links.push(link.map_err(|source| Error::Attach { what, source })?);
        Ok(())
    };
    if tracing.driver {
        add("system call tracepoints", skel.progs.syscall_exit.attach_trace())?;
        add("system call tracepoints", skel.progs.syscall_enter.attach_trace())?;
    }
    if tracing.switches {
        add("scheduler tracepoint", skel.progs.thread_switch.attach_trace())?;
    }
    Ok(links)
}

/// The output of libbpf, which would otherwise be printed to stderr.
static LIBBPF_OUTPUT: Mutex<String> = Mutex::new(String::new());

fn keep_warning(_level: PrintLevel, text: String) {
    if let Ok(mut output) = LIBBPF_OUTPUT.lock()
        && output.len() < 16 << 20
    {
        output.push_str(&text);
    }
}

/// Returns the last lines of the verifier log, which contain the reason.
fn last_lines(text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(16)..].join("\n")
}

/// Explains why the kernel rejected the programs.
pub(crate) fn load_error(error: libbpf_rs::Error) -> Error {
    let output = LIBBPF_OUTPUT.lock().map(|s| s.clone()).unwrap_or_default();
    // The verifier also returns EACCES for a program that it rejects, and then logs its reasons.
    let refused = output.contains("BEGIN PROG LOAD LOG");
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        Error::NoBtf
    } else if error.kind() == libbpf_rs::ErrorKind::PermissionDenied && !refused {
        if features::initial_user_namespace() { Error::NotPermitted } else { Error::UserNamespace }
    } else if features::below_minimum() {
        Error::OldKernel { release: features::kernel_release(), detail: last_lines(&output) }
    } else {
        Error::Load(error, last_lines(&output))
    }
}
