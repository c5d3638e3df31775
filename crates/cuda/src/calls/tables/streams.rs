//! Streams, events and graphs.
//!
//! Before CUDA 12, `cudaGraphInstantiate` had five arguments, and the result of an update was split over two.

use super::group::{calls, role};
use crate::calls::Role;
use crate::calls::args::Kind::*;

calls! {
    role(Role::Synchronize) => {
        cudaDeviceSynchronize();
        cudaThreadSynchronize();
        cudaStreamSynchronize(stream: Stream);
        cudaEventSynchronize(event: Handle);
        cuCtxSynchronize();
        cuStreamSynchronize(stream: Stream);
        cuEventSynchronize(event: Handle);
    }
    role(Role::Stream) => {
        cudaStreamCreate(stream: Out(&Stream));
        cudaStreamCreateWithFlags(stream: Out(&Stream), flags: Flags);
        cudaStreamCreateWithPriority(stream: Out(&Stream), flags: Flags, priority: Int);
        cudaStreamDestroy(stream: Stream);
        cudaStreamQuery(stream: Stream);
        cudaStreamWaitEvent(stream: Stream, event: Handle, flags: Flags);
        cudaStreamGetFlags(stream: Stream, flags: Out(&Flags));
        cudaStreamGetPriority(stream: Stream, priority: Out(&Int));
        cudaStreamGetId(stream: Stream, id: Out(&Size));
        cudaStreamAttachMemAsync(stream: Stream, ptr: Pointer, size: Size, flags: Flags);
        cudaStreamBeginCapture(stream: Stream, mode: Unsigned);
        cudaStreamBeginCaptureToGraph(stream: Stream, graph: Handle, dependencies: Pointer, edges: Pointer, count: Size,
            mode: Unsigned);
        cudaStreamEndCapture(stream: Stream, graph: Out(&Handle));
        cudaStreamIsCapturing(stream: Stream, status: Out(&Unsigned));
        cudaStreamGetCaptureInfo(stream: Stream, status: Out(&Unsigned));
        cudaThreadExchangeStreamCaptureMode(mode: Out(&Unsigned));
        cudaDeviceGetStreamPriorityRange(least: Out(&Int), greatest: Pointer);

        cuStreamCreate(stream: Out(&Stream), flags: Flags);
        cuStreamCreateWithPriority(stream: Out(&Stream), flags: Flags, priority: Int);
        cuStreamDestroy(stream: Stream);
        cuStreamQuery(stream: Stream);
        cuStreamWaitEvent(stream: Stream, event: Handle, flags: Flags);
        cuStreamGetFlags(stream: Stream, flags: Out(&Flags));
        cuStreamGetPriority(stream: Stream, priority: Out(&Int));
        cuStreamGetId(stream: Stream, id: Out(&Size));
        cuStreamGetCtx(stream: Stream, context: Out(&Handle));
        cuStreamAttachMemAsync(stream: Stream, ptr: Pointer, size: Size, flags: Flags);
        cuStreamBeginCapture(stream: Stream);
        cuStreamBeginCapture_v2(stream: Stream, mode: Unsigned);
        cuStreamBeginCaptureToGraph(stream: Stream, graph: Handle, dependencies: Pointer, edges: Pointer, count: Size,
            mode: Unsigned);
        cuStreamEndCapture(stream: Stream, graph: Out(&Handle));
        cuStreamIsCapturing(stream: Stream, status: Out(&Unsigned));
        cuStreamGetCaptureInfo(stream: Stream, status: Out(&Unsigned));
        cuThreadExchangeStreamCaptureMode(mode: Out(&Unsigned));
        cuStreamWaitValue32(stream: Stream, ptr: Pointer, value: Unsigned, flags: Flags);
        cuStreamWaitValue64(stream: Stream, ptr: Pointer, value: Size, flags: Flags);
        cuStreamWriteValue32(stream: Stream, ptr: Pointer, value: Unsigned, flags: Flags);
        cuStreamWriteValue64(stream: Stream, ptr: Pointer, value: Size, flags: Flags);
        cuStreamBatchMemOp(stream: Stream, count: Unsigned, ops: Pointer, flags: Flags);
        cuCtxGetStreamPriorityRange(least: Out(&Int), greatest: Pointer);
    }
    role(Role::Event) => {
        cudaEventCreate(event: Out(&Handle));
        cudaEventCreateWithFlags(event: Out(&Handle), flags: Flags);
        cudaEventDestroy(event: Handle);
        cudaEventQuery(event: Handle);
        cudaEventRecord(event: Handle, stream: Stream);
        cudaEventRecordWithFlags(event: Handle, stream: Stream, flags: Flags);
        cudaEventElapsedTime(ms: Out(&Float), start: Handle, end: Handle);
        cudaIpcGetEventHandle(handle: Pointer, event: Handle);
        cudaIpcOpenEventHandle(event: Out(&Handle));

        cuEventCreate(event: Out(&Handle), flags: Flags);
        cuEventDestroy(event: Handle);
        cuEventQuery(event: Handle);
        cuEventRecord(event: Handle, stream: Stream);
        cuEventRecordWithFlags(event: Handle, stream: Stream, flags: Flags);
        cuEventElapsedTime(ms: Out(&Float), start: Handle, end: Handle);
        cuIpcGetEventHandle(handle: Pointer, event: Handle);
        cuIpcOpenEventHandle(event: Out(&Handle));
    }
    role(Role::Graph) => {
        cudaGraphCreate(graph: Out(&Handle), flags: Flags);
        cudaGraphDestroy(graph: Handle);
        cudaGraphClone(graph: Out(&Handle), original: Handle);
        cudaGraphInstantiate(exec: Out(&Handle), graph: Handle);
        cudaGraphInstantiateWithFlags(exec: Out(&Handle), graph: Handle, flags: LongFlags);
        cudaGraphInstantiateWithParams(exec: Out(&Handle), graph: Handle, params: Pointer);
        cudaGraphExecUpdate(exec: Handle, graph: Handle);
        cudaGraphExecDestroy(exec: Handle);
        cudaGraphUpload(exec: Handle, stream: Stream);
        cudaGraphGetNodes(graph: Handle, nodes: Pointer, count: Out(&Size));
        cudaGraphAddKernelNode(node: Out(&Handle), graph: Handle, dependencies: Pointer, count: Size, params: Pointer);
        cudaGraphAddMemcpyNode(node: Out(&Handle), graph: Handle, dependencies: Pointer, count: Size, params: Pointer);
        cudaGraphAddMemsetNode(node: Out(&Handle), graph: Handle, dependencies: Pointer, count: Size, params: Pointer);
        cudaGraphAddHostNode(node: Out(&Handle), graph: Handle, dependencies: Pointer, count: Size, params: Pointer);
        cudaGraphAddChildGraphNode(node: Out(&Handle), graph: Handle, dependencies: Pointer, count: Size, child: Handle);
        cudaGraphAddEmptyNode(node: Out(&Handle), graph: Handle, dependencies: Pointer, count: Size);

        cuGraphCreate(graph: Out(&Handle), flags: Flags);
        cuGraphDestroy(graph: Handle);
        cuGraphClone(graph: Out(&Handle), original: Handle);
        cuGraphInstantiate(exec: Out(&Handle), graph: Handle, error_node: Pointer, log: Pointer, log_size: Size);
        cuGraphInstantiateWithFlags(exec: Out(&Handle), graph: Handle, flags: LongFlags);
        cuGraphInstantiateWithParams(exec: Out(&Handle), graph: Handle, params: Pointer);
        cuGraphExecUpdate(exec: Handle, graph: Handle);
        cuGraphExecDestroy(exec: Handle);
        cuGraphUpload(exec: Handle, stream: Stream);
        cuGraphGetNodes(graph: Handle, nodes: Pointer, count: Out(&Size));
        cuGraphAddKernelNode(node: Out(&Handle), graph: Handle, dependencies: Pointer, count: Size, params: Pointer);
        cuGraphAddMemcpyNode(node: Out(&Handle), graph: Handle, dependencies: Pointer, count: Size, params: Pointer,
            context: Handle);
        cuGraphAddMemsetNode(node: Out(&Handle), graph: Handle, dependencies: Pointer, count: Size, params: Pointer,
            context: Handle);
        cuGraphAddHostNode(node: Out(&Handle), graph: Handle, dependencies: Pointer, count: Size, params: Pointer);
        cuGraphAddChildGraphNode(node: Out(&Handle), graph: Handle, dependencies: Pointer, count: Size, child: Handle);
        cuGraphAddEmptyNode(node: Out(&Handle), graph: Handle, dependencies: Pointer, count: Size);
    }
}
