"""Memory that has run out is known by whatever library says so."""

import pytest
import torch

from gangline.train.program import kind_of
from gangline.train.run.memory import is_out_of_memory

OUT_OF_MEMORY = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    MemoryError(),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
    RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),
    RuntimeError("NCCL error: unhandled cuda error, NCCL version 2.27\nLast error:\nCuda failure 2 'out of memory'"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory: you tried 1 bytes"),
]
OTHERS = [
    RuntimeError("CUDA error: an illegal memory access was encountered"),
    RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
    ValueError("CUDA error: out of memory"),
]


@pytest.mark.parametrize("error", OUT_OF_MEMORY, ids=str)
def test_each_library_says_in_its_own_words_that_memory_has_run_out(error: Exception) -> None:
    assert is_out_of_memory(error)
    assert kind_of(error) == "out of memory"


def test_a_processor_that_has_no_room_says_it_in_one_of_those_ways() -> None:
    with pytest.raises(RuntimeError) as told:
        torch.empty(2**60, dtype=torch.uint8)
    assert is_out_of_memory(told.value)


@pytest.mark.parametrize("error", OTHERS, ids=str)
def test_no_other_error_is_taken_for_it(error: Exception) -> None:
    assert not is_out_of_memory(error)
    assert kind_of(error) == "crashed"
