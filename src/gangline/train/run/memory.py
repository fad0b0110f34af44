"""Recognise errors that mean memory ran out: PyTorch's allocator has a type for them, the libraries below it have only messages."""

import torch

SAYS_SO = (
    "CUDA error: out of memory",
    "CUDA driver error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    "Cuda failure 'out of memory'",  # from NCCL, which allocates its buffers itself
    "Cuda failure 2 'out of memory'",
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an allocation failed. That leaves the device intact, so one can retry with less; after an illegal memory access, for
    example, nothing on the device can be trusted any more."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in SAYS_SO)
