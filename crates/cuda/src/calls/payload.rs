//! Structs behind a pointer argument that describe what a call does, and their sizes.

/// A struct in a call's payload.
#[derive(Clone, Copy)]
pub(super) enum Struct {
    /// `CUlaunchConfig`: shared memory is 32 bits.
    DriverLaunch,
    /// `cudaLaunchConfig_t`: shared memory is a `size_t`.
    RuntimeLaunch,
    /// `CUDA_MEMCPY2D`.
    DriverCopy2D,
    /// `CUDA_MEMCPY3D`.
    DriverCopy3D,
    /// `CUDA_MEMCPY3D_PEER`: like 3D, with two contexts.
    DriverCopy3DPeer,
    /// `cudaMemcpy3DParms`.
    RuntimeCopy3D,
    /// `cudaMemcpy3DPeerParms`.
    RuntimeCopy3DPeer,
    /// `CUDA_ARRAY_DESCRIPTOR`.
    Array2D,
    /// `CUDA_ARRAY3D_DESCRIPTOR`.
    Array3D,
    /// `cudaChannelFormatDesc`: the bits of an element's components.
    Channels,
    /// The sizes of a batch of copies, as many as fit; the next argument is their number.
    Sizes,
}

impl Struct {
    /// Bytes to capture.
    pub(super) fn length(self) -> u16 {
        match self {
            Struct::DriverLaunch | Struct::RuntimeLaunch => 56,
            Struct::DriverCopy2D => 128,
            Struct::DriverCopy3D | Struct::DriverCopy3DPeer => 200,
            Struct::RuntimeCopy3D => 160,
            Struct::RuntimeCopy3DPeer => 168,
            Struct::Array2D => 24,
            Struct::Array3D => 40,
            Struct::Channels => 20,
            Struct::Sizes => 256,
        }
    }

    /// Whether the call's bytes depend on it.
    pub(super) fn counts(self) -> bool {
        !matches!(self, Struct::DriverLaunch | Struct::RuntimeLaunch)
    }
}
