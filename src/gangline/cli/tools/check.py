"""`gangline pools check`: one node of a pool, from the request to the bill, in the user's own account."""

import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from gangline.cli.admin.instances import app
from gangline.cli.admin.pools import PoolArgument
from gangline.cli.bundled.place import here_or_bundled
from gangline.cli.client import make_client
from gangline.cli.jobs.train import upload_inputs
from gangline.cli.output import (
    EXIT_INTERRUPTED,
    Output,
    OutputOption,
    ServerOption,
    TokenOption,
    as_typed,
    duration,
    out,
    print_json,
    say,
    table,
    usd,
)
from gangline.cli.tools.pool_check import PoolCheck
from gangline.core.errors import GanglineError, Unreachable
from gangline.core.fleet.check import (
    LOOKS_MIN,
    CheckLimits,
    CheckSight,
    CheckStage,
    check_that_it_rents,
    choose_offer,
    reached,
    why_failed,
)
from gangline.core.fleet.nodes import NodeBill, NodeView
from gangline.core.fleet.pools import OfferView, PoolView

EXIT_NOT_PROVED = 1
ANSWERS_S = 90.0
"""A provider's first answer may take so long."""
SETTLES_S = 30.0
TRIES = 3
PHOTOS, BASE = "examples/subject", "assets/tiny-sdxl"
SETTINGS: dict[str, Any] = {
    "prompt": "sks cat face, fluent emoji",
    "steps": 40,
    "resolution": 64,
    "batch_size": 2,
    "learning_rate": 1e-3,
    "rank": 4,
    "checkpoint_every_steps": 10,
    "sample_result": False,
}


