"""Which checkpoints are kept, and what a manifest must be."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.core.errors import Damaged
from gangline.core.files import File
from gangline.core.runs.contract import Manifest, Prepared, parse_manifest, parse_prepared
from gangline.core.runs.retention import KeptCheckpoint, to_prune

checkpoints = st.lists(st.booleans(), max_size=8).map(
    lambda verified: [
        KeptCheckpoint(id=str(n), step=100 - n, verified=is_verified) for n, is_verified in enumerate(verified)
    ]
)


@given(checkpoints, st.integers(2, 5))
def test_pruning_keeps_the_newest_and_never_the_last_verified_goes(known: list[KeptCheckpoint], keep: int) -> None:
    gone = to_prune(known, keep=keep)
    left = [checkpoint for checkpoint in known if checkpoint not in gone]
    assert left[:keep] == known[:keep]
    some_verified = any(checkpoint.verified for checkpoint in known)
    assert any(checkpoint.verified for checkpoint in left) == some_verified
    assert len(left) <= keep + 1 if some_verified else left == known


def test_the_best_one_is_kept_and_no_other_that_once_was() -> None:
    known = [KeptCheckpoint(id=str(n), step=100 - n, verified=n == 0, best=n in (3, 5)) for n in range(7)]
    assert [gone.id for gone in to_prune(known, keep=2)] == ["2", "4", "5", "6"]


MANIFEST = Manifest(
    step=7,
    spec_hash="c" * 64,
    fingerprint={"torch": "2"},
    exact=True,
    files=(File(path="w", bytes=3, sha256="a" * 64),),
)


def test_a_manifest_survives_json() -> None:
    assert parse_manifest(MANIFEST.to_json()) == MANIFEST


@given(st.sampled_from(sorted(MANIFEST.to_json())), st.one_of(st.none(), st.integers(), st.text(), st.lists(st.none())))
def test_a_manifest_that_was_changed_anywhere_is_damaged(name: str, value: object) -> None:
    changed = MANIFEST.to_json() | {name: value}
    if changed != MANIFEST.to_json():
        with pytest.raises(Damaged):
            parse_manifest(changed)


@given(
    st.recursive(
        st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_what_is_no_manifest_is_damaged(value: object) -> None:
    with pytest.raises(Damaged):
        parse_manifest(value)


@pytest.mark.parametrize("step", ["7", 7.0, True])
def test_a_step_that_is_no_whole_number_is_damaged(step: object) -> None:
    with pytest.raises(Damaged, match="is not a whole number"):
        parse_manifest(MANIFEST.to_json() | {"step": step})


def test_a_manifest_of_a_file_that_is_the_folder_of_another_is_damaged() -> None:
    files = tuple(File(path=path, bytes=3, sha256="a" * 64) for path in ("unet", "unet/weights"))
    with pytest.raises(Damaged, match="unet is a file, so it cannot also be the folder of unet/weights"):
        parse_manifest(replace(MANIFEST, files=files).to_json())
    with pytest.raises(Damaged, match="unet is a file"):
        parse_prepared(Prepared(key="k", files=files).to_json())
