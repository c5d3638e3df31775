//! Shortens long names for display in labels and tables. Only for display: two functions may share a short name, so
//! sums use full names, and full names are in every tooltip and file.
//!
//! ```text
//!   void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int, ...)
//!        at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<float>, …>
//! ```
//!
//! The function keeps its whole path; its arguments and its return type are removed. Template arguments lose the paths
//! of their types and then, from the end, as much as necessary to fit. Names come from programs and may be anything:
//! one with unbalanced brackets is unchanged.

mod parse;

use parse::{Part, parse};

use crate::names::clean;

/// The shortest beginning of a part worth showing, in characters.
const SHORTEST: usize = 8;
/// The maximum number of template arguments kept if not all fit.
const MOST_KEPT: usize = 8;

/// Shortens a function's name to at most `most` characters, if that is possible by removing the least important parts.
/// A source line (`step (train.py:42)`) stays at its end.
pub fn short(name: &str, most: usize) -> String {
    let (function, place) = split_place(name);
    let room = most.saturating_sub(place.chars().count());
    match readable(function, room) {
        Some(text) => text + place,
        None => name.to_owned(),
    }
}

/// Shortens a frame of a flame graph: the same, after the brackets with the GPU that a kernel ran on.
pub fn short_frame(name: &str, most: usize) -> String {
    if !name.starts_with('[') {
        return short(name, most);
    }
    match name.split_once("_Kernel] ") {
        Some((gpu, kernel)) if gpu.starts_with("[GPU") => {
            let label = &name[..name.len() - kernel.len()];
            format!("{label}{}", short(kernel, most.saturating_sub(label.chars().count())))
        }
        _ => name.to_owned(),
    }
}

/// Shortens a function's name for a line of text: it is cut if it is still longer.
pub fn shortened(name: &str, most: usize) -> String {
    cut(&short(&clean(name), most), most)
}

/// Cuts a text to at most `most` characters.
pub fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        text.to_owned()
    } else {
        text.chars().take(most.saturating_sub(1)).collect::<String>() + "…"
    }
}

/// Splits a name into the function and ` (file:line)` or ` (file.py)`, if that is at its end.
pub fn split_place(name: &str) -> (&str, &str) {
    let at = name.strip_suffix(')').and_then(|name| name.rfind(" ("));
    let is_place = |inside: &str| match inside.rsplit_once(':') {
        Some((_, line)) => !line.is_empty() && line.bytes().all(|b| b.is_ascii_digit()),
        // Of a function without its line. Types of arguments contain no dot.
        None => inside.contains('.') && !inside.contains([' ', ',', '<', '(']),
    };
    match at.filter(|at| is_place(&name[at + 2..name.len() - 1])) {
        Some(at) => name.split_at(at),
        None => (name, ""),
    }
}

fn readable(name: &str, most: usize) -> Option<String> {
    let parts = parse(name)?;
    let fits = |text: &String| text.chars().count() <= most;
    let widest = parts.iter().map(Part::width).max().unwrap_or(0);
    let fewer = || (1..widest.min(MOST_KEPT + 1)).rev();
    let nested = std::iter::once(usize::MAX).chain(fewer()).map(|kept| Shape { kept, nested: true });
    let flat = std::iter::once(usize::MAX).chain(fewer()).map(|kept| Shape { kept, nested: false });
    let shapes = nested.chain(flat).chain([Shape { kept: 0, nested: false }]);
    let mut last = String::new();
    for shape in shapes {
        last = shape.text(&parts);
        // A demangled template function starts with its return type.
        last = last.strip_prefix("void ").unwrap_or(&last).trim().to_owned();
        if fits(&last) {
            break;
        }
    }
    if let Some(first) = first_between(&parts)
        && let Some((before, after)) = last.split_once("<…>")
    {
        // Not even the first part fits: show its beginning.
        let room = most.saturating_sub(last.chars().count());
        if room >= SHORTEST {
            last = format!("{before}<{}…>{after}", first.chars().take(room).collect::<String>().trim_end());
        }
    }
    (!last.is_empty()).then_some(last)
}

/// Returns the first template argument.
fn first_between(parts: &[Part]) -> Option<String> {
    let names = parts.iter().find_map(|part| match part {
        Part::Between(names) => names.first(),
        Part::Text(_) => None,
    })?;
    let mut text = String::new();
    Shape { kept: usize::MAX, nested: false }.type_name(names, &mut text);
    Some(text)
}

