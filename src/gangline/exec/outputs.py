"""Store the results of runs (gangline.core.command.lineage): files under names that are never written twice, and records of them."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from gangline.core.command.lineage import DIGITS, JSON, OUTPUT_RECORDS, RUNS, ResultFile, parse_results, results_to_json
from gangline.core.errors import Damaged, NotFound
from gangline.core.files import File
from gangline.exec.run_prefix import PrefixContent, RunPrefix
from gangline.worker.move import Move


def put_results(prefix: RunPrefix, run: str, number: int, results: Mapping[ResultFile, Path]) -> None:
    """Upload all files, then write the record with this number. Raises the same errors as `RunPrefix.put`."""
    prefix.put([Move(each.file, at, each.key) for each, at in results.items() if each.file])
    prefix.keep(_record(run, number), results_to_json(results))


def delete_results(prefix: RunPrefix, run: str, results: Iterable[ResultFile], records: Iterable[int]) -> None:
    keys = [*(each.key for each in results), *(_record(run, number) for number in records)]
    prefix.insist(lambda: prefix.objects.delete(keys))


def results_of(prefix: RunPrefix, found: PrefixContent, runs: Iterable[str]) -> list[ResultFile]:
    """Return the results of these runs, with sizes and hashes where a record has them. Raises `Unreachable`."""
    recorded, of = dict[str, ResultFile](), set(runs)
    for key in found.records:
        run = key.split("/")[1]
        if run in of:
            with suppress(Damaged):
                recorded |= {each.key: each for each in parse_results(run, prefix.read_json(key))}
    return [recorded.get(each.key, each) for each in found.results if each.run in of]


def attest(prefix: RunPrefix, result: ResultFile) -> File:
    """Return the size and SHA-256 of a result that has no record, by reading it back. Raises `NotFound`."""
    stat = prefix.objects.stat(result.key)
    if stat is None:
        raise NotFound(f"there is no object {result.key}")
    return File(path=result.path, bytes=stat.bytes, sha256=prefix.objects.read_back(result.key))


def _record(run: str, number: int) -> str:
    return f"{RUNS}/{run}/{OUTPUT_RECORDS}/{number:0{DIGITS}d}{JSON}"
