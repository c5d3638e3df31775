//! Events of every kind, with any contents.

use std::sync::Arc;

use cuda::{calls::KernelRef, occupancy::Limits};
use proptest::{collection::vec, option, prelude::*, sample::select};

use crate::event::{
    Activity, Call, Captured, CostProgram, Counted, Counter, CounterId, CounterPoint, Device, DeviceIdentity,
    Direction, Empty, End, Energy, ErrorSum, Event, Exit, Failed, Frame, FrameKind, Function, FunctionId, Gpm,
    GraphDestroyed, Hits, Instruction, InstructionText, KernelName, KernelSum, Launch, LaunchKind, Layer, Loss,
    LossCause, Mapping, Memory, MemorySum, Mode, NamedFrame, NodeCopied, NodeCreated, NodeStack, Note, Origin, OwnCost,
    Pause, PmSamples, PointId, Process, ProcessId, ProgramCost, Range, RangeName, RangedLaunch, Rank, Sample, Sampling,
    Session, SessionCost, SessionId, Shutdown, SourceLine, SourceText, Stack, StackEnd, StackId, StallLines,
    StallReason, StallSamples, StallTotals, Start, Sum, Switch, Symbol, Sync, Tensor, TensorFreed, Thread, Totals,
    Unit, Uuid, Wait, Work,
};

fn text() -> impl Strategy<Value = String> {
    vec(any::<char>(), 0..12).prop_map(String::from_iter)
}

fn process() -> impl Strategy<Value = ProcessId> {
    any::<u32>().prop_map(ProcessId)
}

fn session() -> impl Strategy<Value = SessionId> {
    prop_oneof![0u32..3, any::<u32>()].prop_map(SessionId)
}

fn stack_id() -> impl Strategy<Value = StackId> {
    prop_oneof![0u64..9, any::<u64>()].prop_map(StackId)
}

fn time() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 1u64 << 50..(1 << 50) + 100_000, any::<u64>()]
}

fn frame() -> impl Strategy<Value = Frame> {
    prop_oneof![
        any::<u64>().prop_map(Frame::User),
        any::<u64>().prop_map(Frame::Kernel),
        any::<u32>().prop_map(Frame::Python)
    ]
}

fn named() -> impl Strategy<Value = NamedFrame> {
    (select(vec![FrameKind::Native, FrameKind::Kernel, FrameKind::Probe, FrameKind::Python]), text(), text())
        .prop_map(|(kind, name, module)| NamedFrame { kind, name: Arc::from(name), module: Arc::from(module) })
}

fn work() -> impl Strategy<Value = Work> {
    let kernel = (0u32..9, any::<[u32; 3]>(), any::<[u32; 3]>(), any::<u16>(), any::<u32>()).prop_map(
        |(name, grid, block, registers, shared_memory)| Work::Kernel { name, grid, block, registers, shared_memory },
    );
    let copy =
        (select(Direction::ALL.to_vec()), any::<u64>(), any::<u8>(), any::<u8>(), any::<Option<u32>>()).prop_map(
            |(direction, bytes, source, destination, peer)| Work::Copy { direction, bytes, source, destination, peer },
        );
    let memset = (any::<u64>(), any::<u32>(), any::<u8>()).prop_map(|(bytes, value, memory)| Work::Memset {
        bytes,
        value,
        memory,
    });
    prop_oneof![kernel, copy, memset]
}

fn frequent() -> impl Strategy<Value = Event> {
    let launch = (session(), any::<u32>(), 0u8..64, process(), any::<u32>(), any::<u32>(), time(), stack_id());
    let launch = launch.prop_map(|(session, correlation, kind, process, tid, cpu, time, stack)| {
        let (kind, rate) = (LaunchKind::from_number(1 + kind % 4).unwrap(), kind / 4);
        Event::Launch(Launch { session, correlation, kind, process, tid, cpu, time, stack, rate })
    });
    let activity = (session(), any::<[u32; 3]>(), any::<u32>(), time(), time(), 0u32..3, any::<u64>(), work());
    let activity = activity.prop_map(|(session, place, correlation, start, end, graph, graph_node, work)| {
        let [device, context, stream] = place;
        Event::Activity(Activity { session, correlation, device, context, stream, start, end, graph, graph_node, work })
    });
    let sample = (process(), any::<u32>(), any::<u32>(), time(), stack_id(), any::<u64>()).prop_map(
        |(process, tid, cpu, time, stack, weight)| Event::Sample(Sample { process, tid, cpu, time, stack, weight }),
    );
    let sync = (session(), any::<[u32; 4]>(), time(), time()).prop_map(|(session, numbers, start, end)| {
        let [correlation, kind, context, stream] = numbers;
        Event::Sync(Sync { session, correlation, kind, context, stream, start, end })
    });
    prop_oneof![launch, activity, sample, sync, traced()]
}

