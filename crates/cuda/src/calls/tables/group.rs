//! Groups of functions with the same purpose.

use crate::calls::{
    role::{Role, Space},
    values::Direction,
};

/// The properties shared by the functions of one group.
pub struct Group {
    pub role: Role,
    pub space: Option<Space>,
    pub direction: Option<Direction>,
}

/// Functions without memory or direction.
pub const fn role(role: Role) -> Group {
    Group { role, space: None, direction: None }
}

/// Functions that allocate.
pub const fn alloc(space: Space) -> Group {
    Group { role: Role::Alloc, space: Some(space), direction: None }
}

/// Functions that free.
pub const fn free(space: Space) -> Group {
    Group { role: Role::Free, space: Some(space), direction: None }
}

/// Copies whose arguments may specify the direction more precisely.
pub const fn copy(direction: Direction) -> Group {
    Group { role: Role::Copy, space: None, direction: Some(direction) }
}

/// A table: groups of declarations.
macro_rules! calls {
    ($($group:expr => { $($name:ident($($arg:ident: $kind:expr),*);)* })*) => {
        pub(super) static CALLS: &[crate::calls::call::Call] = &[$($({
            let group = $group;
            crate::calls::call::Call {
                name: stringify!($name),
                role: group.role,
                space: group.space,
                direction: group.direction,
                args: &[$((stringify!($arg), $kind)),*],
            }
        }),*),*];
    };
}
pub(super) use calls;
