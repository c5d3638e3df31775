//! Parts of the exported entry points of libcuda and libcudart.

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

pub(crate) use {c_name, symbol};