def check_pool_command(
    name: PoolArgument,
    usd_max: Annotated[
        float, typer.Option("--max-usd", min=0, help="Give everything back before the node has cost more than this.")
    ] = 1.0,
    offer: Annotated[
        str, typer.Option("--offer", help="Rent this offer (default: the cheapest that the pool may rent).")
    ] = "",
    minutes: Annotated[
        float,
        typer.Option(
            "--minutes", min=0.1, max=1440, help="Give up if the job has not succeeded after this many minutes."
        ),
    ] = 30.0,
    any_price: Annotated[
        bool, typer.Option("--any-price", help="Rent also what has no known price; then --minutes is the only limit.")
    ] = False,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Rent one node of a pool, train a tiny job on it, give it back, and show that nothing is left and what it cost.

    This spends real money, up to --max-usd. The exit code is 0 if the pool works, 1 if it does not or if something may be left, 130 after
    Ctrl-C, which gives everything back.
    """
    limits = CheckLimits(usd_max=usd_max, minutes_max=minutes, price_known=not any_price)
    check = PoolCheck(make_client(server, token), name, limits)
    run_check(check, offer)
    _show(check, output)
    if check.because or check.left:
        raise typer.Exit(EXIT_NOT_PROVED)


def run_check(check: PoolCheck, offer: str) -> None:
    """Do all of it. Raise `BadInput`, before anything is rented, if it would prove nothing or cost too much, `typer.Exit` after Ctrl-C."""
    try:
        _begin(check, offer)
        try:
            _watch(check)
        except GanglineError as error:  # what was rented is given back all the same
            check.because = error.message
            check.say_now(f"failed: {error.message}")
        _give_back(check)
        _settle(check)
    except KeyboardInterrupt:
        _give_up(check)
        raise typer.Exit(EXIT_INTERRUPTED) from None


def _begin(check: PoolCheck, offer: str) -> None:
    """Submit the job, once everything is checked that can be checked for nothing."""
    pool = check.client.pools.get(check.pool)
    check_that_it_rents(pool, _nodes(check))
    pool = _asked_now(check, pool)
    here = _nodes(check)
    chosen = choose_offer(pool, here, offer, check.limits)
    check.offers, check.here_before = frozenset(each.id for each in chosen), frozenset(node.id for node in here)
    needs = {"pool": check.pool} | ({"gpu": chosen[0].gpu} if offer and chosen[0].gpu else {})
    photos, base = Path(here_or_bundled(PHOTOS)), here_or_bundled(BASE)
    spec = upload_inputs(check.client, photos, base, [], SETTINGS | {"needs": needs})
    say(f"checking {check.pool} with {_in_words(chosen)}; Ctrl-C gives everything back")
    summary = check.client.jobs.submit(spec, name=f"check of {check.pool}").summary
    check.job, check.submitted_ms, check.began_s = summary.id, summary.submitted_ms, time.monotonic()


def _nodes(check: PoolCheck) -> list[NodeView]:
    return [node for node in check.client.nodes.list() if node.pool == check.pool]


def _asked_now(check: PoolCheck, pool: PoolView) -> PoolView:
    """Return the pool as its provider shows it now, or as it is if the provider does not answer."""
    before_ms = pool.seen_ms or 0
    check.client.pools.sync(check.pool)
    until_s = time.monotonic() + ANSWERS_S
    while (pool.seen_ms or 0) <= before_ms and "did not answer" not in pool.because and time.monotonic() < until_s:
        check.wait()
        pool = check.client.pools.get(check.pool)
    return pool


def _in_words(offers: list[OfferView]) -> str:
    named = ", ".join(each.id for each in offers[:3])
    return named if len(offers) <= 3 else f"the cheapest of {len(offers)} offers ({named}, …)"


def _watch(check: PoolCheck) -> None:
    """Follow the job until it has succeeded, or the check has failed."""
    said: str | None = None
    while not check.because and "finished" not in check.stages:
        sight = _look(check)
        for stage in reached(sight):
            check.tell(stage, _facts_of(stage, sight))
        if sight.node and sight.node.joined_ms is None and sight.node.because != said:
            if said is not None:  # the first reason is why it was rented
                check.say_now(f"{sight.node.name}: {sight.node.because}")
            said = sight.node.because
        check.because = why_failed(sight, check.limits, check.offers)
        if not check.because and "finished" not in check.stages:
            check.wait()
    if check.because:
        check.say_now(f"failed: {check.because}")
        _show_logs(check)


def _facts_of(stage: CheckStage, sight: CheckSight) -> str:
    node = sight.node
    if node is None:
        return ""
    price = f"${node.price_usd_per_hour:g} an hour" if node.price_known else "its price is not known"
    return {
        "rented": f"{node.name}, {node.offer}, {price}",
        "listed": node.instance or "",
        "joined": node.gpu or "no GPU",
        "saved": f"step {sight.job.committed_step}",
    }.get(stage, "")


def _look(check: PoolCheck) -> CheckSight:
    """Look again if the server does not answer at once."""
    for _ in range(TRIES - 1):
        with suppress(Unreachable):
            return check.look()
        check.wait()
    return check.look()


def _show_logs(check: PoolCheck) -> None:
    """Say what the nodes printed that never joined, if their provider keeps that."""
    for node in check.rented.values():
        if node.joined_ms is None and node.instance:
            with suppress(GanglineError):
                say(f"{node.name} printed last:")
                say(check.client.nodes.logs(node.id))


def _give_back(check: PoolCheck) -> None:
    """Give everything back, and ask the provider until it lists nothing twice in a row, with a look of the server in between."""
    clean, seen_ms, trouble, until_s = 0, 0, "", time.monotonic() + check.gone_s
    while clean < LOOKS_MIN and time.monotonic() < until_s:
        try:
            here = check.drain()
            left = check.list_left()
            now_ms = check.client.pools.get(check.pool).seen_ms or 0
            if here or left:
                clean = 0
            elif not clean or now_ms > seen_ms:
                clean, seen_ms = clean + 1, now_ms
            check.client.pools.sync(check.pool)
            trouble = ""
        except GanglineError as error:  # who does not answer shows nothing
            clean, trouble = 0, f": {error.message}"
        if clean < LOOKS_MIN:
            check.wait()
    if clean < LOOKS_MIN:
        check.because = (
            check.because or f"it could not be shown in {duration(check.gone_s)} that nothing is left{trouble}"
        )
    else:
        check.tell("gone")


def _settle(check: PoolCheck) -> None:
    """Read the bills, once nothing more comes; at once if something may be left, as that costs until it goes."""
    until_s = time.monotonic() + (SETTLES_S if "gone" in check.stages else 0.0)
    while True:
        with suppress(GanglineError):
            check.bills = [check.client.nodes.bill(rental) for rental in check.were_rented()]
            if all(bill.settled for bill in check.bills):
                return
        if time.monotonic() >= until_s:
            return
        check.wait()


def _give_up(check: PoolCheck) -> None:
    """After Ctrl-C: give everything back, and say what may be left. A second Ctrl-C ends it at once."""
    if not check.job:
        say("nothing was rented")
        return
    say("giving everything back")
    try:
        check.drain()
        which = ", ".join(f"{each.id} (of {each.rental})" for each in check.list_left())
        say(f"the provider still lists {which}" if which else "the provider lists nothing of it")
    except GanglineError as error:
        say(f"the server does not answer ({error.message}); nodes without work are given back when it is back")
    say(
        f"the job {check.job} is canceled; `{as_typed('gangline', 'pools', 'instances', check.pool)}` shows what is left"
    )


def _show(check: PoolCheck, output: Output) -> None:
    if output is Output.json:
        print_json(
            {
                "pool": check.pool,
                "passed": not check.because and not check.left,
                "because": check.because,
                "job": check.job,
                "stages": [{"stage": stage, "after_s": round(after_s, 1)} for stage, after_s in check.stages.items()],
                "left": [asdict(each) for each in check.left],
                "bills": [asdict(bill) for bill in check.bills],
            }
        )
        return
    for bill in check.bills:
        _show_bill(check.rented[bill.rental].name, bill)
    for each in check.left:
        say(f"may still be billed: instance {each.id} of {each.rental}")
    if check.left or "gone" not in check.stages:
        say(f"look again with `{as_typed('gangline', 'pools', 'instances', check.pool)}`")
    out.print(f"{check.pool}: {check.because}" if check.because else f"{check.pool} works")


def _show_bill(name: str, bill: NodeBill) -> None:
    rows = table(f"bill of {name}", ">seconds", ">cost")
    for each in bill.times:
        rows.add_row(each.cause, f"{each.seconds:.1f}", usd(each.cost_usd) if bill.price_known else "unknown")
    rows.add_row("total", "", usd(bill.cost_usd) if bill.price_known else "unknown")
    for instance in bill.billed:
        seconds = "" if instance.to_ms is None else f"{(instance.to_ms - instance.from_ms) / 1000:.1f}"
        rows.add_row(f"the provider bills {instance.instance}", seconds, "")
    out.print(rows)
    if not bill.settled:
        say(f"the bill of {name} is not final yet")


app.command("check")(check_pool_command)
