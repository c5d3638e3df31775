//! Records that include their length: all but the four frequent ones. Unknown records are skipped, and known ones may
//! have additional fields at their end.

use super::{
    bytes::{Cursor, put_distance},
    field::{Field, frames, identity, times},
};
use crate::{
    event::{
        Call, Captured, Counted, Counter, CounterPoint, Device, Dump, Empty, End, Energy, ErrorSum, Event, Exit,
        Failed, Function, Gpm, GraphDestroyed, Hits, InstructionText, KernelName, KernelSum, Loss, Mapping, Memory,
        MemorySum, NodeCopied, NodeCreated, NodeStack, Note, OwnCost, Pause, PmSamples, Process, ProgramCost, Range,
        RangeName, RangedLaunch, Rank, Returned, Sampling, Session, SessionCost, Shutdown, SourceText, Stack,
        StallLines, StallReason, StallSamples, StallTotals, Start, Sum, Switch, Symbol, Tensor, TensorFreed, Thread,
        Totals, Wait,
    },
    histogram,
};

/// The smallest tag of a record with a length.
pub const FIRST: u8 = 16;

/// From earlier versions: live memory only, without allocations and frees.
const LIVE_SUM: u8 = 37;

/// Declares records: the tag, the event, and its fields in file order. A field is one of
///
/// ```text
///   name                     as its type is written
///   name from other          its distance from another field
///   name or value            recordings of earlier versions end before it: then it has this value
///   name unless 0            the last field, left out where it is 0; with `from other` as a distance
///   name as module           as the functions of a module write it
///   [flags ...; has ...]     a byte: flags of the event, and which optional fields are there, each with its bit
///   name?                    such an optional field
/// ```
macro_rules! records {
    ($($tag:literal = $name:ident { $($fields:tt)* })*) => {
        /// Writes the fields of an event; returns its tag.
        pub fn put(event: &Event, out: &mut Vec<u8>) -> u8 {
            match event {
                $(Event::$name(event) => {
                    put_fields!(event, out, $($fields)*);
                    $tag
                })*
                Event::Launch(_) | Event::Activity(_) | Event::Sample(_) | Event::Sync(_) => {
                    unreachable!("has a record without a length")
                }
            }
        }

        /// Reads an event. `None`: unknown, to be skipped.
        pub fn get(tag: u8, c: &mut Cursor<'_>) -> Option<Event> {
            Some(match tag {
                $($tag => Event::$name(get_fields!(c, $name [] $($fields)*)),)*
                LIVE_SUM => {
                    let (process, space, live, live_bytes) =
                        (Field::get(c)?, Field::get(c)?, Field::get(c)?, Field::get(c)?);
                    let memory = Memory { live, live_bytes, ..Memory::default() };
                    Event::MemorySum(MemorySum { process, space, memory })
                }
                _ => return None,
            })
        }
    };
}

macro_rules! put_fields {
    ($event:ident, $out:ident $(,)?) => {};
    ($event:ident, $out:ident, $field:ident from $other:ident $(, $($rest:tt)*)?) => {
        put_distance($out, $event.$other, $event.$field);
        put_fields!($event, $out, $($($rest)*)?);
    };
    ($event:ident, $out:ident, $field:ident or $missing:expr $(, $($rest:tt)*)?) => {
        $event.$field.put($out);
        put_fields!($event, $out, $($($rest)*)?);
    };
    ($event:ident, $out:ident, $field:ident unless 0 $(,)?) => {
        if $event.$field != 0 {
            $event.$field.put($out);
        }
    };
    ($event:ident, $out:ident, $field:ident unless 0 from $other:ident $(,)?) => {
        if $event.$field != 0 {
            put_distance($out, $event.$other, $event.$field);
        }
    };
    ($event:ident, $out:ident, $field:ident as $module:ident $(, $($rest:tt)*)?) => {
        $module::put_all(&$event.$field, $out);
        put_fields!($event, $out, $($($rest)*)?);
    };
    ($event:ident, $out:ident, [flags $($flag:ident $bit:literal),*; has $($part:ident $part_bit:literal),*] $(, $($rest:tt)*)?) => {
        $out.push(0 $(| if $event.$flag { $bit } else { 0 })* $(| if $event.$part.is_some() { $part_bit } else { 0 })*);
        put_fields!($event, $out, $($($rest)*)?);
    };
    ($event:ident, $out:ident, $field:ident? $(, $($rest:tt)*)?) => {
        if let Some(value) = &$event.$field {
            value.put($out);
        }
        put_fields!($event, $out, $($($rest)*)?);
    };
    ($event:ident, $out:ident, $field:ident $(, $($rest:tt)*)?) => {
        $event.$field.put($out);
        put_fields!($event, $out, $($($rest)*)?);
    };
}

