"""The `command` driver over programs as an operator writes them: one script here, over a provider that is a file."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gangline.adapters.pools.command import ENDED_KEPT_S, STOP_AGAIN_S, CommandPool, CommandSettings
from gangline.compose.pools import OpenedPool, make_entries
from gangline.core.errors import BadInput, Denied, NotFound, Unreachable
from gangline.core.parsing import InvalidSpec, parse_as
from gangline.ports.pool import NoCapacity, Offer, Pool, Rental, WithLogs
from tests.conftest import ROOT
from tests.contract.pools.suite import (
    PLACES,
    DoubleSuite,
    Fault,
    HandSuite,
    ListSuite,
    LostAnswerSuite,
    PoolSuite,
    RefusalSuite,
    StubbornSuite,
    alive,
    found,
    names,
    rental,
    start,
)
from tests.docs.pages import FENCE

POOL = "pool-0199a1b2c3d4e5f6a7b"
PROGRAM = f"""#!{sys.executable} -IS
import json, os, pathlib, sys, time
verb, folder = sys.argv[1], pathlib.Path(sys.argv[0]).parent
request = json.load(sys.stdin)
(folder / f"asked-{{verb}}").write_text(json.dumps([request, {{**os.environ}}, sys.argv[2:]]))
fault = (folder / "fault").read_text() if (folder / "fault").exists() else ""
def fail(code, said):
    print(said, file=sys.stderr)
    sys.exit(code)
if fault == "AWAY":
    fail(1, "connection refused")
if fault == "CREDENTIALS":
    fail(77, "the key is unknown")
state = folder / "state.json"
nodes = json.loads(state.read_text())
now = time.time_ns() // 1_000_000
if verb == "offers":
    print(json.dumps([{{"id": "small", "gpu": "RTX 4090", "gpu_memory_gb": 24, "price_usd_per_hour": 0.3}}]))
