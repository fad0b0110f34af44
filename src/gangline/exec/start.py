"""Decide which checkpoint a run resumes from: the newest one in the store or on this machine that is complete and undamaged."""

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from gangline.core.command.candidate import ROOT, CheckpointCandidate
from gangline.core.command.layout import Rules, is_result, lacks, script_of
from gangline.core.command.lineage import Begun, CommittedCheckpoint, Ref, history, newest_begun
from gangline.core.command.version import UNTOUCHED
from gangline.core.errors import Damaged, NotFound, UserError
from gangline.exec.run_prefix import PrefixContent, RunPrefix
from gangline.ports.workspace import Workspace

GB = 10**9
RUN, BEFORE, ADDRESS = "run", "before", "address"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStart:
    """The point where a run starts. `origin` is the newest checkpoint in the store; `name` is None if the run starts from scratch.
    `downloaded` is in bytes. `adopted` means that the checkpoint is on this machine and newer than the one in the store. The run
    `continues` another run, which was `continued_ms` old at that point."""

    origin: CommittedCheckpoint | None = None
    name: str | None = None
    title: str = ""
    step: int | None = None
    downloaded: int = 0
    adopted: bool = False
    continues: str = ""
    continued_ms: int = 0


def check_script(begun: Mapping[str, Begun], command: tuple[str, ...], address: str) -> str:
    """Return what changed since the last run, in words, as far as its record says. Raises `UserError` if it ran another script."""
    last = newest_begun(begun)
    before = begun[last].command if last else command
    ours, theirs = script_of(command), script_of(before)
    if theirs and ours != theirs:
        raise UserError(
            f"the checkpoints in {address} belong to another script: {theirs}, not {ours}",
            hint="give this script its own prefix in --to, or pass --any-script if both are the same",
        )
    return "" if before in ((), command) else "the arguments of the command differ from those of the last run"


def check_room(prefix: RunPrefix, workspace: Workspace, found: PrefixContent) -> None:
    """Raise `UserError` if the disk has no room for the newest checkpoint. It is called before anything is downloaded."""
    newest, room = newest_readable(prefix, found), workspace.room()
    if newest and newest.bytes > room and not workspace.holds(newest.name, newest.manifest):
        raise UserError(
            f"the disk is too small for the checkpoint {newest.name}: "
            f"{newest.bytes / GB:.1f} GB are needed, {room / GB:.1f} are free",
            hint="make room, or name a folder on a larger disk in --checkpoints",
        )


def newest_readable(prefix: RunPrefix, found: PrefixContent) -> CommittedCheckpoint | None:
    """Return the newest checkpoint in the store whose record is not damaged."""
    for ref in _history(found):
        with suppress(Damaged):
            return prefix.read(ref)
    return None


def find_start(
    prefix: RunPrefix,
    workspace: Workspace,
    rules: Rules,
    found: PrefixContent,
    say: Callable[[str], None],
    *,
    ours: bool,
) -> RunStart:
    """Prepare the folder so that its newest checkpoint is the one to resume from, and return it.

    Checkpoints on this machine count only if they are `ours` (`is_disk_newest`); then they may be newer than the uploaded ones, and are
    uploaded first.
    """
    here = _sort_local(workspace, rules, say)
    while not ours and ROOT in here:  # each file that is set aside may reveal the previous number as the next candidate
        say(f"{here[ROOT].title} on this disk does not belong to the newest run, so it is set aside")
        workspace.set_aside(ROOT)
        here = _sort_local(workspace, rules, say)
    start = _choose(prefix, workspace, found, _newest_local(here.values(), workspace.step_of) if ours else None, say)
    for name in here:
        if name != start.name and not ours:
            say(f"{name} on this disk does not belong to the newest run, so it is set aside")
            workspace.set_aside(name)
        elif name != start.name or not start.adopted:
            workspace.know(name)
    if start.name and not start.adopted:
        workspace.know(start.name)
    return start


def is_disk_newest(prefix: RunPrefix, workspace: Workspace, found: PrefixContent) -> bool:
    """Return whether no run has begun since the one that left the folder as it is. A run that was remembered but died before it began has
    changed nothing."""
    last, told = newest_begun(found.begun), workspace.remembered()
    return last is None or (told.get(ADDRESS) == prefix.address and last in (told.get(RUN), told.get(BEFORE)))


