"""Poll the provider's metadata service, in a thread, for the notice that this machine is about to be preempted.

Amazon: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html (two minutes before). Google:
https://cloud.google.com/compute/docs/instances/create-use-spot (`preempted`, thirty seconds before). Azure:
https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events (thirty seconds before).
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event, Thread

import httpx

EVERY_S = 5.0
TIMEOUT = httpx.Timeout(2)
LINK_LOCAL = "http://169.254.169.254"
PROVIDERS = ("aws", "gcp", "azure")


class Notices:
    """Polls the provider `of`; if `of` is a path, the notice is that a file appears there. A call returns why the machine is about to go,
    or "". `say` receives one warning if the provider does not answer. `environment` may override the providers' addresses with the
    variables that their own tools read."""

    def __init__(
        self, of: str, say: Callable[[str], None], environment: Mapping[str, str], every_s: float = EVERY_S
    ) -> None:
        asks: dict[str, Callable[[], str]] = {"aws": self._aws, "gcp": self._gcp, "azure": self._azure}
        self._ask = asks.get(of) or (lambda: f"{of} has appeared" if Path(of).exists() else "")
        self._client = httpx.Client(timeout=TIMEOUT, trust_env=False)
        self._say = say
        self._environment = environment
        self._every_s = every_s
        self._heard = ""
        self._never = Event()
        Thread(target=self._listen, daemon=True).start()

    def __call__(self) -> str:
        return self._heard

    def _listen(self) -> None:
        warned = False
        while not self._heard:
            try:
                self._heard = self._ask()
            except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
                if not warned:
                    self._say(
                        f"warning: the metadata service gave no usable answer ({type(error).__name__}), "
                        "so a preemption would go unnoticed; --notice keeps asking it"
                    )
                warned = True
            self._never.wait(self._every_s)

    def _aws(self) -> str:
        base = self._environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", LINK_LOCAL).rstrip("/")
        ttl = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
        token = self._client.put(f"{base}/latest/api/token", headers=ttl).text
        known = {"X-aws-ec2-metadata-token": token}
        answer = self._client.get(f"{base}/latest/meta-data/spot/instance-action", headers=known)
        if answer.status_code != 200:
            return ""
        notice = answer.json()
        return f"Amazon will {notice['action']} this machine at {notice['time']}"

    def _gcp(self) -> str:
        host = self._environment.get("GCE_METADATA_HOST", "metadata.google.internal")
        answer = self._client.get(
            f"http://{host}/computeMetadata/v1/instance/preempted", headers={"Metadata-Flavor": "Google"}
        )
        return "Google will preempt this machine" if answer.text.strip() == "TRUE" else ""

    def _azure(self) -> str:
        base = self._environment.get("GANGLINE_AZURE_METADATA", LINK_LOCAL).rstrip("/")
        answer = self._client.get(
            f"{base}/metadata/scheduledevents?api-version=2020-07-01", headers={"Metadata": "true"}
        )
        kinds = {event["EventType"] for event in answer.json()["Events"]}
        return "Azure will delete this machine" if kinds & {"Preempt", "Terminate"} else ""
