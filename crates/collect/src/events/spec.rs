//! Parses `--event KIND:WHERE[,OPTION...]`.

use std::{collections::HashSet, path::PathBuf};

use anyhow::{Context, bail};
use model::event::Unit;

use crate::calls::named::Named;

/// An event to count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// As the user wrote it.
    pub source: String,
    /// Its name.
    pub name: String,
    /// Its kind.
    pub(crate) kind: Kind,
    /// The weight of a hit.
    pub(crate) weight: Option<Weight>,
    /// The weight's unit.
    pub unit: Unit,
}

/// The kind of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A function is called, or returns.
    Function { named: Named, returns: bool },
    /// An instruction is about to be executed.
    Offset { library: PathBuf, offset: u64 },
    /// A kernel tracepoint.
    Tracepoint { group: String, name: String },
    /// A static tracepoint of a library or program.
    Usdt { library: PathBuf, provider: Option<String>, name: String },
}

/// The weight of a hit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    /// An argument, counted from 1, and its type.
    Argument { number: u8, size: u8, signed: bool },
    /// What the function returns, and its type.
    Result { size: u8, signed: bool },
    /// A field of a tracepoint.
    Field(String),
}

impl std::fmt::Display for Weight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Argument { number, .. } => write!(f, "arg{number}"),
            Self::Result { .. } => f.write_str("retval"),
            Self::Field(field) => f.write_str(field),
        }
    }
}

impl Kind {
    /// Returns the file that contains it; `None` for kernel tracepoints.
    pub fn library(&self) -> Option<&PathBuf> {
        match self {
            Self::Function { named, .. } => Some(&named.library),
            Self::Offset { library, .. } | Self::Usdt { library, .. } => Some(library),
            Self::Tracepoint { .. } => None,
        }
    }
}

/// Parses all `--event` options. Names that the user did not choose are made unique.
pub fn parse(texts: &[String]) -> anyhow::Result<Vec<Spec>> {
    let mut taken = HashSet::new();
    let mut specs = Vec::new();
    for text in texts {
        let (mut spec, chosen) = parse_one(text).with_context(|| format!("--event {text}"))?;
        if chosen && taken.contains(&spec.name) {
            bail!("--event {text}: the name {} is used twice: choose another with name=", spec.name);
        }
        let base = spec.name.clone();
        for number in 2.. {
            if taken.insert(spec.name.clone()) {
                break;
            }
            spec.name = format!("{base}-{number}");
        }
        specs.push(spec);
    }
    Ok(specs)
}

/// Parses one option; also returns whether the user chose its name.
fn parse_one(text: &str) -> anyhow::Result<(Spec, bool)> {
    const KINDS: &str =
        "uprobe:LIB:FUNCTION, uretprobe:LIB:FUNCTION, tracepoint:GROUP:NAME or usdt:LIB:[PROVIDER:]NAME";
    let Options { place, weight, unit, name, returns } = options(text)?;
    let Some((kind, place)) = place.split_once(':') else { bail!("expected {KINDS}") };
    let (kind, default_name) = match kind {
        "uprobe" | "uretprobe" => function(place, returns || kind == "uretprobe")?,
        "tracepoint" | "tp" => tracepoint(place)?,
        "usdt" => usdt(place)?,
        _ => bail!("unknown kind of event {kind}: expected {KINDS}"),
    };
    if returns && !matches!(kind, Kind::Function { .. }) {
        bail!("ret requires a function: uprobe:LIB:FUNCTION,ret");
    }
    let weight = weight.map(|weight| parse_weight(weight, &kind)).transpose()?;
    let unit = match unit {
        None | Some("number") => Unit::Number,
        Some("bytes") => Unit::Bytes,
        Some("ns") => Unit::Ns,
        Some(other) => bail!("unknown unit {other}: use bytes, ns or number"),
    };
    if unit != Unit::Number && weight.is_none() {
        bail!("a unit needs a weight, such as weight=arg1");
    }
    let spec = Spec { source: text.to_owned(), name: name.map_or(default_name, str::to_owned), kind, weight, unit };
    Ok((spec, name.is_some()))
}