elif verb == "list":
    shown = (folder / "then").read_text() if fault == "STALE" else json.dumps([
        {{k: v for k, v in node.items() if k != "other"}} for node in nodes if "other" not in node])
    print(shown[:len(shown) // 2] if fault == "PARTIAL" else shown)
elif verb == "start":
    if fault == "LOST_BEFORE":
        fail(1, "connection reset")
    if request["offer"] != "small" or fault in ("NO_CAPACITY", "QUOTA") or sum(not n.get("ended") for n in nodes) >= {PLACES}:
        fail(75, "nothing is free")
    nodes.append({{"id": f"i-{{len(nodes)}}", "name": request["name"], "billed_from_ms": now}})
    state.write_text(json.dumps(nodes))
    if fault == "LOST_AFTER":
        fail(1, "connection reset")
elif verb == "stop":
    for node in nodes:
        if node["id"] == request["id"] and not node.get("ended") and fault != "DEAF":
            node.update(ended="it was stopped", billed_to_ms=now)
    state.write_text(json.dumps(nodes))
elif verb == "logs":
    print("what", request["id"], "printed")
"""


class Programs:
    """A provider with a program for it. What a test does to the provider from behind, it does to its file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.program = folder / "provider.py"
        self.program.write_text(PROGRAM)
        self.program.chmod(0o700)
        self.write([])
        self.settings = CommandSettings(
            **{verb: (str(self.program), verb) for verb in ("offers", "start", "stop", "list", "logs")},
            environment=("A_KEY",),
        )
        self.now_s = 0.0
        self.driver = self.restarted()

    def restarted(self) -> CommandPool:
        surroundings = {"PATH": "/usr/bin", "HOME": "/nowhere", "A_KEY": "abc", "A_SECRET": "of the server"}
        return CommandPool(settings=self.settings, mark=POOL, surroundings=surroundings, clock=lambda: self.now_s)

    def replaced(self, verb: str, text: str) -> CommandPool:
        """Return a driver with another program for one of the five, a script for a shell."""
        program = self.folder / f"other-{verb}"
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o700)
        return CommandPool(
            settings=replace(self.settings, **{verb: (str(program),)}),
            mark=POOL,
            surroundings={"PATH": "/usr/bin:/bin"},
        )

    def read(self) -> list[dict[str, Any]]:
        return json.loads((self.folder / "state.json").read_text())

    def write(self, nodes: list[dict[str, Any]]) -> None:
        (self.folder / "state.json").write_text(json.dumps(nodes))

    def change(self, name: str, **changed: object) -> None:
        self.write([node | changed if node["name"] == name else node for node in self.read()])

    def asked(self, verb: str) -> tuple[dict[str, Any], dict[str, str], list[str]]:
        return tuple(json.loads((self.folder / f"asked-{verb}").read_text()))

    def run(self, name: str) -> None:
        assert alive(self, name), "it runs at once"

    def kill(self, name: str) -> None:
        self.change(name, ended="its machine failed")

    def end_by_hand(self, name: str) -> None:
        self.change(name, ended="somebody ended it", billed_to_ms=2_000_000_000_000)

    def rent_by_hand(self, name: str) -> str:
        self.write([*self.read(), {"id": "by-hand", "name": name, "other": True}])
        return "by-hand"

    def double(self, name: str) -> None:
        self.write([*self.read(), {"id": "doubled", "name": name, "billed_from_ms": 1}])

    def has(self, instance: str) -> bool:
        return any(node["id"] == instance and not node.get("ended") for node in self.read())

    @contextmanager
    def suffers(self, fault: Fault) -> Iterator[None]:
        nodes = [node for node in self.read() if "other" not in node]
        (self.folder / "then").write_text(json.dumps(nodes))
        (self.folder / "fault").write_text(fault.name)
        yield
        (self.folder / "fault").unlink()
        if fault is Fault.DEAF:  # what was not heard is not repeated before
            self.now_s += STOP_AGAIN_S


@pytest.fixture
def provider(tmp_path: Path) -> Programs:
    return Programs(tmp_path)


class TestCommand(PoolSuite, LostAnswerSuite, ListSuite, RefusalSuite, StubbornSuite, HandSuite, DoubleSuite):
    """What a program says is all that the driver knows, so its provider may have every fault."""


# What only programs do


def test_a_program_gets_its_request_on_stdin_and_few_variables(provider: Programs) -> None:
    instance = start(provider, "node-a")
    request, environment, words = provider.asked("start")
    joins = {"GANGLINE_SERVER": "http://nowhere", "GANGLINE_TOKEN": "a secret", "GANGLINE_NODE": "node-a"}
    assert request == {
        "pool": POOL,
        "offer": "small",
        "name": "node-a",
        "server": "http://nowhere",
        "environment": joins,
    }
    assert {name: environment[name] for name in environment if name != "LC_CTYPE"} == {
        "PATH": "/usr/bin",
        "HOME": "/nowhere",
        "A_KEY": "abc",
    }
    assert words == []
    provider.driver.stop(instance.id)
    assert provider.asked("stop")[0] == {"pool": POOL, "id": instance.id}
    assert provider.asked("list")[0] == {"pool": POOL} == provider.asked("offers")[0]


def test_programs_get_the_id_of_their_pool_or_the_name_of_one_that_is_not_made_yet(provider: Programs) -> None:
    make = make_entries(_no_nodes_here)["command"].make
    for known, told in (("pool-1", "pool-1"), ("", "rented")):
        make(OpenedPool(name="rented", id=known, settings=None, provider=provider.settings, secret="")).list()
        assert provider.asked("list")[0] == {"pool": told}


def _no_nodes_here(opened: OpenedPool) -> Pool:
    raise AssertionError(f"{opened.name} is no pool of this machine")


def test_a_node_that_is_still_listed_is_stopped_again_after_a_minute(provider: Programs) -> None:
    instance = start(provider, "node-a")
    with provider.suffers(Fault.DEAF):
        provider.driver.stop(instance.id)
        (provider.folder / "asked-stop").unlink()
        for _ in range(3):
            assert alive(provider, "node-a")
            provider.driver.stop(instance.id)
        assert not (provider.folder / "asked-stop").exists()
        provider.now_s += STOP_AGAIN_S
        provider.driver.stop(instance.id)
        assert provider.asked("stop")[0]["id"] == instance.id


def test_a_stop_that_failed_is_tried_again_at_once(provider: Programs) -> None:
    instance = start(provider, "node-a")
    with provider.suffers(Fault.AWAY), pytest.raises(Unreachable):
        provider.driver.stop(instance.id)
    provider.driver.stop(instance.id)
    assert found(provider, "node-a").ended == "it was stopped"


def test_what_an_offer_leaves_out_has_its_default_and_an_unknown_price(provider: Programs) -> None:
    assert provider.replaced("offers", """echo '[{"id": "a"}]'""").offers() == [Offer(id="a", price_known=False)]
    assert provider.driver.offers() == [
        Offer(id="small", gpu="RTX 4090", gpu_memory_gb=24, price_micro_usd_per_hour=300_000)
    ]


def test_a_node_may_be_moved_and_says_how_far_it_is(provider: Programs) -> None:
    start(provider, "node-a")
    provider.change("node-a", place="machine-2", moved="its machine was needed", progress="downloading 43 %")
    instance = found(provider, "node-a")
    assert (instance.place, instance.moved, instance.progress) == (
        "machine-2",
        "its machine was needed",
        "downloading 43 %",
    )


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        ("", "printed nothing"),
        ("Traceback (most recent call last):", "printed no JSON, but Traceback (most recent call last):"),
        ('[{"id": "a"', 'printed no JSON, but [{"id": "a"'),
        ("\\377\\376", "printed no JSON"),
        ("null", "the answer must be a list"),
        ('{"instances": []}', "the answer must be a list"),
        ("[1]", "0 must be an object"),
        ('[{"id": "a"}]', "0.name is missing"),
        ('[{"id": "", "name": "b"}]', "0.id"),
        ('[{"id": 7, "name": "b"}]', "0.id must be a text, not 7"),
        ('[{"id": "a\\\\nb", "name": "b"}]', "0.id is not acceptable here"),
        ('[{"id": "a", "name": "b", "billed_from_ms": "now"}]', "0.billed_from_ms must be a whole number"),
        ('[{"id": "a", "name": "b", "billed_from_ms": true}]', "0.billed_from_ms must be a whole number"),
        ('[{"id": "a", "name": "b", "billed_from_ms": -1}]', "0.billed_from_ms must be 0 or more"),
        ('[{"id": "a", "name": "b", "billed_from_ms": 1e400}]', "0.billed_from_ms"),
        ('[{"id": "a", "name": "b", "colour": "red"}]', "0.colour is not a known field"),
        ('[{"id": "a", "name": "b"}, {"id": "a", "name": "c"}]', "printed the id a twice"),
    ],
)
def test_a_list_that_is_garbage_is_one_sentence_and_changes_nothing(
    provider: Programs, printed: str, said: str
) -> None:
    instance = start(provider, "node-a")
    driver = provider.replaced("list", f"printf '{printed}'")
    with pytest.raises(Unreachable) as error:
        driver.list()
    assert said in error.value.message and error.value.message.startswith(str(provider.folder / "other-list"))
    assert "\n" not in error.value.message
    assert provider.driver.list() == [instance]


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        ('[{"id": "a", "price_usd_per_hour": -1}]', "0.price_usd_per_hour must be 0 or more"),
        ('[{"id": "a", "price_usd_per_hour": "free"}]', "0.price_usd_per_hour must be a number"),
        ('[{"id": "a", "price_usd_per_hour": NaN}]', "0.price_usd_per_hour"),
        ('[{"id": "a", "slots": 0}]', "0.slots must be 1 or more"),
        ('[{"id": "a", "trust": 10}]', "0.trust must be 9 or less"),
        ('[{"id": "a"}, {"id": "a"}]', "printed the id a twice"),
    ],
)
def test_an_offer_that_is_garbage_is_one_sentence(provider: Programs, printed: str, said: str) -> None:
    with pytest.raises(Unreachable) as error:
        provider.replaced("offers", f"printf '{printed}'").offers()
    assert said in error.value.message


