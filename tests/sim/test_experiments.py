"""An experiment on nodes that die, over the simulated store with all its promises."""

from dataclasses import dataclass, field
from random import Random

from gangline.core.runs.metrics import Point
from gangline.ports.server import Assignment, Hold, Points
from gangline.service.attempts import end_overdue
from gangline.service.experiments.tend import tend_experiment
from gangline.service.jobs import metrics
from gangline.service.jobs.claim import claim
from tests.sim.mutants.bench import STEPS, Bench
from tests.sim.mutants.probes_of_experiments import submit

AT_ONCE, NODES, JOBS = 8, 12, 60


@dataclass
class Played:
    """Nodes that claim, train, save, finish, hand back and die by chance, and what was seen of it."""

    bench: Bench
    made: str
    rng: Random
    nodes: list[str] = field(default_factory=list)
    at_work: dict[str, tuple[Hold, str, int]] = field(default_factory=dict)
    most: int = 0
    began_before_one_trained: int = 0

    def play(self) -> None:
        for _ in range(300):
            self.bench.wait(10)
            end_overdue(self.bench.deployment, self.bench.now_ms)
            tend_experiment(self.bench.deployment, self.made, self.bench.now_ms)
            (state,) = self.bench.look("SELECT state FROM experiment WHERE id = ?", self.made)
            if state == "ended":
                return
            self.claims()
            self.trains()
        raise AssertionError("it does not end")

    def claims(self) -> None:
        while len(self.nodes) < NODES:
            self.nodes.append(self.bench.join(f"n{self.rng.random()}", f"m{self.rng.random()}"))
        for node in self.nodes:
            if node in self.at_work:
                continue
            taken = claim(self.bench.deployment, node, self.bench.now_ms)
            if isinstance(taken, Assignment):
                step = taken.resume[0].manifest["step"] if taken.resume else 0
                self.at_work[node] = (taken.hold, taken.job, step)
                trained = self.bench.look("SELECT COUNT(*) FROM attempt WHERE training_ms IS NOT NULL")[0]
                began = self.bench.look("SELECT COUNT(*) FROM lease WHERE training_ms IS NOT NULL")[0]
                self.began_before_one_trained += not (trained or began)
        going = "SELECT COUNT(*) FROM job WHERE state IN ('queued', 'running') AND fetching = 0 AND kind <> 'sample'"
        self.most = max(self.most, *self.bench.look(going))

    def trains(self) -> None:
        for node, (hold, job, before) in list(self.at_work.items()):
            chance, step = self.rng.random(), min(STEPS, before + STEPS // 4)
            if chance < 0.1:  # it gets notice and hands its job back, or it dies, and nobody hears of it again
                del self.at_work[node]
                if chance < 0.05:
                    self.bench.release(node, hold)
                else:
                    self.nodes.remove(node)
                continue
            self.bench.beat(node, hold, step)
            told = Points(points=(Point(step=step, values={"loss": 1 / step}),))
            metrics.take(self.bench.deployment, node, hold, told, self.bench.now_ms)
            self.at_work[node] = (hold, job, step)
            if step == STEPS:
                del self.at_work[node]
                self.bench.succeed(node, hold)
            else:
                self.bench.commit(node, hold, step)


def test_never_more_than_may_be_are_in_progress_one_prepares_and_all_end() -> None:
    bench = Bench()
    ranks = [{"rank": rank} for rank in range(1, JOBS + 1)]
    made, jobs = submit(bench, vary={}, list=ranks, at_once=AT_ONCE)
    played = Played(bench, made, Random(3))
    played.play()
    assert played.most == AT_ONCE
    assert played.began_before_one_trained <= 2, "an interrupted first one is claimed again"
    assert {bench.state(job) for job in jobs} == {"succeeded"}
    assert bench.look("SELECT best FROM experiment")[0] in jobs
    bench.close()
