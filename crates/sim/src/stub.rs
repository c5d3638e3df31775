//! Exported entry points: stubs with the first instructions of the real libraries, then the Rust body.

/// The kernel's name for the callbacks: the expression, or null.
macro_rules! symbol {
    () => {
        std::ptr::null()
    };
    ($symbol:expr) => {
        $symbol
    };
}

/// An identifier as a C string.
macro_rules! c_name {
    ($name:ident) => {
        const {
            match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("an identifier has no zero byte"),
            }
        }
    };
}

/// An identifier as a C string, with the version that CUPTI appends to the names of runtime functions.
macro_rules! versioned_name {
    ($name:ident) => {
        const {
            match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "_v3020\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("an identifier has no zero byte"),
            }
        }
    };
}

/// Declares exports of libcuda, one per line: `callback id, name(arguments) => body`, the body an `Outcome`. A kernel's
/// name for the callbacks can be given in brackets before the arrow. Ids from 900 on are the simulator's own; the others
/// are those of the real libraries. Also declares `NAMES`, the name of each callback.
///
/// The stub is the same as the real driver's: compare, jump if the driver is closed, jump through a slot. A probe on
/// its second instruction (offset 10) is cheap.
macro_rules! driver {
    ($($cbid:literal $name:ident($($arg:ident: $type:ty),*) $([$symbol:expr])? => $body:expr;)*) => {
        /// The names of the callbacks.
        pub(crate) const NAMES: &[(u32, &std::ffi::CStr)] = &[$(($cbid, $crate::stub::c_name!($name))),*];

        $(
        const _: () = {
            #[repr(C)]
            #[allow(dead_code)]
            struct Params { $($arg: $type),* }

            extern "C" fn body($($arg: $type),*) -> u32 {
                let params = Params { $($arg),* };
                let symbol = $crate::stub::symbol!($($symbol)?);
                let name = $crate::stub::c_name!($name);
                $crate::gpu::call::driver($cbid, name, (&raw const params).cast(), symbol, || $body)
            }

            $crate::stub::driver_stub!($name, extern "C" fn($($type),*) -> u32, body);
        };
        )*
    };
}

/// Declares one export of libcuda whose body is a plain function, without callbacks.
macro_rules! driver_stub {
    ($name:ident, $type:ty, $body:ident) => {
        static SLOT: $type = $body;

        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        extern "C" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "cmp dword ptr [rip + {gate}], {closed}",
                "je 2f",
                "jmp qword ptr [rip + {slot}]",
                "2:",
                "mov eax, {deinitialized}",
                "ret",
                ".cfi_endproc",
                gate = sym $crate::gpu::init::GATE,
                closed = const $crate::gpu::init::CLOSED,
                slot = sym SLOT,
                deinitialized = const $crate::gpu::status::DEINITIALIZED,
            )
        }
    };
}

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
    ($($cbid:literal $name:ident($($arg:ident: $type:ty),*) $([$symbol:expr])? => $body:expr;)*) => {
        /// The names of the callbacks.
        pub(crate) const NAMES: &[(u32, &std::ffi::CStr)] = &[$(($cbid, $crate::stub::versioned_name!($name))),*];

        $(
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

            $crate::stub::runtime_stub!($name, body);
        };
        )*
    };
}

pub(crate) use {c_name, driver, driver_stub, runtime, runtime_stub, symbol, versioned_name};
