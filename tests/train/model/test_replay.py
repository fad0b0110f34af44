"""On a card: a function that is replayed as a CUDA graph returns what its kernels, launched one by one, return."""

import pytest
import torch

from gangline.train.model.replay import Replayed

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a card")


def test_a_replay_returns_the_bits_of_its_kernels_one_by_one() -> None:
    network = torch.nn.Sequential(torch.nn.Conv2d(4, 64, 3), torch.nn.SiLU(), torch.nn.Conv2d(64, 4, 3)).cuda()
    replayed = Replayed(network)
    with torch.no_grad():
        for _ in range(5):
            given = torch.randn(2, 4, 32, 32, device="cuda")
            assert torch.equal(replayed(given), network(given))
    assert replayed.replays


def test_a_result_stays_as_it_was_when_the_graph_is_replayed_again() -> None:
    replayed = Replayed(lambda given: given * 2)
    ones, twos = (torch.full((3,), value, device="cuda") for value in (1.0, 2.0))
    results = [replayed(given) for given in (ones, twos, ones, twos)]
    assert replayed.replays and [result[0].item() for result in results] == [2, 4, 2, 4]


def test_what_cannot_be_captured_is_launched_kernel_by_kernel(capfd: pytest.CaptureFixture[str]) -> None:
    replayed = Replayed(lambda given: given * given.sum().item())  # which synchronises with the host
    ones = torch.ones(3, device="cuda")
    assert [replayed(ones)[0].item() for _ in range(4)] == [3.0] * 4
    assert not replayed.replays and "not as a CUDA graph" in capfd.readouterr().err


def test_a_graph_of_other_bits_is_not_used(capfd: pytest.CaptureFixture[str]) -> None:
    factor = [1.0, 1.0, 2.0]  # as the first call, the second one and its capture see it
    replayed = Replayed(lambda given: given * factor.pop(0))
    ones = torch.ones(3, device="cuda")
    assert [replayed(ones)[0].item() for _ in range(2)] == [1.0, 1.0]
    assert not replayed.replays and "its result differs" in capfd.readouterr().err
