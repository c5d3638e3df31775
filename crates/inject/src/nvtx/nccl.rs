//! NCCL's communicators and what is called on them.
//!
//! NCCL annotates its calls with NVTX ranges of the domain `NCCL`, with the arguments as payload: the communicator by a number that
//! is the same on all its members, sizes, roots and peers. The ids of their layouts are constants of NCCL's. Layouts have grown over
//! releases, so what is shorter than needed is ignored. Numbers of calls are counted here from NCCL's first call on, so that they
//! agree between members whenever their recordings begin.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::collections::HashMap;
use std::sync::Mutex;

use super::label::Attributes;
use super::registry::lock;
use crate::queue::QUEUE;
use crate::totals::{TOTALS, add};
use crate::{clock, lifecycle, sys};

/// The name of NCCL's domain.
pub const DOMAIN: &[u8] = b"NCCL";

/// The most communicators, and the most counters: a communicator has one, and one for each direction and peer of messages.
const COMMUNICATORS: usize = 1024;
const COUNTERS: usize = 16_384;

/// A payload that points to [`Payload`]s (`NVTX_PAYLOAD_TYPE_EXT`).
const EXTENDED: i32 = 0xDFBD_0009_u32 as i32;
/// The first of the ids that a program sets itself (`NVTX_PAYLOAD_ENTRY_TYPE_SCHEMA_ID_STATIC_START`).
const FIRST_ID: u64 = 1 << 24;

/// `nvtxPayloadData_t`.
#[repr(C)]
pub struct Payload {
    schema: u64,
    size: usize,
    bytes: *const u8,
}

/// What a process knows of its communicators.
struct Known {
    communicators: Vec<Member>,
    /// Calls so far, by communicator, operation (0 for all that are collective) and peer.
    calls: Option<HashMap<(u64, u8, u32), u64>>,
}

struct Member {
    message: wire::Communicator,
    /// The session that knows it.
    session: u64,
}

static KNOWN: Mutex<Known> = Mutex::new(Known { communicators: Vec::new(), calls: None });
/// The handles of NCCL's domain, each of one copy of NCCL; 0 for none.
static DOMAINS: [AtomicUsize; 4] = [const { AtomicUsize::new(0) }; 4];

/// NCCL has created its domain.
pub fn loaded(domain: usize) {
    let is_free =
        |known: &&AtomicUsize| matches!(known.load(Ordering::Relaxed), known if known == 0 || known == domain);
    if let Some(place) = DOMAINS.iter().find(is_free) {
        place.store(domain, Ordering::Relaxed);
    }
}

/// Whether a domain is NCCL's: the ids of payloads mean something else in others.
fn is_own(domain: usize) -> bool {
    domain != 0 && DOMAINS.iter().any(|known| known.load(Ordering::Relaxed) == domain)
}

/// The fields of a payload, in order.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    fn word(&mut self) -> Option<u64> {
        self.take().map(u64::from_ne_bytes)
    }

    fn number(&mut self) -> Option<u32> {
        self.take().map(u32::from_ne_bytes)
    }
}

/// Handles a range that begins: an operation is called, or a communicator destroyed.
///
/// # Safety
/// `attributes` must be null or point to NVTX's attributes, with a valid payload.
pub unsafe fn begun(domain: usize, attributes: *const Attributes) {
    if !is_own(domain) {
        return;
    }
    // SAFETY: as the caller guarantees.
    let Some(attributes) = (unsafe { attributes.as_ref() }) else { return };
    let Some((payload, count)) = attributes.payload(EXTENDED) else { return };
    // SAFETY: as the caller guarantees.
    unsafe { each(payload.cast(), count, called) };
}

/// Handles the payloads with which a range ends: those of communicators.
///
/// # Safety
/// `payloads` must be null or point to this many payloads.
pub unsafe fn ended(domain: usize, payloads: *const Payload, count: usize) {
    if is_own(domain) {
        // SAFETY: as the caller guarantees.
        unsafe { each(payloads, count, described) };
    }
}

