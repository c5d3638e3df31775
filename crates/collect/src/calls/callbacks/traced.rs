//! Which functions have callbacks, and what to capture of their calls.

use bpf::calls::Gather;
use cuda::calls::{self, Parameters, Payload};
use model::event::FunctionId;
use wire::calls::{Capture, TEXT};

/// Functions that programs call before the injected library is loaded, and functions without callbacks.
const WITHOUT_CALLBACK: [&str; 9] = [
    "cuInit",
    "cuDriverGetVersion",
    "cuGetExportTable",
    "cuGetProcAddress",
    "cuGetProcAddress_v2",
    "cudaDriverGetVersion",
    "cudaRuntimeGetVersion",
    "cudaGetErrorName",
    "cudaGetErrorString",
];

/// Whether calls of a function are taken from its callback, if the process reports it.
pub fn has_callback(name: &str) -> bool {
    let rest = name.strip_prefix("cuda").or_else(|| name.strip_prefix("cu"));
    rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase())) && !WITHOUT_CALLBACK.contains(&name)
}

/// Returns the name of the exported function for CUPTI's name of a callback: `cudaMalloc_v3020` is `cudaMalloc`. Only the
/// runtime's names have the version in which a function appeared.
pub fn exported_name(name: &str) -> &str {
    match name.rsplit_once("_v") {
        Some((base, digits))
            if name.starts_with("cuda") && digits.len() >= 4 && digits.bytes().all(|b| b.is_ascii_digit()) =>
        {
            base
        }
        _ => name,
    }
}

/// A traced function of a process.
#[derive(Clone, Debug)]
pub struct Traced {
    /// Its number.
    pub id: FunctionId,
    /// What its calls are.
    pub gather: Gather,
    /// Its parameters, if its arguments are known.
    pub(super) parameters: Option<Parameters>,
    /// What one of them points to is text.
    pub(super) text: bool,
}

impl Traced {
    /// Creates a traced function. With `known`, its arguments are those of the table.
    pub fn new(id: FunctionId, gather: Gather, name: &str, known: bool) -> Self {
        let call = calls::call(name).filter(|_| known);
        let text = call.is_some_and(|call| matches!(call.capture().payload, Some(Payload::Text { .. })));
        Self { id, gather, parameters: call.map(calls::Call::parameters), text }
    }

    /// Returns what the process captures of a call.
    pub(super) fn capture(&self, name: &str) -> Capture {
        let mut capture = Capture { traced: 1, ..Capture::default() };
        let (Some(parameters), Some(call)) = (&self.parameters, calls::call(name)) else { return capture };
        let wanted = call.capture();
        let place = |word: u8| parameters.offset(word).map_or(0, |offset| offset as u16 + 1);
        capture.parameters = parameters.length as u16;
        capture.out = wanted.out.map_or(0, place);
        (capture.payload, capture.length) = match wanted.payload {
            None => (0, 0),
            Some(Payload::Text { word }) => (place(word), TEXT),
            Some(Payload::Bytes { word, length }) => (place(word), length),
        };
        capture.checked()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check which functions are reported by callbacks, and under which name.
    #[test]
    fn callbacks_have_the_names_of_functions() {
        for (name, exported) in [
            ("cudaMalloc_v3020", "cudaMalloc"),
            ("cudaLaunchKernel_ptsz_v7000", "cudaLaunchKernel_ptsz"),
            ("cudaGetDeviceProperties_v2_v12000", "cudaGetDeviceProperties_v2"),
            ("cuMemAlloc_v2", "cuMemAlloc_v2"),
            ("cuStreamBeginCapture_v10000", "cuStreamBeginCapture_v10000"),
        ] {
            assert_eq!(exported_name(name), exported);
        }
        assert!(has_callback("cudaMalloc") && has_callback("cuMemAlloc_v2"));
        assert!(!has_callback("cuInit") && !has_callback("__cudaRegisterFunction") && !has_callback("ncclSend"));
    }
}
