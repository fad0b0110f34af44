"""A step launches few kernels beyond those of the network: on a fast card the host that launches them is the slower one."""

from benchmarks.kernels import bare, layers_with_a_lora, ours


def test_each_layer_with_a_lora_costs_at_most_seven_kernels_and_hardly_anything_is_cast() -> None:
    network, step = bare(), ours()
    assert (step.kernels.total() - network.kernels.total()) / layers_with_a_lora() < 7
    assert step.casts <= network.casts + 20
