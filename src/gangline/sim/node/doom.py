"""Which runs fail soon after their start, by the traits of their machine and their job."""

from gangline.sim.scenario import JobModel, MachineModel


def doom_of(machine: MachineModel, job: JobModel) -> tuple[str, float] | None:
    """Return how a run of this job on this machine fails soon after its start, and after how many seconds; None if it does not."""
    if machine.trait == "fails_at_once":
        return "fails at once", machine.trait_s
    if machine.trait == "lies_65":
        return "lying 65", machine.trait_s
    if job.trait == "crashes":
        return "crashes", machine.start_s
    if job.trait == "bad_input":
        return "bad input", machine.start_s
    if job.memory_gb > machine.gpu_memory_gb and not machine.spills:
        return "memory", machine.start_s
    return None
