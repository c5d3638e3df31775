//! What follows from the declaration of an event: to whom it belongs, when it happened, what it refers to.

use super::{Event, Key, Number, Owner, SessionId, StackId, events};
use crate::recording::Field;

/// Calls `$then` with the fields of an event without how they are encoded: `(plain name)` or `(optional name)` each.
macro_rules! fields {
    ($then:ident $args:tt [$($done:tt)*] $(,)?) => {
        $then!($args $($done)*)
    };
    ($then:ident $args:tt [$($done:tt)*] [flags $($flag:ident $bit:literal),*; has $($has:tt)*], $($rest:tt)*) => {
        fields!($then $args [$($done)* $((plain $flag))*] $($rest)*)
    };
    ($then:ident $args:tt [$($done:tt)*] $field:ident from $other:ident $(, $($rest:tt)*)?) => {
        fields!($then $args [$($done)* (plain $field)] $($($rest)*)?)
    };
    ($then:ident $args:tt [$($done:tt)*] $field:ident or $missing:expr $(, $($rest:tt)*)?) => {
        fields!($then $args [$($done)* (plain $field)] $($($rest)*)?)
    };
    ($then:ident $args:tt [$($done:tt)*] $field:ident unless 0 $(from $other:ident)? $(,)?) => {
        fields!($then $args [$($done)* (plain $field)])
    };
    ($then:ident $args:tt [$($done:tt)*] $field:ident as $module:ident $(, $($rest:tt)*)?) => {
        fields!($then $args [$($done)* (plain $field)] $($($rest)*)?)
    };
    ($then:ident $args:tt [$($done:tt)*] $field:ident? $(, $($rest:tt)*)?) => {
        fields!($then $args [$($done)* (optional $field)] $($($rest)*)?)
    };
    ($then:ident $args:tt [$($done:tt)*] $field:ident $(, $($rest:tt)*)?) => {
        fields!($then $args [$($done)* (plain $field)] $($($rest)*)?)
    };
}
#[cfg(test)]
pub(crate) use fields;

/// The owner of an event: its session rather than its process. Optional fields are about others.
macro_rules! owner {
    (($event:ident) $(($how:ident $field:ident))*) => {
        None$(.or(owner!(@ $how $event $field sessions)))*$(.or(owner!(@ $how $event $field all)))*
    };
    (@ optional $event:ident $field:ident $which:ident) => { None };
    (@ plain $event:ident $field:ident sessions) => {
        $event.$field.owner().filter(|owner| matches!(owner, Owner::Session(_)))
    };
    (@ plain $event:ident $field:ident all) => { $event.$field.owner() };
}

macro_rules! stack {
    (($event:ident) $(($how:ident $field:ident))*) => { None$(.or(stack!(@ $how $event $field)))* };
    (@ optional $event:ident $field:ident) => { $event.$field.as_ref().and_then(Field::stack) };
    (@ plain $event:ident $field:ident) => { $event.$field.stack() };
}

macro_rules! numbers {
    (($event:ident $on:ident) $(($how:ident $field:ident))*) => {{ $(numbers!(@ $how $event $on $field);)* }};
    (@ optional $event:ident $on:ident $field:ident) => { $event.$field.iter_mut().for_each(|field| field.numbers($on)) };
    (@ plain $event:ident $on:ident $field:ident) => { $event.$field.numbers($on) };
}

/// The times of a role.
macro_rules! times {
    ($event:ident $on:ident during $start:ident $end:ident ()) => { $on(&mut $event.$start) };
    ($event:ident $on:ident during $start:ident $end:ident) => {
        $on(&mut $event.$start);
        $on(&mut $event.$end);
    };
    ($event:ident $on:ident $when:ident $($field:ident)*) => { times!(@ $when $event $on $($field)*) };
    (@ at $event:ident $on:ident $time:ident) => { $on(&mut $event.$time) };
    (@ since $event:ident $on:ident $time:ident) => { $on(&mut $event.$time) };
    (@ time $event:ident $on:ident $time:ident) => { $on(&mut $event.$time) };
    (@ $other:ident $($rest:tt)*) => {};
}

macro_rules! span {
    ($event:ident at $time:ident) => { Some(($event.$time, $event.$time)) };
    ($event:ident during $start:ident $($end:tt)*) => { whole($event.$start, $event.$($end)*) };
    ($event:ident $($other:tt)*) => { None };
}

macro_rules! launch {
    ($event:ident of launch) => {
        Some(($event.session, $event.correlation))
    };
    ($event:ident $($other:tt)*) => {
        None
    };
}

