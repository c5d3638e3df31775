//! The ledger in sentences: what was matched, and each thing that was lost, by name and to the unit.
//!
//! A test fails if a kind of loss has no sentence.

use std::collections::BTreeMap;

use model::{
    energy::EnergyLedger,
    event::{LossCause, StackEnd},
    ledger::{Ledger, Lost, Pause},
    stalls::StallLedger,
};
use text::units::{bytes, count, counted, hundredths, percent_of_hundredths, time};

use crate::flame_tree::Weight;

/// Returns `matched 100 %` if every activity has its launch, otherwise how many have none. Rounded down, so that 100 means
/// all. `None` if there was no GPU work.
pub fn matched(ledger: &Ledger) -> Option<String> {
    let all = ledger.activities_matched + ledger.activities_unmatched;
    if all == 0 {
        return None;
    }
    let share = percent_of_hundredths(hundredths(ledger.activities_matched, all));
    Some(match ledger.activities_unmatched {
        0 => format!("matched {share}"),
        missing => format!("matched {share}  ({} of {} activities without a launch)", count(missing), count(all)),
    })
}

/// Describes launches on capturing streams. They are no loss: their work runs when the graph is launched.
pub fn captured(launches: u64) -> Option<String> {
    let sentence = match launches {
        0 => return None,
        1 => "launch was captured into a CUDA graph: its work runs when the graph is launched",
        _ => "launches were captured into CUDA graphs: their work runs when the graphs are launched",
    };
    Some(format!("{} {sentence}", count(launches)))
}

/// Describes work of graphs that appears under the launch, because the creation of its nodes was not seen.
pub fn graph_nodes(ledger: &Ledger) -> Option<String> {
    let (operations, nodes) = (ledger.graph_operations_unknown, ledger.graph_nodes_unknown);
    (operations > 0).then(|| {
        format!(
            "{} of {} are shown under the launch of their graph: the creation of {} was not seen",
            count(operations),
            counted(ledger.graph_operations, "operation of CUDA graphs", "operations of CUDA graphs"),
            counted(nodes, "node", "nodes"),
        )
    })
}

/// Describes launch calls without GPU work. They are no loss.
pub fn empty(launches: u64) -> Option<String> {
    let sentence = match launches {
        0 => return None,
        1 => "launch call gave the GPU no work, such as a copy of 0 bytes",
        _ => "launch calls gave the GPU no work, such as copies of 0 bytes",
    };
    Some(format!("{} {sentence}", count(launches)))
}

/// Describes warpscope's own CPU time. It is no loss: it is not the program's.
pub fn own_cost(own: Weight) -> Option<String> {
    let (one, many) = ("CPU sample was", "CPU samples were");
    let samples = format!("{} {}", count(own.samples), if own.samples == 1 { one } else { many });
    (own.samples > 0)
        .then(|| format!("{samples} in warpscope's own code, CUPTI or probes ({}): not shown", time(own.amount)))
}

/// How the time of kernels is divided.
const CONTINUOUS: &str =
    "The exact time of each kernel is divided among its lines by samples, equally for all its call paths";
const SERIALISED: &str = "Kernels ran one at a time, not concurrently (--stalls=serialised). \
                          The exact time of each call path is divided among the lines of a kernel by its own samples";

/// Returns why there is no sample inside kernels, unless what was lost or a note says so.
pub fn not_sampled(ledger: &StallLedger) -> Option<String> {
    let lost = ledger.dropped + ledger.unsent + ledger.buffer_full + ledger.contexts_refused;
    match (ledger.samples + ledger.other_kernels + lost, ledger.contexts) {
        (0, 0) => Some("no stall reasons: the program created no CUDA context".into()),
        (0, _) => Some(format!(
            "no stall reasons: there is a sample every 2^{} cycles on each multiprocessor, and none was inside a kernel; the kernels are too short or too few: use a shorter period (--stalls=N) or record longer",
            ledger.period
        )),
        _ => None,
    }
}

