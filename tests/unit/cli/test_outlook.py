"""What a plan says of time, money and memory, from where the job could run and what such jobs took."""

from dataclasses import replace
from typing import Any

from gangline.cli.jobs.plan.scratch import ScratchDocument
from gangline.core.files import File
from gangline.core.jobs.placement import FittingNode, PlacementView, RentableNode, Took, UnfitNode
from gangline.core.models import families
from gangline.core.models.recognition import RecognisedModel
from gangline.core.plans.base import KnownBase
from gangline.core.plans.document import Answer, shared, why_closed
from gangline.core.plans.outlook import CardEstimate, estimates
from gangline.core.plans.rows import outlook_rows
from gangline.core.specs.fields import HubBase, Needs
from gangline.core.specs.lora import LoraSpec

PHOTO = File(path="a.png", bytes=1, sha256="0" * 64)
SPEC = LoraSpec(base=HubBase(repo="o/m"), photos=(PHOTO,), prompt="sks dog", steps=1000, resolution=1024)
SDXL = KnownBase(name="o/m at main", bytes=6_900_000_000, family=families.SDXL)
CARD = "NVIDIA GeForce RTX 4090"
NODE = FittingNode(name="atlas", pool="home", gpu=CARD, gpu_memory_gb=24, price_usd_per_hour=0.5, busy=False, waits="")
NOWHERE = PlacementView(
    nodes=0,
    fitting=(),
    unfit=(),
    rentable=(),
    because="waits for a node: there is none",
    ahead=0,
    took=(),
    budget_left_usd=None,
    copies={},
)


def placed(*nodes: FittingNode, **facts: Any) -> PlacementView:
    because = "" if nodes else NOWHERE.because
    return replace(NOWHERE, nodes=len(nodes), fitting=nodes, **({"because": because} | facts))


def estimated(
    spec: LoraSpec = SPEC, base: KnownBase = SDXL, at: PlacementView | None = None
) -> tuple[CardEstimate, ...]:
    return estimates(spec, base, at)


def document(spec: LoraSpec = SPEC, base: KnownBase = SDXL, at: PlacementView | None = None) -> Any:
    """Of any kind of job: the fields that all have."""
    answer = Answer(placed=at, why_not=None if at else "there is no server")
    own: dict[str, Any] = {"trains": "", "new": (), "data": (), "phases": (), "steps": 0, "gpus": 1}
    return ScratchDocument(**(shared(spec, base, None, answer, estimates(spec, base, at)) | own))


def rows(**facts: Any) -> dict[str, str]:
    return dict(outlook_rows(document(**facts)))


def test_time_is_computed_for_the_card_of_the_nodes_that_fit_and_costs_what_they_cost() -> None:
    (found,) = estimated(at=placed(NODE, replace(NODE, name="borealis")))
    assert (found.gpu, found.nodes, found.price_usd_per_hour) == ("RTX 4090", 2, 0.5)
    assert found.time is not None and found.usd is not None and found.time.how == "computed"
    assert 0 < found.time.low_s < found.time.middle_s < found.time.high_s
    assert abs(found.usd.middle - found.time.middle_s * 0.5 / 3600) < 1e-9


def test_what_such_jobs_took_goes_before_what_is_computed() -> None:
    took = Took(gpu=CARD, seconds_per_step=(1.8, 2.0, 2.2))
    (found,) = estimated(at=placed(NODE, took=(took,)))
    assert found.time is not None and found.time.how == "measured"
    assert "ran 3 times on RTX 4090 before" in found.time.because[0]
    assert found.time.low_s < 2000 < found.time.high_s


def test_a_base_that_is_not_known_or_of_another_size_has_a_time_once_such_a_job_has_run() -> None:
    small = replace(families.SDXL.unet, channels=(8, 8, 8))
    model = RecognisedModel(
        family=families.SDXL,
        prediction_type="epsilon",
        zero_terminal_snr=False,
        layout="diffusers",
        because="",
        unet=small,
    )
    took = (Took(gpu=CARD, seconds_per_step=(0.1,)),)
    for base in (replace(SDXL, family=None), replace(SDXL, model=model), replace(SDXL, bytes=7_700_000)):
        (unknown,) = estimated(base=base, at=placed(NODE))
        assert (unknown.time, unknown.usd, unknown.memory) == (None, None, None) and unknown.unknown
        (known,) = estimated(base=base, at=placed(NODE, took=took))
        assert known.time is not None and known.time.low_s < 100 < known.time.high_s and known.memory is None


def test_a_cpu_is_told_apart_from_a_card_whose_class_is_not_known() -> None:
    cpu = replace(NODE, gpu="", gpu_memory_gb=0)
    (found,) = estimated(
        at=placed(cpu, took=(Took(gpu="", seconds_per_step=(3.0,)), Took(gpu=CARD, seconds_per_step=(1.0,))))
    )
    assert found.gpu == "CPU" and found.time is not None and found.memory is None
    assert found.time.low_s < 3000 < found.time.high_s


def test_a_card_without_a_data_sheet_has_no_time_and_says_why() -> None:
    (found,) = estimated(at=placed(replace(NODE, gpu="NVIDIA Something 9000")))
    assert found.time is None and "the speed of an NVIDIA Something 9000 is not known" in found.unknown


