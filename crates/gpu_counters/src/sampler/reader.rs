//! Reads the records of the sampling process. They may come from a user's library: each is checked, and memory is bounded.

use std::{
    collections::BTreeMap,
    io::{self, Read},
};

use model::event::{Event, PmSamples, Uuid};

use crate::{
    clock::now,
    pm::record::{Numbers, Record, SIZE},
};

/// The most samples in an event.
const MOST_SAMPLES: usize = 256;

/// The records can no longer be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The process has closed the pipe.
    Gone,
    /// It wrote something else.
    Invalid,
}

/// What was read so far.
#[derive(Default)]
pub struct Reader {
    /// Every GPU has been tried.
    pub ready: bool,
    /// All samples have been read.
    pub ended: bool,
    gpus: BTreeMap<u8, PmSamples>,
    full: Vec<PmSamples>,
    rest: Vec<u8>,
}

impl Reader {
    /// Returns the number of GPUs that are sampled.
    pub fn gpus(&self) -> usize {
        self.gpus.len()
    }

    /// Reads what is there, at most about this many bytes. Samples are kept; other records go to `on`.
    pub fn read(&mut self, pipe: &mut impl Read, most: usize, on: &mut dyn FnMut(Record)) -> Result<(), Broken> {
        let mut buffer = [0; 8192];
        let mut done = 0;
        while done < most && !self.ended {
            match pipe.read(&mut buffer) {
                Ok(0) => return Err(Broken::Gone),
                Ok(length) => {
                    done += length;
                    self.rest.extend_from_slice(&buffer[..length]);
                    self.records(on)?;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(Broken::Gone),
            }
        }
        Ok(())
    }

    fn records(&mut self, on: &mut dyn FnMut(Record)) -> Result<(), Broken> {
        let rest = std::mem::take(&mut self.rest);
        let whole = rest.chunks_exact(SIZE);
        self.rest.extend_from_slice(whole.remainder());
        for bytes in whole {
            let record = bytes.first_chunk().and_then(Record::decode).ok_or(Broken::Invalid)?;
            match record {
                Record::Gpu { gpu, uuid, metrics } => self.gpu(gpu, uuid, &metrics)?,
                Record::Sample { gpu, start, end, values } => self.sample(gpu, start, end, &values)?,
                Record::Ready => self.ready = true,
                Record::End => self.ended = true,
                other => on(other),
            }
        }
        Ok(())
    }

    /// Declares a GPU. The event without samples says when they begin.
    fn gpu(&mut self, gpu: u8, uuid: u128, metrics: &Numbers) -> Result<(), Broken> {
        if self.ready || self.gpus.contains_key(&gpu) {
            return Err(Broken::Invalid);
        }
        let start = now();
        let samples =
            PmSamples { gpu: Uuid(uuid), start, metrics: metrics.as_slice().to_vec(), ..PmSamples::default() };
        self.full.push(samples.clone());
        self.gpus.insert(gpu, samples);
        Ok(())
    }

    fn sample(&mut self, gpu: u8, start: u64, end: u64, values: &Numbers) -> Result<(), Broken> {
        let samples = self.gpus.get_mut(&gpu).ok_or(Broken::Invalid)?;
        if values.as_slice().len() != samples.metrics.len() {
            return Err(Broken::Invalid);
        }
        if samples.times.is_empty() {
            samples.start = start;
        }
        // The wall clock, by which the samples are timed, may be set back.
        let after = |time: u64| time.saturating_sub(samples.start);
        samples.times.push((after(start), after(end)));
        samples.values.extend_from_slice(values.as_slice());
        if samples.times.len() >= MOST_SAMPLES {
            self.full.push(emptied(samples));
        }
        Ok(())
    }

    /// Passes on all samples that were read.
    pub fn samples(&mut self, push: &mut dyn FnMut(Event)) {
        let rest = self.gpus.values_mut().filter(|samples| !samples.times.is_empty()).map(emptied);
        self.full.drain(..).chain(rest).for_each(|samples| push(Event::PmSamples(samples)));
    }
}

/// Takes the samples, and leaves none.
fn emptied(samples: &mut PmSamples) -> PmSamples {
    let empty = PmSamples { gpu: samples.gpu, metrics: samples.metrics.clone(), ..PmSamples::default() };
    std::mem::replace(samples, empty)
}

#[cfg(test)]
mod tests {
    use crate::pm::record::{Failure, Step};

