"""How memory that has run out is told from other errors."""

import torch

SAID = (
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    "CUDA error: out of memory",
    "Cuda failure 'out of memory'",  # NCCL, which allocates buffers of its own
    "Cuda failure 2 'out of memory'",
    "can't allocate memory",  # PyTorch, of a processor's memory
)
"""What libraries that allocate by themselves say in an error without a type of its own."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether it says that a card or the machine has no memory left."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in SAID)