/// How much is shown.
struct Shape {
    /// This many parts of each pair of brackets.
    kept: usize,
    /// Whether nested brackets are shown.
    nested: bool,
}

impl Shape {
    fn text(&self, parts: &[Part]) -> String {
        let mut text = String::new();
        for part in parts {
            match part {
                Part::Text(part) => text.push_str(part),
                Part::Between(names) => self.between(names, &mut text, false),
            }
        }
        text
    }

    fn between(&self, names: &[Vec<Part>], text: &mut String, within: bool) {
        let kept = if within && !self.nested { 0 } else { self.kept.min(names.len()) };
        text.push('<');
        for (place, name) in names[..kept].iter().enumerate() {
            text.push_str(if place > 0 { ", " } else { "" });
            self.type_name(name, text);
        }
        if kept < names.len() {
            text.push_str(if kept > 0 { ", …" } else { "…" });
        }
        text.push('>');
    }

    /// Writes a type without its path: the part after the last `::`. Rust's `T as Trait` contains two types.
    fn type_name(&self, parts: &[Part], text: &mut String) {
        let mut name = String::new();
        for part in parts {
            match part {
                Part::Between(names) => self.between(names, &mut name, true),
                Part::Text(part) => {
                    for (place, side) in part.split(" as ").enumerate() {
                        if place > 0 {
                            text.push_str(name.trim());
                            text.push_str(" as ");
                            name.clear();
                        }
                        match side.rsplit_once("::") {
                            Some((before, last)) => {
                                // `const` and similar qualifiers are before the path.
                                let qualifier = if name.is_empty() {
                                    before.rfind(' ').map_or("", |at| &before[..=at])
                                } else {
                                    ""
                                };
                                name = format!("{qualifier}{last}");
                            }
                            None => name.push_str(side),
                        }
                    }
                }
            }
        }
        text.push_str(name.trim());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(most: usize, expected: &[(&str, &str)]) {
        for (name, text) in expected {
            assert_eq!(short(name, most), *text, "{name}");
        }
    }

    /// A function keeps its file, with or without its line; arguments are no file.
    #[test]
    fn places_stay() {
        let same = ["load (data.py:88)", "load (data.py)", "main (hello.c:17)"];
        check(40, &same.map(|name| (name, name)));
        assert_eq!(split_place("load (data.py)"), ("load", " (data.py)"));
        assert_eq!(split_place("operator new (unsigned)"), ("operator new (unsigned)", ""));
    }

    /// Kernels of PyTorch, CUTLASS, cuBLAS and Triton.
    #[test]
    fn kernels_are_shortened() {
        check(
            80,
            &[
                (
                    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)",
                    "at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<float>, …>",
                ),
                (
                    "at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda()#7}::operator()() const::{lambda(float)#1}>(at::TensorIteratorBase&, at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda()#7}::operator()() const::{lambda(float)#1} const&)::{lambda(int)#1}>(int, at::native::gpu_kernel_impl_nocast<int>)",
                    "at::native::elementwise_kernel<128, 2, {lambda#1}>",
                ),
                (
                    "cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x6_tn_align8>(cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x6_tn_align8::Params)",
                    "cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x6_tn_a…>",
                ),
                (
                    "cutlass::Kernel<cutlass::gemm::kernel::Gemm<cutlass::gemm::threadblock::MmaPipelined<cutlass::gemm::GemmShape<128, 128, 32>, int>, cutlass::epilogue::Nothing> >(int)",
                    "cutlass::Kernel<Gemm<MmaPipelined<GemmShape<128, 128, 32>, int>, Nothing>>",
                ),
                (
                    "void gemv2T_kernel_val<int, int, __nv_bfloat16, float, 128, 16, 4, 4, false, true, cublasGemvParamsEx<int> >(cublasGemvParamsEx<int>, float, float)",
                    "gemv2T_kernel_val<int, int, __nv_bfloat16, float, 128, 16, 4, 4, …>",
                ),
                ("ampere_sgemm_128x64_tn", "ampere_sgemm_128x64_tn"),
                ("add_kernel_0d1d2d3de", "add_kernel_0d1d2d3de"),
                (
                    "void (anonymous namespace)::softmax<float, (int)4>(float*)",
                    "(anonymous namespace)::softmax<float, 4>",
                ),
            ],
        );
    }

