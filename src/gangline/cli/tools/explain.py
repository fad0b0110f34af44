"""`gangline pools explain`: where a job's node would be rented, and why there."""

from gangline.cli.jobs.which import JobArgument, client_and_job
from gangline.cli.output import Output, OutputOption, ServerOption, TokenOption, out, print_json, say, table, usd
from gangline.cli.tools.check import app
from gangline.core.fleet.explained import JobOffer, JobOffers


@app.command("explain")
def explain_command(
    job: JobArgument, server: ServerOption = None, token: TokenOption = None, output: OutputOption = Output.text
) -> None:
    """Show the offers of all pools for a job, the one first on which a finished step is expected to cost least.

    `lost/h` is how often a node is interrupted; `paid` is the seconds that are paid per second of training, with cold starts and what
    interruptions repeat. A pace with ~ was not measured at such a job: it is taken from other jobs, else from the vendor's figures. If no
    such job was measured at all, the dollars of steps are relative, and only compare the offers.
    """
    client, job = client_and_job(server, token, job)
    found = client.jobs.offers(job)
    if output is Output.json:
        print_json(found)
        return
    _show(found)


def _show(found: JobOffers) -> None:
    if found.offers:
        rows = table("pool", "offer", ">$/h", ">s/step", ">lost/h", ">paid", ">$/1000 steps", ">job", "why not")
        for each in found.offers:
            rows.add_row(*_row(each))
        out.print(rows)
    else:
        say("no pool offers anything")
    for sentence in found.silent:
        say(sentence)


def _row(offer: JobOffer) -> list[str]:
    return [
        offer.pool,
        offer.offer,
        f"{offer.price_usd_per_hour:.4f}" if offer.price_known else "unknown",
        f"{'' if offer.measured else '~'}{offer.seconds_per_step:.3g}",
        f"{offer.interruptions_per_hour:.3f}",
        f"{offer.factor:.2f}×",
        f"{1000 * offer.usd_per_step:.4g}" if offer.price_known else "unknown",
        "" if offer.usd is None else f"{usd(offer.usd)} {offer.hours:.1f} h",
        offer.because,
    ]
