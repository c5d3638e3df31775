//! System calls on a driver's device files: their arguments and results.

use std::borrow::Cow;

use cuda::{
    calls::Value,
    ioctls::{rm_class, rm_control},
};
use model::{
    calls::command,
    event::{Call, Function},
};

use super::values::{Argument, Arguments, Outcome};

/// The arguments of a system call: those of `mmap`; for a request its number and its command, or otherwise its pointer.
pub(super) fn arguments(function: &Function, call: &Call) -> Arguments {
    let word = |at: usize| call.words.get(at).copied();
    let mut args = Vec::new();
    let mut add = |name: &'static str, value: Option<Argument>| args.extend(value.map(|v| (Cow::Borrowed(name), v)));
    match function.name.as_str() {
        "open" | "close" => {}
        "mmap" => {
            add("length", word(0).map(|n| Argument::Value(Value::Bytes(n))));
            add("protection", word(1).map(|n| Argument::Word(protection(n))));
            add("offset", word(2).map(|n| Argument::Value(Value::Pointer(n))));
        }
        name => {
            // The kernel reads 32 bits: a program that keeps the number as an `int` passes it sign-extended.
            add("request", word(0).map(|n| Argument::Value(Value::Flags(u64::from(n as u32)))));
            match command(function, call) {
                Some(number) => {
                    let key = if name == "NV_ESC_RM_ALLOC" { "class" } else { "command" };
                    add(key, Some(Argument::Word(command_name(name, number))));
                }
                None => add("argument", word(1).map(|n| Argument::Value(Value::Pointer(n)))),
            }
        }
    }
    Arguments(args)
}

/// Returns the name of a request's command.
pub(crate) fn command_name(request: &str, command: u32) -> Cow<'static, str> {
    let name = if request == "NV_ESC_RM_ALLOC" { rm_class(command) } else { rm_control(command) };
    name.map_or_else(|| format!("{command:#x}").into(), Cow::Borrowed)
}

/// `rw-`
fn protection(bits: u64) -> Cow<'static, str> {
    let letter = |bit: u64, letter: char| if bits & bit != 0 { letter } else { '-' };
    String::from_iter([letter(1, 'r'), letter(2, 'w'), letter(4, 'x')]).into()
}

/// Returns the result of a system call: an error by its name, an address, or a number.
pub(super) fn outcome(function: &Function, result: u64) -> Outcome {
    let signed = result.cast_signed();
    match signed {
        -4095..0 => Outcome::Name(errno(-signed).map_or_else(|| format!("errno {}", -signed).into(), Cow::Borrowed)),
        _ if function.name == "mmap" => Outcome::Name(format!("{result:#x}").into()),
        _ => Outcome::Number(signed),
    }
}

/// Returns the result of a failed call as it is counted: the low half of the return value.
pub(crate) fn error_name(code: u32) -> String {
    let number = -i64::from(code.cast_signed());
    errno(number).map_or_else(|| format!("errno {number}"), str::to_owned)
}

/// Returns the number of an error by its name: the inverse of [`error_name`].
pub fn error_number(name: &str) -> Option<i64> {
    let numbered = || name.strip_prefix("errno ")?.parse().ok().filter(|number| (1..4096).contains(number));
    (1..4096).find(|number| errno(*number) == Some(name)).or_else(numbered)
}

/// Error numbers returned by drivers, as Linux defines them on x86-64 and arm64.
fn errno(number: i64) -> Option<&'static str> {
    Some(match number {
        1 => "EPERM",
        2 => "ENOENT",
        3 => "ESRCH",
        4 => "EINTR",
        5 => "EIO",
        6 => "ENXIO",
        7 => "E2BIG",
        9 => "EBADF",
        10 => "ECHILD",
        11 => "EAGAIN",
        12 => "ENOMEM",
        13 => "EACCES",
        14 => "EFAULT",
        16 => "EBUSY",
        17 => "EEXIST",
        19 => "ENODEV",
        20 => "ENOTDIR",
        21 => "EISDIR",
        22 => "EINVAL",
        23 => "ENFILE",
        24 => "EMFILE",
        25 => "ENOTTY",
        26 => "ETXTBSY",
        27 => "EFBIG",
        28 => "ENOSPC",
        29 => "ESPIPE",
        32 => "EPIPE",
        34 => "ERANGE",
        35 => "EDEADLK",
        38 => "ENOSYS",
        52 => "EBADE",
        61 => "ENODATA",
        62 => "ETIME",
        71 => "EPROTO",
        75 => "EOVERFLOW",
        77 => "EBADFD",
        95 => "EOPNOTSUPP",
        110 => "ETIMEDOUT",
        114 => "EALREADY",
        115 => "EINPROGRESS",
        121 => "EREMOTEIO",
        125 => "ECANCELED",
        512 => "ERESTARTSYS",
        _ => return None,
    })
}
