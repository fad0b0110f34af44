"""Which errors say that there was no room, and which only sound alike."""

import pytest
import torch

from gangline.train.program import failure_kind
from gangline.train.run.memory import is_out_of_memory

NO_ROOM = (
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    MemoryError("4 samples of 512 pixels at a time do not fit"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
    RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),
    RuntimeError("CUDA driver error: out of memory"),
    RuntimeError("NCCL error: unhandled cuda error, NCCL version 2.27\nLast error:\nCuda failure 2 'out of memory'"),
    torch.AcceleratorError("CUDA error: out of memory"),
    RuntimeError(
        "[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"
    ),
)
SOMETHING_ELSE = (
    torch.AcceleratorError("CUDA error: an illegal memory access was encountered"),
    RuntimeError("CUDA error: misaligned address"),
    RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
    RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"),
    RuntimeError("the file is out of memory cards"),
    ValueError("CUDA error: out of memory"),
    OSError(12, "Cannot allocate memory"),
    KeyboardInterrupt(),
)


@pytest.mark.parametrize("error", NO_ROOM, ids=repr)
def test_an_allocation_that_failed_is_out_of_memory_whichever_library_asked_for_it(error: BaseException) -> None:
    assert is_out_of_memory(error)
    assert isinstance(error, Exception) and failure_kind(error) == "out of memory"


@pytest.mark.parametrize("error", SOMETHING_ELSE, ids=repr)
def test_any_other_error_is_not_out_of_memory(error: BaseException) -> None:
    assert not is_out_of_memory(error)


def test_what_torch_raises_where_the_host_has_no_room_is_out_of_memory() -> None:
    with pytest.raises(RuntimeError) as told:
        torch.empty(2**60, dtype=torch.uint8)
    assert is_out_of_memory(told.value)
