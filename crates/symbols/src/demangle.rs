//! Demangles names.
//!
//! [`demangle`] parses. Names that a process chose are parsed in a process without rights, by [`readable`], unless they
//! are in such a process already.

use std::{
    collections::HashMap,
    fmt::{self, Write as _},
    fs::File,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use cpp_demangle::{DemangleOptions, Symbol};
use model::{
    event::{Frame, ProcessId},
    profile::Profile,
};
use sandbox::Limits;

/// The maximum length of a demangled name in bytes: nested templates can explode.
const MOST: usize = 64 * 1024;
/// The maximum size of all names that are kept, in bytes.
const MAX_KEPT: usize = 16 << 20;
/// Limits on reading many names.
const LIMITS: Limits = Limits { time: Duration::from_secs(3), answer: 64 << 20 };

/// Names by their mangled names, since a process for each would be slow.
static KEPT: Mutex<Option<Kept>> = Mutex::new(None);

#[derive(Default)]
struct Kept {
    names: HashMap<String, String>,
    bytes: usize,
}

impl Kept {
    /// Demangles the names that are new, all in one process. Without an answer they stay as they are.
    fn read<'a>(&mut self, mangled: impl Iterator<Item = &'a str>) {
        let is_new = |name: &&str| is_mangled(name) && !self.names.contains_key(*name);
        let new: Vec<String> = mangled.filter(is_new).map(str::to_owned).collect();
        if new.is_empty() {
            return;
        }
        let all = |names: &Vec<String>, _: &[&File]| names.iter().map(|name| demangle(name)).collect::<Vec<_>>();
        let answer = sandbox::parse(all, &new, &[], &LIMITS).ok().filter(|answer| answer.len() == new.len());
        let texts = answer.unwrap_or_else(|| new.clone());
        let bytes = |names: &[String]| names.iter().map(String::len).sum::<usize>();
        if self.bytes > MAX_KEPT {
            *self = Self::default();
        }
        self.bytes += bytes(&new) + bytes(&texts);
        self.names.extend(new.into_iter().zip(texts));
    }
}

/// Demangles like [`demangle`], in a process without rights if there is one.
pub fn readable(mangled: &str) -> String {
    if !is_mangled(mangled) {
        return mangled.to_owned();
    }
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let kept = kept.get_or_insert_default();
    kept.read([mangled].into_iter());
    kept.names.get(mangled).map_or(mangled, String::as_str).to_owned()
}

fn is_mangled(name: &str) -> bool {
    name.starts_with("_Z") || name.starts_with("_R")
}

/// Demangles the name of a function or a GPU kernel: C++ (`_Z…`), Rust (`_R…`, `_ZN…17h…E`); other names are returned
/// unchanged. Omits the return type, so that one function has one name.
pub fn demangle(mangled: &str) -> String {
    // Rust's legacy names look like C++ names, except for the hash at the end.
    if let Ok(rust) = rustc_demangle::try_demangle(mangled)
        && (mangled.starts_with("_R") || mangled.contains("17h"))
    {
        let mut name = Bounded(String::new());
        return if write!(name, "{rust:#}").is_ok() { name.0 } else { mangled.to_owned() };
    }
    if !mangled.starts_with("_Z") {
        return mangled.to_owned();
    }
    let options = DemangleOptions::new().no_return_type();
    let mut name = Bounded(String::new());
    match Symbol::new(mangled).map(|symbol| symbol.structured_demangle(&mut name, &options)) {
        Ok(Ok(())) => name.0,
        _ => mangled.to_owned(),
    }
}

/// A text that cannot grow beyond [`MOST`].
struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        if self.0.len() + part.len() > MOST {
            return Err(fmt::Error);
        }
        self.0.push_str(part);
        Ok(())
    }
}

/// Demangles the names of a profile's kernels. If a launch used a host function that no call has registered, the
/// function's own symbol gives the name; if it used a handle that no call has returned, the symbol found for the handle
/// ([`crate::kept_handles`]).
pub fn name_kernels(profile: &mut Profile) {
    let names = profile.kernel_names.iter().map(|kernel| &*kernel.mangled).chain(profile.calls.names.mangled());
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default().read(names);
    for kernel in &mut profile.kernel_names {
        kernel.text = readable(&kernel.mangled).into();
    }
    let unnamed: Vec<(ProcessId, u64)> = profile.calls.unnamed_stubs().chain(profile.calls.unnamed_handles()).collect();
    for (process, address) in unnamed {
        let symbol = profile.symbols.at(process, Frame::User(address), u64::MAX).and_then(|names| names.last());
        if let Some(kernel) = symbol.and_then(|symbol| stub_kernel(&symbol.name)) {
            profile.calls.names.name_stub(process, address, kernel);
        }
    }
    profile.calls.names.make_readable(readable);
}

