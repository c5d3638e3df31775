//! The operations of communicators and their members, for the page: see `page/ranks.js`.

use model::{communication::Operation, profile::Profile, ranks::is_communication};
use serde::Serialize;

use super::{block::Column, bounded::Bounded, tree::Tree};

/// The most members of operations in a page.
const LIMIT: usize = 1 << 20;

/// A communicator.
#[derive(Serialize)]
pub struct CommunicatorInfo {
    id: String,
    size: u32,
}

/// What the page knows besides the columns.
#[derive(Default)]
pub struct Collectives {
    pub communicators: Vec<CommunicatorInfo>,
    /// What is called, by number.
    pub calls: Vec<&'static str>,
    pub seen: u64,
    pub stride: u64,
}

/// Adds the operations in which all members took part, by the start of the last one, and the names of communication kernels.
pub fn collectives(profile: &Profile, tree: &mut Tree<'_>, columns: &mut Vec<Column>) -> Collectives {
    let all = &profile.communication;
    let origin = profile.start.as_ref().map_or(0, |start| start.time);
    let at = |time: u64| time.saturating_sub(origin);
    let most = all.operations.iter().map(|operation| operation.members.1 as usize).max().unwrap_or(1);
    // The events of a part are not those of its operations.
    let mut kept: Bounded<&Operation> = Bounded::new(LIMIT / most.max(1));
    all.operations.iter().filter(|_| profile.part.is_none()).for_each(|operation| kept.push(operation));
    let (seen, stride) = (kept.seen(), kept.stride());
    let kept = kept.into_items();

    let mut made = Collectives { seen, stride, ..Collectives::default() };
    let numbers: Vec<u64> = all.communicators.keys().copied().collect();
    let info = |(id, known): (&u64, &model::communication::Members)| CommunicatorInfo {
        id: format!("{id:016x}"),
        size: known.size,
    };
    made.communicators = all.communicators.iter().map(info).collect();
    let communicator = |operation: &Operation| numbers.binary_search(&operation.communicator).unwrap_or(0) as u64;
    let calls: Vec<u64> = kept
        .iter()
        .map(|operation| {
            let name = operation.operation.name();
            made.calls.iter().position(|known| *known == name).unwrap_or_else(|| {
                made.calls.push(name);
                made.calls.len() - 1
            }) as u64
        })
        .collect();
    let size = |operation: &Operation| all.communicators.get(&operation.communicator).map_or(0, |known| known.size);
    let bus = |operation: &Operation| operation.operation.bus_bytes(operation.bytes, size(operation)).unwrap_or(0.0);
    let members = || kept.iter().flat_map(|operation| all.members_of(operation));
    let process = |member: &model::communication::Member| profile.sessions.get(&member.session).map(|s| s.process);
    let nodes: Vec<u64> = members()
        .map(|member| process(member).map_or(0, |process| tree.stack(process, Some(member.stack)).into()))
        .collect();
    columns.extend([
        Column::plain("collective.communicator", kept.iter().map(|operation| communicator(operation))),
        Column::plain("collective.call", calls),
        Column::plain("collective.number", kept.iter().map(|operation| operation.number)),
        Column::plain("collective.bytes", kept.iter().map(|operation| operation.bytes)),
        Column::plain("collective.bus", kept.iter().map(|operation| bus(operation) as u64)),
        Column::plain("collective.members", kept.iter().map(|operation| all.members_of(operation).len() as u64)),
        Column::plain("member.process", members().map(|member| process(member).map_or(0, |process| process.0.into()))),
        Column::delta("member.start", members().map(|member| at(member.start))),
        Column::plain("member.duration", members().map(|member| member.end.saturating_sub(member.start))),
        Column::plain("member.delay", members().map(|member| member.start.saturating_sub(member.launched))),
        Column::plain("member.waited", members().map(|member| member.waited)),
        Column::plain("member.for", members().map(|member| member.waited_for.into())),
        Column::delta("member.node", nodes),
    ]);
    made
}

/// Returns the frames of communication kernels. Called when all frames are known.
pub fn communicates(tree: &Tree<'_>) -> Column {
    let frames = tree.kernels().filter(|(_, name)| is_communication(name)).map(|(frame, _)| u64::from(frame));
    Column::delta("frame.communicates", frames)
}
