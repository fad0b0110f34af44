"""Check everything at the end of a phase: compare the service's database with the provider's invoice and the object store."""

from gangline.core.job import ENDED
from gangline.core.money.cost import Cause, egress_micro_usd, storage_micro_usd
from gangline.core.policy import Policy
from gangline.sim.objects import SimObjects
from gangline.sim.promises.violation import fail, object_hashes
from gangline.sim.store import SimStore
from gangline.sim.world import World


class Audit:
    """The checks at the end of a phase. Each method raises `Violation` if a promise is broken."""

    def __init__(self, world: World, store: SimStore, objects: SimObjects) -> None:
        self._world = world
        self._store = store
        self._objects = objects

    def at_the_end(self, invoice: dict[str, int], nodes_min: int) -> None:
        """Check the end of a liveness phase: every job has ended, the fleet is at its minimum, the ledger equals the invoice."""
        for job, state, because in self._store.look("SELECT id, state, because FROM job"):
            if state not in ENDED:
                self._fail(4, f"{job} is {state} for ever: {because}")
        here = self._store.look("SELECT rental, state FROM node WHERE state NOT IN ('gone') AND rented = 1")
        if len(here) > nodes_min:
            self._fail(4, f"{len(here)} nodes remain instead of {nodes_min}: {here[:5]}")
        # A provider bills a rental, whose nodes follow each other as it moves between machines.
        sql = (
            "SELECT COALESCE(node.rental, ledger.node), SUM(ledger.micro_usd) FROM ledger LEFT JOIN node ON node.id = ledger.node "
            "WHERE ledger.cause NOT IN ('storage', 'egress') GROUP BY 1"
        )
        ledger = {node: total for node, total in self._store.look(sql) if total}
        for project, spent in self._store.look("SELECT id, spent FROM project"):
            lines = "SELECT COALESCE(SUM(micro_usd), 0) FROM ledger WHERE project = ? AND cause <> 'storage'"
            if spent != self._store.look(lines, project)[0][0]:
                self._fail(5, f"{project} has spent {spent}, and the ledger says otherwise")
        for what in ("attempt WHERE because = ''", "node WHERE because = '' AND state <> 'ready'"):
            for (found,) in self._store.look(f"SELECT id FROM {what}"):  # noqa: S608 - the two above
                self._fail(6, f"{found} without a reason")
        rented = {node for (node,) in self._store.look("SELECT rental FROM node WHERE rented = 1")}
        ours = {node: total for node, total in ledger.items() if node in rented}
        theirs = {node: total for node, total in invoice.items() if total}
        staying = {node for node, _ in here}
        for node in sorted(ours.keys() | theirs.keys()):
            if node not in staying and ours.get(node, 0) != theirs.get(node, 0):
                self._fail(5, f"{node}: the ledger says {ours.get(node, 0)}, the provider {theirs.get(node, 0)}")

    def against_the_store(self, policy: Policy) -> tuple[int, int]:
        """Check promise 5: storage that is billed was used in the object store, and bytes that it sent are billed.

        Return the micro-dollars of storage as billed, and as the store counts it, which includes uploads that were never committed.
        """
        now, rate = self._world.now_ms, policy.storage_usd_per_gb_month
        billed, lines = self._billed("storage")
        for size, since_ms in self._store.look(
            "SELECT bytes, committed_ms FROM checkpoint WHERE state = 'committed' "
            "UNION ALL SELECT bytes, made_ms FROM artifact"
        ):
            billed, lines = billed + storage_micro_usd(size, since_ms, now, rate), lines + 1
        lay = storage_micro_usd(self._objects.byte_ms_of_attempts(), 0, 1, rate)
        if billed > lay + lines:
            self._fail(5, f"{billed} are billed for storage, and the object store bills {lay}")
        egress, attempts = self._billed("egress")
        sent = egress_micro_usd(self._objects.bytes_sent, policy.egress_usd_per_gb)
        if egress + attempts < sent:
            self._fail(5, f"{egress} are billed for egress, and the object store bills {sent}")
        return billed, lay

    def no_orphans(self) -> None:
        """Check after a sweep that every object of an attempt in the object store is referred to, and that no upload is open."""
        referred = {key for (key,) in self._store.look("SELECT key FROM artifact UNION ALL SELECT key FROM log_chunk")}
        for (checkpoint,) in self._store.look("SELECT id FROM checkpoint WHERE state = 'committed'"):
            referred |= object_hashes(self._store, checkpoint).keys()
        left = [key for key in self._objects.objects if "/attempts/" in key and key not in referred]
        left += [upload.key for upload in self._objects.open.values()]
        if left:
            self._fail(2, f"{len(left)} objects belong to nothing: {left[:5]}")

    def _billed(self, cause: Cause) -> tuple[int, int]:
        """Return the micro-dollars billed for a cause, and the number of lines: each line may be off by rounding."""
        sql = "SELECT COALESCE(SUM(micro_usd), 0), COUNT(*) FROM ledger WHERE cause = ?"
        total, lines = self._store.look(sql, cause)[0]
        return total, lines

    def _fail(self, promise: int, what: str) -> None:
        fail(self._world, promise, what)
