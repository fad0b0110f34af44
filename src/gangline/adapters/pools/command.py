"""The `command` pool driver: programs of the operator's rent the nodes. Each reads JSON from stdin and prints JSON.

docs/pools/command.md says how to write one.
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Le, MaxLen, MinLen, Predicate

from gangline.adapters.pools.programs import Ran, choose_variables, last_line, run_program
from gangline.core.display import has_words, is_printable, printable
from gangline.core.errors import BadInput, Denied, NotFound, Unreachable
from gangline.core.parsing import WHOLE, InvalidSpec, parse_as
from gangline.core.policy import STRICT, Exact
from gangline.core.server.settings import TRUST_MAX
from gangline.ports.pool import Instance, NoCapacity, Offer, Rental

EXIT_NO_CAPACITY, EXIT_DENIED, EXIT_MISCONFIGURED = 75, 77, 78
"""What a program says by its exit code, as sysexits.h names it: EX_TEMPFAIL, EX_NOPERM, EX_CONFIG."""
OUTPUT_BYTES_MAX = 8 << 20
ENTRIES_MAX = 20_000
LOG_CHARACTERS_MAX = 64 << 10
ENDED_KEPT_S = 600
STOP_AGAIN_S = 60
"""How long after a node was stopped it is stopped again if it is still listed as running."""
STOPPED = "it was stopped"
ENDED = "it ended"

ProgramVerb = Literal["offers", "start", "stop", "list", "logs"]
ProgramWords = Annotated[tuple[Annotated[str, MinLen(1), MaxLen(4000), Exact()], ...], MinLen(1), MaxLen(100)]
Identifier = Annotated[str, MinLen(1), MaxLen(200), Exact(), Predicate(has_words)]
Sentence = Annotated[str, MaxLen(1000), Exact(), Predicate(is_printable)]
Milliseconds = Annotated[int, Ge(0), Le(10**14), Exact()]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSettings:
    """The programs of a pool. Each is a list: the program, and words for it."""

    __pydantic_config__: ClassVar[Any] = STRICT
    offers: Annotated[ProgramWords, "This program prints what can be rented now."]
    start: Annotated[ProgramWords, "This program rents a node; it exits with code 75 if there is no capacity."]
    stop: Annotated[ProgramWords, "This program ends a node."]
    list: Annotated[ProgramWords, "This program prints the nodes of the pool."]
    logs: Annotated[
        ProgramWords | None, "This program prints what a node printed last (default: the pool has no logs)."
    ] = None
    environment: Annotated[
        tuple[Annotated[str, MinLen(1), MaxLen(200), Exact()], ...],
        "The programs get these variables of the server's environment, besides PATH, HOME and LANG.",
    ] = ()
    timeout_s: Annotated[
        Annotated[float, Gt(0), Le(600), Exact()], "A program is killed after this long, in seconds."
    ] = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedOffer:
    """An offer as a program prints it. Without a price, the price is unknown."""

    __pydantic_config__: ClassVar[Any] = STRICT
    id: Identifier
    gpu: Sentence = ""
    gpu_memory_gb: Annotated[float, Ge(0), Le(100_000)] = 0
    slots: Annotated[int, Ge(1), Le(1024), Exact()] = 1
    trust: Annotated[int, Ge(0), Le(TRUST_MAX), Exact()] = 0
    price_usd_per_hour: Annotated[float, Ge(0), Le(1e6)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedInstance:
    """A node as a program prints it; the fields are those of `Instance`. One with a reason in `ended` has ended, at the latest now."""

    __pydantic_config__: ClassVar[Any] = STRICT
    id: Identifier
    name: Identifier
    billed_from_ms: Milliseconds | None = None
    billed_to_ms: Milliseconds | None = None
    ended: Sentence = ""
    place: Sentence = ""
    moved: Sentence = ""
    progress: Sentence = ""


PrintedOffers = Annotated[tuple[PrintedOffer, ...], MaxLen(ENTRIES_MAX)]
PrintedInstances = Annotated[tuple[PrintedInstance, ...], MaxLen(ENTRIES_MAX)]


@dataclass(slots=True)
class _Seen:
    """An instance as it was last listed. `gone_s` is when its end was noticed."""

    instance: Instance
    gone_s: float | None = None


@dataclass(slots=True)
class _Memory:
    seen: dict[str, _Seen] = field(default_factory=dict)
    started: set[str] = field(default_factory=set)
    """Names that a program has rented, until a list shows them."""
    stopped_s: dict[str, float] = field(default_factory=dict)
    """When the program last stopped an instance."""


class CommandPool:
    """Runs the programs of the settings, with the variables of `surroundings` that the settings name. Several threads may call it. Programs
    get `mark`, by which they know the pool's nodes: no other pool or server may have the same one.

    It remembers ends: a provider may drop a node from its list at once, and its bill would be an estimate. `clock` returns seconds, and
    never goes back.
    """

    def __init__(
        self,
        *,
        settings: CommandSettings,
        mark: str,
        surroundings: Mapping[str, str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings, self._mark, self._clock = settings, mark, clock
        self._environment = choose_variables(surroundings, settings.environment)
        self._memory, self._lock, self._starting = _Memory(), Lock(), Lock()

    def offers(self) -> list[Offer]:
        printed: tuple[PrintedOffer, ...] = self._parsed("offers", PrintedOffers)
        return [
            Offer(
                id=each.id,
                gpu=each.gpu,
                gpu_memory_gb=each.gpu_memory_gb,
                slots=each.slots,
                trust=each.trust,
                price_micro_usd_per_hour=round((each.price_usd_per_hour or 0) * 1e6),
                price_known=each.price_usd_per_hour is not None,
            )
            for each in printed
        ]

    def start(self, offer: str, rental: Rental) -> None:
        with self._starting:
            if self._has(rental.name):
                return
            request = {
                "offer": offer,
                "name": rental.name,
                "server": rental.server,
                "environment": rental.environment(),
            }
            self._run("start", request)
            with self._lock:
                self._memory.started.add(rental.name)

    def stop(self, instance: str) -> None:
        with self._lock:
            stopped_s = self._memory.stopped_s.get(instance)
        if stopped_s is not None and self._clock() - stopped_s < STOP_AGAIN_S:
            return
        if not self._is_running(instance) and instance not in {each.id for each in self.list() if not each.ended}:
            return
        self._run("stop", {"id": instance})
        with self._lock:
            self._memory.stopped_s[instance] = self._clock()

    def list(self) -> list[Instance]:
        printed: tuple[PrintedInstance, ...] = self._parsed("list", PrintedInstances)
        with self._lock:
            return self._noted(printed)

    def logs(self, instance: str) -> str:
        """Return what the program printed, its end if that is long. Raises `NotFound` where the pool has no such program."""
        if not self._settings.logs:
            raise NotFound(
                "this pool has no program for logs", hint="name one as `logs` in the server's settings of the pool"
            )
        ran = self._run("logs", {"id": instance})
        return ran.output.decode(errors="replace")[-LOG_CHARACTERS_MAX:]

    def _has(self, name: str) -> bool:
        """Return whether a node of this name was ever rented, as far as the program or this driver knows."""
        with self._lock:
            if name in self._memory.started:
                return True
        return any(instance.name == name for instance in self.list())

    def _is_running(self, instance: str) -> bool:
        with self._lock:
            seen = self._memory.seen.get(instance)
            return seen is not None and seen.gone_s is None

    def _noted(self, printed: "Sequence[PrintedInstance]") -> "list[Instance]":
        """Note what is listed now. Return it, with what has ended lately."""
        now_s, now_ms = self._clock(), time.time_ns() // 1_000_000
        memory, there = self._memory, {each.id: each for each in printed}
        for each in printed:
            memory.started.discard(each.name)
            seen = memory.seen.setdefault(each.id, _Seen(_instance(each)))
            ended = bool(each.ended) or each.billed_to_ms is not None
            if not ended:  # also if it was missing from a list and is back
                seen.instance, seen.gone_s = _instance(each), None
            elif seen.gone_s is None:
                seen.instance, seen.gone_s = (
                    _closed(_instance(each), each.ended or ENDED, each.billed_to_ms or now_ms),
                    now_s,
                )
        for identity, seen in list(memory.seen.items()):
            if identity in there:
                continue
            if seen.gone_s is None and identity in memory.stopped_s:
                seen.instance = _closed(seen.instance, STOPPED, now_ms)
                seen.gone_s = now_s
            elif seen.gone_s is not None and now_s - seen.gone_s > ENDED_KEPT_S:
                del memory.seen[identity]
                memory.stopped_s.pop(identity, None)
        # What is missing although nobody stopped it is not listed: a program may print too little, and the service looks several times.
        return [seen.instance for identity, seen in memory.seen.items() if identity in there or seen.gone_s is not None]

    def _parsed(self, verb: ProgramVerb, kind: Any) -> Any:
        output, called = self._run(verb, {}).output, self._called(verb)
        try:
            entries = parse_as(kind, json.loads(output))
        except InvalidSpec as error:
            problem = error.problems[0]
            place = printable(problem.field) if problem.field != WHOLE else "the answer"
            raise Unreachable(
                f"{called} printed what this server does not understand: {place} {printable(problem.message)}",
                hint="docs/pools/command.md has the form of each answer",
            ) from None
        except (ValueError, RecursionError):
            said = printable(output[:60].decode(errors="replace").strip())
            raise Unreachable(
                f"{called} printed no JSON, but {said}" if said else f"{called} printed nothing"
            ) from None
        double = _first_double([entry.id for entry in entries])
        if double:
            raise Unreachable(f"{called} printed the id {double} twice")
        return entries

    def _run(self, verb: ProgramVerb, request: Mapping[str, Any]) -> Ran:
        words, called = self._words(verb), self._called(verb)
        ran = run_program(
            words,
            environment=self._environment,
            timeout_s=self._settings.timeout_s,
            given=json.dumps({"pool": self._mark, **request}).encode(),
            called=called,
            output_bytes_max=OUTPUT_BYTES_MAX,
        )
        if ran.code == 0:
            return ran
        if ran.code == EXIT_NO_CAPACITY:
            raise NoCapacity(f"{called} found no capacity{_because(ran)}")
        if ran.code == EXIT_DENIED:
            raise Denied(f"the provider refused {called}{_because(ran)}", hint="check the key that the program uses")
        if ran.code == EXIT_MISCONFIGURED:
            raise BadInput(f"{called} is not configured{_because(ran)}")
        raise Unreachable(f"{called} {ran.ended}")

    def _words(self, verb: ProgramVerb) -> Sequence[str]:
        words: Sequence[str] | None = getattr(self._settings, verb)
        assert words, "the caller has looked"
        return words

    def _called(self, verb: ProgramVerb) -> str:
        """Return what people know the program by: the first word alone may be an interpreter."""
        return f"{self._words(verb)[0]} ({verb})"


def _because(ran: Ran) -> str:
    line = last_line(ran.errors)
    return f": {line}" if line else ""


def _instance(printed: PrintedInstance) -> Instance:
    return Instance(
        id=printed.id,
        name=printed.name,
        billed_from_ms=printed.billed_from_ms,
        billed_to_ms=None,
        place=printed.place,
        moved=printed.moved,
        progress=printed.progress,
    )


def _closed(instance: Instance, because: str, to_ms: int) -> Instance:
    """Return the instance as ended; one that never ran has cost nothing."""
    from_ms = to_ms if instance.billed_from_ms is None else instance.billed_from_ms
    return replace(instance, billed_from_ms=from_ms, billed_to_ms=max(from_ms, to_ms), ended=because, progress="")


def _first_double(ids: Iterable[str]) -> str:
    """Return the first id that comes twice, or ""."""
    before = set[str]()
    for each in ids:
        if each in before:
            return each
        before.add(each)
    return ""
