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

    /// Returns the name of its UUID, in lower case.
    pub fn name(self) -> String {
        let kind = if self.instance.is_some() { "mig" } else { "gpu" };
        let mut name = format!("{kind}-");
        for (at, byte) in self.uuid().iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                name.push('-');
            }
            name.push_str(&format!("{byte:02x}"));
        }
        name
    }

    /// Returns the UUID of the GPU, whether it is partitioned or not.
    pub fn gpu_uuid(self) -> [u8; 16] {
        Self { instance: None, ..self }.uuid()
    }
}