def _choose(
    prefix: RunPrefix,
    workspace: Workspace,
    found: PrefixContent,
    newest: CheckpointCandidate | None,
    say: Callable[[str], None],
) -> RunStart:
    last = newest_begun(found.begun)
    local = None if newest is None else _adopted(newest, workspace, found.begun[last] if last else None)
    for ref in _history(found):
        try:
            committed = prefix.read(ref)
            held = workspace.holds(committed.name, committed.manifest)
            if local is not None and not (held and local.name == committed.name) and _is_newer(local, committed, last):
                return replace(local, origin=committed)
            return _begin_at(committed) if held else _restore(prefix, workspace, committed)
        except (Damaged, NotFound) as error:
            say(f"a checkpoint in the store is damaged, so it is skipped: {error.message}")
            workspace.discard()
    return local or RunStart()


def _adopted(newest: CheckpointCandidate, workspace: Workspace, last: Begun | None) -> RunStart:
    start = RunStart(name=newest.name, title=newest.title, step=workspace.step_of(newest), adopted=True)
    if last is None:
        return start
    after_ms = max(0, newest.written_ns // 10**6 - last.at_ms) if last.at_ms else 0  # 0 if unknown
    return replace(start, continues=last.run, continued_ms=after_ms)


def _is_newer(local: RunStart, committed: CommittedCheckpoint, last: str | None) -> bool:
    """Compare by step; if a step is unknown, by the time at which the run `last`, on this machine, wrote it."""
    if local.step is not None and committed.step is not None:
        return local.step > committed.step
    return local.continued_ms > (committed.after_ms if committed.ref.run == last else 0)


def _history(found: PrefixContent) -> list[Ref]:
    return history(found.begun, found.refs, last=newest_begun(found.begun))


def _sort_local(workspace: Workspace, rules: Rules, say: Callable[[str], None]) -> dict[str, CheckpointCandidate]:
    """Return the complete checkpoints on this machine. Incomplete ones are set aside, where no script picks them as the newest."""
    complete, torn_root = dict[str, CheckpointCandidate](), True
    while torn_root:  # without the incomplete files of `ROOT`, the number before may be complete
        complete, torn_root = dict[str, CheckpointCandidate](), False
        for candidate in workspace.look(0.0, ended=True):
            why = lacks(rules, candidate)
            if why in ("", UNTOUCHED):
                complete[candidate.name] = candidate
            elif not is_result(rules, candidate):
                say(f"{candidate.title} on this disk is half-written ({why}), so it is set aside")
                workspace.set_aside(candidate.name)
                torn_root = torn_root or candidate.name == ROOT
    return complete


def _newest_local(
    here: Collection[CheckpointCandidate], step_of: Callable[[CheckpointCandidate], int | None]
) -> CheckpointCandidate | None:
    """Return the checkpoint with the highest step; one without a step wins if it was written after all that have one."""
    numbered = [(step, each) for each in here if (step := step_of(each)) is not None]
    of_all = max(here, key=lambda each: (each.written_ns, each.name), default=None)
    if of_all is None or step_of(of_all) is None or not numbered:
        return of_all
    return max(numbered, key=lambda found: (found[0], found[1].written_ns))[1]


def _begin_at(committed: CommittedCheckpoint) -> RunStart:
    return RunStart(
        origin=committed,
        name=committed.name,
        title=committed.title,
        step=committed.step,
        continues=committed.ref.run,
        continued_ms=committed.after_ms,
    )


def _restore(prefix: RunPrefix, workspace: Workspace, committed: CommittedCheckpoint) -> RunStart:
    into = workspace.incoming(committed.manifest)
    try:
        prefix.get(committed, into)
    except OSError as error:
        raise UserError(
            f"the checkpoint {committed.name} cannot be put on this disk: {error.strerror}",
            hint="check its free space, or name a folder on another disk in --checkpoints",
        ) from None
    workspace.install(committed.name, committed.manifest, committed.written_ns)
    return replace(_begin_at(committed), downloaded=committed.bytes)


def command_with_checkpoint(command: tuple[str, ...], checkpoint: Path | None) -> tuple[str, ...]:
    """Return the command with `{checkpoint}` replaced by the path. Without a checkpoint, that argument is dropped, and the option before
    it."""
    mark = "{checkpoint}"
    if checkpoint is not None:
        return tuple(word.replace(mark, str(checkpoint)) for word in command)
    kept = list[str]()
    for word in command:
        if mark not in word:
            kept.append(word)
        elif word == mark and kept and kept[-1].startswith("-"):
            kept.pop()
    return tuple(kept)
