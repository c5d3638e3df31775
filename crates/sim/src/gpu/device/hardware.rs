//! The devices of the simulated machine, whichever of them a process sees.

/// A device of the simulated machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hardware {
    /// The GPU's index in the machine.
    pub gpu: u32,
    /// The instance, if the GPU is partitioned (MIG).
    pub instance: Option<u32>,
}

impl Hardware {
    /// Returns the UUID of the GPU, or of the instance if there is one.
    pub fn uuid(self) -> [u8; 16] {
        let mut uuid = *b"warpscope sim  0";
        uuid[14] = self.instance.map_or(b' ', |instance| instance as u8);
        uuid[15] = self.gpu as u8;
        uuid
    }

    /// Returns the UUID of the GPU, whether it is partitioned or not.
    pub fn gpu_uuid(self) -> [u8; 16] {
        Self { instance: None, ..self }.uuid()
    }
}