def test_very_many_entries_and_very_deep_ones_are_refused(provider: Programs) -> None:
    deep = provider.replaced("list", f"{sys.executable} -c 'print(chr(91) * 200_000)'")
    with pytest.raises(Unreachable, match="printed no JSON"):
        deep.list()
    many = provider.replaced(
        "offers", f"{sys.executable} -c 'import json; print(json.dumps([dict(id=str(i)) for i in range(20_001)]))'"
    )
    with pytest.raises(Unreachable, match="has more than 20,000 parts"):
        many.offers()


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("echo nothing is free >&2; exit 75", NoCapacity, "found no capacity: nothing is free"),
        ("exit 75", NoCapacity, "found no capacity"),
        ("echo bad key >&2; exit 77", Denied, "the provider refused"),
        ("echo no project >&2; exit 78", BadInput, "is not configured: no project"),
        ("echo first; echo boom >&2; exit 1", Unreachable, "ended with exit code 1: boom"),
        ("kill -9 $$", Unreachable, "was killed by SIGKILL and printed no reason"),
        ("exec yes", Unreachable, "printed more than 8,388,608 bytes and was stopped"),
    ],
)
def test_how_a_program_fails_is_one_sentence(provider: Programs, text: str, kind: type[Exception], said: str) -> None:
    driver = provider.replaced("start", text)
    with pytest.raises(kind) as error:
        driver.start("small", rental("node-a"))
    assert said in str(error.value) and "a secret" not in str(error.value)
    assert provider.driver.list() == []


