//! Watches kernel functions with fentry and fexit: each function and end has a program, copied from a template.

use std::{
    collections::HashMap,
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
};

use libbpf_rs::{
    libbpf_sys::{self as sys, bpf_attach_type, bpf_insn},
    query::BtfInfoIter,
};

use crate::btf::{KERNEL, KernelFunction};

/// A function that the kernel rejected, and why.
#[derive(Debug)]
pub struct Refused {
    /// Its name.
    pub name: String,
    /// Why.
    pub error: io::Error,
}

/// A program attached to the entry or return of a function.
pub(crate) struct Hook {
    /// Taken to detach it.
    pub link: Option<OwnedFd>,
    program: OwnedFd,
}

impl Hook {
    /// Attaches a copy of a template to one end of a function, with the function's number.
    pub fn new(
        template: &[bpf_insn],
        end: bpf_attach_type,
        function: &KernelFunction,
        number: u32,
        modules: &mut Modules,
    ) -> io::Result<Self> {
        let program = load(template, end, function.id, modules.types(&function.module)?)?;
        let link = attach(&program, end, number)?;
        Ok(Self { link: Some(link), program })
    }

    /// Returns the number of calls that the kernel did not report because the program was already running on the same
    /// CPU.
    pub fn missed(&self) -> u64 {
        let mut info = sys::bpf_prog_info::default();
        let mut size = size_of_val(&info) as u32;
        // SAFETY: the buffer has `size` bytes.
        let answer = unsafe { sys::bpf_prog_get_info_by_fd(self.program.as_raw_fd(), &raw mut info, &raw mut size) };
        if answer == 0 { info.recursion_misses } else { 0 }
    }
}

/// Tries whether the kernel allows hooking a function, with an empty program.
pub fn try_hook(function: &KernelFunction) -> io::Result<()> {
    let set_result = bpf_insn { code: 0xb7, ..Default::default() };
    let exit = bpf_insn { code: 0x95, ..Default::default() };
    let end = sys::BPF_TRACE_FEXIT;
    let program = load(&[set_result, exit], end, function.id, Modules::default().types(&function.module)?)?;
    attach(&program, end, 0).map(drop)
}

/// The BTF objects of modules.
#[derive(Default)]
pub(crate) struct Modules(HashMap<String, OwnedFd>);

impl Modules {
    /// Returns a module's BTF; 0 for the kernel's own.
    fn types(&mut self, module: &str) -> io::Result<RawFd> {
        if module == KERNEL {
            return Ok(0);
        }
        if let Some(types) = self.0.get(module) {
            return Ok(types.as_raw_fd());
        }
        let found = BtfInfoIter::default().find(|types| types.name == module).ok_or(io::ErrorKind::NotFound)?;
        // SAFETY: a plain system call.
        let types = descriptor(unsafe { sys::bpf_btf_get_fd_by_id(found.id) })?;
        Ok(self.0.entry(module.to_owned()).or_insert(types).as_raw_fd())
    }
}

fn load(instructions: &[bpf_insn], end: bpf_attach_type, function: u32, types: RawFd) -> io::Result<OwnedFd> {
    let mut opts = sys::bpf_prog_load_opts {
        sz: size_of::<sys::bpf_prog_load_opts>() as _,
        expected_attach_type: end,
        attach_btf_id: function,
        attach_btf_obj_fd: types.cast_unsigned(),
        ..Default::default()
    };
    // SAFETY: all pointers are valid during the call.
    descriptor(unsafe {
        sys::bpf_prog_load(
            sys::BPF_PROG_TYPE_TRACING,
            c"hook".as_ptr(),
            c"Dual MIT/GPL".as_ptr(),
            instructions.as_ptr(),
            instructions.len() as _,
            &raw mut opts,
        )
    })
}

fn attach(program: &OwnedFd, end: bpf_attach_type, number: u32) -> io::Result<OwnedFd> {
    let mut opts = sys::bpf_link_create_opts { sz: size_of::<sys::bpf_link_create_opts>() as _, ..Default::default() };
    opts.__bindgen_anon_1.tracing.cookie = number.into();
    // SAFETY: the options are valid during the call; the link keeps the program.
    descriptor(unsafe { sys::bpf_link_create(program.as_raw_fd(), 0, end, &raw const opts) })
}

/// Returns the new descriptor, or the error.
fn descriptor(answer: i32) -> io::Result<OwnedFd> {
    if answer < 0 {
        return Err(io::Error::from_raw_os_error(-answer));
    }
    // SAFETY: the kernel has just created it, and it is not owned elsewhere.
    Ok(unsafe { OwnedFd::from_raw_fd(answer) })
}