    use super::*;

    fn numbers(numbers: &[u32]) -> Numbers {
        Numbers::new(numbers.iter().copied())
    }

    fn sample(gpu: u8, start: u64, values: &[u32]) -> Record {
        Record::Sample { gpu, start, end: start + 10, values: numbers(values) }
    }

    /// Reads records that arrive in pieces of this many bytes.
    fn read(records: &[Record], piece: usize) -> (Result<(), Broken>, Vec<PmSamples>, Vec<Record>) {
        let bytes: Vec<u8> = records.iter().flat_map(Record::encode).collect();
        let (mut reader, mut events, mut others) = (Reader::default(), Vec::new(), Vec::new());
        let mut result = Ok(());
        for mut piece in bytes.chunks(piece) {
            let ended = reader.read(&mut piece, usize::MAX, &mut |record| others.push(record));
            if ended != Err(Broken::Gone) {
                result = ended;
            }
            reader.samples(&mut |event| match event {
                Event::PmSamples(samples) => events.push(samples),
                _ => unreachable!("only samples"),
            });
            if result.is_err() {
                break;
            }
        }
        (result, events, others)
    }

    /// Check that samples are grouped by GPU, in order, however they arrive, and that other records are passed on.
    #[test]
    fn samples_are_grouped() {
        let overflow = Record::Overflow { gpu: 0 };
        let records = [
            Record::Gpu { gpu: 0, uuid: 7, metrics: numbers(&[0, 3]) },
            Record::Gpu { gpu: 2, uuid: 8, metrics: numbers(&[1]) },
            Record::Ready,
            sample(0, 100, &[1, 2]),
            sample(2, 101, &[9]),
            overflow,
            sample(0, 110, &[3, 4]),
            Record::End,
        ];
        let (result, events, others) = read(&records, usize::MAX);
        assert_eq!((result, others), (Ok(()), vec![overflow]));
        let of = |gpu: u128| events.iter().filter(move |samples| samples.gpu == Uuid(gpu)).collect::<Vec<_>>();
        assert!(of(7)[0].times.is_empty() && of(7)[0].start > 0, "the first declares the GPU");
        let expected = PmSamples {
            gpu: Uuid(7),
            start: 100,
            metrics: vec![0, 3],
            times: vec![(0, 10), (10, 20)],
            values: vec![1, 2, 3, 4],
        };
        assert_eq!((of(7)[1], of(7).len(), of(8).len()), (&expected, 2, 2));
        let (result, pieces, _) = read(&records, 7);
        let samples = |events: &[PmSamples]| events.iter().map(|samples| samples.times.len()).sum::<usize>();
        assert_eq!((result, samples(&pieces)), (Ok(()), samples(&events)));
    }

    /// Check that every lie about GPUs and metrics ends the reading.
    #[test]
    fn lies_are_rejected() {
        let gpu = Record::Gpu { gpu: 0, uuid: 7, metrics: numbers(&[0]) };
        for records in [
            vec![sample(0, 1, &[1])],
            vec![gpu, gpu],
            vec![gpu, Record::Ready, Record::Gpu { gpu: 1, uuid: 8, metrics: numbers(&[]) }],
            vec![gpu, sample(1, 1, &[1])],
            vec![gpu, sample(0, 1, &[1, 2])],
            vec![gpu, sample(0, 1, &[])],
        ] {
            assert_eq!(read(&records, usize::MAX).0, Err(Broken::Invalid), "{records:?}");
        }
        let failed = Record::Failed { gpu: None, failure: Failure { step: Step::Enable, code: 35 } };
        assert_eq!(read(&[failed], 50), (Ok(()), vec![], vec![failed]));
        let mut reader = Reader::default();
        assert_eq!(reader.read(&mut &[1_u8; 100][..], 1, &mut |_| {}), Err(Broken::Invalid));
    }
}