def test_a_program_that_never_ends_is_killed(provider: Programs) -> None:
    words = ("/bin/sh", "-c", f"echo $$ >{provider.folder}/pid; exec sleep 1000")
    driver = CommandPool(
        settings=replace(provider.settings, list=words, timeout_s=0.5), mark=POOL, surroundings={"PATH": "/bin"}
    )
    with pytest.raises(Unreachable, match=r"did not end within 0.5 s and was stopped"):
        driver.list()
    with pytest.raises(ProcessLookupError):
        os.kill(int((provider.folder / "pid").read_text()), signal.SIGTERM)


def test_which_of_the_programs_failed_is_said_where_they_begin_with_the_same_word(provider: Programs) -> None:
    python = dict.fromkeys(("offers", "start", "stop", "list", "logs"), (sys.executable, "-c", "print(1 / 0)"))
    driver = CommandPool(settings=replace(provider.settings, **python), mark=POOL, surroundings={})
    failed = "ended with exit code 1: ZeroDivisionError: division by zero"
    for verb, call in (("offers", driver.offers), ("list", driver.list), ("logs", lambda: driver.logs("a"))):
        with pytest.raises(Unreachable) as error:
            call()
        assert error.value.message == f"{sys.executable} ({verb}) {failed}"


def test_a_program_that_is_not_there_is_named(provider: Programs) -> None:
    driver = CommandPool(settings=replace(provider.settings, offers=("/nowhere/offers",)), mark=POOL, surroundings={})
    with pytest.raises(BadInput, match="the program /nowhere/offers was not found"):
        driver.offers()


def test_what_was_stopped_and_is_no_longer_listed_has_ended(provider: Programs) -> None:
    instance, other = start(provider, "node-a"), start(provider, "node-b")
    provider.driver.stop(instance.id)
    provider.write([node for node in provider.read() if node["name"] == "node-b"])
    ended = found(provider, "node-a")
    assert (ended.ended, ended.billed_from_ms) == ("it was stopped", instance.billed_from_ms)
    assert ended.billed_to_ms is not None
    assert provider.driver.list() == [ended, other] == provider.driver.list()


def test_what_is_missing_although_nobody_stopped_it_is_only_missing(provider: Programs) -> None:
    instance = start(provider, "node-a")
    nodes = provider.read()
    provider.write([])
    assert provider.driver.list() == []
    provider.write(nodes)
    assert provider.driver.list() == [instance]


