"""What every test shares: one thread for torch, quiet libraries, no network, and the photos and base of this repository."""

import os

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
os.environ["AWS_EC2_METADATA_DISABLED"] = "true"

import hashlib
import signal
import sys
import tracemalloc  # noqa: F401 - pytest's hook for a leak imports it in whichever thread collects garbage, twice at once too
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import disk_usage

import pytest
from hypothesis import settings

from gangline.adapters.objects.s3_wire import S3Bucket
from gangline.cli import main as cli
from gangline.core.files import PART_BYTES, File
from gangline.ports.server import Upload
from gangline.train.loading import loading
from tests import tenths
from tests.inputs import BASE as BASE
from tests.inputs import ROOT
from tests.inputs import SUBJECT as SUBJECT
from tests.inputs import file_at as file_at
from tests.postgres import Postgres, postgres
from tests.servers import s3_server

settings.register_profile("anywhere", deadline=None)  # how long an example takes is the machine's affair
settings.load_profile("anywhere")

# A shell lets what it starts with `&` ignore Ctrl-C, and so would every program that a test starts and interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

LONG = ("e2e", "sim", "exec", "train")
MEMORY = Path("/dev/shm")
MEMORY_BYTES_MIN = 4 * 2**30
HAS_MEMORY = MEMORY.is_dir() and disk_usage(MEMORY).free > MEMORY_BYTES_MIN
if HAS_MEMORY:  # where a commit waits for no disk; what a test leaves goes with it
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


def pytest_addoption(parser: pytest.Parser) -> None:
    choices = (tenths.ALL, *map(str, range(tenths.TENTHS)))
    parser.addoption(
        "--tenth", choices=choices, help="which tenth of the soak and the mutants (default: by the sources)"
    )


def pytest_configure(config: pytest.Config) -> None:
    tenths.choose(config)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Without the garbage collector, which would look again and again through the libraries that modules of tests import."""
    with loading():
        return (yield)


def pytest_report_header(config: pytest.Config) -> str:
    tenth = tenths.chosen(config)
    return f"tenths: all of {tenths.TENTHS}" if tenth is None else f"tenths: --tenth {tenth} of {tenths.TENTHS}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    out = tenths.left_out(items, tenths.chosen(config))
    config.hook.pytest_deselected(items=out)
    kept = set(items).difference(out)
    items[:] = sorted((item for item in items if item in kept), key=_turn)


def _turn(item: pytest.Item) -> int:
    """Files that take minutes begin first: else the last of them would run alone, beside idle processes."""
    folder = item.path.relative_to(ROOT / "tests").parts[0]
    return LONG.index(folder) if folder in LONG else len(LONG)


@pytest.fixture(scope="session")
def tenth(pytestconfig: pytest.Config) -> int | None:
    """Which tenth of what is long this run plays; None stands for all of it."""
    return tenths.chosen(pytestconfig)


def as_upload(file: File, content: bytes) -> Upload:
    pieces = [content[start : start + PART_BYTES] for start in range(0, file.bytes, PART_BYTES)]
    parts = tuple(hashlib.sha256(piece).hexdigest() for piece in pieces) if len(pieces) > 1 else ()
    return Upload(path=file.path, bytes=file.bytes, sha256=file.sha256, parts=parts)


@pytest.fixture(scope="session")
def database_server() -> Iterator[Postgres]:
    """A PostgreSQL for all tests that ask for one; each makes a database of its own on it. In memory where there is enough."""
    with postgres(within=MEMORY if HAS_MEMORY else None) as server:
        yield server


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A new database of each engine: the URL of a PostgreSQL, or the path of a SQLite file."""
    if request.param == "sqlite":
        yield str(tmp_path / "db.sqlite")
        return
    server: Postgres = request.getfixturevalue("database_server")
    url = server.make_database()
    yield url
    server.drop_database(url)


@pytest.fixture(scope="session")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Bucket]:
    """Of a real S3 server, for all tests of this session."""
    with s3_server(tmp_path_factory.mktemp("s3")) as started:
        yield started


Typed = Callable[..., tuple[int, str, str]]


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Typed:
    """Run `gangline` with such words in this process; gives the exit code, what was printed and what was said."""

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["gangline", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        printed = capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    return run
