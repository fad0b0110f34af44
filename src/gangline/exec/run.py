"""One run of a command: its start, what is watched and sent while it goes on, and its end.

The main thread waits for the command and for signals. Beside it: one that looks for checkpoints and holds them (it must be quick), one
that sends them (it may have to wait for the store), one that looks whether another run has overtaken this one and sends the log.
"""

import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from threading import Event, Thread
from typing import Any

from gangline.core.contract import EXIT_STOPPED
from gangline.core.errors import GanglineError
from gangline.core.layout import Candidate, lacks
from gangline.core.lineage import Account, Begun, Committed, account, newest_begun, number_of
from gangline.exec.depot import Abandoned, Found, output_of
from gangline.exec.plan import EXIT_INTERRUPTED, EXIT_OVERTAKEN, Plan, Summary, Tools
from gangline.exec.sender import Sender
from gangline.exec.start import ADDRESS, RUN, Start, check_room, check_script, filled, find_start
from gangline.ports.command import Command

LOOK_S = 0.1
PAUSE_S = 0.005
WARD_S = 15.0
LOG_EVERY_S = 60.0
LOG_BYTES_MAX = 8 << 20
WAIT_S = 0.2
LEFTOVERS_S = 5.0
NOTIFIED_S = 20.0
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
AGAIN_S = 1.0
"""Who tells all processes of a machine, or a launcher and its child, tells this one twice at once: that is one signal."""
PUZZLED_S = 60.0
MB = 10**6


class Stopped(BaseException):
    """A signal before the command was started: nothing else is done, whoever catches what."""


