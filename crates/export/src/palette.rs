//! A colour for each frame: its family determines the hue, its name the shade, the same in every graph.

use analysis::family::Family;

/// A colour, in red, green and blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Color {
    pub r: u8,
    pub g: u8,
    pub b: u8,
}

/// A family's range of colours: hue in degrees, saturation and lightness in percent, each as a range.
struct Range {
    hue: (f64, f64),
    saturation: (f64, f64),
    lightness: (f64, f64),
}

fn range(family: Family) -> Range {
    let range = |hue, saturation, lightness| Range { hue, saturation, lightness };
    match family {
        Family::Process => range((220.0, 220.0), (12.0, 16.0), (82.0, 86.0)),
        Family::Python => range((66.0, 84.0), (58.0, 72.0), (60.0, 70.0)),
        Family::Native => range((4.0, 20.0), (74.0, 86.0), (73.0, 82.0)),
        Family::OsKernel => range((30.0, 38.0), (88.0, 96.0), (58.0, 66.0)),
        Family::Graph => range((236.0, 236.0), (34.0, 34.0), (84.0, 84.0)),
        Family::GpuKernel => range((206.0, 222.0), (72.0, 86.0), (66.0, 76.0)),
        Family::GpuMemory => range((168.0, 178.0), (46.0, 58.0), (58.0, 68.0)),
        Family::Wait => range((326.0, 338.0), (26.0, 36.0), (80.0, 86.0)),
        Family::Event => range((268.0, 284.0), (52.0, 66.0), (72.0, 80.0)),
        Family::Range => range((44.0, 52.0), (40.0, 52.0), (76.0, 84.0)),
        Family::Unknown => range((0.0, 0.0), (0.0, 0.0), (74.0, 80.0)),
        Family::Stall => range((288.0, 304.0), (44.0, 58.0), (76.0, 84.0)),
    }
}

/// All families, in their order.
pub const ALL: [Family; 12] = [
    Family::Process,
    Family::Python,
    Family::Native,
    Family::OsKernel,
    Family::Graph,
    Family::GpuKernel,
    Family::GpuMemory,
    Family::Event,
    Family::Wait,
    Family::Range,
    Family::Unknown,
    Family::Stall,
];

/// Returns a family's name in the legend.
pub fn label(family: Family) -> &'static str {
    match family {
        Family::Process => "process",
        Family::Python => "Python",
        Family::Native => "native code",
        Family::OsKernel => "operating system",
        Family::Graph => "CUDA graph",
        Family::GpuKernel => "GPU kernel",
        Family::GpuMemory => "GPU copy, memset",
        Family::Event => "event",
        Family::Wait => "waiting",
        Family::Range => "NVTX range",
        Family::Unknown => "unknown",
        Family::Stall => "line, stall",
    }
}

/// Returns the colour of a frame.
pub fn colour(family: Family, name: &str) -> Color {
    // FNV-1a: the same on every machine and in every version.
    let hash = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let part = |shift: u32| ((hash >> shift) & 0xff) as f64 / 255.0;
    shade(family, part(16), part(32), part(48))
}

/// Returns a family's middle colour, for the legend.
pub fn middle(family: Family) -> Color {
    shade(family, 0.5, 0.5, 0.5)
}

fn shade(family: Family, hue: f64, saturation: f64, lightness: f64) -> Color {
    let range = range(family);
    let within = |(from, to): (f64, f64), part: f64| from + (to - from) * part;
    from_hsl(
        within(range.hue, hue),
        within(range.saturation, saturation) / 100.0,
        within(range.lightness, lightness) / 100.0,
    )
}

/// Converts as in CSS Color 4, section 7.1.
fn from_hsl(hue: f64, saturation: f64, lightness: f64) -> Color {
    let chroma = saturation * lightness.min(1.0 - lightness);
    let channel = |n: f64| {
        let k = (n + hue / 30.0) % 12.0;
        let value = lightness - chroma * (k - 3.0).min(9.0 - k).clamp(-1.0, 1.0);
        (value * 255.0).round() as u8
    };
    Color { r: channel(0.0), g: channel(8.0), b: channel(4.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the conversion of well-known colours.
    #[test]
    fn known_colours_are_converted() {
        assert_eq!(from_hsl(0.0, 1.0, 0.5), Color { r: 255, g: 0, b: 0 });
        assert_eq!(from_hsl(120.0, 1.0, 0.25), Color { r: 0, g: 128, b: 0 });
        assert_eq!(from_hsl(210.0, 0.0, 0.5), Color { r: 128, g: 128, b: 128 });
    }

    /// Check that GPU kernels are blue and native code is warm, whatever their names.
    #[test]
    fn families_keep_their_hue() {
        for name in ["", "main", "[GPU_Kernel] matmul", "\u{ff1b}"] {
            let blue = colour(Family::GpuKernel, name);
            assert!(blue.b > blue.g && blue.g > blue.r, "{blue:?}");
            let warm = colour(Family::Native, name);
            assert!(warm.r > warm.g && warm.g >= warm.b, "{warm:?}");
        }
    }
}
