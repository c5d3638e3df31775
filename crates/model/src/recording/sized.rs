//! Records that include their length: all but the four frequent ones. Unknown records are skipped, and known ones may
//! have additional fields at their end. [`events`] declares them.

use super::{
    bytes::{Cursor, put_distance},
    field::{Field, frames, times},
};
use crate::{
    event::{
        Call, Captured, Counted, Counter, CounterPoint, Device, Dump, Empty, End, Energy, ErrorSum, Event, Exit,
        Failed, Function, Gpm, GraphDestroyed, Hits, InstructionText, KernelName, KernelSum, Loss, Mapping, Memory,
        MemorySum, NodeCopied, NodeCreated, NodeStack, Note, OwnCost, Pause, PmSamples, Process, ProgramCost, Range,
        RangeName, RangedLaunch, Rank, Returned, Sampling, Session, SessionCost, Shutdown, SourceText, Stack,
        StallLines, StallReason, StallSamples, StallTotals, Start, Sum, Switch, Symbol, Tensor, TensorFreed, Thread,
        Totals, Wait, events,
    },
    histogram,
};

/// The smallest tag of a record with a length.
pub const FIRST: u8 = 16;

/// From earlier versions: live memory only, without allocations and frees.
const LIVE_SUM: u8 = 37;

macro_rules! records {
    (
        { $($(#[$($_a:tt)*])* $_frequent:literal = $frequent:ident { $($_b:tt)* } $([$($_c:tt)*])*)* }
        { $($(#[$($_d:tt)*])* $tag:literal = $name:ident { $($fields:tt)* } $([$($_e:tt)*])*)* }
    ) => {
        /// Writes the fields of an event; returns its tag.
        pub fn put(event: &Event, out: &mut Vec<u8>) -> u8 {
            match event {
                $(Event::$name(event) => {
                    put_fields!(event, out, $($fields)*);
                    $tag
                })*
                $(Event::$frequent(_))|* => unreachable!("has a record without a length"),
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

events!(records);

/// Returns the smallest value that the shortest of these durations can have.
fn shortest(buckets: &[u64], longest: u64) -> u64 {
    let first = buckets.iter().position(|count| *count > 0).unwrap_or(0);
    histogram::lower_bound(first.min(histogram::BUCKETS)).min(longest)
}
