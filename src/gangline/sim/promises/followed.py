"""Read the facts of each project as a follower does, who asks for what came after the last number: nothing is skipped, sent twice or
invented."""

from collections import Counter

from gangline.sim.promises.violation import fail
from gangline.sim.store import SimStore
from gangline.sim.world import World


class FollowedFacts:
    def __init__(self, world: World, store: SimStore) -> None:
        self._world = world
        self._store = store
        self._last: dict[str, int] = {}
        self._sent: set[tuple[str, int]] = set()

    def read_on(self) -> None:
        """Read what was numbered just now. Numbers continue without a gap, whatever was deleted before; some are of thresholds."""
        for project, newest in self._store.look("SELECT id, facts FROM project"):
            last = self._last.get(project, 0)
            facts = "SELECT fact, job, number FROM event WHERE project = ? AND fact > ? ORDER BY fact"
            found = self._store.look(facts, project, last)
            crossed = "SELECT fact FROM cost_crossing WHERE project = ? AND fact > ?"
            numbers = [number for number, _, _ in found] + [
                number for (number,) in self._store.look(crossed, project, last)
            ]
            if sorted(numbers) != list(range(last + 1, newest + 1)):
                self._fail(
                    f"{project} has the facts {[number for number, _, _ in found]} after {last}, and counts {newest}"
                )
            for _, job, number in found:
                if (job, number) in self._sent:
                    self._fail(f"event {number} of {job} was sent twice")
                self._sent.add((job, number))
            self._last[project] = newest

    def at_the_end(self) -> None:
        """Check that each event of a user's job was sent, and none of a job that renders pictures of another one."""
        events = "SELECT event.job, event.number FROM event JOIN job ON job.id = event.job WHERE job.kind <> 'sample'"
        happened = set(self._store.look(events))
        for job, count in Counter(job for job, _ in happened - self._sent).items():
            self._fail(f"{count} events of {job} were never sent")
        kept = {
            (job, number) for job, number in self._sent if self._store.look("SELECT 1 FROM event WHERE job = ?", job)
        }
        if kept - happened:
            self._fail(f"{sorted(kept - happened)[:5]} were sent, and did not happen to a job of a user's")

    def _fail(self, what: str) -> None:
        fail(self._world, 6, what)
