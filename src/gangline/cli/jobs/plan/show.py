"""What every command that submits a training says before it sends anything."""

from collections.abc import Sequence

from gangline.cli.output import err, facts, say
from gangline.core.plans.document import PlanDocument
from gangline.core.plans.rows import PlanRow, plan_rows


def show_plan(plan: PlanDocument, work: Sequence[PlanRow], *, of: str = "") -> None:
    """Show what the job starts from, the `work` that it will do, where and for how much, then warnings, notes and
    tips. `of` says which of several jobs it is."""
    err.print(facts(*([("plan of", of)] if of else []), *plan_rows(plan, work)))
    for sentence in plan.notes:
        say(f"note: {sentence}")
    for sentence in plan.warnings:
        say(f"warning: {sentence}")
    for advice in plan.tips:
        say(f"tip: {advice.setting}: {advice.message}; {advice.because}")
