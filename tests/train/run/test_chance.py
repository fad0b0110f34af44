"""A run draws the same numbers, however its drawing is shared out."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from gangline.data.chance import stream, streams
from gangline.train.run import chance

SAMPLES = [*range(70), 2**40, 0]


def test_each_sample_has_the_stream_that_it_has_alone() -> None:
    for sample, own in zip(SAMPLES, streams(7, "noise", 3, SAMPLES), strict=True):
        alone = stream(7, "noise", 3, sample)
        assert own.integers(2**63) == alone.integers(2**63) and own.random(dtype=np.float32) == alone.random(
            dtype=np.float32
        )
        assert own.integers(2**31, dtype=np.int32) == alone.integers(
            2**31, dtype=np.int32
        )  # leaves half a number behind


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_noise_is_the_same_whoever_draws_it(threads: int) -> None:
    wanted = np.stack(
        [stream(7, "noise", 3, sample).standard_normal((2, 3, 5), dtype=np.float32) for sample in SAMPLES]
    )
    if not threads:
        found = chance.normal(7, "noise", 3, SAMPLES, (2, 3, 5))
    else:
        with ThreadPoolExecutor(threads) as pool:
            found = chance.normal(7, "noise", 3, SAMPLES, (2, 3, 5), pool)
    assert (found.numpy() == wanted).all()
