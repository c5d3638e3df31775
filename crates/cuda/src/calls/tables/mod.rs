//! The functions, by topic. A line reads like the declaration, with kinds for types.

mod copies;
mod devices;
mod launches;
mod memory;
mod modules;
mod streams;

use super::{Call, Direction, Role, Space};

/// All tables.
pub(super) static ALL: &[&[Call]] =
    &[memory::CALLS, copies::CALLS, launches::CALLS, streams::CALLS, modules::CALLS, devices::CALLS];

/// The properties shared by the functions of one group.
struct Group {
    role: Role,
    space: Option<Space>,
    direction: Option<Direction>,
}

const fn role(role: Role) -> Group {
    Group { role, space: None, direction: None }
}

const fn alloc(space: Space) -> Group {
    Group { role: Role::Alloc, space: Some(space), direction: None }
}

const fn free(space: Space) -> Group {
    Group { role: Role::Free, space: Some(space), direction: None }
}

/// Copies whose arguments may specify the direction more precisely.
const fn copy(direction: Direction) -> Group {
    Group { role: Role::Copy, space: None, direction: Some(direction) }
}

/// A table: groups of declarations.
macro_rules! calls {
    ($($group:expr => { $($name:ident($($arg:ident: $kind:expr),*);)* })*) => {
        pub(super) static CALLS: &[crate::calls::Call] = &[$($({
            let group = $group;
            crate::calls::Call {
                name: stringify!($name),
                role: group.role,
                space: group.space,
                direction: group.direction,
                args: &[$((stringify!($arg), $kind)),*],
            }
        }),*),*];
    };
}
use calls;