/// Describes what was sampled inside kernels, and how it is shown. This is no loss.
pub fn sampled(ledger: &StallLedger) -> Vec<String> {
    let mut sentences = Vec::new();
    if ledger.samples > 0 {
        let memory = match ledger.memory_bytes {
            0 => format!("{} of device memory for the buffer of each context", bytes(ledger.buffer_bytes)),
            memory => format!("sampling took {} of device memory per context", bytes(memory)),
        };
        sentences.push(format!(
            "{} inside kernels, one every 2^{} cycles on each multiprocessor; {memory}. {}",
            counted(ledger.samples, "sample", "samples"),
            ledger.period,
            match ledger.serialised {
                true => SERIALISED,
                false => CONTINUOUS,
            },
        ));
    }
    if ledger.other_kernels > 0 {
        let samples = counted(ledger.other_kernels, "sample was", "samples were");
        sentences.push(format!("{samples} in kernels of the driver or of CUPTI: not shown"));
    }
    sentences
}

/// Returns one sentence for each loss of samples inside kernels.
fn samples_lost(ledger: &StallLedger) -> [(u64, &'static str); 8] {
    [
        (
            ledger.without_line,
            "sample inside a kernel has no source line: compile with -lineinfo|samples inside kernels have no source line: compile with -lineinfo",
        ),
        (
            ledger.in_functions,
            "sample is in a device function that is no kernel: it is only in the table of stalls|samples are in device functions that are no kernels: they are only in the table of stalls",
        ),
        (
            ledger.without_launch,
            "sample inside a kernel has no known launch: it counts for all call paths of its kernel|samples inside kernels have no known launch: they count for all call paths of their kernel",
        ),
        (
            ledger.dropped,
            "sample inside kernels was dropped by the hardware|samples inside kernels were dropped by the hardware",
        ),
        (
            ledger.unsent,
            "sample inside kernels was dropped: a queue or table was full|samples inside kernels were dropped: a queue or table was full",
        ),
        (
            ledger.buffer_full,
            "time the hardware buffer for samples was full: samples are missing, and the period was doubled|times the hardware buffer for samples was full: samples are missing, and the period was doubled each time",
        ),
        (ledger.contexts_refused, "CUDA context could not be sampled|CUDA contexts could not be sampled"),
        (
            ledger.cubins_refused,
            "cubin exceeded the limits: its samples have no source line|cubins exceeded the limits: their samples have no source line",
        ),
    ]
}

/// Returns what is missing of the energy of kernels.
fn energy_lost(ledger: &EnergyLedger) -> Vec<String> {
    let mut sentences = Vec::new();
    if ledger.outside_ns > 0 {
        sentences.push(format!(
            "{} of kernels has no energy: it is before the first reading of NVML's counter or after its last change",
            time(ledger.outside_ns)
        ));
    }
    if ledger.late_ns > 0 {
        sentences.push(format!(
            "{} of kernels has no energy: it was reported too late, and its energy was given to other kernels or idle time",
            time(ledger.late_ns)
        ));
    }
    if ledger.resets > 0 {
        let times = counted(ledger.resets, "time", "times");
        sentences
            .push(format!("NVML's energy counter was reset {times}: the energy up to the next reading is missing"));
    }
    sentences
}

/// Returns one sentence for each loss that occurred.
pub fn sentences(ledger: &Ledger) -> Vec<String> {
    let Lost {
        cupti_dropped,
        queue_full,
        queue_full_launches,
        invalid_records,
        names,
        buffers_refused,
        join_evicted,
        causes,
    } = &ledger.lost;
    let received = ledger.activities_matched + ledger.activities_unmatched;
    let not_received = ledger.activities_delivered.saturating_sub(received).saturating_sub(*queue_full);
    let before = [
        (ledger.launches_failed, "launch returned an error|launches returned errors"),
        (
            ledger.launches_pending,
            if ledger.keeps_running {
                "launch is pending: its GPU work had not ended when the dump was written|launches are pending: their GPU work had not ended when the dump was written"
            } else {
                "launch is pending: its GPU work was never reported|launches are pending: their GPU work was never reported"
            },
        ),
        (
            ledger.zero_time,
            "GPU record has no timestamps and therefore no width|GPU records have no timestamps and therefore no width",
        ),
        (
            ledger.unfinished,
            "GPU operation had not finished and therefore has no width|GPU operations had not finished and therefore have no width",
        ),
        (not_received, "GPU record that CUPTI delivered never arrived|GPU records that CUPTI delivered never arrived"),
        (
            ledger.stacks_missing,
            "stack is missing: its frames never arrived|stacks are missing: their frames never arrived",
        ),
        (
            ledger.sessions_cut_off,
            "CUDA process exited before flushing its GPU records|CUDA processes exited before flushing their GPU records",
        ),
        (
            ledger.sessions_left,
            "CUDA process was still running when the recording stopped: its last GPU records may be missing|CUDA processes were still running when the recording stopped: their last GPU records may be missing",
        ),
        (*cupti_dropped, "GPU record was dropped by CUPTI|GPU records were dropped by CUPTI"),
        (
            *queue_full,
            "GPU record was dropped: the injected library's queue was full|GPU records were dropped: the injected library's queue was full",
        ),
        (
            *queue_full_launches,
            "launch was dropped: the injected library's queue was full|launches were dropped: the injected library's queue was full",
        ),
        (*invalid_records, "GPU record was invalid|GPU records were invalid"),
        (
            *names,
            "kernel or NVTX range has no name: the table of names was full|kernels or NVTX ranges have no name: the table of names was full",
        ),
        (
            *buffers_refused,
            "buffer request of CUPTI was refused: too many buffers were in use|buffer requests of CUPTI were refused: too many buffers were in use",
        ),
        (
            *join_evicted,
            "launch was dropped before its GPU work arrived: too many were pending|launches were dropped before their GPU work arrived: too many were pending",
        ),
    ];
    let causes = causes.iter().map(|(cause, number)| (*number, cause_sentence(*cause)));
    let spelled = |number: u64, sentence: &str| {
        let (one, many) = sentence.split_once('|').unwrap_or((sentence, sentence));
        format!("{} {}", count(number), if number == 1 { one } else { many })
    };
    let gpu = ledger.gpu_stack_ends.iter().map(|(end, number)| ("GPU operation|GPU operations", *end, *number));
    let cpu = ledger.cpu_stack_ends.iter().map(|(end, number)| ("CPU sample|CPU samples", *end, *number));
    let hits = ledger.hit_stack_ends.iter().map(|(end, number)| ("hit of an event|hits of events", *end, *number));
    let short = gpu.chain(cpu).chain(hits).filter_map(|(what, end, number)| {
        Some(format!("{} under a stack truncated {}", spelled(number, what), stack_end(end)?))
    });
    let samples = ledger.stalls.iter().flat_map(samples_lost);
    pauses(&ledger.pauses)
        .into_iter()
        .chain(
            before
                .into_iter()
                .chain(samples)
                .chain(causes)
                .filter(|(number, _)| *number > 0)
                .map(|(n, sentence)| spelled(n, sentence)),
        )
        .chain(short)
        .chain(ledger.energy.iter().flat_map(energy_lost))
        .collect()
}

/// Returns a sentence for each process and client of CUPTI that paused the recording.
fn pauses(all: &[Pause]) -> Vec<String> {
    let mut sums = BTreeMap::<(u32, &str), (u64, usize)>::new();
    for pause in all {
        let (ns, times) = sums.entry((pause.pid, &pause.client)).or_default();
        (*ns, *times) = (ns.saturating_add(pause.ns), *times + 1);
    }
    let sentence = |((pid, client), (ns, times)): ((u32, &str), (u64, usize))| {
        let often = if times > 1 { format!(" ({times} times)") } else { String::new() };
        format!(
            "GPU records of process {pid} are missing for {}{often}: {client} was using CUPTI; this time counts as idle",
            time(ns)
        )
    };
    sums.into_iter().map(sentence).collect()
}

/// Where a stack was truncated, or why.
fn stack_end(end: StackEnd) -> Option<&'static str> {
    Some(match end {
        StackEnd::Whole => return None,
        StackEnd::Truncated => "at 512 frames",
        StackEnd::Broken => "(unknown reason)",
        StackEnd::NoMapping => "at an address in no known file",
        StackEnd::NoRule => "at code without unwind information",
        StackEnd::Unsupported => "at unsupported unwind information",
        StackEnd::FramePointerLost => "where the frame pointer was lost",
        StackEnd::Unreadable => "at memory that could not be read",
        StackEnd::Stuck => "where the stack pointer did not advance",
    })
}

