"""The types that users' editors see. Nobody runs this: `tests/wire/test_public_types.py` has a type checker read it."""

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from pathlib import Path
from typing import assert_type

from gangline import AsyncClient, Client, HubBase, LoraSpec, train_lora
from gangline.types import (
    ArtifactView,
    BaseView,
    BatchLineView,
    EndView,
    EventView,
    FactView,
    File,
    JobSummary,
    JobView,
    KeyView,
    LogView,
    NewKey,
    ProgressView,
    TransferProgress,
)

SPEC = LoraSpec(base=HubBase(repo="a/model"), photos=(File(path="1.png", bytes=1, sha256="0" * 64),), prompt="a dog")


def of_client(client: Client, folder: Path) -> None:
    assert_type(Client(), Client)
    assert_type(client.jobs.list(), Iterator[JobSummary])
    assert_type(client.jobs.submit(SPEC, name="timber"), JobView)
    assert_type(client.jobs.submit({"base": "pony"}), JobView)
    assert_type(client.jobs.submit_batch([SPEC]), list[BatchLineView])
    assert_type(client.jobs.get("job").id, str)
    assert_type(client.jobs.wait("job", until="running", timeout_s=1, check=True), JobView)
    client.jobs.wait("job", until="done")  # pyright: ignore[reportArgumentType]
    client.job("job")  # pyright: ignore[reportAttributeAccessIssue]
    assert_type(client.events.follow("job"), Generator[EventView | ProgressView | EndView])
    assert_type(client.facts.follow(5, timeout_s=1.5), Generator[FactView])
    assert_type(client.logs.follow("job"), Generator[LogView])
    assert_type(client.bases.get("pony"), BaseView)
    assert_type(client.keys.list(), Iterator[KeyView])
    assert_type(client.keys.add("alice", "admin"), NewKey)
    assert_type(client.files.upload([folder], folder, progress=see), tuple[File, ...])
    assert_type(client.artifacts.download("job", "results", progress=print), tuple[Path, ...])
    assert_type(train_lora(client, folder, base="pony"), JobView)
    with client as same:
        assert_type(same, Client)


async def of_async_client(client: AsyncClient, folder: Path) -> None:
    assert_type(client.jobs.list(), AsyncIterator[JobSummary])
    assert_type(await client.jobs.submit(SPEC, name="timber"), JobView)
    assert_type(await client.jobs.submit_batch([SPEC]), list[BatchLineView])
    assert_type(await client.jobs.wait("job", until="succeeded"), JobView)
    assert_type(client.events.follow("job"), AsyncGenerator[EventView | ProgressView | EndView])
    assert_type(client.facts.list(after=3), AsyncIterator[FactView])
    assert_type([each async for each in client.artifacts.list("job")], list[ArtifactView])
    assert_type(await client.files.upload([folder], folder, progress=see), tuple[File, ...])
    async with client as same:
        assert_type(same, AsyncClient)


def see(progress: TransferProgress) -> None:
    assert_type(progress.bytes_done, int)
