//! Decoding by role, lookup by name, and hostile input.

use super::{args::Kind, *};

fn find(name: &str) -> &'static Call {
    call(name).unwrap_or_else(|| panic!("{name} is in no table"))
}

fn captured(words: &[u64]) -> Captured<'_> {
    Captured { words, ..Captured::default() }
}

/// The fields as a trace would show them.
fn shown(name: &str, captured: &Captured<'_>) -> String {
    let fields = find(name).decode(captured);
    fields.iter().map(|field| format!("{}={}", field.name, field.value)).collect::<Vec<_>>().join(" ")
}

/// Builds a struct's bytes from its members by offset.
fn bytes(length: usize, members: &[(usize, u64)]) -> Vec<u8> {
    let mut bytes = vec![0; length];
    for &(at, value) in members {
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

/// Two 32-bit members in one word.
fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// Check that no function is listed twice, and that no line has two results or two payloads, or captures too much.
#[test]
fn tables_are_sound() {
    let mut names = std::collections::HashSet::new();
    for call in all() {
        assert!(names.insert(call.name), "{} is listed twice", call.name);
        let count = |matches: fn(&Kind) -> bool| call.args.iter().filter(|(_, kind)| matches(kind)).count();
        assert!(count(|kind| matches!(kind, Kind::Out(_))) <= 1, "{}", call.name);
        assert!(count(|kind| matches!(kind, Kind::Text | Kind::Struct(_))) <= 1, "{}", call.name);
        let capture = call.capture();
        assert!(capture.words <= 13, "{} captures {} words", call.name, capture.words);
        if let Some(Payload::Bytes { length, .. }) = capture.payload {
            assert!(length <= 256, "{}", call.name);
        }
        assert_eq!(call.space.is_some(), matches!(call.role, Role::Alloc | Role::Free), "{}", call.name);
        assert!(call.role != Role::Copy || call.direction.is_some(), "{}", call.name);
        assert!(std::ptr::eq(find(call.name), call));
    }
}

/// Check that suffixes are ignored, except for versions with their own signature.
#[test]
fn suffixes_are_ignored() {
    for (name, base) in [
        ("cuMemAlloc_v2", "cuMemAlloc"),
        ("cuMemcpyHtoDAsync_v2_ptsz", "cuMemcpyHtoDAsync"),
        ("cuMemcpyHtoD_v2_ptds", "cuMemcpyHtoD"),
        ("cudaLaunchKernel_ptsz", "cudaLaunchKernel"),
        ("__cudaLaunchKernel_ptsz", "__cudaLaunchKernel"),
        ("cudaGetDeviceProperties_v2", "cudaGetDeviceProperties"),
        ("cuStreamGetCaptureInfo_v3", "cuStreamGetCaptureInfo"),
        ("cuCtxCreate_v2", "cuCtxCreate"),
        ("cuCtxCreate_v3", "cuCtxCreate_v3"),
        ("cuCtxCreate_v4", "cuCtxCreate_v4"),
        ("cuStreamBeginCapture_ptsz", "cuStreamBeginCapture"),
        ("cuStreamBeginCapture_v2_ptsz", "cuStreamBeginCapture_v2"),
        ("cuMemPrefetchAsync_v2_ptsz", "cuMemPrefetchAsync_v2"),
    ] {
        assert_eq!(call(name).map(|call| call.name), Some(base), "{name}");
    }
    for name in ["", "_v2", "cuMemAlloc_v", "cuMemAlloc_vx", "cuMemAlloc_v2_v2", "cudaNothing", "malloc"] {
        assert!(call(name).is_none(), "{name}");
    }
}

/// Check that an allocation's address is its result, and that there is none if it failed.
#[test]
fn allocations_are_decoded() {
    let call = find("cudaMalloc");
    assert_eq!(call.capture(), Capture { words: 2, out: Some(0), payload: None });
    assert_eq!((call.role, call.space), (Role::Alloc, Some(Space::Device)));
    let done = Captured { words: &[0x7ffc_0000, 4096], out: Some(0x7f00_0000), ..Captured::default() };
    assert_eq!(shown("cudaMalloc", &done), "ptr=0x7f000000 size=4096");
    let facts = call.facts(&done);
    assert_eq!((facts.address, facts.bytes), (Some(0x7f00_0000), Some(4096)));
    assert_eq!(call.sums(), Some(Sums { bytes: [Some(1), None], shift: 0, direction: None }));

    let failed = Captured { result: 2, ..done };
    assert_eq!(shown("cudaMalloc", &failed), "size=4096");
    assert_eq!(call.facts(&failed).address, None);

    // Without its result, the pool must not be mistaken for the address.
    let unanswered = captured(&[1, 4096, 0x900d, 0]);
    assert_eq!(find("cudaMallocFromPoolAsync").facts(&unanswered).address, None);
    assert_eq!(find("cuMemHostRegister").facts(&captured(&[0x5000, 64, 0])).address, Some(0x5000));
}

/// Check that a `cudaExtent` by value is found on the stack, and its product counted as bytes.
#[test]
fn structs_by_value_are_on_the_stack() {
    let call = find("cudaMalloc3D");
    assert_eq!(call.capture().words, 9);
    assert_eq!(call.facts(&captured(&[1, 0, 0, 0, 0, 0, 128, 4, 2])).bytes, Some(1024));
    assert_eq!(call.sums(), None);

    let mut words = [0; 13];
    (words[0], words[1]) = (0xff, 0x51); // value, stream
    words[6] = 0xa000; // the pitched pointer
    words[10..13].copy_from_slice(&[64, 2, 3]);
    let set = captured(&words);
    assert_eq!(shown("cudaMemset3DAsync", &set), "ptr=0xa000 value=255 extent=384 stream=0x51");
}

/// Check that arrays count elements and their size, and that an unused dimension counts once.
#[test]
fn arrays_are_decoded() {
    let float4 = bytes(24, &[(0, pair(32, 32)), (8, pair(32, 32))]);
    let array = Captured { words: &[1, 2, 100, 0, 0], out: Some(0xa1), payload: &float4, result: 0 };
    let facts = find("cudaMallocArray").facts(&array);
    assert_eq!((facts.bytes, facts.address), (Some(1600), Some(0xa1)));

    let half2 = bytes(24, &[(0, 16), (8, 8), (16, pair(0x10, 2))]);
    assert_eq!(find("cuArrayCreate_v2").facts(&Captured { payload: &half2, ..array }).bytes, Some(512));
}

/// Check what is freed, and that a free of null has no address.
#[test]
fn frees_are_decoded() {
    let call = find("cuMemFree_v2");
    assert_eq!((call.role, call.space), (Role::Free, Some(Space::Device)));
    assert_eq!(call.facts(&captured(&[0xd000])).address, Some(0xd000));
    assert_eq!(call.facts(&captured(&[0])).address, None);
    assert_eq!(find("cudaFreeAsync").facts(&captured(&[0xd000, 0x51])).stream, Some(0x51));
    assert_eq!(find("cuMemRelease").space, Some(Space::Physical));
}

/// Check that a copy's direction comes from the argument, whose upper half is garbage, from the struct, or from the
/// name.
#[test]
fn copies_are_decoded() {
    let words = [0xd000, 0x1000, 4096, 0xdead_0000_0001, 0];
    assert_eq!(shown("cudaMemcpyAsync", &captured(&words)), "dst=0xd000 src=0x1000 size=4096 kind=HtoD stream=0");
    let facts = find("cudaMemcpyAsync").facts(&captured(&words));
    assert_eq!(facts.direction, Some(Direction::HtoD));
    assert_eq!(facts.bytes, Some(4096));
    assert_eq!(
        find("cudaMemcpyAsync").sums(),
        Some(Sums { bytes: [Some(2), None], shift: 0, direction: Some(Way::Word(3)) })
    );
    assert_eq!(
        find("cudaMemcpy2D").sums(),
        Some(Sums { bytes: [Some(4), Some(5)], shift: 0, direction: Some(Way::Word(6)) })
    );
    assert_eq!(find("cuMemcpyDtoH_v2").sums().and_then(|sums| sums.direction), Some(Way::Fixed(Direction::DtoH)));
    assert_eq!(find("cuMemcpyPeer").facts(&captured(&[0; 5])).direction, Some(Direction::Peer));
    assert_eq!(find("cudaMemcpy").facts(&captured(&[1, 2, 3, 77])).direction, Some(Direction::Default));
}

/// Check copies whose extent is in a struct.
#[test]
fn copies_by_struct_are_decoded() {
    let read = |name: &str, payload: &[u8]| {
        let facts = find(name).facts(&Captured { words: &[1, 0x51], payload, ..Captured::default() });
        (facts.bytes, facts.direction)
    };
    let plane = bytes(128, &[(16, 1), (72, 2), (112, 256), (120, 3)]);
    assert_eq!(read("cuMemcpy2D_v2", &plane), (Some(768), Some(Direction::HtoD)));
    let volume = bytes(200, &[(32, 3), (120, 1), (176, 256), (184, 3), (192, 2)]);
    assert_eq!(read("cuMemcpy3DAsync_v2", &volume), (Some(1536), Some(Direction::DtoH)));
    assert_eq!(read("cuMemcpy3DPeer", &volume), (Some(1536), Some(Direction::Peer)));
    let runtime = bytes(160, &[(128, 64), (136, 2), (144, 1), (152, 2)]);
    assert_eq!(read("cudaMemcpy3D", &runtime), (Some(128), Some(Direction::DtoH)));
    let with_array = bytes(160, &[(0, 0xa1), (128, 64), (136, 2), (144, 1), (152, 2)]);
    assert_eq!(read("cudaMemcpy3D", &with_array), (None, Some(Direction::DtoH)));
    assert_eq!(read("cudaMemcpy3D", &runtime[..100]), (None, Some(Direction::Default)));
    let peer = bytes(168, &[(144, 64), (152, 2), (160, 1)]);
    assert_eq!(read("cudaMemcpy3DPeerAsync", &peer), (Some(128), Some(Direction::Peer)));
}

/// Check that a batch is summed as far as its sizes were captured.
#[test]
fn batches_are_summed() {
    let sizes = bytes(256, &[(0, 100), (8, 200), (16, 300)]);
    let batch = |count| {
        let words = [1, 2, 3, count];
        find("cuMemcpyBatchAsync_v2").facts(&Captured { words: &words, payload: &sizes, ..Captured::default() }).bytes
    };
    assert_eq!((batch(2), batch(3), batch(32)), (Some(300), Some(600), Some(600)));
    assert_eq!((batch(33), batch(u64::MAX)), (None, None));
}

/// Check that elements are converted to bytes.
#[test]
fn sets_are_decoded() {
    let call = find("cuMemsetD32Async");
    assert_eq!(call.facts(&captured(&[0xd000, 0, 1024, 0])).bytes, Some(4096));
    assert_eq!(call.sums(), Some(Sums { bytes: [Some(2), None], shift: 2, direction: None }));
    assert_eq!(find("cuMemsetD2D16_v2").facts(&captured(&[0xd000, 512, 0, 100, 3])).bytes, Some(600));
    assert_eq!(shown("cuMemsetD8_v2", &captured(&[0xd000, 0xffff_ff07, 16])), "ptr=0xd000 value=7 count=16");
    assert_eq!(shown("cudaMemset", &captured(&[0xd000, 0xffff_ffff, 16])), "ptr=0xd000 value=-1 size=16");
}

/// Check a launch through the runtime: two `dim3` in registers, the rest on the stack.
#[test]
fn runtime_launches_are_decoded() {
    let call = find("cudaLaunchKernel");
    assert_eq!(call.capture().words, 8);
    let words = [0x40_1000, pair(10, 2), pair(1, 0xdead), pair(256, 1), 1, 0x7ffc, 1024, 0x51];
    let facts = call.facts(&captured(&words));
    assert_eq!(facts.kernel, Some(KernelRef::HostStub(0x40_1000)));
    assert_eq!((facts.grid, facts.block), (Some([10, 2, 1]), Some([256, 1, 1])));
    assert_eq!((facts.shared, facts.stream), (Some(1024), Some(0x51)));
    assert_eq!((facts.bytes, call.sums()), (None, None));
    assert_eq!(
        shown("cudaLaunchKernel", &captured(&words)),
        "kernel=0x401000 grid=(10,2,1) block=(256,1,1) args=0x7ffc shared=1024 stream=0x51"
    );

    let push = find("__cudaPushCallConfiguration").facts(&captured(&[pair(7, 1), 1, pair(32, 1), 1, 16, 0]));
    assert_eq!((push.grid, push.block), (Some([7, 1, 1]), Some([32, 1, 1])));
    assert_eq!((push.shared, push.stream), (Some(16), Some(0)));
}

/// Check a launch through the driver: the block's dimensions are in registers and on the stack.
#[test]
fn driver_launches_are_decoded() {
    let words = [0xf00, 10, 2, 1, 256, 0xdead_0000_0002, 3, pair(1024, 0xdead), 0x51, 1, 2];
    let facts = find("cuLaunchKernel_ptsz").facts(&captured(&words));
    assert_eq!(facts.kernel, Some(KernelRef::Handle(0xf00)));
    assert_eq!((facts.grid, facts.block), (Some([10, 2, 1]), Some([256, 2, 3])));
    assert_eq!((facts.shared, facts.stream), (Some(1024), Some(0x51)));
    assert_eq!(find("cuLaunchKernel").capture().words, 11);
}

/// Check launches whose configuration is a struct; the driver's has padding after the shared memory.
#[test]
fn launches_by_struct_are_decoded() {
    let config =
        bytes(56, &[(0, pair(10, 2)), (8, pair(1, 64)), (16, pair(4, 1)), (24, pair(512, 0xdead)), (32, 0x51)]);
    let driver = Captured { words: &[1, 0xf00, 0, 0], payload: &config, ..Captured::default() };
    assert_eq!(find("cuLaunchKernelEx").capture().payload, Some(Payload::Bytes { word: 0, length: 56 }));
    let facts = find("cuLaunchKernelEx").facts(&driver);
    assert_eq!((facts.grid, facts.block), (Some([10, 2, 1]), Some([64, 4, 1])));
    assert_eq!((facts.shared, facts.stream), (Some(512), Some(0x51)));
    assert_eq!(facts.kernel, Some(KernelRef::Handle(0xf00)));

    let runtime = find("cudaLaunchKernelExC_ptsz").facts(&driver);
    assert_eq!(runtime.shared, Some(pair(512, 0xdead)));
    assert_eq!(runtime.kernel, Some(KernelRef::HostStub(0xf00)));
}

/// Check that names and aliases of kernels are learnt only from successful calls.
#[test]
fn kernel_names_are_learnt() {
    let named = Captured { words: &[1, 2, 3], out: Some(0xf00), payload: b"_Z3addPf\0garbage", result: 0 };
    let fact = NameFact::Name { kernel: KernelRef::Handle(0xf00), name: "_Z3addPf".into() };
    assert_eq!(find("cuModuleGetFunction").reveals(&named), Some(fact.clone()));
    assert_eq!(find("cuLibraryGetKernel").reveals(&named), Some(fact));
    assert_eq!(find("cuModuleGetFunction").reveals(&Captured { result: 500, ..named }), None);
    assert_eq!(find("cuModuleGetFunction").reveals(&Captured { out: None, ..named }), None);
    assert_eq!(find("cuModuleGetFunction").reveals(&Captured { payload: b"", ..named }), None);
    assert_eq!(find("cuModuleGetGlobal_v2").reveals(&named), None);

    // A function without a result: the value in rax is meaningless.
    let words = [0xba5e, 0x40_1000, 0x40_1000, 0x3000, 0xffff_ffff];
    let registered = Captured { words: &words, payload: b"_Z3addPf", result: 0xdead, ..Captured::default() };
    assert_eq!(
        find("__cudaRegisterFunction").reveals(&registered),
        Some(NameFact::Name { kernel: KernelRef::HostStub(0x40_1000), name: "_Z3addPf".into() })
    );
    assert_eq!(find("__cudaRegisterFunction").capture().payload, Some(Payload::Text { word: 3 }));
    assert_eq!(find("__cudaRegisterVar").reveals(&registered), None);

    let alias = Captured { words: &[1, 0x40_1000], out: Some(0xf00), ..Captured::default() };
    let of = |of| Some(NameFact::Alias { kernel: KernelRef::Handle(0xf00), of });
    assert_eq!(find("cuKernelGetFunction").reveals(&alias), of(KernelRef::Handle(0x40_1000)));
    assert_eq!(find("cudaGetFuncBySymbol").reveals(&alias), of(KernelRef::HostStub(0x40_1000)));
    assert_eq!(find("cuKernelGetLibrary").reveals(&alias), None);
}

/// Check that the kinds of objects follow from the functions that return and take them; launches take both kinds.
#[test]
fn kinds_of_objects_are_known() {
    let lookup = Captured { words: &[1, 0x70], out: Some(0xf00), ..Captured::default() };
    let (function, kernel) = ((0xf00, Some(Object::Function)), (0x70, Some(Object::Kernel)));
    assert_eq!(find("cuKernelGetFunction").objects(&lookup), [function, kernel]);
    assert_eq!(find("cuKernelGetFunction").objects(&Captured { result: 400, ..lookup }), []);
    assert_eq!(find("cuModuleGetFunction").objects(&lookup), [function]);
    for name in ["cuLibraryGetKernel", "__cudaGetKernel"] {
        assert_eq!(find(name).objects(&lookup), [(0xf00, Some(Object::Kernel))], "{name}");
    }
    let launch = Captured { words: &[0x70, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0], ..Captured::default() };
    assert_eq!(find("cuLaunchKernel").objects(&launch), [(0x70, None)]);
    assert_eq!(find("cudaLaunchKernel").objects(&launch), []);
}

/// Check one call of each of the other roles as a trace would show it.
#[test]
fn other_roles_are_decoded() {
    let with_out = |words, out| Captured { words, out: Some(out), ..Captured::default() };
    let show = |name, words, out| format!("{:?} {}", find(name).role, shown(name, &with_out(words, out)));
    assert_eq!(
        show("cudaStreamCreateWithPriority", &[1, 1, 0xffff_fffb], 0x51),
        "Stream stream=0x51 flags=0x1 priority=-5"
    );
    assert_eq!(show("cudaStreamWaitEvent", &[0x51, 0xe1, 0], 0), "Stream stream=0x51 event=0xe1 flags=0x0");
    assert_eq!(show("cudaEventRecord", &[0xe1, 0], 0), "Event event=0xe1 stream=0");
    assert_eq!(
        show("cudaEventElapsedTime", &[1, 0xe1, 0xe2], 1.5f32.to_bits().into()),
        "Event ms=1.5 start=0xe1 end=0xe2"
    );
    assert_eq!(show("cudaStreamSynchronize", &[0x51], 0), "Synchronize stream=0x51");
    assert_eq!(show("cudaDeviceSynchronize", &[], 0), "Synchronize ");
    assert_eq!(show("cudaGraphLaunch_ptsz", &[0x6e, 0x51], 0), "GraphLaunch exec=0x6e stream=0x51");
    assert_eq!(show("cudaLaunchHostFunc", &[0, 0x40, 0x50], 0), "HostFunction stream=0 function=0x40 data=0x50");
    assert_eq!(show("cuGraphInstantiateWithFlags", &[1, 0x6f, 2], 0x6e), "Graph exec=0x6e graph=0x6f flags=0x2");
    assert_eq!(show("cuCtxCreate_v4", &[1, 0, 8, 2], 0xc0), "Context context=0xc0 params=0x0 flags=0x8 device=2");
    assert_eq!(show("cudaGetDevice", &[1], pair(3, 0xdead)), "Context device=3");
    assert_eq!(show("cuModuleLoadData", &[1, 0x1000], 0xb0), "Module module=0xb0 image=0x1000");
    // A poll that returns "not ready" has not failed.
    let poll = Captured { result: 600, ..with_out(&[0x51, 1], 1) };
    assert_eq!(shown("cudaStreamIsCapturing", &poll), "stream=0x51 status=1");
}

/// Check that text is quoted, so that untrusted bytes do not reach a terminal unescaped.
#[test]
fn text_is_escaped() {
    let hostile = Captured { words: &[1, 2, 3], payload: b"a\x1b[31m\"\n\xff", ..Captured::default() };
    let shown = shown("cuModuleGetFunction", &hostile);
    assert!(!shown.contains(['\x1b', '\n']), "{shown}");
    assert!(shown.contains("name=\"a"), "{shown}");
}

/// Check that what was decoded encodes to parts with the same meaning, for every function and every struct.
#[test]
fn encoding_is_the_inverse_of_decoding() {
    // Numbers whose products fit, and values that are valid in some field of some struct.
    let mut state = 7_u64;
    let mut next = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) % [3, 5, 0x11, 0x1_0000][(state >> 60) as usize % 4]
    };
    for call in all() {
        for round in 0..200 {
            let words: Vec<u64> = (0..if round == 0 { 3 } else { 13 }).map(|_| next()).collect();
            let payload: Vec<u8> = match call.capture().payload {
                Some(Payload::Text { .. }) => format!("kernel{}\0", next()).into(),
                // Only launches have no sizes of 64 bits.
                _ if call.role == Role::Launch => (0..50).flat_map(|_| (next() as u32).to_le_bytes()).collect(),
                _ => (0..25).flat_map(|_| next().to_le_bytes()).collect(),
            };
            let payload = if round % 8 == 1 { &[][..] } else { &payload };
            let captured = Captured { words: &words, out: (round % 8 != 2).then(&mut next), payload, result: 0 };
            let (fields, facts) = (call.decode(&captured), call.facts(&captured));
            let texts: Vec<String> = fields.iter().map(|field| field.value.to_string()).collect();
            let given = |name: &str| {
                let at = fields.iter().rposition(|field| field.name == name)?;
                Some(match &fields[at].value {
                    Value::Dims(dims) => Given::Dims(*dims),
                    Value::Float(number) => Given::Float(*number),
                    Value::Text(text) => Given::Text(text),
                    Value::Direction(_) => Given::Text(&texts[at]),
                    Value::Number(number) => Given::Number(number.cast_unsigned()),
                    Value::Pointer(n) | Value::Bytes(n) | Value::Unsigned(n) => Given::Number(*n),
                    Value::Stream(n) | Value::Flags(n) | Value::Handle(n) => Given::Number(*n),
                })
            };
            let Encoded { words, out, payload } = call.encode(&given, facts.bytes.is_some(), &mut |_| 0);
            let again = Captured { words: &words, out, payload: &payload, result: 0 };
            assert_eq!(call.decode(&again), fields, "{} of {captured:?}: {again:?}", call.name);
            assert_eq!(call.facts(&again), facts, "{} of {captured:?}: {again:?}", call.name);
        }
    }
    let given = |name: &str| (name == "kernel").then_some(Given::Text("fill(int)"));
    let encoded = find("cuLaunchKernel").encode(&given, false, &mut |name| name.len() as u64);
    assert_eq!(encoded.words, [9], "a kernel by name, and nothing that was not given");
}