/// The options after the commas.
struct Options<'a> {
    place: &'a str,
    weight: Option<&'a str>,
    unit: Option<&'a str>,
    name: Option<&'a str>,
    returns: bool,
}

/// Splits options off the end: a C++ function may have commas in its own name.
fn options(text: &str) -> anyhow::Result<Options<'_>> {
    let mut found = Options { place: text, weight: None, unit: None, name: None, returns: false };
    while let Some((place, last)) = found.place.rsplit_once(',') {
        match last.split_once('=') {
            None if last == "ret" => found.returns = true,
            Some((_, "")) => bail!("{last} has no value"),
            Some(("weight", value)) if found.weight.is_none() => found.weight = Some(value),
            Some(("unit", value)) if found.unit.is_none() => found.unit = Some(value),
            Some(("name", value)) if found.name.is_none() => found.name = Some(value),
            Some((key @ ("weight" | "unit" | "name"), _)) => bail!("{key}= is given twice"),
            Some((key, _)) if !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphabetic()) => {
                bail!("unknown option {key}: the options are weight=, unit=, name= and ret")
            }
            _ => break,
        }
        found.place = place;
    }
    Ok(found)
}

fn function(place: &str, returns: bool) -> anyhow::Result<(Kind, String)> {
    if let Some((library, function)) = place.rsplit_once(':')
        && let Some(hex) = function.strip_prefix("0x")
    {
        let offset =
            u64::from_str_radix(hex, 16).ok().with_context(|| format!("{function} is not an offset in a file"))?;
        if returns {
            bail!("an offset has no return: use the function's name");
        }
        let file = library.rsplit('/').next().unwrap_or(library);
        return Ok((Kind::Offset { library: library.into(), offset }, format!("{file}+{offset:#x}")));
    }
    let named = match Named::parse(place) {
        Err(error) if error.downcast_ref::<text::pattern::Error>().is_none() => {
            bail!("expected LIB:FUNCTION, such as libc.so.6:malloc, not {place}")
        }
        named => named?,
    };
    let name = if returns { format!("{}-ret", named.pattern()) } else { named.pattern().to_owned() };
    Ok((Kind::Function { named, returns }, name))
}

fn tracepoint(place: &str) -> anyhow::Result<(Kind, String)> {
    let is_plain = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
    };
    match place.split_once(':') {
        Some((group, name)) if is_plain(group) && is_plain(name) => {
            Ok((Kind::Tracepoint { group: group.into(), name: name.into() }, place.to_owned()))
        }
        _ => bail!("expected GROUP:NAME, such as sched:sched_switch, not {place}"),
    }
}

fn usdt(place: &str) -> anyhow::Result<(Kind, String)> {
    let Some((library, probe)) = place.split_once(':').filter(|(l, p)| !l.is_empty() && !p.is_empty()) else {
        bail!("expected LIB:NAME or LIB:PROVIDER:NAME, not {place}");
    };
    let (provider, name) = match probe.split_once(':') {
        Some((provider, name)) if !provider.is_empty() && !name.is_empty() => (Some(provider.to_owned()), name),
        Some(_) => bail!("expected LIB:NAME or LIB:PROVIDER:NAME, not {place}"),
        None => (None, probe),
    };
    Ok((Kind::Usdt { library: library.into(), provider, name: name.into() }, probe.to_owned()))
}

