"""`gangline pools`: where nodes are rented, and on which terms."""

import json
from typing import Annotated, Any

import typer
from rich.table import Table

from gangline.cli.admin.node_range import NODES_OF_POOL_MAX, parse_node_range
from gangline.cli.client import make_client
from gangline.cli.lines import TableColumn, print_one_line_each
from gangline.cli.output import (
    Output,
    OutputOption,
    ServerOption,
    TokenOption,
    format_time,
    out,
    print_json,
    say,
    table,
)
from gangline.core.errors import BadInput
from gangline.core.fleet.pools import OfferView, PoolView

COLUMNS = (
    TableColumn(header="pool", shrinks_to=12),
    TableColumn(header="driver", goes=3),
    TableColumn(header="state"),
    TableColumn(header=">nodes"),
    TableColumn(header=">offers", goes=2),
    TableColumn(header="offered from", goes=1),
    TableColumn(header="why", shrinks_to=12, goes=4),
)
PoolArgument = Annotated[
    str, typer.Argument(help="Name the pool, as `gangline pools ls` shows it.", show_default=False)
]
PoolNodesOption = Annotated[
    str | None,
    typer.Option(
        "--nodes",
        metavar="N|MIN..MAX",
        help="Rent N nodes, or MIN to MAX of them depending on the work (default for a new pool: 0..1).",
        show_default=False,
    ),
]
OfferOption = Annotated[
    list[str] | None,
    typer.Option(
        "--offer",
        help="Rent only this offer, or those that match this pattern, such as 'rtx4090*'; repeat it for more (default: all).",
        show_default=False,
    ),
]
PriceOption = Annotated[
    float | None,
    typer.Option(
        "--max-usd-per-hour", min=0, help="Rent nothing that costs more than this an hour (default: any price)."
    ),
]
PoolTrustOption = Annotated[
    int | None,
    typer.Option(
        "--trust", min=0, max=9, help="Give the pool's nodes this trust tier (default: what the driver says, else 0)."
    ),
]
SecretOption = Annotated[
    str | None,
    typer.Option(
        "--secret",
        help="Name the provider's key: the server finds it in GANGLINE_POOL_NAME, or in the file NAME of its folder of secrets.",
        show_default=False,
    ),
]
DriverSettingOption = Annotated[
    list[str] | None,
    typer.Option(
        "--setting",
        metavar="NAME=VALUE",
        help="Set a setting of the driver; repeat it for more, and for further values of a list. `gangline pools drivers` lists "
        "them.",
        show_default=False,
    ),
]
app = typer.Typer(no_args_is_help=True)


