"""Which machine a rented node is on, by its provider's word."""

from dataclasses import replace

from gangline.core.errors import Denied, Unreachable
from gangline.ports.pool import WithIdentity
from gangline.ports.server import Join
from gangline.ports.store import Row
from gangline.service.deployment import Deployment


def known_by_cards(deployment: Deployment, request: Join) -> Join:
    """Return the request of a node with the machine in which its cards came before, if the machine that it names never did: a container
    has a new name each time, and a machine may come in another pool. Nobody proves this, as nobody proves the name."""
    if not request.cards or deployment.store.load("machine", id=request.machine):
        return request
    found = (row["machine"] for card in request.cards for row in deployment.store.load("machine_of_card", card=card))
    return replace(request, machine=next(found, request.machine))


def identified(deployment: Deployment, request: Join, pool: str, rented: Row) -> Join:
    """Return the request of a rented node with the provider's id of its machine, where its pool demands that nodes prove it.

    Raise `Denied` if it does not prove that it is where the provider's list shows the node, and `Unreachable` while that is not known. No
    provider is asked meanwhile.
    """
    found = deployment.pools.get(pool)
    if found is None:
        return request
    driver = found.driving.driver
    if driver is None:
        raise Unreachable(
            f"this server cannot ask the provider of the pool {pool} about its machines", hint="try again"
        )
    if not isinstance(driver, WithIdentity) or not driver.demands_identity:
        return request
    called = request.node or rented["id"]
    if not request.identity:
        raise Denied(
            f"a node of the pool {pool} proves which machine it is on, and {called} sent no token",
            hint="its worker fetches one from GANGLINE_IDENTITY_URL, which the node's start sets",
        )
    proved = found.driving.identify(request.identity)
    if not rented["place"] or not rented["shown_machine"]:
        raise Unreachable(f"the provider's list does not show yet on which machine {called} is", hint="try again")
    if proved.instance != rented["instance"]:
        raise Denied(f"the token of this machine is not of {called}", hint="it is of another instance of the provider")
    if proved.machine != rented["shown_machine"]:
        raise Denied(
            f"the provider shows {called} on another machine than the one that its token names",
            hint="if it has only just moved here, the provider's list will show that soon",
        )
    return replace(request, machine=proved.machine)