    /// Functions: operators, lambdas, methods, internals of the standard library, Rust.
    #[test]
    fn functions_are_shortened() {
        check(
            80,
            &[
                ("matmul_kernel(float*, float const*, int)", "matmul_kernel"),
                ("ns::Less::operator()(int) const", "ns::Less::operator()"),
                ("operator<<(std::ostream&, int)", "operator<<"),
                ("bool operator< <int>(int, int)", "bool operator< <int>"),
                ("Ptr<Node>::operator->() const", "Ptr<Node>::operator->"),
                (
                    "a::run(int)::{lambda(int, std::vector<int>)#1}::operator()(int) const",
                    "a::run::{lambda#1}::operator()",
                ),
                (
                    "std::_Function_handler<void (int), a::run(int)::{lambda(int)#1}>::_M_invoke(std::_Any_data const&, int&&)",
                    "std::_Function_handler<void (…), {lambda#1}>::_M_invoke",
                ),
                (
                    "std::vector<int, std::allocator<int> >::push_back(int const&)",
                    "std::vector<int, allocator<int>>::push_back",
                ),
                ("f<ns::A const*, unsigned char, const ns::B&>()", "f<A const*, unsigned char, const B&>"),
                ("<alloc::vec::Vec<T, A> as core::ops::Drop>::drop", "<Vec<T, A> as Drop>::drop"),
                (
                    "core::ops::function::FnOnce::call_once{{vtable.shim}}",
                    "core::ops::function::FnOnce::call_once{{vtable.shim}}",
                ),
                ("program::main::{{closure}}", "program::main::{{closure}}"),
                ("read", "read"),
                ("[libfoo.so]", "[libfoo.so]"),
                ("", ""),
            ],
        );
    }

    /// Source lines are kept, for Python and for C++.
    #[test]
    fn source_lines_are_kept() {
        check(
            60,
            &[
                ("Model.forward.<locals>.f (model.py:12)", "Model.forward.<locals>.f (model.py:12)"),
                ("<module> (train.py:1)", "<module> (train.py:1)"),
                ("gemm<a::B<float>, 4>(float*, int) (gemm.cpp:42)", "gemm<B<float>, 4> (gemm.cpp:42)"),
                ("f(int) (notes: 1)", "f"),
            ],
        );
    }

    /// The least important parts are removed first.
    #[test]
    fn least_important_parts_go_first() {
        let name = "ns::gemm<64, ns::Tile<float, 8>, ns::Layout>(int)";
        let expected = [
            (80, "ns::gemm<64, Tile<float, 8>, Layout>"),
            (35, "ns::gemm<64, Tile<float, 8>, …>"),
            (25, "ns::gemm<64, …>"),
            (14, "ns::gemm<…>"),
            (3, "ns::gemm<…>"),
        ];
        for (most, text) in expected {
            assert_eq!(short(name, most), text);
        }
    }

    /// Names with unbalanced brackets are unchanged; no input panics or takes long.
    #[test]
    fn hostile_names_are_survived() {
        for name in ["broken<int", "a>b", "f(", "{lambda", "x<(", "<<<", "a<b,c", ">>>", "f<(int>", "é<ü", "}", ")"] {
            assert_eq!(short(name, 80), name);
        }
        for piece in
            ["<", "(", "{", "a<", "a<b,", "a(", "{(", "<>", "()", "{}", "::", " as ", "é<ü>", "operator<", ", "]
        {
            for most in [0, 1, 80] {
                let _ = short(&piece.repeat(20_000), most);
                let _ = short(&format!("{}{}", "a<".repeat(10_000), ">".repeat(10_000)), most);
            }
        }
    }

    /// The GPU's brackets stay before a kernel.
    #[test]
    fn frames_keep_the_gpu() {
        assert_eq!(short_frame("[GPU0_Kernel] void ns::fill<float>(float*)", 60), "[GPU0_Kernel] ns::fill<float>");
        assert_eq!(short_frame("[GPU_Memcpy HtoD] 4-8 MiB", 10), "[GPU_Memcpy HtoD] 4-8 MiB");
        assert_eq!(short_frame("main(int)", 60), "main");
    }
}
