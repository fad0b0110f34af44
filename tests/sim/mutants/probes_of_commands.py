"""What is kept for commands: the secrets of a project, and the number of steps that a command says."""

from gangline.ports.server import Beat
from gangline.ports.store import write
from gangline.service.jobs import renew
from tests.sim.mutants.bench import Bench, probe


def keep(bench: Bench, project: str, name: str, sealed: str) -> None:
    assert bench.store.apply(write("put_secret", project=project, name=name, sealed=sealed, now=bench.now_ms))


def kept(bench: Bench, project: str | None) -> dict[tuple[str, str], str]:
    return {(row["project"], row["name"]): row["sealed"] for row in bench.store.load("secrets", project=project)}


@probe()
def a_secret_is_of_one_project_and_has_one_name(bench: Bench) -> None:
    for project, name in (("one", "A"), ("one", "B"), ("two", "A")):
        keep(bench, project, name, f"{project} {name}")
    keep(bench, "one", "A", "again")
    assert kept(bench, "one") == {("one", "A"): "again", ("one", "B"): "one B"}
    bench.store.apply(write("remove_secret", project="one", name="A"))
    assert kept(bench, None) == {("one", "B"): "one B", ("two", "A"): "two A"}


@probe()
def what_is_encrypted_again_is_what_was_read_and_nothing_else(bench: Bench) -> None:
    for project, name in (("one", "A"), ("one", "B"), ("two", "A")):
        keep(bench, project, name, "old")
    again = {"project": "one", "name": "A", "sealed": "new"}
    bench.store.apply(write("reseal_secret", before="another", **again))
    assert kept(bench, "one")["one", "A"] == "old", "it was set again meanwhile"
    bench.store.apply(write("reseal_secret", before="old", **again))
    assert kept(bench, None) == {("one", "A"): "new", ("one", "B"): "old", ("two", "A"): "old"}


@probe()
def a_node_says_how_many_steps_a_command_has_and_of_no_other_job(bench: Bench) -> None:
    job, other = bench.submit(), bench.submit()
    node = bench.join()
    hold = bench.take(node, job)
    before = [bench.store.load("job", id=each)[0]["steps"] for each in (job, other)]
    renew.renew(bench.deployment, node, hold, Beat(phase="training", step=1, steps=7), bench.now_ms)
    assert [bench.store.load("job", id=each)[0]["steps"] for each in (job, other)] == before
