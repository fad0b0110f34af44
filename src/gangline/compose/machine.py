"""What the environment says about this machine's hardware, in the variables of CUDA and OpenMP."""

import os


def shown_gpu() -> dict[str, str]:
    """Describe the first GPU that the environment shows to trainers; empty where there is none."""
    from gangline.adapters.host.host import describe_gpu

    return describe_gpu(os.environ.get("CUDA_VISIBLE_DEVICES"))


def trainer_threads() -> str:
    """Return how many threads a trainer has on the CPU; its results depend on it."""
    return os.environ.get("OMP_NUM_THREADS", "1")
