"""Ask every operation of a server what its OpenAPI document allows, and what it forbids.

`python -m tests.service.asked FOLDER DATABASE EXAMPLES SEED`, in a process of its own: Hypothesis draws some values from the constants of
the modules that are loaded, so the same seed asks something else where other tests ran before. On standard output comes a line of JSON:
what came of it that the document does not have, and a hash of all that was asked.
"""

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.core import NotSet
from schemathesis.core.failures import FailureGroup
from schemathesis.generation import GenerationMode

from gangline.adapters.objects.local import LocalObjects
from gangline.api.app import make_app
from gangline.core.server.limits import Limits
from tests.conftest import ROOT
from tests.service.conftest import JOIN, OPERATOR, Service, a_service

ANY_RATE = Limits(key_rate_per_s=1e6, key_burst=10**6, address_rate_per_s=1e6, address_burst=10**6)
REFUSED = ["2xx", "401", "403", "404", "409", "412", "422", "503"]
"""What a request may get that is as the document says: it may name what is not there, and be wrong in what no schema says."""
AS_PYTEST_HAS_THEM = ("error", "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")


@dataclass(frozen=True)
class Answers:
    """`asked` is equal where the same was asked in the same order."""

    wrong: dict[str, str]
    asked: str


def asked(folder: Path, database: str, examples: int, number: int) -> Answers:
    """Ask so many examples of each operation, drawn from the seed `number`."""
    warnings = [part for each in AS_PYTEST_HAS_THEM for part in ("-W", each)]
    words = [str(folder), database, str(examples), str(number)]
    command = [sys.executable, *warnings, "-m", "tests.service.asked", *words]
    return Answers(**json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout))


@dataclass
class Asking:
    service: Service
    wrong: dict[str, str] = field(default_factory=dict)
    asked: Any = field(default_factory=hashlib.sha256)

    def ask_all(self, examples: int, number: int) -> None:
        service = self.service
        objects = service.objects if isinstance(service.objects, LocalObjects) else None
        schema = schemathesis.openapi.from_asgi("/openapi.json", make_app(service.deployment, objects, ANY_RATE))
        schema.config.checks.positive_data_acceptance.expected_statuses = REFUSED
        schema.config.checks.negative_data_rejection.expected_statuses = [
            "4xx",
            "503",
        ]  # 413 among them: some are large
        # a parameter that the server does not know is no mistake: a newer client asks an older server, too
        schema.config.generation.allow_extra_parameters = False
        # the hub of these tests is away, which 503 says
        schema.config.checks.not_a_server_error.expected_statuses = ["2xx", "3xx", "4xx", "503"]
        node = service.ask("POST", "/v1/nodes", JOIN, json={"machine": "m", "name": "n"}).json()["token"]
        tokens = {"join token": JOIN, "node token": node, "key": OPERATOR}
        chosen = settings(
            max_examples=examples,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        for found in schema.get_all_operations():
            operation = found.ok()
            schemes = [name for one in operation.definition.raw["security"] for name in one]
            headers = {"Authorization": f"Bearer {tokens[schemes[0]]}"} if schemes else {}
            for mode in GenerationMode:
                cases = operation.as_strategy(generation_mode=mode)
                with suppress(Unsatisfiable):  # what takes nothing cannot be given something wrong
                    seed(number)(chosen(given(case=cases)(self._asking(headers))))()

    def _asking(self, headers: dict[str, str]) -> Callable[[schemathesis.Case], None]:
        return lambda case: self._ask(case, headers)

    def _ask(self, case: schemathesis.Case, headers: dict[str, str]) -> None:
        body = None if isinstance(case.body, NotSet) else case.body
        told = (case.operation.label, case.path_parameters, case.query, dict(case.headers or {}), case.cookies, body)
        self.asked.update(repr(told).encode(errors="backslashreplace"))
        without_a_key = headers and "Authorization" not in case.headers  # which is what may be wrong with the request
        try:
            case.call_and_validate(headers=None if without_a_key else headers)
        except FailureGroup as group:
            for failure in group.exceptions:
                self.wrong[f"{case.operation.label}: {type(failure).__name__}"] = str(failure)[:500]


def main() -> None:
    folder, database, examples, number = sys.argv[1:]
    with a_service(Path(folder), database, LocalObjects(Path(folder) / "store", "secret")) as service:
        asking = Asking(service)
        asking.ask_all(int(examples), int(number))
    sys.stdout.write(json.dumps({"wrong": asking.wrong, "asked": asking.asked.hexdigest()}))


if __name__ == "__main__":
    main()
