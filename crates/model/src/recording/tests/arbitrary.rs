//! Events of every kind, with any contents.

use proptest::{collection::vec, option, prelude::*, strategy::Union};

use super::super::field::{Field, any_of};
use crate::event::*;

macro_rules! any_event {
    ($({ $($(#[$($_doc:tt)*])* $_tag:literal = $name:ident { $($fields:tt)* } $([$($_role:tt)*])*)* })*) => {
        /// Any event of the frequent kinds, then of the others.
        fn any_event() -> [Union<BoxedStrategy<Event>>; 2] {
            [$(Union::new([$(fields!(any_of ($name) [] $($fields)*).prop_map(Event::$name).boxed()),*])),*]
        }
    };
}

events!(any_event);

/// Any events, most of them frequent ones.
pub fn events(most: usize) -> impl Strategy<Value = Vec<Event>> {
    let [frequent, rare] = any_event();
    let frequent = frequent.prop_map(|event| match event {
        // It has four bits.
        Event::Launch(launch) => Event::Launch(Launch { rate: launch.rate & 15, ..launch }),
        other => other,
    });
    vec(prop_oneof![2 => frequent, 1 => rare], 0..most)
}