fn parse_weight(text: &str, kind: &Kind) -> anyhow::Result<Weight> {
    if matches!(kind, Kind::Tracepoint { .. }) {
        return Ok(Weight::Field(text.to_owned()));
    }
    let (what, kind_of) = text.split_once(':').map_or((text, None), |(what, kind_of)| (what, Some(kind_of)));
    let (size, signed) = match kind_of {
        Some(_) if matches!(kind, Kind::Usdt { .. }) => {
            bail!("the types of a static tracepoint's arguments are known: omit the type")
        }
        Some(kind_of) => number_type(kind_of)?,
        None => (8, false),
    };
    let returns = matches!(kind, Kind::Function { returns: true, .. });
    if what == "retval" {
        return match returns {
            true => Ok(Weight::Result { size, signed: signed || kind_of.is_none() }),
            false => bail!("retval is available only at a return: use uretprobe"),
        };
    }
    let number =
        what.strip_prefix("arg").and_then(|number| number.parse().ok()).filter(|number| (1..=12).contains(number));
    let Some(number) = number else {
        bail!("{text} is not a weight: use arg1 to arg12 (arg1 is the first argument), or retval at a return");
    };
    if returns {
        bail!("arguments are not available at the return: use weight=retval");
    }
    Ok(Weight::Argument { number, size, signed })
}

