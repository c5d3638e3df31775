//! The data that CUPTI passes to a subscriber's callback.

use core::ffi::{c_char, c_void};

/// `CUpti_CallbackData`: one API call's enter or exit.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CallbackData {
    /// [`crate::ids::site`].
    pub site: u32,
    /// The API function's name.
    pub function_name: *const c_char,
    /// The call's parameters.
    pub params: *const c_void,
    /// The call's result, valid on exit (`CUresult` or `cudaError_t`).
    pub return_value: *const u32,
    /// The kernel's name on launches.
    pub symbol_name: *const c_char,
    /// The context.
    pub context: *mut c_void,
    /// The context's id.
    pub context_uid: u32,
    /// Eight bytes for the subscriber, the same on enter and exit.
    pub correlation_data: *mut u64,
    /// Links the call to its activity records. A driver call inside a runtime call has the same id.
    pub correlation_id: u32,
}

const _: () = {
    use core::mem::{offset_of, size_of};
    assert!(size_of::<CallbackData>() == 72);
    assert!(offset_of!(CallbackData, function_name) == 8);
    assert!(offset_of!(CallbackData, params) == 16);
    assert!(offset_of!(CallbackData, return_value) == 24);
    assert!(offset_of!(CallbackData, symbol_name) == 32);
    assert!(offset_of!(CallbackData, context) == 40);
    assert!(offset_of!(CallbackData, context_uid) == 48);
    assert!(offset_of!(CallbackData, correlation_data) == 56);
    assert!(offset_of!(CallbackData, correlation_id) == 64);
};

/// `CUpti_ResourceData`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ResourceData {
    /// The context.
    pub context: *mut c_void,
    /// The stream, for stream events.
    pub stream: *mut c_void,
    /// The event's description of the resource.
    pub descriptor: *mut c_void,
}

/// `CUpti_GraphData`, the descriptor of the graph callbacks.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct GraphData {
    /// The graph.
    pub graph: *mut c_void,
    /// The graph that it was cloned from.
    pub original_graph: *mut c_void,
    /// The node.
    pub node: *mut c_void,
    /// The node that it was cloned or updated from.
    pub original_node: *mut c_void,
    /// [`crate::ids::node_type`].
    pub node_type: u32,
    /// A node that it depends on.
    pub dependency: *mut c_void,
    /// The executable graph.
    pub exec: *mut c_void,
}

const _: () = {
    use core::mem::{offset_of, size_of};
    assert!(size_of::<GraphData>() == 56);
    assert!(offset_of!(GraphData, node) == 16);
    assert!(offset_of!(GraphData, original_node) == 24);
    assert!(offset_of!(GraphData, node_type) == 32);
    assert!(offset_of!(GraphData, exec) == 48);
};
