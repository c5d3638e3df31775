//! The purpose of a function, and the kind of memory it is about.

/// The purpose of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Allocates memory, or address space, in a [`Space`].
    Alloc,
    /// Frees it.
    Free,
    /// Moves bytes.
    Copy,
    /// Fills bytes.
    Set,
    /// Launches one kernel.
    Launch,
    /// Launches a whole graph.
    GraphLaunch,
    /// Enqueues a host function in a stream.
    HostFunction,
    /// Waits on the CPU for the GPU.
    Synchronize,
    /// Handles streams, including capture.
    Stream,
    /// Handles events.
    Event,
    /// Builds and destroys graphs.
    Graph,
    /// Handles devices and contexts.
    Context,
    /// Handles code: modules, libraries, functions.
    Module,
    /// Anything else.
    Other,
}

/// The kind of memory that an [`Role::Alloc`] allocates. For a free it is the function's kind, but the address
/// determines which allocation is freed: `cudaFree` frees both [`Space::Device`] and [`Space::Managed`] memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Space {
    /// Device memory, from a pool or not.
    Device,
    /// Memory that migrates between host and devices.
    Managed,
    /// Pinned host memory.
    Host,
    /// Existing host memory, pinned.
    Registered,
    /// Device memory laid out for textures, identified by a handle.
    Array,
    /// Device memory without an address, identified by a handle.
    Physical,
    /// Physical memory mapped at an address: not additional memory.
    Mapped,
    /// Addresses without memory.
    Reserved,
    /// Another process's memory: not additional memory either.
    Imported,
}

impl Space {
    /// All spaces, in the order of their numbers.
    pub const ALL: [Space; 9] = [
        Space::Device,
        Space::Managed,
        Space::Host,
        Space::Registered,
        Space::Array,
        Space::Physical,
        Space::Mapped,
        Space::Reserved,
        Space::Imported,
    ];

    /// Returns its name in summaries.
    pub fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Managed => "managed",
            Self::Host => "host",
            Self::Registered => "registered",
            Self::Array => "array",
            Self::Physical => "physical",
            Self::Mapped => "mapped",
            Self::Reserved => "reserved",
            Self::Imported => "imported",
        }
    }
}
