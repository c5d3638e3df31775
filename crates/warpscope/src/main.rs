//! warpscope
fn main() {}
