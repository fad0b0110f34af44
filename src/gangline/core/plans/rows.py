"""A plan in words: a row for each thing to know, made of nothing but the document that `-o json` prints."""

from collections.abc import Sequence

from gangline.core.jobs.placement import FittingNode
from gangline.core.models.families import FAMILIES
from gangline.core.plans.document import BaseFacts, PlanDocument
from gangline.core.plans.outlook import CPU, CardEstimate
from gangline.core.words import counted, one, size_words, usd_words

NAMED_MAX = 3
CLASSES_MAX = 3
PlanRow = tuple[str, str]
"""A label and a text; a row without a label belongs to the one before it."""


def plan_rows(plan: PlanDocument, work: Sequence[PlanRow]) -> list[PlanRow]:
    """Return what the job starts from, the `work` that it will do, where and for how much."""
    return [*base_rows(plan), *work, *outlook_rows(plan)]


def base_rows(plan: PlanDocument) -> list[PlanRow]:
    rows = [("base", _base(plan.base))]
    if plan.base.gated:
        rows.append(("access", _gate(plan.base)))
    if plan.vae:
        rows.append(("VAE", _base(plan.vae)))
        rows += [("VAE access", _gate(plan.vae))] if plan.vae.gated else []
    return rows


def outlook_rows(plan: PlanDocument) -> list[PlanRow]:
    """Return where the job could run, how long it takes there and what that costs."""
    rows = [("nodes", _nodes(plan))]
    if plan.rentable:
        rows.append(("could start", _rentable(plan)))
    if plan.ahead:
        rows.append(("queue", f"{counted(plan.ahead, 'job')} {'runs' if plan.ahead == 1 else 'run'} first"))
    if memory := _memory(plan.estimates):
        rows.append(("GPU memory", memory))
    rows += estimate_rows(plan.estimates)
    if plan.budget_left_usd is not None:
        rows.append(("budget", f"the project has {usd_words(plan.budget_left_usd * 1e6)} left"))
    return rows


def estimate_rows(estimates: Sequence[CardEstimate]) -> list[PlanRow]:
    """Return how long it takes and what it costs, on each of the first classes of cards."""
    rows = [("time" if not number else "", text) for number, text in enumerate(_times(estimates[:CLASSES_MAX]))]
    return rows + [("cost" if not number else "", _cost(each)) for number, each in enumerate(_priced(estimates))]


def _base(base: BaseFacts) -> str:
    if base.unknown:
        return f"{base.name} (it could not be looked up: {base.unknown})"
    family = FAMILIES[base.family].words if base.family else "unknown family"
    zero = " with zero terminal SNR" if base.zero_terminal_snr else ""
    parts = [
        f"{base.name} ({base.revision[:10]})" if base.revision else "",
        family if base.family or base.revision is None else "",
        size_words(base.bytes) if base.bytes else "",
        f"licence {base.licence}" if base.licence else "",
        f"predicts {base.prediction_type}{zero} ({base.because})" if base.prediction_type else "",
    ]
    return ", ".join(part for part in parts if part)


def _gate(base: BaseFacts) -> str:
    opens = (
        "your hub token has access"
        if base.opens
        else "you have no access: accept its terms on the hub and set HF_TOKEN"
    )
    copy = {"": "", "ready": "; the server has a copy for its nodes"}.get(
        base.copy, f"; the server is copying it: {base.copy}"
    )
    return f"gated on the hub; {opens}{copy}"


def _nodes(plan: PlanDocument) -> str:
    if plan.asked is not None:
        return f"unknown: {plan.asked}"
    if not plan.nodes:
        return plan.why_none
    groups = _grouped(plan.nodes)
    named = "; ".join(f"{_names(nodes)} ({_card(nodes[0])})" for nodes in groups[:CLASSES_MAX])
    more = sum(len(nodes) for nodes in groups[CLASSES_MAX:])
    busy = sum(node.busy for node in plan.nodes)
    state = f"; {'all' if busy == len(plan.nodes) else busy} busy" if busy else ""
    waits = f"; {plan.why_none}" if plan.why_none else ""
    return named + (f"; and {more} others" if more else "") + state + waits


def _grouped(nodes: Sequence[FittingNode]) -> list[list[FittingNode]]:
    groups: dict[tuple[str, float, float | None], list[FittingNode]] = {}
    for node in nodes:
        groups.setdefault((node.gpu, node.gpu_memory_gb, node.price_usd_per_hour), []).append(node)
    return list(groups.values())


