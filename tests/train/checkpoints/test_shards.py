"""Checkpoints of several ranks: any number of ranks goes on from them with the same tensors, and never from a damaged one."""

from pathlib import Path
from typing import Any

import pytest
import torch

from gangline.train.checkpoints import shards
from gangline.train.checkpoints.manifest import CheckpointIdentity
from gangline.train.checkpoints.shards import CheckpointPart, Span
from gangline.train.checkpoints.stored import StoredCheckpoint, newest_good
from gangline.train.run.ranks import Ranks

IDENTITY = CheckpointIdentity(spec_hash="a" * 64, fingerprint={"ranks": "2"}, exact=True)
TENSORS = {
    "weights/wide": torch.arange(70.0).reshape(7, 10),
    "weights/odd": torch.arange(5),
    "weights/one": torch.ones(1, 3),
    "optimizer/wide/step": torch.tensor(4.0),
    "optimizer/wide/exp_avg": torch.randn(7, 10, generator=torch.Generator().manual_seed(0)),
}


def parts_as_ddp(ranks: int) -> list[CheckpointPart]:
    return [CheckpointPart.of(TENSORS, {"held_out": []}, Ranks(rank, ranks)) for rank in range(ranks)]


def parts_as_fsdp(ranks: int) -> list[CheckpointPart]:
    """Each tensor cut as FSDP cuts it."""
    return [CheckpointPart(spans=cut, tensors=_rows(cut), numbers={"held_out": []}) for cut in _cuts(ranks)]


def _cuts(ranks: int) -> list[dict[str, Span]]:
    cuts: list[dict[str, Span]] = [{} for _ in range(ranks)]
    for name, tensor in TENSORS.items():
        if tensor.dim() == 0:
            cuts[0][name] = Span((), 0, 1)
            continue
        start = 0
        for rank, chunk in enumerate(tensor.chunk(ranks)):
            cuts[rank][name] = Span(tuple(tensor.shape), start, start + len(chunk))
            start += len(chunk)
    return cuts


def _rows(cut: dict[str, Span]) -> dict[str, torch.Tensor]:
    return {name: TENSORS[name][at.start : at.stop].clone() if at.shape else TENSORS[name] for name, at in cut.items()}


def save(folder: Path, step: int, parts: list[CheckpointPart]) -> Path:
    target = folder / f"{step:06d}"
    for rank, part in enumerate(parts):
        shards.write_part(target, part, Ranks(rank, len(parts)))
    shards.complete(target, step, IDENTITY, len(parts))
    return target


def good(folder: Path) -> tuple[StoredCheckpoint | None, list[str]]:
    return newest_good((folder,), IDENTITY.spec_hash, {"wide", "odd", "one"}, Ranks())


@pytest.mark.parametrize("parts", [parts_as_ddp(1), parts_as_ddp(2), parts_as_fsdp(2), parts_as_fsdp(3)])
def test_any_number_of_ranks_reads_the_tensors_that_others_wrote(tmp_path: Path, parts: list[CheckpointPart]) -> None:
    save(tmp_path, 3, parts)
    stored, _ = good(tmp_path)
    assert stored and stored.manifest.step == 3
    for name, tensor in TENSORS.items():
        assert torch.equal(stored.rows(name, Span((), 0, 2**62)), tensor)
        for ranks in (1, 2, 3):
            for start in range(0, len(tensor) if tensor.dim() else 0, -(-len(tensor) // ranks) if tensor.dim() else 1):
                stop = min(start + -(-len(tensor) // ranks), len(tensor))
                assert torch.equal(stored.rows(name, Span(tuple(tensor.shape), start, stop)), tensor[start:stop])
            assert stored.rows(name, Span(tuple(tensor.shape), 99, 99)).shape[0] == 0 or not tensor.dim()


def test_ranks_that_have_the_same_tensors_write_each_once_and_about_as_much() -> None:
    weights = {f"weights/{number}": torch.zeros(100 + number) for number in range(50)}
    parts = [CheckpointPart.of(weights, {}, Ranks(rank, 4)) for rank in range(4)]
    assert sorted(name for part in parts for name in part.spans) == sorted(weights)
    sizes = [sum(tensor.nbytes for tensor in part.tensors.values()) for part in parts]
    assert max(sizes) < 1.1 * min(sizes)


def test_a_checkpoint_is_none_before_every_rank_has_written_its_part(tmp_path: Path) -> None:
    target = tmp_path / "000003"
    for rank, part in enumerate(parts_as_ddp(2)):
        shards.write_part(target, part, Ranks(rank, 2))
        assert good(tmp_path)[0] is None
    shards.complete(target, 3, IDENTITY, 2)
    assert good(tmp_path)[0] is not None


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGE: dict[str, Any] = {
    "a bit of a part flipped": lambda at: flip_a_bit(at / "weights-00001.safetensors"),
    "a part missing": lambda at: (at / "weights-00001.safetensors").unlink(),
    "a part truncated": lambda at: (at / "weights-00000.safetensors").write_bytes(b""),
    "a note missing": lambda at: (at / "rank-00000.json").unlink(),
    "a bit of a note flipped": lambda at: flip_a_bit(at / "rank-00001.json"),
    "the numbers empty": lambda at: (at / "numbers.json").write_bytes(b""),
    "the manifest gone": lambda at: (at / "manifest.json").unlink(),
    "two parts exchanged": lambda at: [
        (at / "weights-00000.safetensors").rename(at / "other"),
        (at / "weights-00001.safetensors").rename(at / "rank-00000.safetensors"),
        (at / "other").rename(at / "weights-00001.safetensors"),
    ],
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_newest_checkpoint_is_left_aside_and_the_one_before_is_used(tmp_path: Path, damage: str) -> None:
    for step in (3, 6):
        save(tmp_path, step, parts_as_fsdp(2))
    DAMAGE[damage](tmp_path / "000006")
    stored, rejected = good(tmp_path)
    assert stored and stored.manifest.step == 3
    assert len(rejected) == 1 and rejected[0].startswith("checkpoint 000006 is rejected: ")


def test_a_manifest_that_leaves_out_a_rank_is_no_checkpoint(tmp_path: Path) -> None:
    target = tmp_path / "000003"
    for rank, part in enumerate(parts_as_fsdp(2)):
        shards.write_part(target, part, Ranks(rank, 2))
    shards.complete(target, 3, IDENTITY, 1)
    stored, rejected = good(tmp_path)
    assert stored is None and "it lacks rows of" in rejected[0]


def test_another_jobs_checkpoint_is_not_gone_on_from(tmp_path: Path) -> None:
    save(tmp_path, 3, parts_as_ddp(1))
    assert newest_good((tmp_path,), "b" * 64, {"wide", "odd", "one"}, Ranks())[0] is None
    assert newest_good((tmp_path,), IDENTITY.spec_hash, {"another"}, Ranks())[0] is None


def test_what_an_earlier_try_left_torn_is_cleared_away(tmp_path: Path) -> None:
    kept = save(tmp_path, 3, parts_as_ddp(1))
    (tmp_path / "000006").mkdir()
    shards.ShardSaver(tmp_path, Ranks(), after=3)
    assert list(tmp_path.iterdir()) == [kept]
