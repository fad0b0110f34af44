"""Images of `deploy/`, built and run without a daemon, a registry or root's containers: by buildah, on a base that mmdebstrap makes."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from gangline.posix import descendants
from tests.inputs import ROOT

TOOLS = ("buildah", "mmdebstrap")
BASE = "localhost/gangline-base"
SUITE = "bookworm"
PACKAGES = "python3,python3-venv,ca-certificates,usr-is-merged"
MERGED = Path("/usr/share/mmdebstrap/hooks/merged-usr")
LEFT_OUT = ("doc", "info", "locale", "man")
"""What Debian's own slim images leave out of /usr/share."""
CONTEXT = tuple(line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!"))
"""What builds see of a checkout."""
CERTIFICATES = Path("/etc/ssl/certs")


def why_not() -> str:
    """Return why no image can be built here, "" if one can."""
    lacking = [tool for tool in TOOLS if shutil.which(tool) is None]
    if lacking:
        return f"{' and '.join(lacking)} not installed"
    return "" if os.geteuid() == 0 else "only root can build images here"


@dataclass(frozen=True)
class Workshop:
    """Everything of it lies in `folder`."""

    folder: Path

    def buildah(self, *words: str) -> list[str]:
        """Return a command of buildah's."""
        kept = ("--storage-driver", "vfs", "--root", str(self.folder / "kept"), "--runroot", str(self.folder / "run"))
        return ["buildah", *kept, *words]

    def do(self, *words: str) -> str:
        """Run a command of buildah's and return what it printed."""
        done = subprocess.run(
            self.buildah(*words), cwd=ROOT, env=_environment(), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"buildah {words[0]}: {done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout.strip()

    def make_base(self) -> None:
        """Make what is called `BASE` here: Debian with Python, as slim as its own images are."""
        self.folder.mkdir(parents=True, exist_ok=True)
        tar = self.folder / "base.tar"
        slim = [f"--dpkgopt=path-exclude=/usr/share/{each}/*" for each in LEFT_OUT]
        command = ["mmdebstrap", "--variant=minbase", f"--include={PACKAGES}", f"--hook-dir={MERGED}", *slim, SUITE]
        subprocess.run([*command, str(tar)], check=True, capture_output=True)
        container = self.do("from", "scratch")
        self.do("add", container, str(tar), "/")
        self.do("commit", "--rm", container, BASE)
        tar.unlink()

    def build(self, name: str, context: Path = ROOT, arguments: Mapping[str, str] = {}) -> str:
        """Build an image of `deploy/` on `BASE`, and return what it is called here. This machine's pip reaches its index as ever."""
        given = {"BASE": BASE, **({"CUDA": "cpu", **_where_torch_is()} if name == "worker" else {}), **arguments}
        image = f"localhost/gangline-{name}"
        words = [word for each, value in given.items() for word in ("--build-arg", f"{each}={value}")]
        words += [word for place in self._places_of_pip() for word in ("--volume", place)]
        containerfile = str(ROOT / "deploy" / f"Containerfile.{name}")
        self.do(
            "build", "--isolation", "chroot", "--layers=false", *words, "-f", containerfile, "-t", image, str(context)
        )
        return image

    def bytes_of_layers(self, image: str) -> list[int]:
        """Return the sizes of an image's layers, unpacked, that of its base first."""
        (layers,) = (json.loads(path.read_text()) for path in (self.folder / "kept").glob("*-layers/layers.json"))
        (images,) = (json.loads(path.read_text()) for path in (self.folder / "kept").glob("*-images/images.json"))
        known = {each["id"]: each for each in layers}
        at = next(each["layer"] for each in images if f"{image}:latest" in each.get("names", ()))
        sizes = list[int]()
        while at:
            sizes.insert(0, known[at]["diff-size"])
            at = known[at].get("parent")
        return sizes

    @contextmanager
    def container(self, image: str) -> Iterator["Container"]:
        name = self.do("from", image)
        try:
            yield Container(self, name)
        finally:
            self.do("rm", name)

    def _places_of_pip(self) -> Iterator[str]:
        """Yield what a build has to see of this machine, so that its pip finds what this machine's finds."""
        asked = [sys.executable, "-m", "pip", "config", "list"]
        said = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
        found = re.findall(r"^(?:global|:env:)\.([\w-]+)='(.*)'$", said, re.MULTILINE)
        settings = {name: value for name, value in found if name != "constraint"}
        if not settings:
            return
        folder = self.folder / "pip"
        folder.mkdir(exist_ok=True)
        (folder / "pip.conf").write_text(
            "[global]\n" + "".join(f"{name} = {value}\n" for name, value in settings.items())
        )
        yield f"{folder}:/etc/xdg/pip:ro"
        if CERTIFICATES.is_dir():
            yield f"{CERTIFICATES}:{CERTIFICATES}:ro"
        for place in _local_places(settings):
            yield f"{place}:{place}:ro"


@dataclass(frozen=True)
class Container:
    workshop: Workshop
    name: str

    def command(self, *words: str, environment: Mapping[str, str] = {}, volumes: Sequence[str] = ()) -> list[str]:
        """Return a command that runs these words inside, as the image's user, on this machine's network, where nothing else lies."""
        options = ["--workingdir", "/tmp"]
        options += [word for name, value in environment.items() for word in ("--env", f"{name}={value}")]
        options += [word for each in volumes for word in ("--volume", each)]
        return self.workshop.buildah("run", "--isolation", "chroot", *options, self.name, "--", *words)

    def run(self, *words: str, environment: Mapping[str, str] = {}, volumes: Sequence[str] = ()) -> str:
        """Run a program inside and return what it printed."""
        command = self.command(*words, environment=environment, volumes=volumes)
        done = subprocess.run(command, env=_environment(), capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{words}: {done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout.strip()


@dataclass
class Running:
    """A program of an image at work, and what it has printed so far."""

    process: "subprocess.Popen[bytes]"
    log: Path

    @property
    def printed(self) -> str:
        return self.log.read_text()

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def end(self) -> None:
        """Ask the program to stop, as who runs a container asks its first process, and wait for it."""
        for pid in descendants(self.process.pid):
            with suppress(OSError):
                if "/opt/gangline/bin/gangline" in Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:2]:
                    os.kill(pid, signal.SIGTERM)
        self.process.wait()


@contextmanager
def started(command: Sequence[str], log: Path) -> Iterator[Running]:
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=_environment(), stdout=output, stderr=subprocess.STDOUT)
    try:
        yield Running(process, log)
    finally:
        if process.poll() is None:
            process.terminate()  # what it started dies with it
        process.wait()


def _environment() -> dict[str, str]:
    """Return what buildah needs of this process's environment: none of it reaches an image."""
    return {name: os.environ[name] for name in ("HOME", "PATH", "TMPDIR") if name in os.environ}


def _local_places(settings: Mapping[str, str]) -> list[str]:
    """Return the folders of this machine that pip's settings name."""
    words = " ".join(settings.get(name, "") for name in ("find-links", "index-url", "extra-index-url")).split()
    paths = [Path(word.removeprefix("file://")) for word in words if word.startswith(("file://", "/"))]
    # of an index, its packages lie beside it
    return sorted({str(path.parent if path.name == "simple" else path) for path in paths if path.is_dir()})


def _where_torch_is() -> dict[str, str]:
    """Return where a build finds torch for CPUs: PyTorch's own index has it, unless this machine has its wheel."""
    found = os.environ.get("PIP_FIND_LINKS", "").split()
    here = any(each.startswith("/") and [*Path(each).glob("torch-*+cpu-*.whl")] for each in found)
    return {"TORCH_INDEX": "https://pypi.org/simple"} if here else {}
