"""Low-rank factors of a matrix: the best of each rank by the Eckart-Young theorem, with the share of its Frobenius norm that is kept.

A change of weights is up @ down, of (out, rank) and (rank, in); a convolution's inputs and pixels are one side.
"""

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Spectrum:
    """A matrix as U diag(σ) V: `left` (out, n) and `right` (n, in) are orthonormal, `values` (n,) fall. All are float64."""

    left: torch.Tensor
    values: torch.Tensor
    right: torch.Tensor

    def factors(self, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return `down` (rank, in) and `up` (out, rank) in float32. As in kohya's scripts, `up` has the singular values. Where the matrix
        has a lower rank, the rest is zero."""
        kept = min(rank, len(self.values))
        down = torch.zeros(rank, self.right.shape[1])
        up = torch.zeros(len(self.left), rank)
        down[:kept] = self.right[:kept]
        up[:, :kept] = self.left[:, :kept] * self.values[:kept]
        return down, up

    def kept(self, rank: int) -> float:
        """Return the share of the squared Frobenius norm that a rank keeps; 1 for a matrix of zeros."""
        squares = self.values.square()
        whole = float(squares.sum())
        return float(squares[:rank].sum()) / whole if whole else 1.0

    def rank_for_energy(self, share: float) -> int:
        """Return the least rank that keeps this share of the squared Frobenius norm, at least 1."""
        squares = self.values.square()
        whole = squares.sum()
        if not float(whole):
            return 1
        return min(int((squares.cumsum(0) / whole < share - 1e-12).sum()) + 1, len(self.values))

    def rank_for_ratio(self, ratio: float) -> int:
        """Return the number of singular values that are greater than the first one divided by `ratio`, at least 1."""
        return max(1, int((self.values > self.values[0] / ratio).sum())) if len(self.values) else 1


@torch.no_grad()
def spectrum_of_product(down: torch.Tensor, up: torch.Tensor) -> Spectrum:
    """Return the spectrum of up @ down without making the product: of the triangles of two QR decompositions (rank · rank)."""
    left, left_triangle = torch.linalg.qr(up.double())
    right, right_triangle = torch.linalg.qr(down.double().T)
    inner_left, values, inner_right = torch.linalg.svd(left_triangle @ right_triangle.T, full_matrices=False)
    return Spectrum(left @ inner_left, values, inner_right @ right.T)


@torch.no_grad()
def spectrum_of(matrix: torch.Tensor, rank: int) -> Spectrum:
    """Return the spectrum of a matrix up to `rank`, by the eigenvectors of its Gram matrix on the shorter side.

    In float64 this finds singular values down to about 1e-8 of the first one, and is several times as fast as a decomposition of the
    whole matrix where one side is much longer.
    """
    wide = matrix.shape[0] <= matrix.shape[1]
    across = matrix.double() if wide else matrix.double().T
    vectors = torch.linalg.eigh(across @ across.T).eigenvectors.flip(1)[:, :rank]
    rest = vectors.T @ across
    values = rest.norm(dim=1)
    other = rest / values.clamp(min=torch.finfo(torch.float64).tiny)[:, None]
    return Spectrum(vectors, values, other) if wide else Spectrum(other.T, values, vectors.T)
