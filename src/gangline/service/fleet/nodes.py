"""Let nodes join and leave, and give up those that are silent."""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from gangline.core.canonical import canonical_json, digest
from gangline.core.display import as_words
from gangline.core.errors import Denied
from gangline.core.job import WORKING, NodeState
from gangline.core.runs.proof import BURST, ISOLATION, kinds_text, limits, offered_kinds, unfit
from gangline.core.server.settings import PoolSettings
from gangline.ports.server import Join, Joined, Notice
from gangline.ports.store import Row, Write, guard, write
from gangline.service.access.access import adding_node
from gangline.service.attempts import TRIES_MAX, end_attempts_of_node, load_node
from gangline.service.deployment import Deployment
from gangline.service.fleet.admission import admit, terms_of
from gangline.service.fleet.identity import identified, known_by_cards
from gangline.service.money import bill
from gangline.service.outage import back_since_ms

log = logging.getLogger("gangline.nodes")


def join_pool(
    deployment: Deployment,
    request: Join,
    pool: str,
    now_ms: int,
    *,
    join_token: str | None = None,
    rental: str | None = None,
) -> Joined:
    """Let a node join a pool. A worker that joins with the token of a `rental` becomes its node; any other becomes a new node, whose price
    and trust are its join token's (an id), else those of the pool's settings.

    A node that failed its probe joins, but gets no job. Raise `Denied` for a worker whose rental has ended, has the worker of another
    machine, is elsewhere by the provider's list or does not prove where it is, and `TooMany` if the join token admits no more now.
    """
    rented = _node_of_rental(deployment, request, rental) if rental or request.node else None
    proved = identified(deployment, request, pool, rented) if rented else request
    # A machine that its provider names is that one, whatever its cards say.
    request = known_by_cards(deployment, request) if proved is request else proved
    request = replace(request, problems=_as_words(request.problems), measured=_as_words(request.measured))
    deployment.store.apply(
        write("know_machine", id=request.machine, pool=pool, now=now_ms),
        *(write("know_card", card=card, machine=request.machine, now=now_ms) for card in request.cards),
    )
    state, because = _welcome(deployment, request, now_ms)
    token = deployment.new_secret("node")
    terms = {} if rented else terms_of(deployment, pool, join_token, now_ms)
    facts = {
        "machine": request.machine,
        "state": state,
        "because": because,
        "gpu": request.gpu,
        "gpu_memory_gb": request.gpu_memory_gb,
        "numerics": digest({"gpu": request.gpu, "capabilities": request.capabilities})[:16],
        "slots": request.slots,
        "capabilities": canonical_json(request.capabilities | request.measured),
        "kinds": _offered(deployment, request, pool, rented["trust"] if rented else terms["trust"]),
        "problems": canonical_json(request.problems),
        "proof_failed": int(bool(unfit(request.kinds, request.problems))),
        "now": now_ms,
    }
    node = rented["id"] if rented else deployment.new_id("node")
    admission = [adding_node(token, node, now_ms), *(write("add_base", node=node, base=base) for base in request.bases)]
    if BURST in request.problems:
        # it may pass the next time: one failure proves nothing
        admission.append(write("put_on_trial", id=request.machine))
    if rented:
        admitted = deployment.store.apply(guard("node_joined", id=node, place=request.place, **facts), *admission)
        if not admitted and not _joined_before(deployment, node, request.machine):
            raise _not_admitted(deployment, node, request.node or node)
        if not admitted:
            # The same worker joins again and needs a new token, as the store has only the hash of the first.
            deployment.store.apply(*admission)
    else:
        added = write("add_node", id=node, name=request.name, pool=pool, **terms, **facts)
        admit(deployment, join_token, [added, *admission], now_ms)
    return Joined(
        node=node,
        token=token,
        heartbeat_interval_s=deployment.policy.heartbeat_interval_s,
        claim_interval_s=deployment.policy.claim_interval_s,
        save_interval_s=deployment.policy.save_interval_s,
    )


def _offered(deployment: Deployment, request: Join, pool: str, trust: int) -> str:
    """Return the kinds of jobs that a node may have, as a text."""
    bare = deployment.settings_of_pools.get(pool, PoolSettings()).lets_commands_be_bare(trust)
    return kinds_text(offered_kinds(request.kinds, request.measured.get(ISOLATION, ""), bare_commands=bare))


def _as_words(said: Mapping[str, str]) -> dict[str, str]:
    return {name: as_words(sentence) for name, sentence in said.items()}


def _node_of_rental(deployment: Deployment, request: Join, rental: str | None) -> Row:
    """Return the node that a rented machine becomes. Raise `Denied` if it is none of this rental."""
    if rental is None or request.node not in ("", rental):
        raise Denied(
            f"this join token does not belong to the node {request.node}",
            hint="a rented node joins with its own token; a machine of yours joins without GANGLINE_NODE",
        )
    rows = deployment.store.load("node_of_rental", rental=rental)
    if not rows:
        raise Denied(f"this server no longer rents the node {rental}", hint="its provider will be asked to stop it")
    if rows[0]["leaves"] and request.place in ("", rows[0]["leaves"]):
        raise Denied(
            f"the provider moves {rental} away from this machine: {rows[0]['because']}",
            hint="it joins from the next one",
        )
    if rows[0]["place"] not in ("", request.place):
        raise _is_elsewhere(rental)
    return rows[0]