/// Parses `u32`, `s16` and so on.
fn number_type(text: &str) -> anyhow::Result<(u8, bool)> {
    let bits = text.get(1..).unwrap_or_default();
    let size = match bits {
        "8" => 1,
        "16" => 2,
        "32" => 4,
        "64" => 8,
        _ => bail!("unknown type {text}: use u8 to u64 or s8 to s64"),
    };
    match &text[..1] {
        "u" => Ok((size, false)),
        "s" | "i" => Ok((size, true)),
        _ => bail!("unknown type {text}: use u8 to u64 or s8 to s64"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Spec {
        parse(&[text.to_owned()]).unwrap_or_else(|error| panic!("{text}: {error:#}")).remove(0)
    }

    fn refused(text: &str) -> String {
        format!("{:#}", parse(&[text.to_owned()]).expect_err(text))
    }

    /// Check that every kind parses, with and without options.
    #[test]
    fn every_kind_is_parsed() {
        let spec = one("uprobe:libc.so.6:malloc,weight=arg1,unit=bytes");
        assert_eq!((spec.name.as_str(), spec.unit), ("malloc", Unit::Bytes));
        assert_eq!(spec.weight, Some(Weight::Argument { number: 1, size: 8, signed: false }));
        let Kind::Function { named, returns: false } = spec.kind else { panic!("a function") };
        assert_eq!((named.library.to_str(), named.pattern()), (Some("libc.so.6"), "malloc"));

        let spec = one("uretprobe:libc.so.6:read,weight=retval:s32,name=r");
        assert_eq!((spec.name.as_str(), spec.weight), ("r", Some(Weight::Result { size: 4, signed: true })));
        assert!(matches!(one("uprobe:./a:f,ret").kind, Kind::Function { returns: true, .. }));
        assert!(matches!(one("uprobe:./a:0x1f").kind, Kind::Offset { offset: 0x1f, .. }));

        let spec = one("uprobe:./a:ns::f(int, char),weight=arg2:s16");
        let Kind::Function { named, .. } = &spec.kind else { panic!("a function") };
        assert_eq!(named.pattern(), "ns::f(int, char)");
        assert_eq!(spec.weight, Some(Weight::Argument { number: 2, size: 2, signed: true }));

        let spec = one("tracepoint:syscalls:sys_enter_write,weight=count");
        assert_eq!(
            (spec.name.as_str(), spec.weight),
            ("syscalls:sys_enter_write", Some(Weight::Field("count".into())))
        );
        assert!(matches!(one("usdt:libc.so.6:setjmp").kind, Kind::Usdt { provider: None, .. }));
        assert!(matches!(one("usdt:libc.so.6:libc:setjmp").kind, Kind::Usdt { provider: Some(_), .. }));
    }

    /// Check that names are unique, and that a name chosen by the user is not changed.
    #[test]
    fn names_are_unique() {
        let texts = ["uprobe:a:f", "uprobe:b:f", "uprobe:c:f", "uprobe:c:f,ret"].map(str::to_owned);
        let names: Vec<String> = parse(&texts).expect("events").into_iter().map(|spec| spec.name).collect();
        assert_eq!(names, ["f", "f-2", "f-3", "f-ret"]);
        let twice = ["uprobe:a:f", "uprobe:b:g,name=f"].map(str::to_owned);
        assert!(format!("{:#}", parse(&twice).expect_err("twice")).contains("the name f is used twice"));
    }

    /// Check that invalid options are rejected with a clear message.
    #[test]
    fn invalid_events_are_rejected() {
        for (text, words) in [
            ("malloc", "expected uprobe:LIB:FUNCTION"),
            ("kprobe:x:y", "unknown kind of event kprobe"),
            ("uprobe:malloc", "expected LIB:FUNCTION"),
            ("uprobe::malloc", "expected LIB:FUNCTION"),
            ("uprobe:a:0xzz", "0xzz is not an offset"),
            ("uprobe:a:0x10,ret", "an offset has no return"),
            ("uprobe:a:f,weight=arg0", "arg1 is the first argument"),
            ("uprobe:a:f,weight=arg13", "arg13 is not a weight"),
            ("uprobe:a:f,weight=", "weight= has no value"),
            ("uprobe:a:f,weight=arg1:f32", "unknown type f32"),
            ("uprobe:a:f,weight=retval", "use uretprobe"),
            ("uretprobe:a:f,weight=arg1", "use weight=retval"),
            ("uprobe:a:f,wieght=arg1", "unknown option wieght"),
            ("uprobe:a:f,weight=arg1,weight=arg2", "weight= is given twice"),
            ("uprobe:a:f,weight=arg1,unit=miles", "unknown unit miles"),
            ("uprobe:a:f,unit=bytes", "a unit needs a weight"),
            ("tracepoint:sched_switch", "expected GROUP:NAME"),
            ("tracepoint:../..:x", "expected GROUP:NAME"),
            ("tracepoint:a:b,ret", "ret requires a function"),
            ("usdt:libc.so.6", "expected LIB:NAME or LIB:PROVIDER:NAME"),
            ("usdt:libc.so.6:libc:", "expected LIB:NAME or LIB:PROVIDER:NAME"),
            ("usdt:a:b,weight=arg1:u8", "omit the type"),
            ("uprobe:a:[", "invalid pattern"),
        ] {
            let refusal = refused(text);
            assert!(refusal.contains(words) && refusal.starts_with(&format!("--event {text}")), "{text}: {refusal}");
        }
    }

    /// Check that no text makes the parser panic, and that what it refuses is quoted in one message of about the same length.
    #[test]
    fn any_text_is_parsed_or_refused() {
        let parts = [
            "uprobe:",
            "uretprobe:",
            "tracepoint:",
            "usdt:",
            "lib.so:",
            "a",
            ":",
            "::",
            ",",
            "=",
            "weight=",
            "unit=",
            "name=",
            "ret",
            "arg1",
            "arg255",
            "arg-1",
            "retval",
            ":s8",
            ":u64",
            ":\u{e4}8",
            "0x",
            "0xffffffffffffffff",
            "0x10000000000000000",
            "bytes",
            "*",
            "[",
            "\\",
            "(int, char)",
            "\u{202e}",
            "\u{1b}[2J",
            "\n",
            "\u{fffd}",
            "../../etc/passwd:f",
            "",
        ];
        let mut number = 0x2545_f491_4f6c_dd1d_u64;
        let mut below = |end: usize| {
            number ^= number << 13;
            number ^= number >> 7;
            number ^= number << 17;
            (number % end as u64) as usize
        };
        let long = "x,".repeat(100_000);
        for round in 0..20_000 {
            let mut text: String = (0..=below(9)).map(|_| parts[below(parts.len())]).collect();
            if round % 2_000 == 0 {
                text.push_str(&long);
            }
            match parse(std::slice::from_ref(&text)) {
                Ok(specs) => assert_eq!((specs.len(), specs[0].source.as_str()), (1, text.as_str())),
                Err(error) => assert!(format!("{error:#}").len() < 4 * text.len() + 500, "{error:#}"),
            }
        }
    }
}