def _names(nodes: Sequence[FittingNode]) -> str:
    named, more = [node.name for node in nodes[:NAMED_MAX]], len(nodes) - NAMED_MAX
    return ", ".join(named) + (f" and {more} more" if more > 0 else "")


def _card(node: FittingNode) -> str:
    memory = f", {node.gpu_memory_gb:g} GB" if node.gpu else ""
    return f"{node.gpu or CPU}{memory}, {_price(node.price_usd_per_hour)}"


def _price(usd_per_hour: float | None) -> str:
    if usd_per_hour is None:
        return "no price is set"
    return f"{usd_words(usd_per_hour * 1e6)}/h" if usd_per_hour else "free"


def _rentable(plan: PlanDocument) -> str:
    offers = sorted(plan.rentable, key=lambda offer: (offer.price_usd_per_hour is None, offer.price_usd_per_hour or 0))
    named = [f"{offer.gpu or CPU} in {offer.pool}, {_price(offer.price_usd_per_hour)}" for offer in offers]
    unique = list(dict.fromkeys(named))
    more = len(unique) - CLASSES_MAX
    return "; ".join(unique[:CLASSES_MAX]) + (f"; and {more} more" if more > 0 else "")


def _memory(estimates: Sequence[CardEstimate]) -> str:
    known = [(each, each.memory) for each in estimates if each.memory]
    if not known:
        return ""
    first = known[0][1]
    need = f"{first.low_gb:.3g} to {first.high_gb:.3g} GB"
    words = {"yes": "", "perhaps": ", which may be too little", "no": ", which is too little"}
    have = [
        f"{one(each.gpu)} has {each.gpu_memory_gb:g} GB{words[memory.fits]}"
        for each, memory in known[:CLASSES_MAX]
        if each.gpu and memory.fits
    ]
    return f"{need}; {'; '.join(dict.fromkeys(have))}" if have else need


def _times(estimates: Sequence[CardEstimate]) -> list[str]:
    """Return a line for each card. That others are computed, and how, is said once, at the end."""
    computed = [each.time.because[0] for each in estimates if each.time and each.time.how == "computed"]
    return [*map(_time, estimates), *computed[:1]]


def _time(each: CardEstimate) -> str:
    on = f" on {one(each.gpu)}" if each.gpu else ""
    if each.time is None:
        return f"not known{on}: {each.unknown}"
    how = each.time.because[0] if each.time.how == "measured" else "computed"
    return f"{time_span(each.time.low_s, each.time.high_s)}{on}: {how}"


def _priced(estimates: Sequence[CardEstimate]) -> list[CardEstimate]:
    """Return the estimates that have a node or an offer: no other has a price."""
    return [each for each in estimates[:CLASSES_MAX] if each.nodes or each.pool]


def _cost(each: CardEstimate) -> str:
    on = f" on {one(each.gpu)}" if each.gpu else ""
    if each.price_usd_per_hour is None:
        return f"not known{on}: no price is set (`gangline docs money`)"
    if each.price_usd_per_hour == 0:
        return f"free{on}"
    if each.usd is None:
        return f"not known{on}, at ${each.price_usd_per_hour:.3g} an hour"
    return f"{dollars(each.usd.low, each.usd.high)}{on}, at ${each.price_usd_per_hour:.3g} an hour"


def time_span(low_s: float, high_s: float) -> str:
    """Return a span of time in the unit that suits it.

    >>> time_span(20, 50), time_span(1380, 2460), time_span(5400, 9000), time_span(10000, 10001)
    ('20 to 50 s', '23 to 41 min', '1.5 to 2.5 h', '2.8 h')
    """
    unit, name = (1, "s") if high_s < 90 else (60, "min") if high_s < 2 * 3600 else (3600, "h")
    low, high = (f"{seconds / unit:.0f}" if unit < 3600 else f"{seconds / unit:.1f}" for seconds in (low_s, high_s))
    return f"{low} {name}" if low == high else f"{low} to {high} {name}"


def dollars(low: float, high: float) -> str:
    """Return a span of money.

    >>> dollars(0.0512, 0.09), dollars(0.001, 0.02), dollars(3, 3)
    ('$0.05 to $0.09', '$0.0010 to $0.02', '$3.00')
    """
    low_words, high_words = usd_words(low * 1e6), usd_words(high * 1e6)
    return low_words if low_words == high_words else f"{low_words} to {high_words}"
