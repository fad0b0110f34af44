"""Decode photos ahead in other processes, in order, while the caller works on earlier ones.

Why not `multiprocessing`? Each process would start as the trainer that it descends from, which takes the seconds and the memory of its
libraries, and would exchange pickles. So each process is a separate program, whose pipes carry JSON and pixels.
"""

import signal
import subprocess
import sys
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue
from typing import IO

from gangline.core.errors import BadInput
from gangline.data.images.decoder import read_answer, write_question
from gangline.data.images.decoding import Asked, DecodedView, decode_views
from gangline.data.images.pixels import printable_path

DECODER = (sys.executable, "-P", "-m", "gangline.data.images.decoder")
PHOTOS_EACH = 12
"""A process takes as long to start as a few photos to decode: none is started for fewer than twice as many photos."""
PROCESSES_MAX = 16
BYTES_AHEAD = 2**31
"""Limit of the memory of all photos that are requested and not yet taken."""
TRIES = 2


def processes_for(photos: int, on_cores: int) -> int:
    """Return how many processes pay off for this number of photos: none for few."""
    return min(on_cores, PROCESSES_MAX, photos // PHOTOS_EACH) if photos >= 2 * PHOTOS_EACH else 0


def decoded(asked: Sequence[Asked], processes: int) -> Generator[list[DecodedView]]:
    """Yield the views of each photo, in order. Close it if not all are taken, which ends the processes.

    Raise `BadInput` that names the photo when its turn comes.
    """
    if not processes:
        yield from map(decode_views, asked)
        return
    with _Decoders(processes) as decoders:
        coming, ahead = deque[tuple[Asked, Future[list[DecodedView]]]](), 0
        left = deque(asked)
        while left or coming:
            # One photo is always requested, even if it alone exceeds the limit.
            while left and (not coming or ahead + left[0].bytes_at_most <= BYTES_AHEAD):
                each = left.popleft()
                coming.append((each, decoders.decode(each)))
                ahead += each.bytes_at_most
            first, future = coming.popleft()
            ahead -= first.bytes_at_most
            yield future.result()


class _Decoders:
    """Decoder processes; a thread writes to and reads from each."""

    def __init__(self, processes: int) -> None:
        self._threads = ThreadPoolExecutor(processes, thread_name_prefix="decoder")
        self._idle = SimpleQueue["_Decoder"]()
        self._all = [_Decoder() for _ in range(processes)]
        for each in self._all:
            self._idle.put(each)

    def __enter__(self) -> "_Decoders":
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._all:
            each.close()
        self._threads.shutdown(cancel_futures=True)
        for each in self._all:
            each.wait()

    def decode(self, asked: Asked) -> "Future[list[DecodedView]]":
        return self._threads.submit(self._decode, asked)

    def _decode(self, asked: Asked) -> list[DecodedView]:
        decoder = self._idle.get()
        try:
            return decoder.decode(asked)
        finally:
            self._idle.put(decoder)


class _Decoder:
    """One process, started on its first photo, and again if it was killed."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    def decode(self, asked: Asked) -> list[DecodedView]:
        code = 0
        for _ in range(TRIES):
            process = self._running()
            with suppress(EOFError, BrokenPipeError):
                write_question(asked, _pipe(process.stdin))
                return read_answer(asked, _pipe(process.stdout))
            code = process.wait()
            _close(process)
            if self._closed:
                break
        raise _ended(asked, code)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(DECODER, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self._process

    def close(self) -> None:
        """Kill the process: nobody waits for its answers any more."""
        self._closed = True
        if self._process:
            self._process.kill()

    def wait(self) -> None:
        """Wait for the end of the process, even if it was just being started."""
        self.close()
        if self._process:
            self._process.wait()
            _close(self._process)


def _ended(asked: Asked, code: int) -> Exception:
    """Return the error for a process that ended twice on the same photo. Unless a signal ended it, it has written more to the log."""
    name = printable_path(asked.photo)
    if code == -signal.SIGKILL:
        return MemoryError(f"the process that decodes {name} was killed, perhaps because memory ran out")
    if code < 0:
        return BadInput(
            f"{name} crashes its decoder ({signal.Signals(-code).name})",
            hint="the file is damaged: replace it or take it out",
        )
    return ChildProcessError(f"the process that decodes {name} ended with exit code {code}")


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None, "the process has both pipes"
    return pipe


def _close(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):
            _pipe(pipe).close()
