"""Which files of a script's folder are results, when each goes up, and which of many versions is the newest."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.core.command.candidate import CheckpointCandidate, SeenFile
from gangline.core.command.layout import Rules
from gangline.core.command.lineage import (
    Begun,
    Ref,
    ResultFile,
    is_key_of_exec,
    kin,
    newest_results,
    parse_result,
    parse_results,
    results_to_json,
)
from gangline.core.command.results import KnownFile, Turn, UploadPace, UploadWay, goes_at_end, turns, way_of
from gangline.core.errors import Damaged
from gangline.core.files import File

A, B, C, D = "000001", "000002", "000003", "000004"


def named(name: str, *paths: str) -> CheckpointCandidate:
    return CheckpointCandidate(
        name=name, folder=bool(paths), files={path: SeenFile(bytes=1, sound=True) for path in paths or ("",)}
    )


@pytest.mark.parametrize(
    ("candidate", "expected"),
    [
        (named("timber-000003.safetensors"), {"": "now"}),
        (named("sample", "1.png", "deep/2.png"), {"1.png": "now", "deep/2.png": "now"}),
        (named("epoch_3", "1.png"), {"1.png": "quiet"}),
        (named("checkpoint-3", "model.safetensors"), {"model.safetensors": "state"}),
        (named("checkpoint-3-tmp", "model.safetensors"), {"model.safetensors": "end"}),
        (named("timber.safetensors.tmp"), {"": "end"}),
        (named("optimizer.pt"), {"": "end"}),
        (
            named("logs", "v_0/optimizer.pt", "v_0/deep/x", "v_1/x"),
            {"v_0/optimizer.pt": "end", "v_0/deep/x": "end", "v_1/x": "now"},
        ),
        (named("pictures", ".tmpAbCd", "1.png"), {".tmpAbCd": "end", "1.png": "now"}),
        (named("template.png"), {"": "now"}),
        (named(".cache", "x"), {}),
    ],
)
def test_what_may_become_a_checkpoint_does_not_go_up_while_it_may(
    candidate: CheckpointCandidate, expected: dict[str, Turn]
) -> None:
    assert turns(Rules(), [candidate], has_own=True).get(candidate.name, {}) == expected


@pytest.mark.parametrize(
    ("has_own", "expected"),
    [
        (True, {"dog_100.safetensors": "now", "dog_200.safetensors": "now", "ckpt_100.pt": "now", "1.png": "now"}),
        (False, {"dog_100.safetensors": "now", "dog_200.safetensors": "end", "ckpt_100.pt": "well", "1.png": "now"}),
    ],
)
def test_a_model_in_the_folder_itself_goes_up_when_it_is_no_part_of_the_newest_checkpoint(
    has_own: bool, expected: dict[str, Turn]
) -> None:
    lying = [
        replace(named(name), written_ns=number) for number, name in enumerate(expected) if name != "dog_200.safetensors"
    ]
    found = turns(Rules(), [*lying, replace(named("dog_200.safetensors"), written_ns=9)], has_own=has_own)
    assert {name: turn[""] for name, turn in found.items()} == expected


def test_where_the_whole_folder_is_a_checkpoint_the_rest_are_results() -> None:
    found = turns(Rules(layout="folder"), [named("net", "weights.bin", "notes.txt"), named("1.png")], has_own=False)
    assert found == {"net": {"weights.bin": "state", "notes.txt": "state"}, "1.png": {"": "now"}}
    assert turns(Rules(layout="folder"), [named("notes.txt")], has_own=False) == {"notes.txt": {"": "now"}}


@pytest.mark.parametrize(
    ("turn", "killed", "recognised", "goes"),
    [
        ("now", True, True, True),
        ("end", True, True, True),
        ("well", True, True, False),
        ("well", False, True, True),
        ("well", True, False, True),
        ("state", False, True, False),
        ("state", True, False, True),
    ],
)
def test_what_was_a_checkpoint_is_a_result_where_it_is_the_last_of_it(
    turn: Turn, killed: bool, recognised: bool, goes: bool
) -> None:
    assert goes_at_end(turn, killed=killed, recognised=recognised) is goes


def known(**given: object) -> KnownFile:
    return KnownFile(**({"mark": (1, 10, 1), "found_s": 0.0, "changed_s": 0.0} | given))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("state", "turn", "unchanged_s", "way"),
    [
        (known(), "now", 0.0, "whole"),
        (known(found_s=100.0, changed_s=100.0), "now", 0.0, "wait"),  # seen for the first time
        (known(changed_s=100.0), "now", 0.0, "snapshot"),  # it changes all the time
        (known(changed_s=100.0, mark=(1, 2**30, 1)), "now", 0.0, "wait"),
        (known(changed_s=100.0, sent=(1, 9, 1), sent_s=50.0), "now", 0.0, "wait"),
        (known(changed_s=100.0, sent=(1, 9, 1), sent_s=40.0), "now", 0.0, "snapshot"),
        (
            known(sent=(1, 9, 1), sent_s=40.0, took_s=4.0),
            "now",
            0.0,
            "wait",
        ),  # sending it over and over would fill the link
        (known(sent=(1, 10, 1)), "now", 0.0, "wait"),
        (known(), "quiet", 59.0, "wait"),
        (known(), "quiet", 60.0, "whole"),
        (known(), "end", 99.0, "wait"),
        (known(), "state", 99.0, "wait"),
    ],
)
def test_a_file_goes_up_once_it_settles_and_again_at_intervals(
    state: KnownFile, turn: Turn, unchanged_s: float, way: UploadWay
) -> None:
    assert way_of(state, turn, unchanged_s, 100.0, UploadPace()) == way


def test_looking_at_many_files_costs_less_than_a_hundredth_of_a_core() -> None:
    assert all(took_s / (took_s + UploadPace().pause_s(took_s)) < 0.01 for took_s in (0.001, 0.05, 1.0, 30.0))


# Over the runs


def begun(run: str, before: str = "", *, own_disk: bool = False) -> Begun:
    origin = Ref(before, 1) if before and not own_disk else None
    return Begun(run=run, origin=origin, continues=before if own_disk else "")


def test_runs_that_descend_from_one_beginning_belong_together() -> None:
    """Also one that nobody went on from, as it saved nothing; not one that began anew."""
    runs = {A: begun(A), B: begun(B, A, own_disk=True), C: begun(C, A), D: begun(D)}
    assert kin(runs, C) == [C, B, A] and kin(runs, B) == [B, A] and kin(runs, D) == [D]


def result(run: str, path: str, version: int = 1) -> ResultFile:
    return ResultFile(run=run, path=path, version=version)


def test_of_each_path_the_newest_version_of_the_newest_run_comes_first() -> None:
    all_of_them = [result(A, "x"), result(A, "x", 3), result(B, "y"), result(A, "y", 2), result(C, "x")]
    found = newest_results([B, A], all_of_them)
    assert found == {"x": [result(A, "x", 3), result(A, "x")], "y": [result(B, "y"), result(A, "y", 2)]}


def test_a_file_that_stands_where_a_newer_one_has_a_folder_gives_way() -> None:
    assert set(newest_results([B, A], [result(A, "log"), result(B, "log/1"), result(A, "log/2")])) == {"log/1", "log/2"}
    assert set(newest_results([B, A], [result(B, "log"), result(A, "log/1")])) == {"log"}


PATHS = st.sampled_from(["x", "y", "y/z", "y/z/w", "a/b"])


@given(st.lists(st.tuples(st.sampled_from([A, B, C, D]), PATHS, st.integers(1, 3)), unique=True))
def test_the_union_can_be_laid_down_and_lacks_no_path_without_reason(rows: list[tuple[str, str, int]]) -> None:
    of = [C, B, A]
    found = newest_results(of, [result(*row) for row in rows])
    assert not any(other.startswith(f"{path}/") for path in found for other in found)
    for run, path, _ in rows:
        blocked = any(path.startswith(f"{other}/") or other.startswith(f"{path}/") for other in found)
        assert path in found or blocked or run == D
    for path, versions in found.items():
        mine = [(of.index(run), -version) for run, each, version in rows if each == path and run in of]
        assert [(of.index(each.run), -each.version) for each in versions] == sorted(mine)


@pytest.mark.parametrize("version", [1, 2, 10])
def test_a_key_tells_which_version_it_is(version: int) -> None:
    each = result(A, "deep/x.png", version)
    assert parse_result(each.key) == each and is_key_of_exec(each.key)


@pytest.mark.parametrize(
    "key",
    [
        "runs/000001/output-records/000001.json",
        "runs/000001/output",
        "runs/000001/output/../x",
        "runs/000001/output-1/x",
    ],
)
def test_other_keys_are_no_results(key: str) -> None:
    assert parse_result(key) is None


def test_what_a_record_tells_of_results_comes_back() -> None:
    each = ResultFile(run=A, path="x", version=2, file=File(path="x", bytes=3, sha256="0" * 64))
    assert parse_results(A, results_to_json([each])) == [each]
    for junk in ([], {"files": [{"path": "../x", "version": 1, "bytes": 1, "sha256": "0" * 64}]}, {"files": [1]}):
        with pytest.raises(Damaged):
            parse_results(A, junk)
