//! The records between the sampling process and warpscope: all of one size, so that a write of a few is atomic, and a reader
//! needs no lengths. The reader trusts none of them: the process may run a user's library.
//!
//! ```text
//!   0     4     5    6     7      8     12    16     24     32             96
//!   magic kind  gpu  step  count  code  0     first  second numbers[16]
//! ```

/// Bytes of a record.
pub const SIZE: usize = 96;
/// The most numbers in a record.
pub const NUMBERS: usize = 16;
/// The most GPUs.
pub const MAX_GPUS: u8 = 64;

const MAGIC: [u8; 4] = *b"wspm";

/// Something that can fail on the way to samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Step {
    /// Loading libcuda.
    LoadDriver = 0,
    /// `cuInit` or a query of devices; the code is CUDA's.
    Driver = 1,
    /// Loading libcupti.
    LoadCupti = 2,
    /// Finding its functions.
    Functions = 3,
    /// `cuptiProfilerInitialize`
    Profiler = 4,
    /// `cuptiDeviceGetChipName`
    Chip = 5,
    /// `cuptiPmSamplingGetCounterAvailability`
    Availability = 6,
    /// `cuptiProfilerHostInitialize` and the choice of metrics.
    Metrics = 7,
    /// `cuptiPmSamplingEnable`
    Enable = 8,
    /// `cuptiPmSamplingSetConfig`
    Configure = 9,
    /// The image for samples.
    Image = 10,
    /// `cuptiPmSamplingStart`
    Start = 11,
    /// `cuptiPmSamplingDecodeData`
    Decode = 12,
    /// `cuptiProfilerHostEvaluateToGpuValues`
    Evaluate = 13,
}

impl Step {
    const ALL: [Self; 14] = [
        Self::LoadDriver,
        Self::Driver,
        Self::LoadCupti,
        Self::Functions,
        Self::Profiler,
        Self::Chip,
        Self::Availability,
        Self::Metrics,
        Self::Enable,
        Self::Configure,
        Self::Image,
        Self::Start,
        Self::Decode,
        Self::Evaluate,
    ];

    /// Returns the function that failed.
    pub fn function(self) -> &'static str {
        match self {
            Self::LoadDriver | Self::LoadCupti => "dlopen",
            Self::Driver => "cuInit",
            Self::Functions => "dlsym",
            Self::Profiler => "cuptiProfilerInitialize",
            Self::Chip => "cuptiDeviceGetChipName",
            Self::Availability => "cuptiPmSamplingGetCounterAvailability",
            Self::Metrics => "cuptiProfilerHostInitialize",
            Self::Enable => "cuptiPmSamplingEnable",
            Self::Configure => "cuptiPmSamplingSetConfig",
            Self::Image => "cuptiPmSamplingCounterDataImageInitialize",
            Self::Start => "cuptiPmSamplingStart",
            Self::Decode => "cuptiPmSamplingDecodeData",
            Self::Evaluate => "cuptiProfilerHostEvaluateToGpuValues",
        }
    }
}

/// The code of [`Step::LoadCupti`] for a library that is not loaded as root because others can change it.
pub const UNTRUSTED: u32 = 2;

/// A step that failed, and CUPTI's or CUDA's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The step.
    pub step: Step,
    /// The code.
    pub code: u32,
}

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// A GPU is sampled from now on.
    Gpu {
        /// Its index.
        gpu: u8,
        /// Its UUID.
        uuid: u128,
        /// The numbers of its metrics.
        metrics: Numbers,
    },
    /// A GPU cannot be sampled, or no longer; without a GPU: none can.
    Failed {
        /// Its index.
        gpu: Option<u8>,
        /// Why.
        failure: Failure,
    },
    /// Every GPU has been tried.
    Ready,
    /// A sample.
    Sample {
        /// The GPU.
        gpu: u8,
        /// Its beginning, CLOCK_MONOTONIC.
        start: u64,
        /// Its end.
        end: u64,
        /// As many values as the GPU has metrics.
        values: Numbers,
    },
    /// The hardware buffer of a GPU was full: samples are missing.
    Overflow {
        /// The GPU.
        gpu: u8,
    },
    /// This many samples were dropped because the pipe was full.
    Dropped {
        /// How many.
        count: u64,
    },
    /// All samples have been written.
    End,
}

/// Up to [`NUMBERS`] numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    count: u8,
    numbers: [u32; NUMBERS],
}

impl Numbers {
    /// Keeps as many as fit.
    pub fn new(numbers: impl Iterator<Item = u32>) -> Self {
        let mut all = Self::default();
        for (place, number) in all.numbers.iter_mut().zip(numbers) {
            *place = number;
            all.count += 1;
        }
        all
    }

