"""What the API says of itself."""

from gangline.core.specs.kinds import KINDS
from tests.service.conftest import Service


def test_the_kinds_of_jobs_are_those_that_are_declared(service: Service) -> None:
    schemas = service.http.get("/openapi.json").json()["components"]["schemas"]
    assert schemas["JobSummary"]["properties"]["kind"]["enum"] == list(KINDS)
