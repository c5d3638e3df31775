//! Copies. The direction is in an argument, in a struct, or in the name.
//!
//! The runtime's copies to and from arrays and symbols also have a direction argument, so the name is only the
//! fallback. Before CUDA 13, a batch of copies returned the index of the failed one; the runtime kept the function's
//! name, the driver did not.

use super::group::{calls, copy};
use crate::calls::Direction::{Default, DtoD, DtoH, HtoD, Peer};
use crate::calls::args::Kind::*;
use crate::calls::payload::Struct::*;

calls! {
    copy(Default) => {
        cudaMemcpy(dst: Pointer, src: Pointer, size: Bytes, kind: Way);
        cudaMemcpyAsync(dst: Pointer, src: Pointer, size: Bytes, kind: Way, stream: Stream);
        cudaMemcpy2D(dst: Pointer, dst_pitch: Size, src: Pointer, src_pitch: Size, width: Bytes, height: Rows, kind: Way);
        cudaMemcpy2DAsync(dst: Pointer, dst_pitch: Size, src: Pointer, src_pitch: Size, width: Bytes, height: Rows, kind: Way,
            stream: Stream);
        cudaMemcpy3D(copy: Struct(RuntimeCopy3D));
        cudaMemcpy3DAsync(copy: Struct(RuntimeCopy3D), stream: Stream);
        cudaMemcpyToSymbol(symbol: Pointer, src: Pointer, size: Bytes, offset: Size, kind: Way);
        cudaMemcpyToSymbolAsync(symbol: Pointer, src: Pointer, size: Bytes, offset: Size, kind: Way, stream: Stream);
        cudaMemcpyFromSymbol(dst: Pointer, symbol: Pointer, size: Bytes, offset: Size, kind: Way);
        cudaMemcpyFromSymbolAsync(dst: Pointer, symbol: Pointer, size: Bytes, offset: Size, kind: Way, stream: Stream);
        cudaMemcpyToArray(dst: Handle, x: Size, y: Size, src: Pointer, size: Bytes, kind: Way);
        cudaMemcpyToArrayAsync(dst: Handle, x: Size, y: Size, src: Pointer, size: Bytes, kind: Way, stream: Stream);
        cudaMemcpyFromArray(dst: Pointer, src: Handle, x: Size, y: Size, size: Bytes, kind: Way);
        cudaMemcpyFromArrayAsync(dst: Pointer, src: Handle, x: Size, y: Size, size: Bytes, kind: Way, stream: Stream);
        cudaMemcpyArrayToArray(dst: Handle, dst_x: Size, dst_y: Size, src: Handle, src_x: Size, src_y: Size, size: Bytes,
            kind: Way);
        cudaMemcpy2DToArray(dst: Handle, x: Size, y: Size, src: Pointer, src_pitch: Size, width: Bytes, height: Rows, kind: Way);
        cudaMemcpy2DToArrayAsync(dst: Handle, x: Size, y: Size, src: Pointer, src_pitch: Size, width: Bytes, height: Rows,
            kind: Way, stream: Stream);
        cudaMemcpy2DFromArray(dst: Pointer, dst_pitch: Size, src: Handle, x: Size, y: Size, width: Bytes, height: Rows,
            kind: Way);
        cudaMemcpy2DFromArrayAsync(dst: Pointer, dst_pitch: Size, src: Handle, x: Size, y: Size, width: Bytes, height: Rows,
            kind: Way, stream: Stream);
        cudaMemcpy2DArrayToArray(dst: Handle, dst_x: Size, dst_y: Size, src: Handle, src_x: Size, src_y: Size, width: Bytes,
            height: Rows, kind: Way);
        cudaMemcpyBatchAsync(dsts: Pointer, srcs: Pointer, sizes: Struct(Sizes), count: Size);

        cuMemcpy(dst: Pointer, src: Pointer, size: Bytes);
        cuMemcpyAsync(dst: Pointer, src: Pointer, size: Bytes, stream: Stream);
        cuMemcpy2D(copy: Struct(DriverCopy2D));
        cuMemcpy2DUnaligned(copy: Struct(DriverCopy2D));
        cuMemcpy2DAsync(copy: Struct(DriverCopy2D), stream: Stream);
        cuMemcpy3D(copy: Struct(DriverCopy3D));
        cuMemcpy3DAsync(copy: Struct(DriverCopy3D), stream: Stream);
        cuMemcpyBatchAsync(dsts: Pointer, srcs: Pointer, sizes: Struct(Sizes), count: Size, attributes: Pointer,
            attribute_indices: Pointer, attribute_count: Size, failed: Pointer, stream: Stream);
        cuMemcpyBatchAsync_v2(dsts: Pointer, srcs: Pointer, sizes: Struct(Sizes), count: Size, attributes: Pointer,
            attribute_indices: Pointer, attribute_count: Size, stream: Stream);
    }
    copy(HtoD) => {
        cuMemcpyHtoD(dst: Pointer, src: Pointer, size: Bytes);
        cuMemcpyHtoDAsync(dst: Pointer, src: Pointer, size: Bytes, stream: Stream);
        cuMemcpyHtoA(dst: Handle, offset: Size, src: Pointer, size: Bytes);
        cuMemcpyHtoAAsync(dst: Handle, offset: Size, src: Pointer, size: Bytes, stream: Stream);
    }
    copy(DtoH) => {
        cuMemcpyDtoH(dst: Pointer, src: Pointer, size: Bytes);
        cuMemcpyDtoHAsync(dst: Pointer, src: Pointer, size: Bytes, stream: Stream);
        cuMemcpyAtoH(dst: Pointer, src: Handle, offset: Size, size: Bytes);
        cuMemcpyAtoHAsync(dst: Pointer, src: Handle, offset: Size, size: Bytes, stream: Stream);
    }
    copy(DtoD) => {
        cuMemcpyDtoD(dst: Pointer, src: Pointer, size: Bytes);
        cuMemcpyDtoDAsync(dst: Pointer, src: Pointer, size: Bytes, stream: Stream);
        cuMemcpyAtoD(dst: Pointer, src: Handle, offset: Size, size: Bytes);
        cuMemcpyDtoA(dst: Handle, offset: Size, src: Pointer, size: Bytes);
        cuMemcpyAtoA(dst: Handle, dst_offset: Size, src: Handle, src_offset: Size, size: Bytes);
    }
    copy(Peer) => {
        cudaMemcpyPeer(dst: Pointer, dst_device: Int, src: Pointer, src_device: Int, size: Bytes);
        cudaMemcpyPeerAsync(dst: Pointer, dst_device: Int, src: Pointer, src_device: Int, size: Bytes, stream: Stream);
        cudaMemcpy3DPeer(copy: Struct(RuntimeCopy3DPeer));
        cudaMemcpy3DPeerAsync(copy: Struct(RuntimeCopy3DPeer), stream: Stream);
        cuMemcpyPeer(dst: Pointer, dst_context: Handle, src: Pointer, src_context: Handle, size: Bytes);
        cuMemcpyPeerAsync(dst: Pointer, dst_context: Handle, src: Pointer, src_context: Handle, size: Bytes, stream: Stream);
        cuMemcpy3DPeer(copy: Struct(DriverCopy3DPeer));
        cuMemcpy3DPeerAsync(copy: Struct(DriverCopy3DPeer), stream: Stream);
    }
}
