"""Sizes of the factors of a LoKr: the change of a layer's weights is a Kronecker product (Edalati et al. 2022, eq. 3).

A weight (outputs, inputs) changes by w1 ⊗ w2, where w1 is (l, m), w2 is (k, n), l · k = outputs and m · n = inputs. A convolution's w2 is
(k, n, height, width). w2 is whole, or a product of a rank (LyCORIS, Yeh et al. 2024, §3.2).
"""

from dataclasses import dataclass
from math import isqrt


@dataclass(frozen=True, slots=True)
class Factors:
    """Rows and columns: `first` is (l, m), `second` (k, n)."""

    first: tuple[int, int]
    second: tuple[int, int]

    def whole(self, rank: int) -> bool:
        """Return whether a second factor is no smaller as a product of this rank: it is then kept whole."""
        return 2 * rank >= max(self.second)


def factors_of(outputs: int, inputs: int, factor: int | None) -> Factors:
    """Return the sizes for a first factor of `factor` rows and columns, or of as many as make both factors most alike."""
    rows, columns = divided(outputs, factor), divided(inputs, factor)
    return Factors(first=(rows[0], columns[0]), second=(rows[1], columns[1]))


def divided(width: int, factor: int | None) -> tuple[int, int]:
    """Return two whole numbers whose product is `width`. The first is `factor` if that divides it, else its largest divisor below both
    that and the square root of `width`.

    >>> divided(1280, None), divided(1280, 4), divided(250, 4)
    ((32, 40), (4, 320), (2, 125))
    """
    if factor and width % factor == 0:
        return factor, width // factor
    most = min(factor or width, isqrt(width))
    first = next(number for number in range(most, 0, -1) if width % number == 0)
    return first, width // first
