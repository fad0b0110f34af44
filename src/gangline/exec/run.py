"""Run a command: start it, watch and upload what it writes, and finish.

The main thread waits for the command and for signals. Four threads work beside it: one finds checkpoints and holds them (it must be quick),
one uploads them (it may have to wait for the store), one uploads the results, and one uploads the log and checks whether another run has
overtaken this one.
"""

import os
import signal
from contextlib import suppress
from threading import Event, Thread
from typing import Any

from gangline.core.command.lineage import Begun, CommittedCheckpoint, newest_begun, output_of, overtaken_by, run_number
from gangline.core.command.results import advice, strangers
from gangline.core.command.surroundings import wandb_settings
from gangline.core.errors import UserError
from gangline.core.runs.contract import EXIT_STOPPED
from gangline.core.words import counted
from gangline.exec.checkpoint_uploader import CheckpointUploader
from gangline.exec.error_reporter import ErrorReporter
from gangline.exec.kept import KeptCheckpoints
from gangline.exec.plan import EXIT_INTERRUPTED, EXIT_OVERTAKEN, NICE, ExecPlan, Stopped, Summary, Tools
from gangline.exec.report import ExecReport, Told
from gangline.exec.results import ResultUploader
from gangline.exec.run_prefix import Abandoned
from gangline.exec.start import (
    ADDRESS,
    BEFORE,
    RUN,
    check_room,
    check_script,
    command_with_checkpoint,
    find_start,
    is_disk_newest,
)
from gangline.exec.watch import RunMonitor, Watcher
from gangline.ports.command import Command
from gangline.posix import signals_handled_by

WAIT_S = 0.2
LEFTOVERS_S = 5.0
AGAIN_S = 1.0
"""A second signal within this time is the same signal: a tool that signals all processes of a machine, or a launcher and its child, reaches
this process twice at once."""
MB = 10**6


