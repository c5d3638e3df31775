//! Communicators and their operations (NCCL), as the program calls them.

use serde::Serialize;

use super::SessionId;

/// A process became a member of a communicator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Communicator {
    /// The CUDA process.
    pub session: SessionId,
    /// The communicator: the same number in all its members.
    pub id: u64,
    /// The communicator that it was split from; 0 if there is none.
    pub parent: u64,
    /// The number of its members; 0 if unknown.
    pub size: u32,
    /// The number of this member, from 0.
    pub rank: u32,
}

/// A thread called an operation of a communicator. The kernel that executes it is launched afterwards, usually by the same
/// thread: at the end of a group, one kernel may execute several operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommunicatorCall {
    /// The CUDA process.
    pub session: SessionId,
    /// The communicator.
    pub communicator: u64,
    /// What was called.
    pub operation: Operation,
    /// How many such calls the process made before on this communicator, whether or not they were recorded: all collective
    /// operations count together, sends and receives by peer. Members call collective operations in the same order, so
    /// equal numbers are one operation.
    pub number: u64,
    /// The size that was passed: of the buffer of each member, or of what is sent.
    pub bytes: u64,
    /// The root, or the peer of a send or a receive; [`NO_PEER`] for others.
    pub peer: u32,
    /// The thread.
    pub tid: u32,
    /// When.
    pub time: u64,
}

/// The peer of operations that have none.
pub const NO_PEER: u32 = u32::MAX;

/// An operation of a communicator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Operation {
    /// One that is not known.
    #[default]
    Other,
    /// All get the reduction of all.
    AllReduce,
    /// All get what each has.
    AllGather,
    /// Each gets a part of the reduction of all.
    ReduceScatter,
    /// All get what the root has.
    Broadcast,
    /// The root gets the reduction of all.
    Reduce,
    /// Each sends a part to each.
    AllToAll,
    /// The root gets what each has.
    Gather,
    /// Each gets a part of what the root has.
    Scatter,
    /// One sends to its peer.
    Send,
    /// The peer receives it.
    Receive,
    /// Members that send to each other: what calls of `Send` and `Receive` are together.
    SendReceive,
}

impl Operation {
    const ALL: [Self; 12] = [
        Self::Other,
        Self::AllReduce,
        Self::AllGather,
        Self::ReduceScatter,
        Self::Broadcast,
        Self::Reduce,
        Self::AllToAll,
        Self::Gather,
        Self::Scatter,
        Self::Send,
        Self::Receive,
        Self::SendReceive,
    ];

    /// Returns the operation with this number.
    pub fn from_number(number: u8) -> Self {
        Self::ALL.get(usize::from(number)).copied().unwrap_or_default()
    }

    /// Whether two members take part, not all.
    pub fn is_between_two(self) -> bool {
        matches!(self, Self::Send | Self::Receive)
    }

    /// Its name, as in NCCL's interface.
    pub fn name(self) -> &'static str {
        match self {
            Self::Other => "other",
            Self::AllReduce => "all_reduce",
            Self::AllGather => "all_gather",
            Self::ReduceScatter => "reduce_scatter",
            Self::Broadcast => "broadcast",
            Self::Reduce => "reduce",
            Self::AllToAll => "all_to_all",
            Self::Gather => "gather",
            Self::Scatter => "scatter",
            Self::Send => "send",
            Self::Receive => "receive",
            Self::SendReceive => "send_receive",
        }
    }

    /// The factor by which time, members and `bytes` give the bus bandwidth, as nccl-tests define it: what each link must
    /// carry at least. `bytes` is what was passed to the call, the smaller of a member's two buffers. `None` where it is
    /// not defined.
    pub fn bus_bytes(self, bytes: u64, members: u32) -> Option<f64> {
        let (bytes, n) = (bytes as f64, f64::from(members));
        match self {
            Self::AllReduce => Some(bytes * 2.0 * (n - 1.0) / n),
            // The buffer of each member is a part of the whole.
            Self::AllGather | Self::ReduceScatter | Self::AllToAll => Some(bytes * (n - 1.0)),
            Self::Broadcast | Self::Reduce => Some(bytes),
            _ => None,
        }
    }
}