def test_each_class_of_card_has_an_estimate_those_that_are_free_first() -> None:
    dear = replace(NODE, gpu="NVIDIA A10", price_usd_per_hour=0.7)
    found = estimated(at=placed(replace(NODE, busy=True), dear))
    assert [each.gpu for each in found] == ["A10", "RTX 4090"]


def test_without_a_node_what_would_be_rented_is_estimated_the_cheapest_first() -> None:
    offers = tuple(
        RentableNode(pool="cloud", gpu=gpu, gpu_memory_gb=24, price_usd_per_hour=price)
        for gpu, price in (("RTX 3090", 0.3), ("RTX 4090", 0.2), ("A10", None))
    )
    found = estimated(at=placed(rentable=offers))
    assert [(each.gpu, each.pool) for each in found] == [("RTX 4090", "cloud"), ("RTX 3090", "cloud"), ("A10", "cloud")]
    said = rows(at=placed(rentable=offers))
    assert (
        said["could start"] == "RTX 4090 in cloud, $0.20/h; RTX 3090 in cloud, $0.30/h; A10 in cloud, no price is set"
    )


def test_without_a_server_the_card_that_is_asked_for_is_estimated_and_nobody_is_said_to_have_been_asked() -> None:
    spec = replace(SPEC, needs=Needs(gpu="RTX 4090"))
    (found,) = estimated(spec)
    assert found.time is not None and found.usd is None and found.memory is not None
    said = rows(spec=spec)
    assert said["nodes"] == "unknown: there is no server"
    assert "RTX 4090 has 24 GB" in said["GPU memory"] and "cost" not in said


def test_memory_that_no_card_has_is_a_warning_and_memory_that_one_has_is_none() -> None:
    small = replace(NODE, gpu="NVIDIA GeForce RTX 3080", gpu_memory_gb=10)
    large = replace(SPEC, resolution=2048)
    (warning,) = document(large, at=placed(small)).warnings
    assert "GB of GPU memory, but an RTX 3080 10GB has 10" in warning
    assert "which is too little" in rows(spec=large, at=placed(small))["GPU memory"]
    both = document(large, at=placed(small, replace(NODE, gpu="NVIDIA H200", gpu_memory_gb=141)))
    assert [warning.partition(": ")[2] for warning in both.warnings] == ["--gpu-memory-gb 34 avoids such nodes"]
    assert document(at=placed(NODE)).warnings == ()


def test_a_card_that_nobody_has_is_a_warning() -> None:
    why = "no node can take it: needs an RTX 4090 and atlas has A10"
    found = document(replace(SPEC, needs=Needs(gpu="RTX 4090")), at=placed(because=why))
    assert found.warnings == (
        "no node fits the job, neither a running one nor one that could be started, so the job would wait for one",
    )
    assert dict(outlook_rows(found))["nodes"] == why


def test_a_card_that_is_here_under_another_name_is_named() -> None:
    node = UnfitNode(name="atlas", gpu=CARD, because="needs an RTX 4090 and atlas has NVIDIA GeForce RTX 4090")
    found = document(replace(SPEC, needs=Needs(gpu="RTX 4090")), at=placed(unfit=(node,)))
    assert found.warnings == (f'no node has a GPU named RTX 4090; pass --gpu "{CARD}", which is its name here',)


def test_rows_name_nodes_by_their_card_and_price() -> None:
    busy = replace(NODE, name="borealis", busy=True)
    free = replace(NODE, name="cirrus", gpu="", gpu_memory_gb=0, price_usd_per_hour=0)
    unpriced = replace(NODE, name="dune", gpu="NVIDIA A10", price_usd_per_hour=None)
    said = rows(at=placed(NODE, busy, free, unpriced, ahead=1, budget_left_usd=3.5))
    assert said["nodes"] == (
        "atlas, borealis (NVIDIA GeForce RTX 4090, 24 GB, $0.50/h); cirrus (CPU, free); "
        "dune (NVIDIA A10, 24 GB, no price is set); 1 busy"
    )
    assert (said["queue"], said["budget"]) == ("1 job runs first", "the project has $3.50 left")
    costs = [
        text for name, text in outlook_rows(document(at=placed(NODE, free, unpriced))) if "rice" in text or "$" in text
    ]
    assert any(text.startswith("$") and text.endswith("at $0.5 an hour") for text in costs)
    assert "not known on an A10: no price is set (`gangline docs money`)" in costs


def test_a_gated_base_that_the_server_has_no_copy_of_is_refused_before_it_is_sent() -> None:
    gated = replace(SDXL, gated=True, opens=True)
    (warning,) = document(base=gated, at=placed(NODE)).warnings
    assert warning == (
        "o/m is gated on the hub, and nodes have no hub token: let the server copy it once with `gangline bases add o/m`"
    )
    assert document(base=gated, at=placed(NODE, copies={"base": "ready"})).warnings == ()
    assert (
        "the server is still copying it"
        in document(base=gated, at=placed(NODE, copies={"base": "1 of 2 GB are copied"})).warnings[0]
    )
    assert why_closed(document(base=gated).base, asked=False) == ""  # who did not ask does not know
