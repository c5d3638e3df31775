//! What a single call did.

use cuda::{
    calls::{Captured, Facts},
    ioctls,
};

use crate::event::{Call, Function, Layer};

/// Returns the facts about a library function.
pub(crate) fn known(function: &Function) -> Option<&'static cuda::calls::Call> {
    (function.layer == Layer::Library).then(|| cuda::call(&function.name)).flatten()
}

/// Returns what a call did, as far as its function is known.
pub fn facts(function: &Function, call: &Call) -> Option<Facts> {
    Some(known(function)?.facts(&captured(call)))
}

/// Returns the arguments of a call, for [`cuda`] to read.
pub fn captured(call: &Call) -> Captured<'_> {
    Captured { words: &call.words, out: call.out, payload: &call.payload, result: call.result }
}

/// Whether the call failed, by its status or by the system call convention.
pub fn is_error(function: &Function, result: u64) -> bool {
    match function.layer {
        Layer::Library => cuda::results::is_error(&function.name, result as u32),
        Layer::Driver => result.cast_signed() < 0,
        Layer::Kernel | Layer::Point => false,
    }
}

/// Returns the command of a request to the driver: the command of a control call, the class of an allocation.
/// [`cuda::ioctls`] names them.
pub fn command(function: &Function, call: &Call) -> Option<u32> {
    let at = match (function.layer, function.name.as_str()) {
        (Layer::Driver, "NV_ESC_RM_CONTROL") => ioctls::RM_CONTROL_COMMAND,
        (Layer::Driver, "NV_ESC_RM_ALLOC") => ioctls::RM_ALLOC_CLASS,
        _ => return None,
    };
    call.payload.get(at..)?.first_chunk().copied().map(u32::from_le_bytes)
}