fn function_id() -> impl Strategy<Value = FunctionId> {
    prop_oneof![0u32..9, any::<u32>()].prop_map(FunctionId)
}

/// Frequent events that occur only in traces.
fn traced() -> impl Strategy<Value = Event> {
    let place = (function_id(), process(), any::<u32>(), any::<u32>(), any::<u8>(), any::<[bool; 2]>());
    let times = (time(), time(), any::<u64>(), any::<Option<u64>>(), time());
    let ties = (option::of((session(), any::<u32>())), option::of(stack_id()), any::<bool>());
    let args = (vec(any::<u64>(), 0..12), vec(any::<u8>(), 0..40));
    let call = (place, times, ties, args).prop_map(|(place, times, (launch, stack, launches), (words, payload))| {
        let (function, process, tid, cpu, depth, [nested, enclosed]) = place;
        let (start, end, result, out, around) = times;
        Event::Call(Call {
            function,
            process,
            tid,
            cpu,
            depth,
            nested,
            enclosed,
            start,
            end,
            result,
            out,
            launch,
            launches,
            around,
            stack,
            words,
            payload,
        })
    });
    let stack = any::<Option<u64>>().prop_map(|id| id.map(StackId));
    let switch = (process(), any::<[u32; 3]>(), any::<u8>(), time(), time(), any::<bool>(), time(), stack).prop_map(
        |(process, [tid, cpu, state], depth, start, end, preempted, around, stack)| {
            Event::Switch(Switch { process, tid, cpu, depth, start, end, preempted, state, stack, around })
        },
    );
    prop_oneof![3 => call, 1 => switch]
}

/// Rare events that occur only in traces.
fn traced_rarely() -> impl Strategy<Value = Event> {
    let layers = select(vec![Layer::Library, Layer::Driver, Layer::Kernel, Layer::Point]);
    let function = (function_id(), layers, text(), text(), any::<[bool; 2]>(), vec(text(), 0..4)).prop_map(
        |(id, layer, library, name, [shown, void], parameters)| {
            Event::Function(Function { id, layer, library, name, shown, parameters, void })
        },
    );
    let buckets = vec(prop_oneof![3 => Just(0), 1 => any::<u64>()], 0..crate::histogram::BUCKETS);
    let sum = (function_id(), process(), any::<u32>(), any::<bool>(), any::<[u64; 8]>(), buckets).prop_map(
        |(function, process, class, nested, [count, errors, ns, max_ns, min_ns, bytes, self_ns, outer_ns], buckets)| {
            Event::Sum(Sum {
                function,
                process,
                class,
                nested,
                count,
                errors,
                ns,
                max_ns,
                min_ns,
                bytes,
                self_ns,
                outer_ns,
                buckets,
            })
        },
    );
    let errors = (function_id(), any::<u32>(), any::<bool>(), any::<u64>())
        .prop_map(|(function, code, enclosed, count)| Event::ErrorSum(ErrorSum { function, code, enclosed, count }));
    let memory = (process(), any::<u8>(), any::<[u64; 12]>()).prop_map(|(process, space, counts)| {
        let [allocations, bytes, failed, frees, failed_frees, unknown_frees, missed_frees, released, untracked, ..] =
            counts;
        let [.., live, live_bytes, peak_bytes] = counts;
        let memory = Memory {
            allocations,
            bytes,
            failed,
            frees,
            failed_frees,
            unknown_frees,
            missed_frees,
            released,
            untracked,
            live,
            live_bytes,
            peak_bytes,
        };
        Event::MemorySum(MemorySum { process, space, memory })
    });
    let kernel =
        option::of((any::<bool>(), any::<u64>()).prop_map(|(handle, address)| {
            if handle { KernelRef::Handle(address) } else { KernelRef::HostStub(address) }
        }));
    let kernels = (process(), kernel, any::<u64>())
        .prop_map(|(process, kernel, count)| Event::KernelSum(KernelSum { process, kernel, count }));
    prop_oneof![function, sum, errors, memory, kernels]
}

