"""`gangline pools explain`: the figures by which an offer is chosen, as the service has them."""

from typing import Any

from gangline.core.errors import Unreachable
from gangline.core.specs.fields import Needs
from tests.service.conftest import Service
from tests.service.fleet.test_pools import add, look
from tests.shop import LARGE, SMALL


def explained(service: Service, job: str) -> dict[tuple[str, str], dict[str, Any]]:
    answer = service.ask("GET", f"/v1/jobs/{job}/offers")
    assert answer.status_code == 200, answer.text
    return {(each["pool"], each["offer"]): each for each in answer.json()["offers"]}


def test_the_offer_that_is_rented_comes_first_and_the_others_say_why_not(service: Service) -> None:
    add(service, "cloud-1", nodes_max=1)
    add(service, "cloud-2", offers=["large"])
    job = service.submit()
    look(service)
    found = explained(service, job)
    assert list(found)[-1] == ("cloud-1", "large") or len(found) == 3
    assert found["cloud-1", "small"]["because"] == found["cloud-1", "large"]["because"] == "the pool has its 1 nodes"
    other = found["cloud-2", "large"]
    assert other["because"] == "" and next(iter(found)) == ("cloud-2", "large")
    assert other["relative"] and other["usd"] is None and other["usd_per_step"] > 0
    assert (other["interruptions_per_hour"], other["watched_hours"]) == (0.05, 0.0)


def test_what_a_job_asks_for_excludes_offers(service: Service) -> None:
    add(service)
    job = service.submit(needs=Needs(gpu=LARGE.gpu))
    look(service)
    found = explained(service, job)
    assert found["cloud-1", SMALL.id]["because"] == f"the job asks for {LARGE.gpu}"


def test_a_pool_that_is_paused_or_whose_provider_is_silent_says_so(service: Service) -> None:
    add(service)
    job = service.submit()
    service.ask("POST", "/v1/pools/cloud-1/pause")
    look(service)
    assert {each["because"] for each in explained(service, job).values()} == {"the pool is paused"}
    service.ask("POST", "/v1/pools/cloud-1/resume")
    service.till.refuses = Unreachable("the shop does not answer")
    look(service)
    answer = service.ask("GET", f"/v1/jobs/{job}/offers").json()
    assert answer["offers"] == [] and "did not answer" in answer["silent"][0]
