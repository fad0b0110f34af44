"""Report a run of a command: notifications, the status line while it runs, and the summary at the end."""

from typing import Any, Literal

from gangline.core.command.lineage import Account, Begun, CommittedCheckpoint, account, run_number
from gangline.core.words import usd_words
from gangline.exec.plan import Summary, Tools
from gangline.exec.run_prefix import PrefixContent
from gangline.exec.start import RunStart

Told = Literal["started", "checkpoint", "interrupted", "ended", "failed", "stopped", "overtaken"]
"""The events that a webhook receives, as `exec.…`."""
NOTIFIED_S = 20.0


class ExecReport:
    """The facts of a run, filled in as it proceeds. `committed` grows with each checkpoint that is in the store."""

    def __init__(self, tools: Tools) -> None:
        self.run = ""
        self.found = PrefixContent()
        self.start = RunStart()
        self.begun: Begun | None = None
        self.downloaded = 0
        self.committed: list[CommittedCheckpoint] = []
        self.results = ""
        self.results_bytes = 0
        self._at = tools
        self._born_s = tools.now_s()

    def after_ms(self) -> int:
        """Return the milliseconds since this process started the run."""
        return round((self._at.now_s() - self._born_s) * 1000)

    def tell(self, event: Told, **data: Any) -> None:
        facts = {
            "run": run_number(self.run),
            "to": self._at.prefix.address,
            "host": self._at.host,
            "step": self._step(),
            "seconds": self.after_ms() / 1000,
            "bytes_uploaded": self._sent_bytes(),
            "cost_usd": self._account().cost_usd,
        }
        self._at.notifier.tell(f"exec.{event}", facts | data)

    def close(self) -> int:
        """Return how many notifications were not delivered."""
        self._at.status("")
        return self._at.notifier.close(NOTIFIED_S)

    def status(self, uploading: str, *, away: bool) -> None:
        newest, cost = self._newest(), self._account().cost_usd
        if newest:
            safe = f"{newest.title} is safe, {(self.after_ms() - newest.after_ms) / 1000:.0f} s old"
        else:
            safe = f"resumed from {self.start.title}" if self.start.name else "no checkpoint yet"
        parts = (
            f"run {run_number(self.run)}",
            safe,
            f"uploading {uploading}" if uploading else "",
            "the object store is unreachable" if away else "",
            usd_words(cost * 1e6) if cost is not None else "",
        )
        self._at.status(" · ".join(filter(None, parts)))

    def summary(self, code: int, because: str) -> Summary:
        totals = self._account()
        return Summary(
            run=run_number(self.run),
            runs=totals.runs,
            exit_code=code,
            because=because,
            restored_from=self.start.title or None,
            restored_step=self.start.step,
            checkpoints=len(self.committed),
            step=self._step(),
            bytes_uploaded=self._sent_bytes(),
            bytes_downloaded=self.downloaded,
            seconds=round(totals.seconds, 3),
            seconds_lost=round(totals.lost_s, 3),
            cost_usd=None if totals.cost_usd is None else round(totals.cost_usd, 6),
            results=f"{self._at.prefix.address}/{self.results}" if self.results else None,
        )

    def _account(self) -> Account:
        begun, lasted = dict(self.found.begun), dict(self.found.lasted_ms)
        if self.begun is not None:
            begun[self.run] = self.begun
            lasted[self.run] = self.after_ms()
        return account(begun, lasted, now=self.run)

    def _newest(self) -> CommittedCheckpoint | None:
        return max(self.committed, key=lambda each: each.ref, default=None)

    def _step(self) -> int | None:
        newest = self._newest()
        return newest.step if newest else self.start.step

    def _sent_bytes(self) -> int:
        return sum(each.sent_bytes for each in self.committed) + self.results_bytes
