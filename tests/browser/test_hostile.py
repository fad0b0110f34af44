"""That no text is forgotten: each one that somebody can choose is shown by a screen that is tested, or it cannot come there."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gangline.core.parsing import to_json
from tests.browser.cluster import Cluster, a_cluster
from tests.browser.hostile import NOWHERE, OTHERS, REFUSED, HostileIds, fill, places
from tests.browser.screens import REPLAYED, SCREENS

SHOWN = {place for screen in [*SCREENS.values(), *REPLAYED.values()] for place in screen.shows.split()}


@pytest.fixture(scope="module")
def filled(
    scenario: tuple[Path, int], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Cluster, HostileIds]]:
    with a_cluster(tmp_path_factory.mktemp("hostile"), *scenario) as cluster:
        yield cluster, fill(cluster)


def test_every_text_that_could_become_code_is_in_one_table() -> None:
    known = {"shown": SHOWN, "nowhere": set(NOWHERE), "refused": set(REFUSED)}
    found = {place: [name for name, those in known.items() if place in those] for place in places()}
    assert {place: names for place, names in found.items() if len(names) != 1} == {}
    assert set(NOWHERE) | set(REFUSED) <= set(found) and set(found) | set(OTHERS) >= SHOWN
    assert set(OTHERS) <= SHOWN


@pytest.mark.parametrize("place", REFUSED)
def test_the_server_refuses_what_the_table_says(filled: tuple[Cluster, HostileIds], place: str) -> None:
    cluster, ids = filled
    method, path, body = REFUSED[place]
    if "spec" in body:
        body = {"spec": to_json(cluster.service.spec()) | body["spec"]}
    answer = cluster.service.ask(method, path.format(**ids.of_addresses()), json=body)
    assert answer.status_code in (404, 422), answer.text
