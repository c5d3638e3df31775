//! NCCL's operations, and the ids of the layouts of its NVTX payloads.

/// The numbers of operations in [`crate::CommunicatorCall`].
pub const ALL_REDUCE: u8 = 1;
/// See [`ALL_REDUCE`].
pub const ALL_GATHER: u8 = 2;
/// See [`ALL_REDUCE`].
pub const REDUCE_SCATTER: u8 = 3;
/// See [`ALL_REDUCE`].
pub const BROADCAST: u8 = 4;
/// See [`ALL_REDUCE`].
pub const REDUCE: u8 = 5;
/// See [`ALL_REDUCE`].
pub const ALL_TO_ALL: u8 = 6;
/// See [`ALL_REDUCE`].
pub const GATHER: u8 = 7;
/// See [`ALL_REDUCE`].
pub const SCATTER: u8 = 8;
/// See [`ALL_REDUCE`].
pub const SEND: u8 = 9;
/// See [`ALL_REDUCE`].
pub const RECEIVE: u8 = 10;

/// Ids of payloads that describe communicators, less the first id that programs set themselves.
pub mod payload {
    /// `ncclCommDestroy`: the communicator, its size, the rank. Those that were split from others are described only here.
    pub const DESTROY: u64 = 2;
    /// `ncclCommAbort`: the same.
    pub const ABORT: u64 = 3;
    /// `ncclCommInitRank`: the communicator, its size, the rank.
    pub const INIT_RANK: u64 = 0;
    /// `ncclCommInitRankConfig`: the same.
    pub const INIT_RANK_CONFIG: u64 = 11;
    /// `ncclCommInitRankScalable`: the same.
    pub const INIT_RANK_SCALABLE: u64 = 12;
    /// `ncclCommSplit`: the communicator, the one it is a part of, its size, the rank.
    pub const SPLIT: u64 = 13;
}

/// Returns the operation of a payload; its first fields are the communicator and a size.
pub const fn operation(id: u64) -> Option<u8> {
    Some(match id {
        4 => ALL_GATHER,
        5 => ALL_REDUCE,
        6 => BROADCAST,
        7 => REDUCE_SCATTER,
        8 => REDUCE,
        9 => SEND,
        10 => RECEIVE,
        16 => ALL_TO_ALL,
        17 => GATHER,
        18 => SCATTER,
        _ => return None,
    })
}

/// Whether the next field of the payload is the root or the peer.
pub const fn has_peer(operation: u8) -> bool {
    matches!(operation, BROADCAST | REDUCE | GATHER | SCATTER | SEND | RECEIVE)
}