def _not_admitted(deployment: Deployment, node: str, called: str) -> Denied:
    state = deployment.store.load("node", id=node)[0]["state"]
    if state in ("starting", "gone"):
        return _is_elsewhere(called)
    return Denied(
        f"the node {called} is already at work on another machine",
        hint="stop one of the two; the server gives that node up when it falls silent, or when its provider shows that it has moved",
    )


def _is_elsewhere(called: str) -> Denied:
    return Denied(
        f"the provider does not show {called} on this machine",
        hint="if it has only just moved here, its provider's list will show that soon",
    )


def _joined_before(deployment: Deployment, node: str, machine: str) -> bool:
    """Return whether this machine joined as this node before: the answer was lost, or the worker restarted."""
    rows = deployment.store.load("node", id=node)
    return bool(rows) and rows[0]["machine"] == machine and rows[0]["state"] != "gone"


def _welcome(deployment: Deployment, request: Join, now_ms: int) -> tuple[NodeState, str]:
    known, failed = deployment.store.load("machine", id=request.machine)[0], unfit(request.kinds, request.problems)
    if failed:
        return "quarantined", failed
    if known["quarantined_until_ms"] > now_ms:
        return "quarantined", known["because"]
    if known["on_trial"]:
        served = known["quarantined_until_ms"] > (known["quarantined_ms"] or 0)
        unserved = known["because"] or "on trial after a failed probe"
        return "on_trial", "on trial after a quarantine" if served else unserved
    return "ready", limits(request.problems)


def leave_pool(deployment: Deployment, node: str, now_ms: int) -> None:
    """Let a node leave: the jobs that it still has return to the queue."""
    end_attempts_of_node(deployment, node, now_ms, told=True)
    gone(deployment, node, "left", now_ms)


def heed_notice(deployment: Deployment, node: str, notice: Notice, now_ms: int) -> None:
    """Drain a node that its provider is about to take away: it gets no more jobs, and another is rented for those that it hands back."""
    because = as_words(notice.because) or "its provider gave notice"
    deployment.store.apply(write("drain_node", id=node, because=because), write("node_seen", id=node, now=now_ms))
    log.info("node %s drains: %s", node, because)


def give_up_silent(deployment: Deployment, now_ms: int) -> None:
    """Give up nodes that were silent for `node_silent_s`, unless the service itself was down in that time."""
    silent_ms = round(deployment.policy.node_silent_s * 1000)
    rows = deployment.store.load("silent_nodes", before=now_ms - silent_ms)
    if not rows or now_ms - back_since_ms(deployment, now_ms) < silent_ms:
        return
    for row in rows:
        gone(deployment, row["id"], f"no request for {deployment.policy.node_silent_s:.0f} s", now_ms, lost=True)


def gone(
    deployment: Deployment,
    node_id: str,
    because: str,
    now_ms: int,
    *,
    ended_ms: int | None = None,
    lost: bool = False,
    then: Sequence[Write] = (),
) -> None:
    """Give a node up for good: bill its idle time up to now, or to when its instance ended (`ended_ms`), and interrupt its attempts.

    It counts as `lost` to its offer if it was still wanted. The writes `then` are a part of the transaction that makes it gone.
    """
    until_ms = min(now_ms, ended_ms or now_ms)
    for _ in range(TRIES_MAX):
        end_attempts_of_node(deployment, node_id, now_ms, told=False)
        node = load_node(deployment, node_id)
        if node.state == "gone":
            return
        metered = bill.meter(node, max(until_ms, node.meter_ms), heard_ms=0)
        if node.state == "starting":  # its instance's bill has this time
            metered = metered[:1]
        unwanted = node.state in ("draining", "quarantined")
        why = node.because if unwanted else because
        counted = [write("count_lost", id=node_id)] if lost and not unwanted else []
        if deployment.store.apply(*metered, guard("node_gone", id=node_id, because=why), *counted, *then):
            log.info("node %s is gone: %s", node_id, why)
            return
    raise AssertionError(f"{node_id} changed {TRIES_MAX} times while it was given up")


def saying(
    deployment: Deployment,
    machine: str,
    because: str,
    state: NodeState | None = None,
    *,
    among: Collection[str] = WORKING,
) -> list[Write]:
    """Return the writes that give the nodes of a machine, of those in the states `among`, this reason, and a new state if there is one."""
    return [
        write("set_node_state", id=node["id"], before=node["state"], state=state or node["state"], because=because)
        for node in deployment.store.load("nodes_of_machine", machine=machine)
        if node["state"] in among
    ]
