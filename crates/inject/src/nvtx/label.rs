//! What ranges and marks are called.

use core::ffi::c_void;

use super::{registry, text::Name};

/// The kinds of a message: text, wide text, a registered string.
const TEXT: i32 = 1;
const WIDE: i32 = 2;
const REGISTERED: i32 = 3;

/// `nvtxEventAttributes_t`. The colour and the payload are not used.
#[repr(C)]
#[allow(dead_code, reason = "the layout is NVTX's")]
pub struct Attributes {
    version: u16,
    size: u16,
    category: u32,
    color_type: i32,
    color: u32,
    payload_type: i32,
    reserved: i32,
    payload: u64,
    message_type: i32,
    message: *const c_void,
}

/// What a range or a mark is called: its domain and category, 0 if it has none, and its name.
#[derive(Clone, Copy)]
pub struct Label {
    pub domain: usize,
    pub category: u32,
    pub name: Name,
}

impl Attributes {
    /// Returns the payload of this type, and how many it says there are.
    pub fn payload(&self, of_type: i32) -> Option<(*const c_void, usize)> {
        let is_whole = usize::from(self.size) >= size_of::<Self>() && self.payload_type == of_type;
        let count = usize::try_from(self.reserved).ok()?;
        is_whole.then(|| (core::ptr::with_exposed_provenance(self.payload as usize), count))
    }
}

impl From<Name> for Label {
    fn from(name: Name) -> Self {
        Self { domain: 0, category: 0, name }
    }
}

impl Label {
    /// Reads the attributes of a range or mark.
    ///
    /// # Safety
    /// `attributes` must be null or point to NVTX's attributes, with a valid message.
    pub unsafe fn read(domain: usize, attributes: *const Attributes) -> Self {
        let none = Self { domain, category: 0, name: Name::NONE };
        // SAFETY: as the caller guarantees.
        let Some(attributes) = (unsafe { attributes.as_ref() }) else { return none };
        if usize::from(attributes.size) < size_of::<Attributes>() {
            return none;
        }
        let name = match attributes.message_type {
            // SAFETY: the kind of the message says what it points to.
            TEXT => unsafe { Name::text(attributes.message.cast()) },
            // SAFETY: as above.
            WIDE => unsafe { Name::wide(attributes.message.cast()) },
            REGISTERED => registry::registered(attributes.message.addr()),
            _ => Name::NONE,
        };
        Self { domain, category: attributes.category, name }
    }
}