/// Reads the fields, each into a variable of its name, and builds the event from them.
macro_rules! get_fields {
    ($c:ident, $name:ident [$($done:ident)*] $(,)?) => {
        $name { $($done),* }
    };
    ($c:ident, $name:ident [$($done:ident)*] $field:ident from $other:ident $(, $($rest:tt)*)?) => {{
        let $field = $c.distance($other)?;
        get_fields!($c, $name [$($done)* $field] $($($rest)*)?)
    }};
    ($c:ident, $name:ident [$($done:ident)*] $field:ident or $missing:expr $(, $($rest:tt)*)?) => {{
        let $field = if $c.left() == 0 { $missing } else { Field::get($c)? };
        get_fields!($c, $name [$($done)* $field] $($($rest)*)?)
    }};
    ($c:ident, $name:ident [$($done:ident)*] $field:ident unless 0 $(,)?) => {{
        let $field = if $c.left() == 0 { 0 } else { Field::get($c)? };
        get_fields!($c, $name [$($done)* $field])
    }};
    ($c:ident, $name:ident [$($done:ident)*] $field:ident unless 0 from $other:ident $(,)?) => {{
        let $field = if $c.left() == 0 { 0 } else { $c.distance($other)? };
        get_fields!($c, $name [$($done)* $field])
    }};
    ($c:ident, $name:ident [$($done:ident)*] $field:ident as $module:ident $(, $($rest:tt)*)?) => {{
        let $field = $module::get_all($c)?;
        get_fields!($c, $name [$($done)* $field] $($($rest)*)?)
    }};
    ($c:ident, $name:ident [$($done:ident)*] [flags $($flag:ident $bit:literal),*; has $($part:ident $part_bit:literal),*] $(, $($rest:tt)*)?) => {{
        let flags = $c.byte()?;
        $(let $flag = flags & $bit != 0;)*
        $(let $part = flags & $part_bit != 0;)*
        get_fields!($c, $name [$($done)* $($flag)*] $($($rest)*)?)
    }};
    ($c:ident, $name:ident [$($done:ident)*] $field:ident? $(, $($rest:tt)*)?) => {{
        let $field = if $field { Some(Field::get($c)?) } else { None };
        get_fields!($c, $name [$($done)* $field] $($($rest)*)?)
    }};
    ($c:ident, $name:ident [$($done:ident)*] $field:ident $(, $($rest:tt)*)?) => {{
        let $field = Field::get($c)?;
        get_fields!($c, $name [$($done)* $field] $($($rest)*)?)
    }};
}

records! {
    16 = Start { time, wall_clock, version, host, command, mode, frequency }
    17 = Process { id, parent, pid, time, comm, origin }
    18 = Thread { process, tid, comm }
    19 = Exit { process, time }
    20 = Mapping { process, time, start, end from start, offset, path, build_id }
    21 = Stack { id, process, time, end, frames as frames }
    22 = Session { id, process, cupti, driver }
    23 = KernelName { session, id, name }
    24 = Device { session, index, name, identity as identity }
    25 = Failed { session, correlation, code }
    26 = Totals {
        session, ended, launches, kernels, kernel_ns, copies, memsets, syncs, dropped_by_cupti, dropped_queue_full, invalid,
        nameless, buffers_refused, dropped_launches or 0,
    }
    27 = Loss { cause, count }
    28 = Note { text }
    29 = Symbol { process, frame, names, since unless 0 }
    30 = End { time, status }
    31 = Captured { session, correlation }
    32 = Function { id, layer, library, name, shown, parameters or Vec::new(), void or false }
    33 = Call {
        function, process, tid, cpu, depth,
        [flags nested 1, launches 16, enclosed 32; has out 2, launch 4, stack 8],
        start, end from start, result, out?, launch?, stack?, words, payload, around unless 0 from start,
    }
    34 = Switch {
        process, tid, cpu, depth, start, end from start, [flags preempted 1; has stack 2], state, stack?,
        around unless 0 from start,
    }
    35 = Sum {
        function, process, class, nested, count, errors, ns, max_ns, bytes, buckets, self_ns or ns, outer_ns or ns,
        min_ns or shortest(Vec::as_slice(&buckets), max_ns),
    }
    36 = ErrorSum { function, code, count, enclosed or false }
    38 = MemorySum { process, space, memory }
    39 = KernelSum { process, kernel, count }
    40 = Empty { session, correlation }
    41 = OwnCost { collector_ns, program_ns }
    42 = ProgramCost { program, runs, ns }
    43 = SessionCost { session, process_ns, callbacks_ns, stacks_ns, sender_ns }
    44 = Counted { session, kind, name, count }
    45 = Sampling { session, recorded_ns, whole_ns }
    46 = Returned { session, correlation, took }
    48 = Counter { id, name, source, weight, unit }
    49 = CounterPoint { id, counter, function, file }
    50 = Hits { point, process, stack, count, weight, outside }
    51 = NodeCreated { session, node, mark, own }
    52 = NodeStack { session, mark, process, tid, time, stack }
    53 = NodeCopied { session, node, original, time }
    54 = GraphDestroyed { session, graph }
    91 = Pause { session, number, from, to, client }
    70 = Rank { session, rank, local, variable, mps }
    80 = Tensor { process, tid, time, device, address, bytes, stack }
    81 = TensorFreed { process, tid, time, address }
    82 = Shutdown { process, time }
    71 = RangeName { session, id, parent, category, name }
    72 = Range { session, path, tid, start, end from start, mark }
    73 = RangedLaunch { session, correlation, path }
    100 = StallReason { session, index, name }
    101 = StallSamples { at, reason, count, correlation unless 0 }
    102 = StallLines { at, lines }
    103 = StallTotals {
        session, samples, other_kernels, dropped, unsent, buffer_full, contexts, contexts_refused, buffer_bytes, period,
        cubins_refused, memory_bytes or 0, serialised or false,
    }
    104 = SourceText { file, first, lines }
    105 = InstructionText { at, text }
    110 = Energy { gpu, time, millijoules }
    111 = Gpm { gpu, start, end from start, values }
    112 = PmSamples { gpu, start, metrics, times as times, values }
    90 = Dump { time, from, reason, text, window_ns, discarded, full }
    60 = Wait { process, tid, start, end from start, stack, reason }
}

/// Returns the smallest value that the shortest of these durations can have.
fn shortest(buckets: &[u64], longest: u64) -> u64 {
    let first = buckets.iter().position(|count| *count > 0).unwrap_or(0);
    histogram::lower_bound(first.min(histogram::BUCKETS)).min(longest)
}
