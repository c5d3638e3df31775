//! The exported entry points of libcudart: stubs with a frame, like the real library's functions, then the Rust body.

/// Declares one export of libcudart whose body is a plain function.
///
/// The stub has its own frame, like the real functions, and passes on up to four words of stack arguments.
macro_rules! runtime_stub {
    ($name:ident, $body:ident) => {
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        extern "C" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "push rbp",
                ".cfi_def_cfa_offset 16",
                ".cfi_offset rbp, -16",
                "mov rbp, rsp",
                ".cfi_def_cfa_register rbp",
                "push qword ptr [rbp + 40]",
                "push qword ptr [rbp + 32]",
                "push qword ptr [rbp + 24]",
                "push qword ptr [rbp + 16]",
                "call {body}",
                "leave",
                ".cfi_def_cfa rsp, 8",
                ".cfi_restore rbp",
                "ret",
                ".cfi_endproc",
                body = sym $body,
            )
        }
    };
}

/// Declares exports of libcudart, like `driver!` for libcuda; the body is a `Result<(), u32>`.
macro_rules! runtime {
    ($($cbid:literal $name:ident($($arg:ident: $type:ty),*) $([$symbol:expr])? => $body:expr;)*) => {$(
        const _: () = {
            #[repr(C)]
            #[allow(dead_code)]
            struct Params { $($arg: $type),* }

            extern "C" fn body($($arg: $type),*) -> u32 {
                let params = Params { $($arg),* };
                let symbol = || $crate::stub::symbol!($($symbol)?);
                let name = $crate::stub::c_name!($name);
                $crate::cudart::call::runtime($cbid, name, (&raw const params).cast(), symbol, || $body)
            }

            $crate::cudart::stub::runtime_stub!($name, body);
        };
    )*};
}

pub(crate) use {runtime, runtime_stub};