/// # Safety
/// `payloads` must be null or point to this many payloads.
unsafe fn each(payloads: *const Payload, count: usize, handle: fn(u64, Fields<'_>) -> Option<()>) {
    lifecycle::guarded((), || {
        if payloads.is_null() || !payloads.is_aligned() {
            return;
        }
        for index in 0..count.min(4) {
            // SAFETY: there are at least so many.
            let Payload { schema, size, bytes } = unsafe { payloads.add(index).read() };
            if let (Some(id), false, 1..=256) = (schema.checked_sub(FIRST_ID), bytes.is_null(), size) {
                // SAFETY: a payload says its size.
                let _ = handle(id, Fields(unsafe { core::slice::from_raw_parts(bytes, size) }));
            }
        }
    });
}

/// A communicator is described: when it is created, and those that are split from others when they are destroyed.
fn described(id: u64, mut fields: Fields<'_>) -> Option<()> {
    use wire::nccl::payload::{ABORT, DESTROY, INIT_RANK, INIT_RANK_CONFIG, INIT_RANK_SCALABLE, SPLIT};
    let communicator = fields.word()?;
    let parent = match id {
        INIT_RANK | INIT_RANK_CONFIG | INIT_RANK_SCALABLE | DESTROY | ABORT => 0,
        SPLIT => fields.word()?,
        _ => return None,
    };
    let (size, rank) = (fields.number()?, fields.number()?);
    if communicator == 0 || rank >= size {
        return None;
    }
    let message = wire::Communicator { id: communicator, parent, size, rank };
    let mut known = lock(&KNOWN)?;
    let is_same = |member: &Member| member.message.id == communicator && member.message.rank == rank;
    if !known.communicators.iter().any(is_same)
        && known.communicators.len() < COMMUNICATORS
        && known.communicators.try_reserve(1).is_ok()
    {
        known.communicators.push(Member { message, session: 0 });
    }
    announce(&mut known, communicator);
    Some(())
}

/// Sends what is known of a communicator, once in each session.
fn announce(known: &mut Known, communicator: u64) {
    let session = lifecycle::session();
    if !lifecycle::is_live() {
        return;
    }
    for member in known.communicators.iter_mut().filter(|member| member.message.id == communicator) {
        if member.session != session {
            let mut bytes = [0; wire::Communicator::SIZE];
            member.message.encode(&mut bytes);
            member.session = if send(&bytes) { session } else { 0 };
        }
    }
}

/// An operation is called.
fn called(id: u64, mut fields: Fields<'_>) -> Option<()> {
    let Some(operation) = wire::nccl::operation(id) else { return described(id, fields) };
    let (communicator, bytes) = (fields.word()?, fields.word()?);
    let peer = if wire::nccl::has_peer(operation) { fields.number()? } else { u32::MAX };
    let mut known = lock(&KNOWN)?;
    let key = match operation {
        wire::nccl::SEND | wire::nccl::RECEIVE => (communicator, operation, peer),
        _ => (communicator, 0, 0),
    };
    let calls = known.calls.get_or_insert_with(HashMap::new);
    if !calls.contains_key(&key) && (calls.len() >= COUNTERS || calls.try_reserve(1).is_err()) {
        return None;
    }
    let counter = calls.entry(key).or_default();
    let number = *counter;
    *counter += 1;
    if !lifecycle::is_live() {
        return None;
    }
    announce(&mut known, communicator);
    // SAFETY: no arguments.
    let tid = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
    let time = sys::now().wrapping_sub(clock::offset());
    let call = wire::CommunicatorCall { communicator, number, bytes, time, tid, peer, operation };
    let mut bytes = [0; wire::CommunicatorCall::SIZE];
    call.encode(&mut bytes);
    send(&bytes);
    Some(())
}

fn send(message: &[u8]) -> bool {
    let is_sent = QUEUE.append(message, 1);
    if !is_sent {
        add(&TOTALS.dropped_queue_full, 1);
    }
    is_sent
}

/// The handles of NCCL's domain and of all others, where nothing else of NVTX is recorded.
pub const HANDLE: usize = 1;
/// See [`HANDLE`].
pub const OTHER: usize = 2;