class Exec:
    """A run of a command; call it once. It handles SIGTERM, SIGINT and SIGHUP of this process from then on: `signals` are those that came.
    `stored_all` is True after it if the store has all that the command left here."""

    def __init__(self, plan: ExecPlan, tools: Tools) -> None:
        self._plan = plan
        self._at = tools
        self._prefix = tools.prefix
        self._report = ExecReport(tools)
        self._reporter = ErrorReporter(tools.say)
        self._over = Event()
        self.signals: list[tuple[int, float]] = []
        self._preparing, self._finishing = True, False
        self._stopped_because, self.stored_all = "", False

    def __call__(self) -> Summary:
        with signals_handled_by(self._on_signal):
            try:
                return self._prepared() or self._go()
            except Stopped:
                return self._report.summary(self._code_when_stopped(), "stopped before the command was started")
            finally:
                self._at.workspace.close()

    # Before the command

    def _prepared(self) -> Summary | None:
        try:
            return self._prepare()
        except OSError as error:
            raise UserError(
                f"{error.filename or 'the disk'} cannot be used: {error.strerror}",
                hint="check its free space and its permissions",
            ) from None

    def _prepare(self) -> Summary | None:
        at, plan, report = self._at, self._plan, self._report
        self._prefix.check()
        report.found = self._prefix.find()
        changed = "" if plan.any_script else check_script(report.found.begun, plan.command, self._prefix.address)
        if changed:
            at.say(changed)
        if finished := self._finished_before():
            return finished
        check_room(self._prefix, at.workspace, report.found)
        report.downloaded = at.download(lambda: bool(self.signals))
        report.run = self._prefix.claim({"host": at.host, "at_ms": at.now_ms()}, known=report.found.runs)
        report.found = self._prefix.find()
        if finished := self._finished_before():  # another run finished while this one claimed a number
            return finished
        self._ours = ours = is_disk_newest(self._prefix, at.workspace, report.found)
        report.start = start = find_start(self._prefix, at.workspace, plan.rules, report.found, at.say, ours=ours)
        report.downloaded += start.downloaded
        self._begun = Begun(
            run=report.run,
            origin=start.origin.ref if start.origin else None,
            continues=start.continues,
            continued_ms=start.continued_ms,
            at_ms=at.now_ms() - report.after_ms(),
            command=plan.command,
            usd_per_hour=plan.usd_per_hour,
        )
        before = newest_begun(report.found.begun) if ours else None
        at.workspace.remember({RUN: report.run, BEFORE: before or "", ADDRESS: self._prefix.address})
        self._prefix.begin(self._begun)
        self._preparing, report.begun = False, self._begun
        at.say(f"run {run_number(report.run)} {self._whence()}")
        self._say_what_was_lost()
        return None

    def _say_what_was_lost(self) -> None:
        """Warn if the previous run left no recognised checkpoint but files that may have been its state."""
        found = self._report.found
        last = found.runs[-1] if found.runs else ""
        if self._report.start.name is not None or not last or found.refs:
            return
        here = list(self._at.files.scan()) if self._ours else []
        if states := strangers([*here, *(each.path for each in found.results if each.run == last)]):
            self._reporter.warn(
                f"run {run_number(last)} left no recognised checkpoint, but it left {states[0]}: {advice(states)}"
            )

    def _whence(self) -> str:
        start = self._report.start
        if start.name is None:
            return "starts from scratch: no checkpoint was found"
        return f"resumes from {start.title} {'on this disk' if start.adopted else f'in {self._prefix.address}'}"

    def _finished_before(self) -> Summary | None:
        """Return the summary of the last run if the same command has finished already: then there is nothing to do."""
        report = self._report
        last = newest_begun(report.found.begun)
        if last is None or report.found.begun[last].command != self._plan.command:
            return None
        if self._prefix.end_of(last).get("code") != 0:
            return None
        self._reporter(lambda: self._forget_after_end(last))
        report.run = last
        report.results = output_of(last) if any(each.run == last for each in report.found.results) else ""
        done = f"run {run_number(last)} has already finished this command, so nothing was done"
        return report.summary(0, f"{done}; other arguments continue from it, another --to starts from scratch")

    def _forget_after_end(self, last: str) -> None:
        """Delete what the run `last` did not delete because it was killed at its end."""
        plan, found = self._plan, self._report.found
        if plan.keep_after_end is not None and not overtaken_by(last, self._prefix.claims()):
            kept = KeptCheckpoints(self._prefix, found.refs, found.loose)
            kept.forget(found.begun, last, keep=plan.keep_after_end, pins=plan.pins)

    # While it runs

    def _go(self) -> Summary:
        at, report, prefix = self._at, self._report, self._prefix
        alone, found = at.safe is None, report.found
        safe, say = (self._on_safe, at.say) if alone else (self._hand_over, lambda _arrived: None)
        self._uploader = uploader = CheckpointUploader(
            self._plan, prefix, at.workspace, self._begun, found, safe, at.say
        )
        report.committed = uploader.committed
        self._monitor = monitor = RunMonitor(at, uploader, report.run, report.after_ms, self._reporter)
        # This must come before the command starts: its first scan records what was there, so that new files can be told apart.
        self._results = results = ResultUploader(
            at.files, prefix, uploader, self._begun, found, self._reporter, say, at.now_s, ours=self._ours, yields=alone
        )
        place = None if report.start.name is None else at.workspace.place(report.start.name)
        command = at.start(command_with_checkpoint(self._plan.command, place), at.show, self._settings())
        self._watcher = watcher = Watcher(self._plan.rules, at, command, report.after_ms, uploader.put, self._reporter)
        over = self._over
        works = (lambda: watcher.watch(over), self._send, lambda: monitor.watch(over), lambda: results.work(over))
        watching, *uploading = [Thread(target=work, daemon=True) for work in works]
        try:
            for thread in (watching, *uploading):
                thread.start()
            report.tell("started", restored_from=report.start.title or None)
            code, because = self._supervise(command)
        finally:
            command.close()
            self._over.set()
        watching.join()
        for _ in range(2):  # the first scan finds what was deleted, the second what was written under its name
            self._reporter(lambda: watcher.look(ended=True, well=command.code in (0, EXIT_STOPPED)))
        uploader.close()
        self._finishing, prefix.say = True, at.say
        while left := [thread for thread in uploading if thread.is_alive()]:
            self._show_status()
            left[0].join(WAIT_S)
        if uploader.overtaken:
            return self._end("overtaken", EXIT_OVERTAKEN, self._why_stop())
        code, because = self._finish(code, because)
        return self._end(self._event(code), code, because)

    def _settings(self) -> dict[str, str]:
        """Return the settings that are added to the command's environment."""
        return wandb_settings({**self._report.found.begun, self._begun.run: self._begun}, self._at.environment)

    def _supervise(self, command: Command) -> tuple[int, str]:
        """Wait for the command; return the exit code to end with, and why."""
        kill_s = None
        while command.code is None or not command.gone:
            command.wait(WAIT_S)
            self._show_status()
            now_s = self._at.now_s()
            if not self._stopped_because and (because := self._why_stop()):
                self._stopped_because = because
                kill_s = now_s + self._stop(command, because)
            elif command.code is not None and kill_s is None:
                kill_s = now_s + LEFTOVERS_S
                command.signal(signal.SIGTERM)  # for the processes that it left running
            if kill_s is not None and (now_s >= kill_s or self._signalled_again()):
                command.kill()
        if self._stopped_because:
            return self._code_when_stopped(), self._stopped_because
        because = "the command finished" if command.code == 0 else f"the command ended with exit code {command.code}"
        return command.code, because

    def _why_stop(self) -> str:
        if newer := self._uploader.overtaken:
            return f"run {run_number(newer)} has overtaken this one, run {run_number(self._report.run)}"
        if self.signals:
            return f"this process received {signal.Signals(self.signals[0][0]).name}"
        return self._at.notice()

    def _stop(self, command: Command, because: str) -> float:
        """Signal the command to stop; return how many seconds it has."""
        overtaken = bool(self._uploader.overtaken)
        grace_s = LEFTOVERS_S if overtaken else self._plan.grace_s
        by_hand = self.signals and self.signals[0][0] == signal.SIGINT
        command.signal(signal.SIGINT if by_hand else self._plan.stop_signal)
        self._at.say(f"{because}; the command has {grace_s:.0f} s to stop")
        if not overtaken:
            self._report.tell("interrupted", because=because)
        return grace_s

    def _code_when_stopped(self) -> int:
        return EXIT_INTERRUPTED if self.signals and self.signals[0][0] == signal.SIGINT else EXIT_STOPPED

    def _on_signal(self, number: int, frame: object) -> None:
        self.signals.append((number, self._at.now_s()))
        if self._preparing and len(self.signals) == 1:
            self._prefix.transfer.stop()
            raise Stopped
        if self._signalled_again():
            self._prefix.give_up_s = 0.0
        elif self._finishing and len(self.signals) == 1:
            self._prefix.give_up_s = self._at.now_s() + self._plan.grace_s

    def _signalled_again(self) -> bool:
        """Return whether a second signal came, from a user who does not want to wait."""
        return bool(self.signals) and self.signals[-1][1] - self.signals[0][1] >= AGAIN_S

    def _send(self) -> None:
        os.nice(NICE)
        with suppress(Abandoned):
            while self._reporter(self._uploader.send_next) is not False:
                pass

    def _hand_over(self, committed: CommittedCheckpoint) -> None:
        assert self._at.safe
        self._reporter(self._results.send_what_is_there)
        self._at.safe(committed)

    def _on_safe(self, committed: CommittedCheckpoint) -> None:
        sent = committed.sent_bytes
        what = f"{sent / MB:.1f} MB uploaded" if sent else "its bytes had been uploaded already"
        self._at.say(f"{committed.title} is safe in {self._prefix.address}/{committed.ref.key}: {what}")
        facts = {"step": committed.step, "name": committed.title, "bytes": committed.bytes, "key": committed.ref.key}
        self._report.tell("checkpoint", **facts)

    def _show_status(self) -> None:
        self._report.status(self._uploader.sending or self._results.sending, away=self._monitor.away)

    # After the command

    def _finish(self, code: int, because: str) -> tuple[int, str]:
        """Upload the log, the results and the end record; return exit code and reason, which differ if the store stays away."""
        report = self._report
        try:
            self._reporter(lambda: self._prefix.insist(self._monitor.send_log))
            has_all = self._reporter(lambda: self._send_results(killed=code != 0))
            lacking = not has_all or self._uploader.lacks_newest or self._watcher.lacks_newest
            end = {"code": None if code == 0 and lacking else code, "because": because, "after_ms": report.after_ms()}
            self.stored_all = not (lacking or self._watcher.left_out)
            self._reporter(lambda: self._write_end(end))
        except Abandoned:
            because = f"{because}; the object store did not answer, so not everything is in it"
            self._stopped_because = self._stopped_because or because
            return (self._code_when_stopped() if code == 0 else code), because
        if code == 0 and not report.committed and report.start.name is None and not self._stopped_because:
            self._reporter.warn(
                "no checkpoint was found; check that the command writes to --checkpoints, or describe one by --complete-when"
            )
        return code, because

    def _write_end(self, end: dict[str, Any]) -> None:
        """Write the end record before any checkpoint is deleted: a restart needs one until then. The next run deletes what is left."""
        self._prefix.end(self._report.run, end)
        if end["code"] == 0 and self._plan.keep_after_end is not None:
            with suppress(Abandoned):
                self._uploader.forget(self._plan.keep_after_end)

    def _send_results(self, *, killed: bool) -> bool:
        """Upload the results; return whether all are in the store."""
        recognised = self._uploader.was_given_any or self._watcher.lacks_newest or self._report.start.name is not None
        try:
            return self._results.finish(killed=killed, recognised=recognised)
        finally:
            self._tell_results()

    def _tell_results(self) -> None:
        results, report, address = self._results, self._report, self._prefix.address
        report.results_bytes = results.bytes
        if results.count:
            report.results = output_of(report.run)
        if self._at.safe:
            return
        if results.count:
            self._at.say(f"results in {address}/{report.results}: {counted(results.count, 'file')}")
        if results.count or results.before:
            self._at.say(f"`gangline exec get {address} FOLDER` downloads the results of all runs")
        elif (report.committed or report.start.name is not None) and self._plan.keep_after_end != 0:
            self._at.say(
                "the command left no files besides its checkpoints; "
                f"`gangline exec get {address} FOLDER --checkpoint` downloads the newest"
            )

    def _event(self, code: int) -> Told:
        if self._stopped_because:
            return "stopped"
        return "ended" if code == 0 else "failed"

    def _end(self, event: Told, code: int, because: str) -> Summary:
        report = self._report
        results = f"{self._prefix.address}/{report.results}" if report.results else None
        report.tell(event, because=because, exit_code=code, results=results)
        if left := self._report.close():
            self._reporter.warn(f"{counted(left, 'notification')} not delivered")
        return self._report.summary(code, because)
