"""What runs a tenth at a time is wholly run by the ten of them, and the sources alone say which."""

from dataclasses import dataclass
from pathlib import Path

from tests import tenths


def test_the_same_sources_choose_the_same_tenth_and_a_change_moves_on(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("first = 1\n")
    before = tenths.of_sources([tmp_path])
    assert tenths.of_sources([tmp_path]) == before
    chosen = set()
    for number in range(100):
        (tmp_path / "a.py").write_text(f"first = {number}\n")
        chosen.add(tenths.of_sources([tmp_path]))
    assert chosen == set(range(tenths.TENTHS))


@dataclass(frozen=True)
class Item:
    """What is asked of a collected test."""

    name: str
    path: Path = Path("test_of_guards.py")
    marked: bool = True

    def get_closest_marker(self, name: str) -> bool:
        return self.marked and name == "tenths"


def kept(items: list[Item], tenth: int | None) -> list[Item]:
    out = tenths.left_out(items, tenth)  # type: ignore[arg-type]
    return [item for item in items if item not in out]


def test_each_marked_test_runs_in_one_tenth_and_the_tenths_are_of_one_size() -> None:
    items = [Item(f"test[{number}]", Path(path)) for path in ("test_a.py", "test_b.py") for number in range(50)]
    played = [kept(items, tenth) for tenth in range(tenths.TENTHS)]
    assert sorted((item.path, item.name) for found in played for item in found) == sorted(
        (item.path, item.name) for item in items
    )
    assert {len(found) for found in played} == {10}


def test_what_is_not_marked_always_runs_and_all_of_it_where_everything_is_asked_for() -> None:
    plain, marked = Item("plain", marked=False), Item("marked")
    for tenth in range(tenths.TENTHS):
        assert plain in kept([plain, marked], tenth)
    assert kept([plain, marked], None) == [plain, marked]
