//! Groups of calls, and the kernels that execute them: one for each communicator.

use std::cell::RefCell;
use std::ffi::{CString, c_void};
use std::sync::OnceLock;
use std::time::Duration;

use super::communicator::Communicator;
use super::{Outcome, result};
use crate::cudart::call::ready;
use crate::script::script;

/// One call.
#[derive(Clone, Copy)]
pub struct Part {
    pub communicator: &'static Communicator,
    /// A `cudaStream_t`.
    pub stream: *mut c_void,
    /// The operation, as in the kernel's name: `AllReduce`.
    pub operation: &'static str,
    /// The rest of the name: `_Sum_f32_RING_LL`.
    pub variant: &'static str,
    pub bytes: u64,
    pub place: Place,
}

/// Which operation of the communicator it is.
#[derive(Clone, Copy)]
pub enum Place {
    /// Of all members: its number.
    Collective(u64),
    /// A message to a peer (side 0) or from it (side 1), and its number.
    Message(u32, usize, u64),
}

#[derive(Default)]
struct Group {
    depth: u32,
    parts: Vec<Part>,
}

thread_local! {
    static GROUP: RefCell<Group> = RefCell::default();
}

/// Begins a group.
pub fn begin() {
    GROUP.with_borrow_mut(|group| group.depth += 1);
}

/// Ends a group; the outermost one launches.
pub fn end() -> Outcome<()> {
    let parts = GROUP.with_borrow_mut(|group| {
        group.depth = group.depth.checked_sub(1).ok_or(result::INVALID_USAGE)?;
        Ok::<_, i32>(if group.depth == 0 { std::mem::take(&mut group.parts) } else { Vec::new() })
    })?;
    let mut rest = parts;
    while let Some(first) = rest.first() {
        let communicator = first.communicator;
        let (own, others): (Vec<Part>, Vec<Part>) =
            rest.into_iter().partition(|part| std::ptr::eq(part.communicator, communicator));
        launch(communicator, own)?;
        rest = others;
    }
    Ok(())
}

/// Adds a call to the current group, or executes it.
pub fn call(part: Part) -> Outcome<()> {
    let grouped = GROUP.with_borrow_mut(|group| {
        let grouped = group.depth > 0;
        if grouped {
            group.parts.push(part);
        }
        grouped
    });
    if grouped { Ok(()) } else { launch(part.communicator, vec![part]) }
}

/// Launches the kernel of some calls, on the stream of the first one. Calls without bytes need none.
fn launch(communicator: &'static Communicator, mut parts: Vec<Part>) -> Outcome<()> {
    parts.retain(|part| part.bytes > 0);
    let Some(first) = parts.first().copied() else { return Ok(()) };
    let late: u64 = script().nccl_late.iter().filter(|(call, _)| has(&parts, *call)).map(|(_, time)| time).sum();
    if late > 0 {
        std::thread::sleep(Duration::from_nanos(late));
    }
    let stuck = script().nccl_stuck.is_some_and(|call| has(&parts, call));
    let name = name(communicator, &first, &parts);
    let bytes: u64 = parts.iter().map(|part| part.bytes).sum();
    let transfer = 2_000 + (bytes as f64 / script().copy_gbps) as u64;
    let duration = script().kernel_duration(&name).unwrap_or(transfer);
    let name = CString::new(name).map_err(|_| result::INVALID_ARGUMENT)?;
    let driver = ready().map_err(|_| result::UNHANDLED_CUDA_ERROR)?;
    let failed = |result: u32| if result == 0 { Ok(()) } else { Err(result::UNHANDLED_CUDA_ERROR) };
    let module = module().ok_or(result::UNHANDLED_CUDA_ERROR)?;
    let mut function = std::ptr::null_mut();
    failed((driver.cuModuleGetFunction)(&mut function, module, name.as_ptr()))?;
    let places: Vec<Place> = parts.iter().map(|part| part.place).collect();
    (driver.table.meet_next)(Box::new(move |start| meet(communicator, &places, start, duration, stuck)));
    let nothing = std::ptr::null_mut();
    failed((driver.cuLaunchKernel)(function, 24, 1, 1, 544, 1, 1, 0, first.stream, nothing, nothing))
}

/// Whether a script means one of these calls.
fn has(parts: &[Part], (rank, number): (u32, u64)) -> bool {
    parts.iter().any(|part| {
        let own = part.communicator.rank == rank && !part.communicator.is_split;
        own && matches!(part.place, Place::Collective(own) if own == number)
    })
}

/// NCCL's module in this process.
fn module() -> Option<*mut c_void> {
    static MODULE: OnceLock<Option<usize>> = OnceLock::new();
    let load = || {
        let mut module = std::ptr::null_mut();
        let loaded = (ready().ok()?.cuModuleLoadData)(&mut module, c"".as_ptr().cast());
        (loaded == 0).then(|| module.expose_provenance())
    };
    MODULE.get_or_init(load).map(std::ptr::with_exposed_provenance_mut)
}

/// Returns the (mangled) name of the kernel of some calls.
fn name(communicator: &Communicator, first: &Part, parts: &[Part]) -> String {
    let same = parts.iter().all(|part| part.operation == first.operation);
    let (operation, variant) = if same { (first.operation, first.variant) } else { ("Generic", "") };
    if script().nccl_numbered {
        let number = match first.place {
            Place::Collective(number) => number,
            Place::Message(..) => communicator.next_group(),
        };
        return format!("ncclDevKernel_{operation}_{:x}_{number}()", communicator.hash);
    }
    let name = format!("ncclDevKernel_{operation}{variant}");
    format!("_Z{}{name}24ncclDevKernelArgsStorageILm4096EE", name.len())
}

/// Notes that a kernel could start, and returns its end, when all that take part have noted the same.
fn meet(communicator: &'static Communicator, places: &[Place], start: u64, duration: u64, stuck: bool) -> u64 {
    if stuck {
        loop {
            // SAFETY: no arguments.
            unsafe { libc::pause() };
        }
    }
    let (region, own) = (communicator.region, communicator.rank as usize);
    let pair = |peer: u32, side: usize| if side == 0 { [own, peer as usize] } else { [peer as usize, own] };
    for place in places {
        match *place {
            Place::Collective(number) => region.begin(own, number, start),
            Place::Message(peer, side, number) => region.begin_message(pair(peer, side), side, number, start),
        }
    }
    let begun = |place: &Place| match *place {
        Place::Collective(number) => region.wait(|| region.begun(communicator.size as usize, number)),
        Place::Message(peer, side, number) => region.wait(|| region.begun_message(pair(peer, side), 1 - side, number)),
    };
    // An aborted operation ends at once.
    let latest = places.iter().map(begun).fold(start, |latest, begun| latest.max(begun.unwrap_or(start)));
    latest + duration
}