/// Check that no function panics or invents values, whatever was captured.
#[test]
fn hostile_input_is_survived() {
    let garbage: Vec<u8> = (0..300u32).map(|i| (i * 73 % 256) as u8).collect();
    let ones = [0xff; 300];
    for call in all() {
        for length in [0, 1, 3, 6, 8, 12, 15] {
            for word in [0, 1, u64::MAX] {
                let words = vec![word; length];
                for payload in [&[][..], &garbage[..1], &garbage[..33], &garbage, &ones] {
                    for (out, result) in [(None, 0), (Some(word), 0), (Some(word), u64::MAX)] {
                        let captured = Captured { words: &words, out, payload, result };
                        call.decode(&captured).iter().for_each(|field| drop(field.value.to_string()));
                        let _ = (call.facts(&captured), call.reveals(&captured));
                    }
                }
            }
        }
        let nothing = Captured::default();
        assert!(call.decode(&nothing).is_empty(), "{}", call.name);
        let facts = call.facts(&nothing);
        assert_eq!(Facts { direction: None, ..facts }, Facts::default(), "{}", call.name);
        assert_eq!(call.reveals(&nothing), None, "{}", call.name);
    }
}

/// Check what a BPF program must know about launches.
#[test]
fn launches_are_found_by_word() {
    let of = |name: &str| find(name).launches().map(|l| (l.word, l.handle, l.dims));
    assert_eq!(of("cudaLaunchKernel_ptsz"), Some((0, false, Some(DimsPlace::Packed(1)))));
    assert_eq!(of("cuLaunchKernel"), Some((0, true, Some(DimsPlace::Words(1)))));
    assert_eq!(of("cudaLaunchKernelExC"), Some((1, false, Some(DimsPlace::Payload))));
    assert_eq!(of("cuLaunchKernelEx"), Some((1, true, Some(DimsPlace::Payload))));
    assert_eq!(of("cuLaunch"), Some((0, true, None)));
    assert_eq!(of("cudaGraphLaunch"), None);
}
