//! The calls in which a rank waits: for other ranks, or for its GPU.

use cuda::calls::Role;
use model::hang::Frame;
use text::short::split_place;

use super::job::Doing;

/// A call that a thread is in.
pub(super) struct Call {
    /// The function.
    pub name: String,
    /// What the thread does in it.
    pub doing: Doing,
    /// How many frames, innermost first, belong to the call.
    pub frames: usize,
}

/// Functions of NCCL that other ranks take part in, without `nccl`.
const NCCL: &str = " AllReduce Broadcast Bcast Reduce AllGather ReduceScatter AlltoAll Gather Scatter Send Recv GroupEnd \
     CommInitRank CommInitRankConfig CommInitRankScalable CommInitAll CommSplit CommShrink CommGrow CommFinalize CommDestroy ";
/// Functions of MPI, without `MPI_`.
const MPI: &str = " Allreduce Barrier Bcast Reduce Allgather Allgatherv Alltoall Alltoallv Gather Gatherv Scatter Scatterv \
     Reduce_scatter Reduce_scatter_block Send Ssend Recv Sendrecv Wait Waitall Waitany Comm_split Finalize ";
/// Methods of PyTorch's process groups (`c10d::ProcessGroupNCCL::allreduce`).
const GROUP: &str = " allreduce allreduce_coalesced broadcast reduce allgather allgather_coalesced _allgather_base \
     allgather_into_tensor_coalesced reduce_scatter _reduce_scatter_base reduce_scatter_tensor_coalesced alltoall alltoall_base \
     gather scatter send recv recvAnysource barrier monitoredBarrier ";
/// Python functions of torch.distributed (`distributed_c10d.py`).
const TORCH: &str = " all_reduce all_reduce_coalesced all_gather all_gather_into_tensor all_gather_coalesced all_gather_object \
     _all_gather_base reduce_scatter reduce_scatter_tensor _reduce_scatter_base all_to_all all_to_all_single broadcast \
     broadcast_object_list reduce gather gather_object scatter scatter_object_list send recv send_object_list recv_object_list \
     batch_isend_irecv barrier monitored_barrier init_process_group new_group destroy_process_group ";
const TORCH_FILE: &str = "distributed_c10d.py";

fn has(list: &str, word: &str) -> bool {
    !word.contains(' ') && list.contains(&format!(" {word} "))
}

/// Whether a frame is a call that other ranks take part in.
fn is_collective(frame: &Frame, function: &str) -> bool {
    if frame.python {
        return frame.file.rsplit('/').next() == Some(TORCH_FILE) && has(TORCH, function);
    }
    if let Some(name) = function.strip_prefix("nccl").or_else(|| function.strip_prefix("pnccl")) {
        return has(NCCL, name);
    }
    if let Some(name) = function.strip_prefix("MPI_").or_else(|| function.strip_prefix("PMPI_")) {
        return has(MPI, name);
    }
    match function.strip_prefix("c10d::").and_then(|name| name.rsplit_once("::")) {
        Some((class, "wait" | "synchronize")) => class.contains("Work"),
        Some((class, method)) => class.starts_with("ProcessGroup") && has(GROUP, method),
        None => false,
    }
}

fn waits_for_gpu(frame: &Frame, function: &str) -> bool {
    let waits = |role| match role {
        Role::Synchronize => true,
        Role::Copy => !function.contains("Async"),
        _ => false,
    };
    !frame.python && cuda::call(function).is_some_and(|call| waits(call.role))
}

/// The function of a frame, without line, parameters and template arguments.
fn function(frame: &Frame) -> &str {
    let name = split_place(&frame.name).0.trim_end();
    let name = if frame.python { name } else { name.split(['(', '<']).next().unwrap_or(name) };
    if name.is_empty() { &frame.name } else { name }
}

/// Returns how many frames of a stack, innermost first, belong to the call in which its thread waits.
pub fn frames_of_call(frames: &[Frame]) -> Option<usize> {
    outermost(frames).map(|call| call.frames)
}

/// Returns the outermost call of a stack in which its thread waits: for other ranks or, if there is none, for the GPU.
pub(super) fn outermost(frames: &[Frame]) -> Option<Call> {
    let find = |doing, is: fn(&Frame, &str) -> bool| {
        let at = frames.iter().rposition(|frame| is(frame, function(frame)))?;
        Some(Call { name: function(&frames[at]).to_owned(), doing, frames: at + 1 })
    };
    find(Doing::InCollective, is_collective).or_else(|| find(Doing::WaitsForGpu, waits_for_gpu))
}