/// User-defined events.
fn counted() -> impl Strategy<Value = Event> {
    let units = select(vec![Unit::Number, Unit::Bytes, Unit::Ns]);
    let counter = (any::<u32>(), text(), text(), text(), units).prop_map(|(id, name, source, weight, unit)| {
        Event::Counter(Counter { id: CounterId(id), name, source, weight, unit })
    });
    let point = (any::<[u32; 2]>(), text(), text()).prop_map(|([id, counter], function, file)| {
        Event::CounterPoint(CounterPoint { id: PointId(id), counter: CounterId(counter), function, file })
    });
    let hits = (any::<u32>(), process(), stack_id(), any::<[u64; 3]>()).prop_map(
        |(point, process, stack, [count, weight, outside])| {
            Event::Hits(Hits { point: PointId(point), process, stack, count, weight, outside })
        },
    );
    let wait = (process(), any::<[u32; 2]>(), any::<[u64; 2]>(), stack_id()).prop_map(
        |(process, [tid, reason], [start, end], stack)| {
            Event::Wait(Wait { process, tid, start, end, stack, reason: PointId(reason) })
        },
    );
    let tensor = (process(), any::<[u32; 2]>(), any::<[u64; 3]>(), stack_id()).prop_map(
        |(process, [tid, device], [time, address, bytes], stack)| {
            Event::Tensor(Tensor { process, tid, time, device, address, bytes, stack })
        },
    );
    let freed = (process(), any::<u32>(), any::<[u64; 2]>())
        .prop_map(|(process, tid, [time, address])| Event::TensorFreed(TensorFreed { process, tid, time, address }));
    let shutdown = (process(), time()).prop_map(|(process, time)| Event::Shutdown(Shutdown { process, time }));
    prop_oneof![counter, point, hits, wait, tensor, freed, shutdown]
}

/// Samples inside kernels.
fn stalls() -> impl Strategy<Value = Event> {
    let at = || {
        (session(), any::<[u32; 2]>(), any::<u64>()).prop_map(|(session, [cubin, function], offset)| Instruction {
            session,
            cubin,
            function,
            offset,
        })
    };
    let reason = (session(), any::<u32>(), text())
        .prop_map(|(session, index, name)| Event::StallReason(StallReason { session, index, name }));
    let samples = (at(), any::<[u32; 2]>(), any::<u64>()).prop_map(|(at, [reason, correlation], count)| {
        Event::StallSamples(StallSamples { at, reason, count, correlation })
    });
    let code = (at(), text()).prop_map(|(at, text)| Event::InstructionText(InstructionText { at, text }));
    let line = (text(), text(), any::<u32>()).prop_map(|(function, file, line)| SourceLine {
        function: function.into(),
        file: file.into(),
        line,
    });
    let lines = (at(), vec(line, 0..4)).prop_map(|(at, lines)| Event::StallLines(StallLines { at, lines }));
    let source = (text(), any::<u32>(), vec(text(), 0..4))
        .prop_map(|(file, first, lines)| Event::SourceText(SourceText { file: file.into(), first, lines }));
    let totals = (session(), any::<[u64; 7]>(), any::<[u32; 4]>(), any::<bool>()).prop_map(
        |(session, wide, narrow, serialised)| {
            let [samples, other_kernels, dropped, unsent, buffer_full, buffer_bytes, memory_bytes] = wide;
            let [contexts, contexts_refused, period, cubins_refused] = narrow;
            Event::StallTotals(StallTotals {
                session,
                samples,
                other_kernels,
                dropped,
                unsent,
                buffer_full,
                contexts,
                contexts_refused,
                buffer_bytes,
                memory_bytes,
                period,
                cubins_refused,
                serialised,
            })
        },
    );
    prop_oneof![reason, samples, lines, code, source, totals]
}

