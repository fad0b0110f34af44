"""The commands of the pages about backups and upgrades, run from top to bottom in the home of a server that is stopped."""

from pathlib import Path

import pytest

from gangline.compose.access import keep_access, keep_sealing_keys
from tests.docs.test_guides import INSTALLS, Guide, Home, home
from tests.postgres import Postgres
from tests.sqlite import make_database

__all__ = ["home"]

BACKUPS = "../backups"
URL = "postgresql://gangline:PASSWORD@db.example/gangline"


def of_a_server(home: Home) -> Path:
    """Have in the home what a server leaves there."""
    folder = Path(home.environment["HOME"]) / ".local" / "share" / "gangline"
    make_database(folder / "gangline.sqlite")
    (folder / "store").mkdir()
    keep_access(folder, "http://127.0.0.1:1")
    keep_sealing_keys(folder, "")
    (home.folder / BACKUPS).mkdir()
    return folder


@pytest.mark.nightly
def test_a_backup_is_made_restored_and_moved_as_its_page_says(home: Home, database_server: Postgres) -> None:
    folder = of_a_server(home)
    page = Guide(
        page="operate/backup.md",
        here={
            "/var/backups": BACKUPS,
            "$(date +%FT%H%M)": "2026-11-30T1000",
            "gangline backup restore ../backups": f"rm {folder}/gangline.sqlite*; gangline backup restore {BACKUPS}",
            f"={URL} ": f"='{database_server.make_empty_database()}' ",
        },
    )
    said = home.run(page)
    assert said.count("whole: every file that a row refers to is there") == 3
    assert said.count("restored ") == 2


@pytest.mark.nightly
def test_an_upgrade_is_done_and_undone_as_its_page_says(home: Home, database_server: Postgres) -> None:
    of_a_server(home)
    empty = f"='{database_server.make_empty_database()}' "
    looks = "tests/e2e/test_upgrade.py runs them against a server that was replaced"
    said = home.run(
        Guide(
            page="operate/upgrade.md",
            skipped={"gangline nodes ls": looks},
            here={"pip install": f"true # {INSTALLS}:", "=postgresql://gangline:PASSWORD@db.example/empty ": empty},
        )
    )
    assert "the settings are valid" in said and said.count("restored ") == 2