/// Returns the kernel that a host function stands for, from the function's demangled name: nvcc's
/// `__device_stub__Z4gemmPf(float*)`, clang's `__device_stub__gemm(float*)`, or the kernel's own name.
pub fn stub_kernel(name: &str) -> Option<&str> {
    match name.strip_prefix("__device_stub__") {
        Some(rest) if rest.starts_with('Z') => {
            let mangled = &name["__device_stub_".len()..];
            Some(mangled.split('(').next().unwrap_or(mangled))
        }
        Some(rest) => Some(rest),
        None => Some(name).filter(|name| !name.is_empty() && !name.starts_with('[')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C++, legacy and current Rust, nvcc's stubs, Triton's and malformed names; short names are not types.
    #[test]
    fn names_are_demangled() {
        assert_eq!(
            demangle("_Z13matmul_kernelPKfS0_Pfiii"),
            "matmul_kernel(float const*, float const*, float*, int, int, int)"
        );
        assert_eq!(demangle("add_kernel_0d1d2d3de"), "add_kernel_0d1d2d3de");
        assert_eq!(demangle("_Zbroken"), "_Zbroken");
        assert_eq!(demangle("_ZN4core3fmt5write17h0123456789abcdefE"), "core::fmt::write");
        assert_eq!(demangle("_RNvC6_123foo3bar"), "123foo::bar");
        assert_eq!(
            demangle("_ZL31__device_stub__Z6matmulPKfS0_PfPKfS0_Pf"),
            "__device_stub__Z6matmulPKfS0_Pf(float const*, float const*, float*)"
        );
        assert_eq!(
            stub_kernel("__device_stub__Z6matmulPKfS0_Pf(float const*, float const*)"),
            Some("_Z6matmulPKfS0_Pf")
        );
        assert_eq!(stub_kernel("__device_stub__gemm(float*)"), Some("gemm(float*)"));
        assert_eq!(stub_kernel("gemm(float*)"), Some("gemm(float*)"));
        assert_eq!(stub_kernel("[libfoo.so]"), None);
        assert_eq!(demangle("g"), "g");
        assert_eq!(demangle(""), "");
    }

    /// Check that a short name whose back references multiply stays mangled, in Rust's mangling and in C++'s.
    #[test]
    fn exploding_names_stay_mangled() {
        let rust = "_RYB_B_B_";
        assert!(format!("{:#}", rustc_demangle::demangle(rust)).len() > MOST);
        assert_eq!(demangle(rust), rust);
    }

    /// A launched host function that no call has registered gets its kernel's name from its own symbol.
    #[test]
    fn kernels_are_named_by_host_functions() {
        use model::{
            event::{Call, Event, FrameKind, Function, FunctionId, Layer, NamedFrame, Symbol},
            fold::Fold,
        };
        let (process, address) = (ProcessId(1), 0x40_1000);
        let symbol = "__device_stub__Z4gemmPf(float*)";
        let names = vec![NamedFrame { kind: FrameKind::Native, name: symbol.into(), module: "app".into() }];
        let mut fold = Fold::new();
        for event in [
            Event::Function(Function {
                id: FunctionId(0),
                layer: Layer::Library,
                library: "libcudart.so".into(),
                name: "cudaLaunchKernel".into(),
                shown: true,
                ..Function::default()
            }),
            Event::Call(Call {
                function: FunctionId(0),
                process,
                tid: 1,
                cpu: 0,
                depth: 0,
                nested: false,
                enclosed: false,
                start: 1,
                end: 2,
                result: 0,
                out: None,
                launch: None,
                launches: false,
                around: 0,
                stack: None,
                words: vec![address, 1, 1, 1, 1, 0, 0, 0],
                payload: Vec::new(),
            }),
            Event::Symbol(Symbol { process, frame: Frame::User(address), since: 0, names }),
        ] {
            fold.push(&event);
        }
        let mut profile = fold.finish();
        assert_eq!(profile.calls.unnamed_stubs().collect::<Vec<_>>(), [(process, address)]);
        name_kernels(&mut profile);
        assert_eq!(profile.calls.unnamed_stubs().count(), 0);
        let (_, kernel) = profile.calls.launches.keys().next().expect("a launch");
        let text = kernel.and_then(|kernel| profile.calls.names.text(process, kernel));
        assert_eq!(text.map(|text| &**text), Some("gemm(float*)"));
    }
}
