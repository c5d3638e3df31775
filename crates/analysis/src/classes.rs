//! What kind of work a kernel does, by its name.
//!
//! Names are those of cuBLAS, cuDNN, CUTLASS, PyTorch, Triton's compiler, vLLM, FlashAttention, FlashInfer, NCCL and CUB. The function
//! decides, not its template arguments, which name types and functors; only the templates of CUTLASS and of PyTorch's lists of tensors
//! take the operation as an argument. The first rule that matches wins: what is specific comes before what is general.

use model::{
    profile::{Profile, What},
    ranks::is_communication,
};

use crate::names;

/// A class of kernels, and the words of which a name has one, in lower case.
type Rule = (&'static str, &'static [&'static str]);

/// The class of what no rule matches.
const OTHER: &str = "other";

/// Rules for the function, and for all of the name where that is an argument.
const RULES: &[Rule] = &[
    (
        "communication",
        &["nccl", "nvshmem", "cross_device_reduce", "all_reduce", "allreduce", "all_gather", "reduce_scatter"],
    ),
    (
        "attention",
        &[
            "flash_fwd",
            "flash_bwd",
            "flash::",
            "flashattn",
            "flash_attn",
            "fmha",
            "attention",
            "sdpa",
            "attn_fwd",
            "attn_bwd",
            "pagedkvcache",
            "raggedkvcache",
            "_mha",
            "reshape_and_cache",
            "mla_",
        ],
    ),
    ("optimizer", &["multi_tensor_apply", "adam", "lamb_", "sgd_", "fused_optimizer", "kpreconditionoptimizer"]),
    ("loss", &["nll_loss", "cross_entropy", "crossentropy", "mse_loss", "ctc_loss"]),
    ("softmax", &["softmax"]),
    (
        "normalization",
        &[
            "layer_norm",
            "layernorm",
            "batch_norm",
            "batchnorm",
            "rms_norm",
            "rmsnorm",
            "group_norm",
            "groupnorm",
            "gammabeta",
            "rowwisemoments",
            "bn_fw",
            "bn_bw",
            "ln_fwd",
            "ln_bwd",
            "instance_norm",
            "computefusedparams",
        ],
    ),
    (
        "convolution",
        &["conv1d", "conv2d", "conv3d", "conv_", "convol", "fprop", "dgrad", "wgrad", "winograd", "cudnn::cnn"],
    ),
    ("quantization", &["quant", "dequant", "awq_", "gptq_"]),
    (
        "gemm",
        &[
            "gemm",
            "gemv",
            "nvjet",
            "matmul",
            "splitk",
            "cublas",
            "marlin",
            "xmma",
            "dot_kernel",
            "reduce_1block_kernel",
            "wmma",
            "mm_",
            "_mm",
            "grouped_mm",
        ],
    ),
    ("pooling", &["pool"]),
    ("fft", &["fft"]),
    ("random", &["distribution_elementwise", "curand", "philox", "fused_dropout", "bernoulli", "randperm"]),
    ("sorting", &["sort", "topk", "scan", "histogram", "unique", "select_sweep", "deviceselect", "sampling", "top_p"]),
    ("elementwise", &["rotary", "_rope", "rope_"]),
    (
        "indexing",
        &[
            "index",
            "gather",
            "scatter",
            "embedding",
            "krn_partial",
            "masked_fill",
            "take_",
            "one_hot",
            "compute_grad_weight",
        ],
    ),
    (
        "layout",
        &[
            "catarray",
            "transpose",
            "nchwtonhwc",
            "nhwctonchw",
            "permute",
            "im2col",
            "col2im",
            "split_with_sizes",
            "pad_",
        ],
    ),
    ("elementwise", &["elementwise", "triton_poi", "act_and_mul", "silu", "gelu", "relu", "swiglu", "fill", "add_"]),
    ("reduction", &["reduce", "triton_red", "triton_per", "reduction", "norm_kernel", "segmented"]),
];

/// Returns the class of a kernel.
pub fn class(kernel: &str) -> &'static str {
    if is_communication(kernel) {
        return "communication";
    }
    let name = kernel.to_lowercase().replace("(anonymous namespace)::", "").replace("<unnamed>::", "");
    let function = name.strip_prefix("void ").unwrap_or(&name);
    let function = function.split(['<', '(']).next().unwrap_or(function);
    let is = |text: &str, (_, words): &&Rule| words.iter().any(|word| text.contains(word));
    // What the compiler has fused into a pointwise kernel is named after the operations before it.
    if function.starts_with("triton_poi") {
        return "elementwise";
    }
    let is_argument =
        function.contains("cutlass") || function.ends_with("device_kernel") || function.ends_with("::kernel2");
    let text = if is_argument { name.as_str() } else { function };
    RULES.iter().find(|rule| is(text, rule)).map_or(OTHER, |(class, _)| class)
}

/// Returns the class of GPU work: copies and memsets are classes of their own.
pub fn of(profile: &Profile, what: What) -> &'static str {
    match what {
        What::Kernel(index) => class(names::kernel(profile, index)),
        What::Copy(..) => "copy",
        What::Memset => "memset",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kernels as libraries name them.
    const REAL: &[(&str, &[&str])] = &[
        (
            "gemm",
            &[
                "ampere_sgemm_128x64_tn",
                "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn",
                "ampere_bf16_s16816gemm_bf16_128x64_sliced1x2_ldg8_relu_f2f_stages_64x4_tn",
                "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
                "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNT",
                "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align8>(cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align8::Params)",
                "void cutlass::Kernel<cutlass_80_simt_sgemm_256x128_8x4_tn_align1>(cutlass_80_simt_sgemm_256x128_8x4_tn_align1::Params)",
                "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int, int>, cutlass::gemm::collective::CollectiveMma<>>>(cutlass::gemm::Params)",
                "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float, __nv_bfloat16, true, true, false>(cublasLt::cublasSplitKParams<float>, float const*)",
                "void gemv2T_kernel_val<int, int, __nv_bfloat16, __nv_bfloat16, __nv_bfloat16, float, 128, 16, 4, 4, false, false, cublasGemvParamsEx<int>>(cublasGemvParamsEx<int>, float, float)",
                "void gemmSN_NN_kernel<float, 256, 4, 2, 8, 2, 4, false, cublasGemvTensorStridedBatched<float const>>(cublasGemmSmallNParams<float>)",
                "void dot_kernel<float, 128, 0, cublasDotParams<cublasGemvTensor<float const>>>(cublasDotParams<float>)",
                "triton_tem_fused_mm_0",
                "triton_tem_fused_addmm_relu_3",
                "void marlin::Marlin<256, 1, 8, 8, 4, 8>(int4 const*, int4 const*, int4*, int, int, int)",
            ],
        ),
        (
            "convolution",
            &[
                "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_stage4_warpsize2x2x1_g1_tensor16x8x8_execute_kernel__5x_cudnn",
                "sm90_xmma_wgrad_implicit_gemm_indexed_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_kernel_cudnn",
                "void cudnn::cnn::wgrad2d_grouped_direct_kernel<float, float, float, float, 3, false>(cudnn::cnn::WgradParams)",
                "void cudnn::winograd_nonfused::winogradForwardFilter4x4<float, float>(cudnn::winograd_nonfused::WinogradFilterParams<float, float>)",
                "void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1, false, false, true>(int, int, int, float const*)",
                "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_f16_s16816fprop_optimized_f16_128x128_32x5_nhwc_align8>(cutlass_tensorop::Params)",
                "void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel<3, float, int>(at::GenericPackedTensorAccessor<float const>)",
            ],
        ),
        (
            "attention",
            &[
                "void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, cutlass::bfloat16_t>, false, true>(Flash_fwd_params)",
                "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<pytorch_flash::Flash_bwd_kernel_traits<64, 128, 128, 8>>(pytorch_flash::Flash_bwd_params)",
                "fmha_cutlassF_f16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::half_t, cutlass::arch::Sm80, true, 64, 128, 128, true, true>::Params)",
                "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_kernel0_0",
                "void vllm::paged_attention_v2_kernel<__nv_bfloat16, __nv_bfloat16, 128, 16, 128, (vllm::Fp8KVCacheDataType)0, false, 512>(float*, float*)",
                "void flashinfer::BatchDecodeWithPagedKVCacheKernel<(flashinfer::PosEncodingMode)0, 2u, 8u, 16u>(flashinfer::Params)",
                "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16, (vllm::Fp8KVCacheDataType)0>(__nv_bfloat16 const*)",
                "triton_tem_fused_flex_attention_0",
                "void cutlass::device_kernel<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2, cute::tuple<>, cutlass::bfloat16_t>>>(flash::Params)",
            ],
        ),
        (
            "normalization",
            &[
                "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float, false>(int, float, float const*, float const*, float const*, float*, float*, float*)",
                "void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernelTemplate<c10::BFloat16, float, 64u, 1u, 32u, true, false, false>(long, long)",
                "void at::native::(anonymous namespace)::RowwiseMomentsCUDAKernel<float>(long, float, float const*, float*, float*)",
                "void at::native::batch_norm_collect_statistics_channels_last_kernel<at::native::Var, float, float, 4>(float const*, float*)",
                "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, 512, true, 1, true>(cudnnTensorStruct, float const*)",
                "void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*, c10::BFloat16*, c10::BFloat16 const*, float, int, int)",
                "triton_per_fused_native_layer_norm_1",
            ],
        ),
        (
            "softmax",
            &[
                "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, false, false>(float*, float const*, int, int, int, bool const*, int, bool)",
                "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, float, float, float, at::native::(anonymous namespace)::LogSoftMaxForwardEpilogue>(float*, float const*, int)",
                "triton_red_fused__softmax_2",
            ],
        ),
        (
            "elementwise",
            &[
                "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)",
                "void at::native::vectorized_elementwise_kernel<4, at::native::softmax_backward_functor, std::array<char*, 3ul> >(int)",
                "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}, std::array<char*, 2ul>, 4>(int)",
                "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>>(int)",
                "triton_poi_fused_convolution_relu_0",
                "triton_poi_fused__softmax_add_4",
                "void vllm::act_and_mul_kernel<c10::BFloat16, &(c10::BFloat16 vllm::silu_kernel<c10::BFloat16>(c10::BFloat16 const&))>(c10::BFloat16*, c10::BFloat16 const*, int)",
                "void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*, c10::BFloat16*, c10::BFloat16*, c10::BFloat16 const*, int, long, long, int, int, int)",
            ],
        ),
        (
            "reduction",
            &[
                "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float, float, float>, unsigned int, float, 4>>(at::native::ReduceOp<float>)",
                "void cub::CUB_200400_900_NS::DeviceReduceSingleTileKernel<cub::DeviceReducePolicy<float>, float*, float*, int>(float*, float*, int)",
                "triton_red_fused_mean_1",
                "triton_per_fused_sum_0",
            ],
        ),
        (
            "optimizer",
            &[
                "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::FusedOptimizerTensorListMetadata<4>, at::native::(anonymous namespace)::FusedAdamMathFunctor<float, 4, (at::native::ADAM_MODE)0, false>>(int)",
                "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::TensorListMetadata<2>, at::native::(anonymous namespace)::BinaryOpListAlphaFunctor<float, 2, 2, 0>>(int)",
            ],
        ),
        (
            "indexing",
            &[
                "void at::native::(anonymous namespace)::indexSelectLargeIndex<float, long, unsigned int, 2, 2, -2, true>(float*)",
                "void at::native::(anonymous namespace)::vectorized_gather_kernel<16, long>(char*, char*, long*, int, long, long, long, long, bool)",
                "void at::native::(anonymous namespace)::embedding_backward_feature_kernel<float, float, long>(long const*, float const*, float*, int, long, int)",
                "void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<at::native::index_kernel_impl<at::native::OpaqueType<4>>>>(long)",
            ],
        ),
        (
            "sorting",
            &[
                "void cub::CUB_200400_900_NS::DeviceRadixSortOnesweepKernel<cub::DeviceRadixSortPolicy<long>, false, long, long, int, int>(int*)",
                "void at::native::bitonicSortKVInPlace<2, -1, 16, 16, float, long, at::native::LTOp<float, true>, unsigned int>(at::cuda::detail::TensorInfo<float, unsigned int>)",
                "void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>(at::cuda::detail::TensorInfo<float const, unsigned int>)",
                "void at::native::tensor_kernel_scan_innermost_dim<float, std::plus<float>>(float*, float const*, unsigned int, unsigned int, unsigned int, float)",
            ],
        ),
        (
            "random",
            &[
                "void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<float, 4, at::native::templates::cuda::normal_and_transform<float, float>>(long)",
            ],
        ),
        (
            "loss",
            &[
                "void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>(float*, float*, float const*, long const*)",
            ],
        ),
        (
            "layout",
            &[
                "void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::(anonymous namespace)::OpaqueType<4u>, unsigned int, 2, 64, 64>(char*)",
                "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)2>(cudnn::ops::nchw2nhwc_params_t<float>)",
            ],
        ),
        (
            "pooling",
            &["void at::native::(anonymous namespace)::max_pool_forward_nhwc<float, int>(float const*, int, int, int)"],
        ),
        (
            "quantization",
            &[
                "void vllm::scaled_fp8_quant_kernel<c10::BFloat16, c10::Float8_e4m3fn>(c10::Float8_e4m3fn*, c10::BFloat16 const*, float const*, long)",
                "void kDequantizeBlockwise<__nv_bfloat16, 512, 64, 8, 2>(float*, unsigned char*, float*, __nv_bfloat16*, int, int)",
            ],
        ),
        (
            "fft",
            &[
                "void regular_fft<512u, 8u, 16u, (padding_t)1, (twiddle_t)0, (loadstore_modifier_t)2>(kernel_arguments_t<unsigned int>)",
            ],
        ),
        (
            "communication",
            &[
                "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
                "ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
                "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*, vllm::RankSignals, vllm::Signal*, __nv_bfloat16*, int, int)",
            ],
        ),
        (
            "other",
            &["my_kernel(float*, int)", "convert_weights(float*)", "set_property(int)", "", "step", "[unknown kernel]"],
        ),
    ];

    /// Check the classes of kernels of real programs.
    #[test]
    fn real_kernels_have_classes() {
        let all = REAL.iter().flat_map(|(expected, kernels)| kernels.iter().map(move |kernel| (*expected, *kernel)));
        let wrong: Vec<_> = all.filter(|(expected, kernel)| class(kernel) != *expected).collect();
        let found: Vec<_> = wrong.iter().map(|(expected, kernel)| (class(kernel), *expected, *kernel)).collect();
        assert!(found.is_empty(), "{found:#?}");
    }
}