def test_what_has_ended_stays_in_the_list_for_a_while_though_the_provider_drops_it(provider: Programs) -> None:
    start(provider, "node-a")
    provider.kill("node-a")
    ended = found(provider, "node-a")
    assert ended.ended == "its machine failed" and ended.billed_to_ms is not None
    provider.write([])
    assert provider.driver.list() == [ended]
    provider.now_s += ENDED_KEPT_S + 1
    provider.driver.list()
    assert provider.driver.list() == []


def test_what_ended_before_it_ran_has_cost_nothing(provider: Programs) -> None:
    provider.write([{"id": "a", "name": "node-a", "ended": "no image"}])
    ended = found(provider, "node-a")
    assert ended.billed_from_ms is not None and ended.billed_from_ms == ended.billed_to_ms


def test_logs_are_what_the_program_printed(provider: Programs) -> None:
    instance = start(provider, "node-a")
    assert isinstance(provider.driver, WithLogs)
    assert provider.driver.logs(instance.id) == f"what {instance.id} printed\n"
    assert len(provider.replaced("logs", "head -c 1000000 /dev/urandom").logs("a")) <= 64 << 10


def test_a_pool_without_a_program_for_logs_says_so(provider: Programs) -> None:
    driver = CommandPool(settings=replace(provider.settings, logs=None), mark=POOL, surroundings={})
    with pytest.raises(NotFound, match="no program for logs"):
        driver.logs("i-0")


def test_names_and_words_of_any_language_reach_the_program(provider: Programs) -> None:
    provider.driver.start("small", Rental(name="Knoten-é-犬", server="http://nowhere", token="a secret"))
    assert names(provider.driver) == ["Knoten-é-犬"]


def test_the_program_of_the_page_is_a_pool(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "pools" / "command.md").read_text()
    (text,) = [code for language, code in FENCE.findall(page) if language == "python"]
    nodes, program = tmp_path / "nodes", tmp_path / "program.py"
    nodes.mkdir()
    program.write_text(text.replace("/srv/nodes", str(nodes)))
    words = {verb: (sys.executable, "-IS", str(program), verb) for verb in ("offers", "start", "stop", "list")}
    driver = CommandPool(settings=CommandSettings(**words), mark=POOL, surroundings={})
    (offer,) = driver.offers()
    for number in range(4):
        driver.start(offer.id, rental(f"node-{number}"))
    with pytest.raises(NoCapacity):
        driver.start(offer.id, rental("node-4"))
    assert json.loads((nodes / POOL / "node-1").read_text()) == rental("node-1").environment()
    driver.stop("node-1")
    assert names(driver) == ["node-0", "node-2", "node-3"]


@pytest.mark.parametrize("answer", ["offers", "nodes"])
def test_the_answers_of_the_page_are_understood(provider: Programs, answer: str) -> None:
    page = (ROOT / "docs" / "pools" / "command.md").read_text()
    offers, nodes = [code for language, code in FENCE.findall(page) if language == "json"]
    (provider.folder / "answer").write_text(offers if answer == "offers" else nodes)
    driver = provider.replaced("offers" if answer == "offers" else "list", f"cat {provider.folder}/answer")
    assert len(driver.offers() if answer == "offers" else driver.list()) == (1 if answer == "offers" else 2)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"offers": None}, "offers: must be a list"),
        ({"offers": []}, "offers: is empty"),
        ({"offers": "program"}, "offers: must be a list"),
        ({"start": [""]}, "start.0: "),
        ({"stop": ["a", 1]}, "stop.1: must be a text"),
        ({"timeout_s": 0}, "timeout_s: must be more than 0"),
        ({"environment": [""]}, "environment.0: "),
        ({"color": "red"}, "color: is not a known field"),
    ],
)
def test_a_wrong_setting_is_named(changed: dict[str, object], said: str) -> None:
    programs = {verb: ["program", verb] for verb in ("offers", "start", "stop", "list")}
    assert parse_as(CommandSettings, programs).stop == ("program", "stop")
    with pytest.raises(InvalidSpec) as error:
        parse_as(CommandSettings, programs | changed)
    assert said in error.value.message