macro_rules! thread {
    ($event:ident thread $tid:ident) => {
        Some($event.$tid)
    };
    ($event:ident $($other:tt)*) => {
        None
    };
}

macro_rules! key {
    ($event:ident key $($field:ident)*) => { Some(Key::default()$(.with(&$event.$field, Field::key))*) };
    ($event:ident $($other:tt)*) => { None };
}

macro_rules! derived {
    ($({ $($(#[$($_doc:tt)*])* $_tag:literal = $name:ident { $($fields:tt)* } $([$($role:tt)*])*)* })*) => {
        impl Event {
            /// Returns whose event it is; `None` if it concerns the whole recording.
            pub fn owner(&self) -> Option<Owner> {
                match self {
                    $($(Self::$name(event) => fields!(owner (event) [] $($fields)*),)*)*
                }
            }

            /// Returns the stack that it refers to.
            pub fn stack(&self) -> Option<StackId> {
                match self {
                    $($(Self::$name(event) => fields!(stack (event) [] $($fields)*),)*)*
                }
            }

            /// Returns its start and end; `None` if it is true from some time on, has no time, or has lost it.
            pub fn span(&self) -> Option<(u64, u64)> {
                match self {
                    $($(Self::$name(_event) => None$(.or(span!(_event $($role)*)))*,)*)*
                }
            }

            /// Returns the session and the correlation id of the launch that it reports on.
            pub fn launch(&self) -> Option<(SessionId, u32)> {
                match self {
                    $($(Self::$name(_event) => None$(.or(launch!(_event $($role)*)))*,)*)*
                }
            }

            /// Returns the thread that was on a CPU.
            pub fn thread(&self) -> Option<u32> {
                match self {
                    $($(Self::$name(_event) => None$(.or(thread!(_event $($role)*)))*,)*)*
                }
            }

            /// Returns what identifies it among those of its kind, if a window keeps the last one.
            pub(crate) fn key(&self) -> Option<Key> {
                match self {
                    $($(Self::$name(_event) => None$(.or(key!(_event $($role)*)))*,)*)*
                }
            }

            /// Calls back with every number that other recordings use for something else.
            pub(crate) fn numbers(&mut self, on: &mut impl FnMut(Number<'_>)) {
                match self {
                    $($(Self::$name(event) => { fields!(numbers (event on) [] $($fields)*) })*)*
                }
            }

            /// Calls back with all its times.
            pub(crate) fn times(&mut self, on: &mut impl FnMut(&mut u64)) {
                match self {
                    $($(Self::$name(_event) => { $(times!(_event on $($role)*);)* })*)*
                }
            }
        }
    };
}

events!(derived);

/// A time of 0 was lost.
fn whole(start: u64, end: u64) -> Option<(u64, u64)> {
    (start != 0).then(|| (start, end.max(start)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Device, Energy, Note, Pause, ProcessId, Sample, Session, Sync};

    /// Check that an event belongs to its session rather than to its process, and that a field that names a GPU does not make
    /// it one of the whole GPU.
    #[test]
    fn events_belong_to_sessions_first() {
        let (process, session) = (ProcessId(3), SessionId(7));
        let owner = |event: Event| event.owner();
        let connects = Session { id: session, process, cupti: 1, driver: 1 };
        assert_eq!(owner(Event::Session(connects)), Some(Owner::Session(session)));
        assert_eq!(owner(Event::Sample(Sample { process, ..Sample::default() })), Some(Owner::Process(process)));
        assert_eq!(owner(Event::Device(Device { session, ..Device::default() })), Some(Owner::Session(session)));
        assert_eq!(owner(Event::Energy(Energy::default())), Some(Owner::Gpu));
        assert_eq!(owner(Event::Note(Note { text: String::new() })), None);
    }

    /// Check that lost times are no times, and that no interval ends before it begins.
    #[test]
    fn spans_are_in_order() {
        let span = |start, end| Event::Sync(Sync { start, end, ..Sync::default() }).span();
        assert_eq!([span(0, 5), span(4, 0), span(4, 9)], [None, Some((4, 4)), Some((4, 9))]);
    }

    /// Check that an event is identified only by the fields that its declaration names.
    #[test]
    fn keys_have_the_declared_fields() {
        let key = |number, to| Event::Pause(Pause { number, to, ..Pause::default() }).key().expect("a description");
        assert!(key(1, 2) == key(1, u64::MAX) && key(1, 2) < key(2, 0));
        assert!(Event::Note(Note { text: "a".into() }).key().is_some_and(|key| key.is_empty()));
        assert_eq!(Event::Sync(Sync::default()).key(), None);
    }
}
