"""The metrics of a process, and those of the service beside them, in the text format of Prometheus."""

import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.process_collector import ProcessCollector

from gangline.core.operating.families import MeasuredFamily
from gangline.version import VERSION
from gangline.wire import protocol

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
REQUEST_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
ROUND_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)


@dataclass(slots=True)
class ProcessMetrics:
    """What this process counts of itself: its requests and the rounds of its controller."""

    registry: CollectorRegistry = field(default_factory=lambda: CollectorRegistry(auto_describe=False))
    requests: Histogram = field(init=False)
    rounds: Histogram = field(init=False)
    rounds_failed: Counter = field(init=False)
    last_round: Gauge = field(init=False)
    _children: dict[tuple[str, str, str], Histogram] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        disable_created_metrics()  # a second series for each, which no rule needs
        of = self.registry
        ProcessCollector(registry=of)
        Gauge(
            "gangline_build_info",
            "1, with what runs here.",
            ("version", "protocol", "python"),
            registry=of,
        ).labels(VERSION, str(protocol.VERSION), platform.python_version()).set(1)
        self.requests = Histogram(
            "gangline_http_request_seconds",
            "Seconds until the answer to a request began, by route and class of status.",
            ("method", "route", "status"),
            buckets=REQUEST_S,
            registry=of,
        )
        self.rounds = Histogram(
            "gangline_controller_round_seconds",
            "Seconds that a round of this process's controller took.",
            buckets=ROUND_S,
            registry=of,
        )
        self.rounds_failed = Counter(
            "gangline_controller_rounds_failed", "Rounds of this process's controller that failed.", registry=of
        )
        self.last_round = Gauge(
            "gangline_controller_last_success_timestamp_seconds",
            "When a round of this process's controller last succeeded, in seconds since 1970; 0: never.",
            registry=of,
        )

    def note_request(self, method: str, route: str, status: int, seconds: float) -> None:
        key = method, route, f"{status // 100}xx"
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = self.requests.labels(*key)
        child.observe(seconds)

    def note_round(self, seconds: float, now_ms: int | None) -> None:
        """Record a round of the controller that took so long. `now_ms` is when it began, None if it failed."""
        self.rounds.observe(seconds)
        if now_ms is None:
            self.rounds_failed.inc()
        else:
            self.last_round.set(now_ms / 1000)


def expose(process: ProcessMetrics, families: Sequence[MeasuredFamily]) -> bytes:
    """Return all metrics as Prometheus reads them."""
    return generate_latest(process.registry) + generate_latest(_Families(families))  # type: ignore[arg-type]


class _Families:
    """A registry of values that were measured for one scrape."""

    def __init__(self, families: Sequence[MeasuredFamily]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        for family in self._families:
            kind = GaugeMetricFamily if family.kind == "gauge" else CounterMetricFamily
            metric = kind(family.name, family.says, labels=family.labels)
            for labels, value in family.samples.items():
                metric.add_metric(labels, float(value))
            yield metric