    /// Returns them.
    pub fn as_slice(&self) -> &[u32] {
        &self.numbers[..usize::from(self.count)]
    }
}

/// Stands for no GPU.
const NO_GPU: u8 = u8::MAX;

impl Record {
    /// Returns its bytes.
    pub fn encode(&self) -> [u8; SIZE] {
        let (mut gpu, mut step, mut code, mut pair, mut numbers) = (0, 0, 0_u32, [0_u64; 2], Numbers::default());
        let kind = match *self {
            Self::Gpu { gpu: index, uuid, metrics } => {
                (gpu, pair, numbers) = (index, [(uuid >> 64) as u64, uuid as u64], metrics);
                1
            }
            Self::Failed { gpu: index, failure } => {
                (gpu, step, code) = (index.unwrap_or(NO_GPU), failure.step as u8, failure.code);
                2
            }
            Self::Ready => 3,
            Self::Sample { gpu: index, start, end, values } => {
                (gpu, pair, numbers) = (index, [start, end], values);
                4
            }
            Self::Overflow { gpu: index } => {
                gpu = index;
                5
            }
            Self::Dropped { count } => {
                pair[0] = count;
                6
            }
            Self::End => 7,
        };
        let mut bytes = [0; SIZE];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..8].copy_from_slice(&[kind, gpu, step, numbers.count]);
        bytes[8..12].copy_from_slice(&code.to_le_bytes());
        bytes[16..24].copy_from_slice(&pair[0].to_le_bytes());
        bytes[24..32].copy_from_slice(&pair[1].to_le_bytes());
        for (place, number) in bytes[32..].chunks_exact_mut(4).zip(numbers.numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// Reads a record; `None` if it is invalid.
    pub fn decode(bytes: &[u8; SIZE]) -> Option<Self> {
        let long = |at: usize| bytes[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let word = |at: usize| bytes[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let [kind, gpu, step, count] = [bytes[4], bytes[5], bytes[6], bytes[7]];
        if bytes[..4] != MAGIC || usize::from(count) > NUMBERS || (gpu >= MAX_GPUS && gpu != NO_GPU) {
            return None;
        }
        let index = (gpu != NO_GPU).then_some(gpu);
        let numbers = Numbers::new((0..usize::from(count)).map(|place| word(32 + 4 * place)));
        Some(match kind {
            1 => {
                let uuid = u128::from(long(16)) << 64 | u128::from(long(24));
                Self::Gpu { gpu: index?, uuid, metrics: numbers }
            }
            2 => {
                let step = Step::ALL.into_iter().find(|known| *known as u8 == step)?;
                Self::Failed { gpu: index, failure: Failure { step, code: word(8) } }
            }
            3 => Self::Ready,
            4 if long(16) < long(24) => Self::Sample { gpu: index?, start: long(16), end: long(24), values: numbers },
            5 => Self::Overflow { gpu: index? },
            6 => Self::Dropped { count: long(16) },
            7 => Self::End,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that every record is read as it was written.
    #[test]
    fn records_round_trip() {
        let numbers = Numbers::new([1, 0, u32::MAX].into_iter());
        let failure = Failure { step: Step::Evaluate, code: 35 };
        for record in [
            Record::Gpu { gpu: 63, uuid: 0x1234 << 100 | 7, metrics: numbers },
            Record::Failed { gpu: Some(1), failure },
            Record::Failed { gpu: None, failure },
            Record::Ready,
            Record::Sample { gpu: 3, start: 5, end: u64::MAX, values: Numbers::new(0..99) },
            Record::Overflow { gpu: 1 },
            Record::Dropped { count: 9 },
            Record::End,
        ] {
            assert_eq!(Record::decode(&record.encode()), Some(record));
        }
    }

    /// Check that invalid records are rejected, whatever is in them.
    #[test]
    fn invalid_records_are_rejected() {
        let good = Record::Sample { gpu: 0, start: 1, end: 2, values: Numbers::default() }.encode();
        for (at, byte) in [(0, b'W'), (4, 0), (4, 8), (5, 64), (5, NO_GPU), (7, 17), (24, 1), (24, 0)] {
            let mut bad = good;
            bad[at] = byte;
            assert_eq!(Record::decode(&bad), None, "byte {at} is {byte}");
        }
        let mut failed = Record::Failed { gpu: None, failure: Failure { step: Step::Start, code: 1 } }.encode();
        failed[6] = Step::ALL.len() as u8;
        assert_eq!(Record::decode(&failed), None);
    }
}