fn cause_sentence(cause: LossCause) -> &'static str {
    match cause {
        LossCause::RingLaunches => {
            "launch was lost: the ring buffer was full|launches were lost: the ring buffer was full"
        }
        LossCause::RingStacks => "stack was lost: the ring buffer was full|stacks were lost: the ring buffer was full",
        LossCause::RingSamples => {
            "CPU sample was lost: the ring buffer was full|CPU samples were lost: the ring buffer was full"
        }
        LossCause::RingProcesses => {
            "process or thread event was lost: the ring buffer was full|process or thread events were lost: the ring buffer was full"
        }
        LossCause::Mappings => "record of a mapped file was dropped|records of mapped files were dropped",
        LossCause::MalformedPackets => {
            "malformed packet from an injected library|malformed packets from injected libraries"
        }
        LossCause::PythonStacksUneven => {
            "Python stack does not match its native stack: frames may be out of order|Python stacks do not match their native stacks: frames may be out of order"
        }
        LossCause::RingCalls => {
            "call or request was lost: the ring buffer was full|calls or requests were lost: the ring buffer was full"
        }
        LossCause::DeepCalls => "call was nested too deeply to be followed|calls were nested too deeply to be followed",
        LossCause::CallSums => "call was not counted: a BPF map was full|calls were not counted: a BPF map was full",
        LossCause::Hits => {
            "hit of an event was not counted: a BPF map was full|hits of events were not counted: a BPF map was full"
        }
        LossCause::GraphNodes => {
            "graph node or its stack was dropped: too many graph nodes|graph nodes or their stacks were dropped: too many graph nodes"
        }
        LossCause::RingTensors => {
            "allocation or free of a tensor was lost: the ring buffer was full|allocations and frees of tensors were lost: the ring buffer was full"
        }
        LossCause::MissedSwitches => {
            "off-CPU interval is missing: the kernel did not report a switch of its thread|off-CPU intervals are missing: the kernel did not report a switch of their threads"
        }
        LossCause::CounterSamples => {
            "sample of GPU counters was dropped: warpscope could not read them in time|samples of GPU counters were dropped: warpscope could not read them in time"
        }
        LossCause::CounterOverflows => {
            "time the hardware buffer for GPU counters was full: samples are missing|times the hardware buffer for GPU counters was full: samples are missing"
        }
        LossCause::UnwrittenLaunches => {
            "launch was lost: its thread ended while it reported it|launches were lost: their threads ended while they reported them"
        }
        LossCause::UnknownThreads => {
            "launch, call or range is shown without its thread: the id of a thread in another pid namespace is not known|launches, calls and ranges are shown without their threads: the ids of threads in other pid namespaces are not known"
        }
        LossCause::RingWaits => "wait was lost: the ring buffer was full|waits were lost: the ring buffer was full",
        LossCause::Handovers => {
            "launch or CPU sample of PyTorch's autograd or of XLA appears under its own thread: it is not known which call caused it|launches and CPU samples of PyTorch's autograd or of XLA appear under their own threads: it is not known which calls caused them"
        }
        LossCause::EnginesRefused => {
            "mapping of PyTorch's engine or of XLA was ignored: too many libraries of PyTorch or XLA|mappings of PyTorch's engine or of XLA were ignored: too many libraries of PyTorch or XLA"
        }
        LossCause::ForeignStacks => {
            "launch named the stack or session of another process, and was not trusted|launches named stacks or sessions of other processes, and were not trusted"
        }
        LossCause::ThreadsRefused => {
            "thread is shown without the code that started it: too many threads|threads are shown without the code that started them: too many threads"
        }
        LossCause::StacksRefused => {
            "launch or sample is shown without its stack: its process has too many distinct ones|launches and samples are shown without their stacks: their processes have too many distinct ones"
        }
        LossCause::MappingsRefused => {
            "mapped file was left out: too many mappings, and stacks end there|mapped files were left out: too many mappings, and stacks end there"
        }
        LossCause::ProcessesRefused => {
            "process or thread has no name: too many processes and threads|processes or threads have no name: too many processes and threads"
        }
        LossCause::PythonRefused => {
            "part of a Python stack has no name: too much Python code|parts of Python stacks have no name: too much Python code"
        }
        LossCause::StackWalks => "stack could not be walked|stacks could not be walked",
        LossCause::SessionsRefused => {
            "connection or launch was refused: too many CUDA sessions|connections or launches were refused: too many CUDA sessions"
        }
        LossCause::NamesRefused => "kernel name was refused: too many names|kernel names were refused: too many names",
        LossCause::DevicesRefused => {
            "message about a GPU was refused: too many GPUs|messages about GPUs were refused: too many GPUs"
        }
        LossCause::NotesRefused => {
            "notice from a CUDA process was refused: too many notices|notices from CUDA processes were refused: too many notices"
        }
        LossCause::StreamsRefused => {
            "GPU record was refused: too many streams|GPU records were refused: too many streams"
        }
        LossCause::GpuSums => {
            "GPU operation is shown without its stack and kernel: too many distinct ones|GPU operations are shown without their stack and kernel: too many distinct ones"
        }
        LossCause::UnparsedRecords => {
            "record from the kernel could not be parsed|records from the kernel could not be parsed"
        }
        LossCause::EventsNotWritten => {
            "event could not be written to the recording|events could not be written to the recording"
        }
        LossCause::RecordsSkipped => {
            "record was skipped: it was written by a newer warpscope|records were skipped: they were written by a newer warpscope"
        }
        LossCause::UnwindTables => {
            "file has no unwind table because of an error in warpscope|files have no unwind table because of an error in warpscope"
        }
        LossCause::FilesUnread => {
            "file was not read because the process that reads it failed: names are missing|files were not read because the processes that read them failed: names are missing"
        }
        LossCause::MapsUnread => {
            "read of a BPF map failed: sums are missing|reads of BPF maps failed: sums are missing"
        }
        LossCause::ForeignProcesses => {
            "process is outside this pid namespace: its files cannot be read|processes are outside this pid namespace: their files cannot be read"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that `matched 100 %` is printed only if everything is matched.
    #[test]
    fn never_rounds_up() {
        let of = |matched, unmatched| {
            let ledger = Ledger { activities_matched: matched, activities_unmatched: unmatched, ..Ledger::default() };
            super::matched(&ledger)
        };
        assert_eq!(of(0, 0), None);
        assert_eq!(of(92_732, 0).as_deref(), Some("matched 100 %"));
        assert_eq!(of(9_987, 13).as_deref(), Some("matched 99.87 %  (13 of 10,000 activities without a launch)"));
        assert!(of(10_000_000, 1).expect("some").starts_with("matched 99.99 %  (1 of 10,000,001"));
    }

    /// Check that captured launches are reported, but not as a loss.
    #[test]
    fn captured_launches_are_no_loss() {
        assert_eq!(captured(0), None);
        assert!(captured(1).is_some_and(|sentence| sentence.starts_with("1 launch was captured")));
        assert!(captured(2_000).is_some_and(|sentence| sentence.starts_with("2,000 launches were captured")));
        let ledger = Ledger { launches: 2, launches_captured: 2, ..Ledger::default() };
        assert!(sentences(&ledger).is_empty());
    }

    /// Check that the ledger says how many nodes of graphs were created unseen.
    #[test]
    fn unseen_nodes_are_counted() {
        assert_eq!(graph_nodes(&Ledger { graph_operations: 7, ..Ledger::default() }), None);
        let unseen = Ledger {
            graph_operations: 3_000,
            graph_operations_unknown: 2_000,
            graph_nodes_unknown: 1,
            ..Ledger::default()
        };
        let expected = "2,000 of 3,000 operations of CUDA graphs are shown under the launch of their graph: the creation of 1 node was not seen";
        assert_eq!(graph_nodes(&unseen).as_deref(), Some(expected));
    }

    /// Check that energy that is missing is reported.
    #[test]
    fn missing_energy_is_reported() {
        let energy = EnergyLedger { outside_ns: 2_000, late_ns: 3_000, resets: 1, ..EnergyLedger::default() };
        let sentences = sentences(&Ledger { energy: Some(energy), ..Ledger::default() });
        let starts = [
            "2.00 µs of kernels has no energy",
            "3.00 µs of kernels has no energy",
            "NVML's energy counter was reset 1 time",
        ];
        assert!(sentences.iter().zip(starts).all(|(sentence, start)| sentence.starts_with(start)), "{sentences:?}");
        assert_eq!(sentences.len(), 3);
    }

    /// Check that no loss is silent: each counter alone makes exactly one sentence that starts with its number.
    #[test]
    fn every_loss_has_a_sentence() {
        assert!(sentences(&Ledger::default()).is_empty());
        let alone: Vec<Ledger> = {
            let base = Ledger::default;
            let lost = |lost| Ledger { lost, ..base() };
            let mut all = vec![
                Ledger { launches_failed: 2, ..base() },
                Ledger { launches_pending: 2, ..base() },
                Ledger { zero_time: 2, ..base() },
                Ledger { unfinished: 2, ..base() },
                Ledger { activities_delivered: 2, ..base() },
                Ledger { stacks_missing: 2, ..base() },
                Ledger { gpu_stack_ends: [(StackEnd::NoRule, 2)].into(), ..base() },
                Ledger { cpu_stack_ends: [(StackEnd::Truncated, 2)].into(), ..base() },
                Ledger { sessions_cut_off: 2, ..base() },
                Ledger { sessions_left: 2, ..base() },
                lost(Lost { cupti_dropped: 2, ..Lost::default() }),
                lost(Lost { queue_full: 2, ..Lost::default() }),
                lost(Lost { queue_full_launches: 2, ..Lost::default() }),
                lost(Lost { invalid_records: 2, ..Lost::default() }),
                lost(Lost { names: 2, ..Lost::default() }),
                lost(Lost { buffers_refused: 2, ..Lost::default() }),
                lost(Lost { join_evicted: 2, ..Lost::default() }),
            ];
            let stalls = |stalls| Ledger { stalls: Some(stalls), ..base() };
            all.extend([
                stalls(StallLedger { without_line: 2, ..StallLedger::default() }),
                stalls(StallLedger { in_functions: 2, ..StallLedger::default() }),
                stalls(StallLedger { without_launch: 2, ..StallLedger::default() }),
                stalls(StallLedger { dropped: 2, ..StallLedger::default() }),
                stalls(StallLedger { unsent: 2, ..StallLedger::default() }),
                stalls(StallLedger { buffer_full: 2, ..StallLedger::default() }),
                stalls(StallLedger { contexts_refused: 2, ..StallLedger::default() }),
                stalls(StallLedger { cubins_refused: 2, ..StallLedger::default() }),
            ]);
            all.extend(LossCause::ALL.map(|cause| lost(Lost { causes: [(cause, 2)].into(), ..Lost::default() })));
            all
        };
        for ledger in alone {
            let sentences = sentences(&ledger);
            assert!(matches!(sentences.as_slice(), [one] if one.starts_with("2 ")), "{ledger:?}: {sentences:?}");
        }
    }
}