fn rare() -> impl Strategy<Value = Event> {
    let modes =
        select(vec![Mode::Merged, Mode::GpuOnly, Mode::CpuOnly, Mode::Trace, Mode::TraceSums, Mode::EventsOnly]);
    let start = (time(), time(), text(), text(), vec(text(), 0..4), modes, any::<u32>()).prop_map(
        |(time, wall_clock, version, host, command, mode, frequency)| {
            Event::Start(Start { time, wall_clock, version, host, command, mode, frequency })
        },
    );
    let origins = select(vec![Origin::Found, Origin::Fork, Origin::Exec]);
    let appears = (process(), process(), origins, any::<u32>(), time(), text()).prop_map(
        |(id, parent, origin, pid, time, comm)| Event::Process(Process { id, parent, origin, pid, time, comm }),
    );
    let thread =
        (process(), any::<u32>(), text()).prop_map(|(process, tid, comm)| Event::Thread(Thread { process, tid, comm }));
    let exit = (process(), time()).prop_map(|(process, time)| Event::Exit(Exit { process, time }));
    let mapping = (process(), any::<[u64; 4]>(), text(), vec(any::<u8>(), 0..24)).prop_map(
        |(process, [time, start, end, offset], path, build_id)| {
            Event::Mapping(Mapping { process, time, start, end, offset, path, build_id })
        },
    );
    let ends = select(StackEnd::ALL.to_vec());
    let stack = (stack_id(), process(), time(), vec(frame(), 0..9), ends)
        .prop_map(|(id, process, time, frames, end)| Event::Stack(Stack { id, process, time, frames, end }));
    let connects = (session(), process(), any::<u32>(), any::<u32>())
        .prop_map(|(id, process, cupti, driver)| Event::Session(Session { id, process, cupti, driver }));
    let rank = (session(), any::<[Option<u32>; 2]>(), text(), any::<bool>())
        .prop_map(|(session, [rank, local], variable, mps)| Event::Rank(Rank { session, rank, local, variable, mps }));
    let range_name =
        (session(), any::<[u32; 2]>(), [text(), text()]).prop_map(|(session, [id, parent], [category, name])| {
            Event::RangeName(RangeName { session, id, parent, category, name })
        });
    let range = (session(), any::<[u32; 2]>(), any::<[u64; 2]>(), any::<bool>()).prop_map(
        |(session, [path, tid], [start, end], mark)| Event::Range(Range { session, path, tid, start, end, mark }),
    );
    let ranged = (session(), any::<[u32; 2]>())
        .prop_map(|(session, [correlation, path])| Event::RangedLaunch(RangedLaunch { session, correlation, path }));
    let name = (session(), any::<u32>(), text())
        .prop_map(|(session, id, name)| Event::KernelName(KernelName { session, id, name }));
    let limits = any::<Option<[u32; 8]>>().prop_map(|limits| {
        let [major, minor, multiprocessors, threads, blocks, registers, shared_memory, reserved_shared_memory] =
            limits.unwrap_or_default();
        let capability = (major, minor);
        Limits { capability, multiprocessors, threads, blocks, registers, shared_memory, reserved_shared_memory }
    });
    let device = (session(), any::<u32>(), text(), any::<[u128; 2]>(), any::<u64>(), any::<Option<u32>>(), limits)
        .prop_map(|(session, index, name, [uuid, gpu], pci, machine_index, limits)| {
            let identity = DeviceIdentity { uuid: Uuid(uuid), gpu: Uuid(gpu), pci, machine_index, limits };
            Event::Device(Device { session, index, name, identity })
        });
    let failed = (session(), any::<u32>(), any::<u32>())
        .prop_map(|(session, correlation, code)| Event::Failed(Failed { session, correlation, code }));
    let empty =
        (session(), any::<u32>()).prop_map(|(session, correlation)| Event::Empty(Empty { session, correlation }));
    let captured =
        (session(), any::<u32>()).prop_map(|(session, correlation)| Event::Captured(Captured { session, correlation }));
    let node = (session(), any::<u64>(), any::<u32>(), any::<bool>())
        .prop_map(|(session, node, mark, own)| Event::NodeCreated(NodeCreated { session, node, mark, own }));
    let node_stack = (session(), any::<[u32; 2]>(), process(), time(), stack_id()).prop_map(
        |(session, [mark, tid], process, time, stack)| {
            Event::NodeStack(NodeStack { session, mark, process, tid, time, stack })
        },
    );
    let copied = (session(), any::<[u64; 2]>(), time())
        .prop_map(|(session, [node, original], time)| Event::NodeCopied(NodeCopied { session, node, original, time }));
    let destroyed =
        (session(), any::<u32>()).prop_map(|(session, graph)| Event::GraphDestroyed(GraphDestroyed { session, graph }));
    let totals = (session(), any::<[u64; 12]>(), any::<bool>()).prop_map(|(session, n, ended)| {
        let [launches, kernels, kernel_ns, copies, memsets, syncs, ..] = n;
        let [.., dropped_by_cupti, dropped_queue_full, invalid, nameless, buffers_refused, dropped_launches] = n;
        Event::Totals(Totals {
            session,
            launches,
            kernels,
            kernel_ns,
            copies,
            memsets,
            syncs,
            dropped_by_cupti,
            dropped_queue_full,
            invalid,
            nameless,
            buffers_refused,
            dropped_launches,
            ended,
        })
    });
    let costs = any::<[u64; 4]>()
        .prop_map(|[collector_ns, program_ns, ..]| Event::OwnCost(OwnCost { collector_ns, program_ns }));
    let programs = select(vec![CostProgram::Launch, CostProgram::Sample, CostProgram::Enter, CostProgram::Hit]);
    let programs = (programs, any::<u64>(), any::<u64>())
        .prop_map(|(program, runs, ns)| Event::ProgramCost(ProgramCost { program, runs, ns }));
    let session_costs =
        (session(), any::<[u64; 4]>()).prop_map(|(session, [process_ns, callbacks_ns, stacks_ns, sender_ns])| {
            Event::SessionCost(SessionCost { session, process_ns, callbacks_ns, stacks_ns, sender_ns })
        });
    let counts = (session(), 1u8..5, any::<u32>(), any::<u64>()).prop_map(|(session, kind, name, count)| {
        Event::Counted(Counted { session, kind: LaunchKind::from_number(kind).unwrap(), name, count })
    });
    let sampling = (session(), any::<[u64; 2]>())
        .prop_map(|(session, [recorded_ns, whole_ns])| Event::Sampling(Sampling { session, recorded_ns, whole_ns }));
    let loss =
        (select(LossCause::ALL.to_vec()), any::<u64>()).prop_map(|(cause, count)| Event::Loss(Loss { cause, count }));
    let pause = (session(), any::<u32>(), any::<[u64; 2]>(), text())
        .prop_map(|(session, number, [from, to], client)| Event::Pause(Pause { session, number, from, to, client }));
    let note = text().prop_map(|text| Event::Note(Note { text }));
    let symbol = (process(), frame(), time(), vec(named(), 0..4))
        .prop_map(|(process, frame, since, names)| Event::Symbol(Symbol { process, frame, since, names }));
    let energy = (any::<u128>(), any::<[u64; 2]>())
        .prop_map(|(gpu, [time, millijoules])| Event::Energy(Energy { gpu: Uuid(gpu), time, millijoules }));
    let gpm = (any::<u128>(), any::<[u64; 2]>(), vec(any::<(u32, u64)>(), 0..4))
        .prop_map(|(gpu, [start, end], values)| Event::Gpm(Gpm { gpu: Uuid(gpu), start, end, values }));
    let pm =
        (any::<u128>(), any::<u64>(), vec(any::<u32>(), 0..4), vec(any::<(u64, u64)>(), 0..4), vec(any::<u32>(), 0..9))
            .prop_map(|(gpu, start, metrics, times, values)| {
                Event::PmSamples(PmSamples { gpu: Uuid(gpu), start, metrics, times, values })
            });
    let end = (time(), any::<Option<i32>>()).prop_map(|(time, status)| Event::End(End { time, status }));
    prop_oneof![
        prop_oneof![start, appears, thread, exit, mapping, stack, connects, rank, name],
        prop_oneof![device, failed, captured, empty, totals, loss, note, pause, symbol, end],
        prop_oneof![energy, gpm, pm, costs, programs, session_costs, counts, sampling],
        prop_oneof![node, node_stack, copied, destroyed],
        prop_oneof![range_name, range, ranged],
        traced_rarely(),
        counted(),
        stalls()
    ]
}

/// Any events, most of them frequent ones.
pub fn events(most: usize) -> impl Strategy<Value = Vec<Event>> {
    // Boxed: in a build without optimisation, the value trees of all events fill the stack of a test.
    vec(prop_oneof![2 => frequent().boxed(), 1 => rare().boxed()], 0..most)
}
