"""Whether an error says that memory ran out: PyTorch's allocator has a type for that, the libraries below it have only words."""

import torch

SAYS_SO = (
    "CUDA error: out of memory",
    "CUDA driver error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    "Cuda failure 'out of memory'",  # NCCL, which has buffers of its own
    "Cuda failure 2 'out of memory'",
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an allocation failed, which leaves the device as it was: one can try again with less. After an illegal access
    to memory, for example, nothing on the device can be trusted any more."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in SAYS_SO)