@app.command("add")
def add_pool_command(
    name: Annotated[
        str,
        typer.Argument(help="Name the pool: lower-case letters, digits and hyphens.", show_default=False),
    ],
    driver: Annotated[
        str,
        typer.Option(
            "--driver", help="Rent with this driver; `gangline pools drivers` lists them.", show_default=False
        ),
    ],
    nodes: PoolNodesOption = None,
    offers: OfferOption = None,
    price: PriceOption = None,
    trust: PoolTrustOption = None,
    secret: SecretOption = None,
    settings: DriverSettingOption = None,
    provider: Annotated[
        str | None,
        typer.Option(
            "--provider",
            help="Use this section [providers.NAME] of the servers' settings (default: the one of the driver's name).",
            show_default=False,
        ),
    ] = None,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Make a pool for all servers of this database. Its provider is asked for its offers first, so that wrong settings are said now."""
    wish = _wish(nodes, offers, price, trust, secret, settings) | ({"provider": provider} if provider else {})
    _show(make_client(server, token).pools.add(name, driver, wish), output)


@app.command("ls")
def list_pools_command(
    server: ServerOption = None, token: TokenOption = None, output: OutputOption = Output.text
) -> None:
    """List the pools, with their nodes and the cheapest offer of each."""
    found = list(make_client(server, token).pools.list())
    if output is Output.json:
        print_json(found)
        return
    rows = [
        [
            pool.name,
            pool.driver,
            pool.state,
            f"{pool.nodes} of {_range(pool)}",
            str(sum(not offer.excluded for offer in pool.offered)),
            _cheapest(pool),
            pool.because,
        ]
        for pool in found
    ]
    print_one_line_each(COLUMNS, rows)


@app.command("show")
def show_pool_command(
    name: PoolArgument, server: ServerOption = None, token: TokenOption = None, output: OutputOption = Output.text
) -> None:
    """Show a pool's terms, and each offer of its provider, with the reason why it is not rented."""
    _show(make_client(server, token).pools.get(name), output)


@app.command("set")
def set_pool_command(
    name: PoolArgument,
    nodes: PoolNodesOption = None,
    offers: OfferOption = None,
    price: PriceOption = None,
    any_price: Annotated[bool, typer.Option("--any-price", help="Rent at any price again.")] = False,
    trust: PoolTrustOption = None,
    secret: SecretOption = None,
    settings: DriverSettingOption = None,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Change a pool. What is not named stays; --offer and --setting replace all that were set before. Its nodes stay."""
    changes = _wish(nodes, offers, price, trust, secret, settings) | ({"any_price": True} if any_price else {})
    if not changes:
        raise BadInput("nothing is to be changed", hint="name what to change, for example --nodes 0..4")
    _show(make_client(server, token).pools.set(name, changes), output)


@app.command("pause")
def pause_pool_command(
    name: PoolArgument, server: ServerOption = None, token: TokenOption = None, output: OutputOption = Output.text
) -> None:
    """Rent no further node for a pool. Those that are here work until they are idle, and are given back."""
    _show(make_client(server, token).pools.pause(name), output)


@app.command("resume")
def resume_pool_command(
    name: PoolArgument, server: ServerOption = None, token: TokenOption = None, output: OutputOption = Output.text
) -> None:
    """Rent nodes for a paused pool again."""
    _show(make_client(server, token).pools.resume(name), output)


@app.command("rm")
def remove_pool_command(
    name: PoolArgument,
    stop: Annotated[
        bool, typer.Option("--stop", help="Let its nodes save and hand their jobs back now instead of finishing them.")
    ] = False,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Remove a pool. Its nodes finish what they have and are given back; when the last is gone, so is the pool."""
    found = make_client(server, token).pools.remove(name, stop=stop)
    if output is Output.json:
        print_json(found)
    elif found.nodes:
        say(f"{name} gets no more work; it is gone once its nodes ({found.nodes}) are given back")
    else:
        say(f"{name} has no nodes; it is gone once its provider has shown that nothing of it is left")


@app.command("sync")
def sync_pool_command(
    name: PoolArgument, server: ServerOption = None, token: TokenOption = None, output: OutputOption = Output.text
) -> None:
    """Let the server look at a pool's provider now instead of at its next tick."""
    found = make_client(server, token).pools.sync(name)
    if output is Output.json:
        print_json(found)
    else:
        say(f"the server looks at {name} now; `gangline pools show {name}` shows what it finds")


@app.command("drivers")
def list_drivers_command(
    server: ServerOption = None, token: TokenOption = None, output: OutputOption = Output.text
) -> None:
    """List the drivers of this server, the settings of their pools, and what the server's own settings say of a provider."""
    found = list(make_client(server, token).pools.drivers())
    if output is Output.json:
        print_json(found)
        return
    rows = table("driver", "setting", "meaning")
    for driver in found:
        rows.add_row(driver.name, "--secret" if driver.needs_secret else "", driver.rents)
        for setting in driver.settings:
            rows.add_row("", setting.name + (" (required)" if setting.required else ""), setting.meaning)
        if driver.provider:
            rows.add_row("", "[providers.NAME]", "in the server's own gangline.toml, for --provider NAME:")
        for setting in driver.provider:
            rows.add_row("", "  " + setting.name + (" (required)" if setting.required else ""), setting.meaning)
    out.print(rows)


def _wish(
    nodes: str | None,
    offers: list[str] | None,
    price: float | None,
    trust: int | None,
    secret: str | None,
    settings: list[str] | None,
) -> dict[str, Any]:
    """Return what was said, as the API takes it."""
    said = {"offers": offers, "price_max_usd_per_hour": price, "trust": trust, "secret": secret}
    found: dict[str, Any] = {name: value for name, value in said.items() if value not in (None, [])}
    if nodes:
        least, most = parse_node_range(nodes, NODES_OF_POOL_MAX, "one pool")
        found |= {"nodes_min": least, "nodes_max": most}
    if settings:
        found["settings"] = _settings(settings)
    return found


def _settings(texts: list[str]) -> dict[str, Any]:
    """Read NAME=VALUE: numbers and truth values as such, else texts; a name that is repeated makes a list."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise BadInput(f"--setting {text} is not NAME=VALUE", hint="for example --setting region=eu")
        name, read = name.strip(), _value(value)
        if name in found:
            found[name] = [*(found[name] if isinstance(found[name], list) else [found[name]]), read]
        else:
            found[name] = read
    return found


def _value(text: str) -> Any:
    try:
        read = json.loads(text)
    except ValueError:
        return text
    return read if isinstance(read, bool | int | float | list) else text


def _show(pool: PoolView, output: Output) -> None:
    if output is Output.json:
        print_json(pool)
        return
    ceiling = pool.price_max_usd_per_hour
    facts = {
        "driver": f"{pool.driver}, provider {pool.provider}" if pool.provider else pool.driver,
        "state": pool.state,
        "why": pool.because,
        "nodes": f"{pool.nodes} of {_range(pool)}",
        "offers": ", ".join(pool.offers) or "all",
        "price": "any" if ceiling is None else f"at most ${ceiling:g} an hour",
        "trust": "" if pool.trust is None else str(pool.trust),
        "secret": pool.secret,
        "settings": ", ".join(f"{name} = {value}" for name, value in pool.settings.items()),
        "asked last": format_time(pool.seen_ms) if pool.seen_ms else "",
        "prices": _age_of_prices(pool),
        "refused last": f"{format_time(pool.refused_ms)} {pool.refused}" if pool.refused_ms else "",
    }
    rows = Table.grid(padding=(0, 2))
    for name, value in facts.items():
        if value:
            rows.add_row(name, value)
    out.print(f"pool {pool.name}")
    out.print(rows)
    if pool.offered:
        out.print(_offers(pool.offered))


def _age_of_prices(pool: PoolView) -> str:
    """Return how old the prices of a provider with a catalog may be; empty where they are the prices now."""
    oldest_ms = min((each.priced_ms for each in pool.offered if each.priced_ms is not None), default=None)
    return "" if oldest_ms is None else f"of a catalog that may be as old as {format_time(oldest_ms)}"


def _offers(offers: tuple[OfferView, ...]) -> Table:
    rows = table("offer", "gpu", ">GB", ">slots", ">$/hour", "why it is not rented")
    for each in sorted(offers, key=lambda offer: (bool(offer.excluded), offer.price_usd_per_hour, offer.id)):
        price = f"{each.price_usd_per_hour:.4f}" if each.price_known else "unknown"
        rows.add_row(each.id, each.gpu or "–", f"{each.gpu_memory_gb:g}", str(each.slots), price, each.excluded)
    return rows


def _range(pool: PoolView) -> str:
    same = pool.nodes_min == pool.nodes_max
    return str(pool.nodes_max) if same else f"{pool.nodes_min}..{pool.nodes_max}"


def _cheapest(pool: PoolView) -> str:
    priced = [offer for offer in pool.offered if not offer.excluded and offer.price_known]
    best = min(priced, key=lambda offer: offer.price_usd_per_hour, default=None)
    return f"${best.price_usd_per_hour:.4f} ({best.id})" if best else "–"