class Exec:
    """Call it once. SIGTERM and SIGINT of this process are its own from then on."""

    def __init__(self, plan: Plan, tools: Tools) -> None:
        self._plan = plan
        self._at = tools
        self._depot = tools.depot
        self._born_s = tools.now_s()
        self._run = ""
        self._found = Found()
        self._start = Start()
        self._downloaded = 0
        self._results = ""
        self._results_bytes = 0
        self._signals: list[tuple[int, float]] = []
        self._preparing = True
        self._handing_in = False
        self._over = Event()
        self._logged_to = 0
        self._logged_s = self._born_s
        self._stopped_because = ""
        self._said: set[str] = set()
        self._lacking: dict[tuple[str, str], float] = {}
        self._away = False

    def __call__(self) -> Summary:
        before = {number: signal.signal(number, self._on_signal) for number in SIGNALS if not _is_ignored(number)}
        try:
            return self._prepare() or self._go()
        except Stopped:
            return self._summary(self._code_when_stopped(), "stopped before the command was started")
        finally:
            self._at.workspace.close()
            for number, handler in before.items():
                signal.signal(number, handler)

    # Before the command

    def _prepare(self) -> Summary | None:
        at, plan = self._at, self._plan
        self._depot.check()
        self._found = self._depot.find()
        changed = "" if plan.any_script else check_script(self._found.begun, plan.command, self._depot.address)
        if changed:
            at.say(changed)
        if finished := self._finished_before():
            return finished
        check_room(self._depot, at.workspace, self._found)
        self._downloaded = at.bring(lambda: bool(self._signals))
        self._run = self._depot.claim({"host": at.host, "at_ms": at.now_ms()})
        self._found = self._depot.find()
        self._start = find_start(self._depot, at.workspace, plan.rules, self._found, at.say)
        self._downloaded += self._start.downloaded
        origin = self._start.origin
        self._begun = Begun(
            run=self._run,
            origin=origin.ref if origin else None,
            origin_after_ms=origin.after_ms if origin else 0,
            at_ms=at.now_ms() - self._after_ms(),
            command=plan.command,
            usd_per_hour=plan.usd_per_hour,
        )
        self._depot.begin(self._begun)
        at.workspace.remember({RUN: self._run, ADDRESS: self._depot.address})
        self._preparing = False
        at.say(f"run {number_of(self._run)} {self._whence()}")
        return None

    def _whence(self) -> str:
        if self._start.name is None:
            return "begins: there is no checkpoint yet"
        where = "on this disk" if self._start.adopted else f"in {self._depot.address}"
        return f"goes on from {self._start.name} {where}"

    def _finished_before(self) -> Summary | None:
        """The same line has nothing to do after it has come to its end."""
        last = newest_begun(self._found.begun)
        if last is None or self._found.begun[last].command != self._plan.command:
            return None
        if self._depot.end_of(last).get("code") != 0:
            return None
        self._run, self._results = last, output_of(last)
        done = f"run {number_of(last)} has come to the end of just this already"
        return self._summary(0, f"{done}; other arguments, or another prefix in --to, begin anew")

    # While it runs

    def _go(self) -> Summary:
        at = self._at
        self._sender = Sender(self._plan, self._depot, at.workspace, self._begun, self._found, self._on_safe, at.say)
        watcher, sender, ward = (Thread(target=work, daemon=True) for work in (self._watch, self._send, self._ward))
        place = None if self._start.name is None else at.workspace.place(self._start.name)
        self._command = command = at.start(filled(self._plan.command, place), at.show)
        try:
            for thread in (watcher, sender, ward):
                thread.start()
            self._tell("started", restored_from=self._start.name)
            code, because = self._supervise(command)
        finally:
            command.close()
            self._over.set()
        watcher.join()
        self._guarded(lambda: self._look(ended=True))
        self._sender.close()
        self._handing_in, self._depot.say = True, at.say
        while sender.is_alive() or ward.is_alive():
            at.status(self._status())
            sender.join(WAIT_S) if sender.is_alive() else ward.join(WAIT_S)
        if self._sender.overtaken:
            return self._end("overtaken", EXIT_OVERTAKEN, self._why_stop())
        code, because = self._hand_in(code, because)
        return self._end(self._kind(code), code, because)

    def _supervise(self, command: Command) -> tuple[int, str]:
        """The exit code to end with, and why."""
        kill_s = None
        while command.code is None or not command.gone:
            command.wait(WAIT_S)
            self._at.status(self._status())
            now_s = self._at.now_s()
            if not self._stopped_because and (because := self._why_stop()):
                self._stopped_because = because
                kill_s = now_s + self._stop(command, because)
            elif command.code is not None and kill_s is None:
                kill_s = now_s + LEFTOVERS_S
                command.signal(signal.SIGTERM)  # what it left running
            if kill_s is not None and (now_s >= kill_s or self._told_again()):
                command.kill()
        if self._stopped_because:
            return self._code_when_stopped(), self._stopped_because
        because = "it has come to its end" if command.code == 0 else f"it ended with exit code {command.code}"
        return command.code, because

    def _why_stop(self) -> str:
        if newer := self._sender.overtaken:
            return f"run {number_of(newer)} has overtaken this one, run {number_of(self._run)}"
        if self._signals:
            return f"this process got {signal.Signals(self._signals[0][0]).name}"
        return self._at.notice()

    def _stop(self, command: Command, because: str) -> float:
        """How many seconds it has."""
        overtaken = bool(self._sender.overtaken)
        grace_s = LEFTOVERS_S if overtaken else self._plan.grace_s
        by_hand = self._signals and self._signals[0][0] == signal.SIGINT
        command.signal(signal.SIGINT if by_hand else self._plan.stop_signal)
        self._at.say(f"{because}; the command is told to stop, and has {grace_s:.0f} s")
        if not overtaken:
            self._tell("interrupted", because=because)
        return grace_s

    def _code_when_stopped(self) -> int:
        return EXIT_INTERRUPTED if self._signals and self._signals[0][0] == signal.SIGINT else EXIT_STOPPED

    def _on_signal(self, number: int, frame: object) -> None:
        self._signals.append((number, self._at.now_s()))
        if self._preparing and len(self._signals) == 1:
            self._depot.transfer.stop()
            raise Stopped
        if self._told_again():
            self._depot.give_up_s = 0.0
        elif self._handing_in and not self._stopped_because:
            self._depot.give_up_s = self._at.now_s() + self._plan.grace_s

    def _told_again(self) -> bool:
        """By somebody who will not wait."""
        return bool(self._signals) and self._signals[-1][1] - self._signals[0][1] >= AGAIN_S

    def _watch(self) -> None:
        while not self._over.wait(PAUSE_S):
            self._at.workspace.wait(LOOK_S)
            self._guarded(self._look)

    def _look(self, *, ended: bool = False) -> None:
        rules = self._plan.rules
        for candidate in self._at.workspace.look(self._at.now_s(), ended=ended):
            why = lacks(rules, candidate) or lacks(replace(rules, processes=self._command.processes), candidate)
            if why:
                self._wonder(candidate, why)
                continue
            taken = self._at.workspace.take(candidate)
            if taken is not None:
                self._sender.put(taken, self._after_ms())

    def _wonder(self, candidate: Candidate, why: str) -> None:
        """Once for each: what looks like a checkpoint and is none for a minute may have another layout."""
        since_s = self._lacking.setdefault((candidate.name, why), self._at.now_s())
        if candidate.settled and candidate.fresh is None and self._at.now_s() - since_s >= PUZZLED_S:
            self._warn(
                f"{candidate.name} looks like a checkpoint, but {why}; --layout and --complete-when say what one is"
            )

    def _send(self) -> None:
        going = True
        while going:
            try:
                self._guarded(self._send_one)
            except Abandoned:
                going = False

    def _send_one(self) -> None:
        if not self._sender.send_next():
            raise Abandoned

    def _on_safe(self, committed: Committed) -> None:
        self._at.say(
            f"{committed.name} is safe: {committed.bytes / MB:.1f} MB in {self._depot.address}/{committed.ref.key}"
        )
        self._tell("checkpoint", step=committed.step, name=committed.name, bytes=committed.bytes, key=committed.ref.key)

    def _ward(self) -> None:
        while not self._over.wait(WARD_S):
            try:
                self._sender.look_for_newer()
                if self._at.now_s() - self._logged_s >= LOG_EVERY_S or self._logged_s == self._born_s:
                    self._send_log()
            except GanglineError as error:
                if not self._away:
                    self._at.say(f"{error.message}; the command goes on, what it saves is sent later")
                self._away = True
            else:
                if self._away:
                    self._at.say("the object store is back")
                self._away = False

    def _send_log(self) -> None:
        """Also where nothing was printed: it is the sign that this run lives."""
        while True:
            with self._at.log.open("rb") as log:
                log.seek(self._logged_to)
                content = log.read(LOG_BYTES_MAX)
            self._depot.log(self._run, self._after_ms(), content)
            self._logged_to += len(content)
            self._logged_s = self._at.now_s()
            if len(content) < LOG_BYTES_MAX:
                return

    def _guarded(self, step: Callable[[], None]) -> None:
        """What goes wrong beside the command is said, once, and does not end it."""
        try:
            step()
        except Abandoned:
            raise
        except (GanglineError, OSError) as error:
            self._warn(error.message if isinstance(error, GanglineError) else str(error))
        except Exception as error:  # a fault of ours: the command must not pay for it
            if f"warning: {error!r}" not in self._said:
                traceback.print_exc(file=sys.stderr)
            self._warn(repr(error))

    def _warn(self, what: str) -> None:
        if f"warning: {what}" not in self._said:
            self._at.say(f"warning: {what}")
        self._said.add(f"warning: {what}")

    # After it

    def _hand_in(self, code: int, because: str) -> tuple[int, str]:
        """What there is besides checkpoints; how it ends, which waiting in vain for the store may change."""
        try:
            if code == 0:
                self._guarded(self._send_results)
            self._guarded(lambda: self._depot.insist(self._send_log))
            finished = code != 0 or bool(self._results)
            told = {"code": code if finished else None, "because": because, "after_ms": self._after_ms()}
            self._guarded(lambda: self._depot.end(self._run, told))
        except Abandoned:
            because = f"{because}; the store was away, and not everything is in it"
            self._stopped_because = self._stopped_because or because
            return (self._code_when_stopped() if code == 0 else code), because
        if not self._sender.committed and self._start.name is None and not self._stopped_because:
            self._warn(
                "no checkpoint was found: does the command write to --checkpoints? --complete-when says what one is"
            )
        return code, because

    def _send_results(self) -> None:
        for path in self._plan.results:
            if not path.exists():
                self._warn(f"--results {path} is not there")
        files = self._at.workspace.results(self._plan.results)
        self._results_bytes = self._depot.put_output(self._run, files)
        self._results = output_of(self._run)
        if files:
            self._at.say(f"the result is in {self._depot.address}/{self._results}, files: {len(files)}")

    def _kind(self, code: int) -> str:
        if self._stopped_because:
            return "stopped"
        return "ended" if code == 0 else "failed"

    def _end(self, kind: str, code: int, because: str) -> Summary:
        self._tell(kind, because=because, exit_code=code)
        left = self._at.notifier.close(NOTIFIED_S)
        if left:
            self._warn(f"{left} notifications were not delivered")
        self._at.status("")
        return self._summary(code, because)

    def _summary(self, code: int, because: str) -> Summary:
        told = self._account()
        committed = self._sender.committed if not self._preparing else []
        newest = max(committed, key=lambda each: each.ref, default=None)
        return Summary(
            run=number_of(self._run),
            runs=told.runs,
            exit_code=code,
            because=because,
            restored_from=self._start.name,
            restored_step=self._start.step,
            checkpoints=len(committed),
            step=newest.step if newest else self._start.step,
            bytes_uploaded=sum(each.bytes for each in committed) + self._results_bytes,
            bytes_downloaded=self._downloaded,
            seconds=round(told.seconds, 3),
            seconds_lost=round(told.lost_s, 3),
            cost_usd=None if told.cost_usd is None else round(told.cost_usd, 6),
            results=f"{self._depot.address}/{self._results}" if self._results else None,
        )

    def _account(self) -> Account:
        begun, lasted = dict(self._found.begun), dict(self._found.lasted_ms)
        if not self._preparing:
            begun[self._run] = self._begun
            lasted[self._run] = self._after_ms()
        return account(begun, lasted, now=self._run)

    def _after_ms(self) -> int:
        return round((self._at.now_s() - self._born_s) * 1000)

    def _tell(self, kind: str, **data: Any) -> None:
        facts = {
            "run": number_of(self._run),
            "to": self._depot.address,
            "host": self._at.host,
            "step": self._newest_step(),
            "seconds": self._after_ms() / 1000,
            "bytes_uploaded": self._sender.bytes,
            "cost_usd": self._account().cost_usd,
        }
        self._at.notifier.tell(f"exec.{kind}", facts | data)

    def _newest_step(self) -> int | None:
        newest = max(self._sender.committed, key=lambda each: each.ref, default=None)
        return newest.step if newest else self._start.step

    def _status(self) -> str:
        newest = max(self._sender.committed, key=lambda each: each.ref, default=None)
        if newest:
            safe = f"{newest.name} is safe, {(self._after_ms() - newest.after_ms) / 1000:.0f} s old"
        else:
            safe = f"from {self._start.name}" if self._start.name else "nothing saved yet"
        cost = self._account().cost_usd
        parts = (
            f"run {number_of(self._run)}",
            safe,
            f"sending {self._sender.sending}" if self._sender.sending else "",
            "the object store is away" if self._away else "",
            f"${cost:.4f}" if cost is not None else "",
        )
        return " · ".join(filter(None, parts))


def _is_ignored(number: int) -> bool:
    """As `nohup` does: then nobody is to be told."""
    return signal.getsignal(number) is signal.SIG_IGN
