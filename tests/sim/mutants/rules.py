"""Rules that checkers and probes hold, each as one edit that breaks it. Under which promise it falls stands first in its name."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from gangline.adapters.store.statements import statements
from gangline.core.jobs.failure import MEANING
from tests.sim.mutants.mutants import Mutant, edited, replaced_statement


def rule(name: str, where: str, old: str, new: str) -> Mutant:
    """`where` is module:function, below gangline, or the name of a statement."""
    return Mutant(name, partial(_edit, where, old, new))


def _edit(where: str, old: str, new: str) -> AbstractContextManager[None]:
    if ":" in where:
        module, function = where.split(":")
        return edited(f"gangline.{module}", function, old, new)
    sql = statements()[where]
    assert sql.count(old) == 1, f"{where} says {old!r} {sql.count(old)} times"
    return replaced_statement(where, sql.replace(old, new))


def meaning(name: str, kind: str, **changes: Any) -> Mutant:
    return Mutant(name, partial(_changed_meaning, kind, changes))


@contextmanager
def _changed_meaning(kind: str, changes: dict[str, Any]) -> Iterator[None]:
    before = MEANING[kind]
    MEANING[kind] = replace(before, **changes)
    try:
        yield
    finally:
        MEANING[kind] = before


RULES = [
    # Reports
    rule("reports: what jobs cost is no overhead", "overhead_of_nodes", "ledger.job = '' AND ", ""),
    rule("reports: what a node did before is of no report", "overhead_of_nodes", " AND ledger.from_ms >= :from_ms", ""),
    rule("reports: what a node does after is of no report", "overhead_of_nodes", " AND ledger.from_ms <= :to_ms", ""),
    rule("reports: what jobs cost is counted once", "overhead_of_all", "WHERE ledger.job = ''", ""),
    rule("reports: attempts from before share nothing", "work_of_nodes", "attempt.started_ms >= :from_ms AND ", ""),
    rule("reports: attempts from after share nothing", "work_of_nodes", " AND attempt.started_ms <= :to_ms", ""),
    # Notices
    rule("notices: a fact is added once", "fan_out", " AND event.fact > project.facts", ""),
    rule("notices: nobody receives what was before", "fan_out", " AND event.at_ms >= endpoint.active_ms", ""),
    rule("notices: a replay begins where it was asked to", "replay_facts", "event.fact > :after AND ", ""),
    rule("notices: a replay begins when it was asked to", "replay_facts", " AND event.at_ms >= :since_ms", ""),
    rule(
        "notices: a replay of crossings begins where it was asked to", "replay_facts", "crossing.fact > :after AND ", ""
    ),
    rule(
        "notices: a replay of crossings begins when it was asked to",
        "replay_facts",
        " AND crossing.at_ms >= :since_ms",
        "",
    ),
    rule(
        "notices: a replay has no crossing of another project",
        "replay_facts",
        "crossing.project = endpoint.project AND ",
        "",
    ),
    rule(
        "notices: nobody receives what happens in another project",
        "fan_out",
        "event.project = endpoint.project AND ",
        "",
    ),
    # 1: one at a time
    rule("1: a claim is a move of the job", "take_job", ", version = version + 1", ""),
    rule("1: an end is a move of the job", "set_job_state", " version = version + 1,", ""),
    rule("1: a wish is a move of the job", "say_why", ", version = version + 1", ""),
    rule("1: each attempt has a number of its own", "take_job", "fencing = fencing + 1, ", ""),
    rule(
        "1: an overdue lease is taken away",
        "service.attempts:end_overdue",
        "if is_overdue(",
        "if False and is_overdue(",
    ),
    rule(
        "1: after an outage nobody is overdue",
        "core.jobs.lease:is_overdue",
        " and now_ms - up_since_ms >= policy.lease_ms",
        "",
    ),
    rule(
        "1: after an outage nobody is unheeding",
        "service.attempts:end_unheeded",
        " or back_since_ms(deployment, now_ms) > before",
        "",
    ),
    rule(
        "1: after an outage nobody is silent",
        "service.fleet.nodes:give_up_silent",
        " or now_ms - back_since_ms(deployment, now_ms) < silent_ms",
        "",
    ),
    rule(
        "1: a gap between ticks was an outage",
        "tick",
        "CASE WHEN :now - ticked_ms > :gap_ms THEN :now ELSE back_ms END",
        "back_ms",
    ),
    rule(
        "1: one server ticks",
        "service.controller:Controller.tick",
        "if not take_turn(deployment, now_ms):",
        "if False:",
    ),
    rule(
        "1: and before the first tick after it",
        "service.outage:back_since_ms",
        'if now_ms - found["ticked_ms"] > deployment.policy.outage_ms:',
        "if False:",
    ),
    rule(
        "1: so was the time before our start",
        "service.outage:back_since_ms",
        'max(found["back_ms"], deployment.up_since_ms)',
        'found["back_ms"]',
    ),
    rule("1: after an outage nobody has stalled", "core.jobs.watch:_late", "max(since_ms, up_since_ms)", "since_ms"),
    rule(
        "1: who finishes has the lease",
        "service.jobs.finish:finish",
        ' or (live["node"], live["fencing"], live["rank"]) != (node, hold.fencing, hold.rank)',
        "",
    ),
    rule(
        "1: who has the lease is asked first",
        "service.attempts:job_of_hold",
        "rows[0] if rows else None",
        'deployment.store.load("job_of_attempt", attempt=hold.attempt)[0]',
    ),
    rule(
        "1: the same end may be told twice",
        "service.jobs.finish:_told_before",
        "Done() if same and",
        "Done() if False and",
    ),
    rule(
        "1: and at once from two connections",
        "service.jobs.finish:finish",
        "more=artifacts\n    ):\n        return _told_before(deployment, node, hold, outcome)",
        "more=artifacts\n    ):\n        return LOST",
    ),
    rule(
        "6: a lost chunk does not hide the rest of a log",
        "service.jobs.query:_chunk",
        "except NotFound:",
        "except ZeroDivisionError:",
    ),
    rule(
        "1: a token is for its role",
        "service.access.access:permitted",
        "if not permits(identity.role, needed):",
        "if False:",
    ),
    rule(
        "7: a join token of another rental makes nobody its node",
        "service.fleet.nodes:_node_of_rental",
        'if rental is None or request.node not in ("", rental):',
        "if rental is None:",
    ),
    rule(
        "7: the token of a rental that has ended opens nothing",
        "service.access.access:recognize",
        'if found["rental_ended"]:',
        "if False:",
    ),
    rule(
        "7: what is revoked or has expired opens nothing",
        "service.access.access:recognize",
        'if lost != "valid":',
        "if False:",
    ),
    rule(
        "1: a token of a node that is gone opens nothing",
        "service.access.access:recognize",
        'if found["node_state"] == "gone":',
        "if False:",
    ),
    rule(
        "1: a job is paused however its attempt ends",
        "service.attempts:_heeding",
        'if row["stop_kind"] == "paused"',
        "if False",
    ),
    # 2: nothing lost
    rule("2: two are kept", "core.runs.retention:to_prune", "checkpoints[keep:]", "checkpoints[1:]"),
    rule("2: one of them is verified", "core.runs.retention:to_prune", "checkpoint is not last_verified and ", ""),
    rule("2: the best is kept", "core.runs.retention:to_prune", " and checkpoint is not best", ""),
    rule("2: the newest goes on", "checkpoints", "checkpoint.step DESC", "checkpoint.step"),
    rule(
        "2: an attempt begins where the last checkpoint is",
        "service.jobs.claim:_take",
        'checkpoints[0]["step"] if checkpoints else 0',
        "0",
    ),
    rule(
        "2: a job continues from one checkpoint alone",
        "service.content.inputs:checkpoints_to_resume",
        " and not exactly",
        "",
    ),
    rule(
        "2: a job that continues another is retried from there",
        "service.jobs.steer:_beginning",
        "return old, step",
        "return None, None",
    ),
    rule(
        "1: a job that has not ended is not extended",
        "service.jobs.extension.extend:_start",
        'if job["state"] not in ENDED:',
        "if False:",
    ),
    rule(
        "3: a job is extended beyond what it has reached",
        "service.jobs.extension.extend:_start",
        "if steps <= reached:",
        "if False:",
    ),
    rule(
        "2: no checkpoint without its bytes",
        "service.content.parts:attested",
        "if found is None:",
        "if found is None: return True\n    if False:",
    ),
    rule(
        "2: no checkpoint of other bytes",
        "service.content.parts:attested",
        "if found.bytes != file.bytes or",
        "if False and",
    ),
    rule(
        "2: no checkpoint of another spec",
        "service.jobs.checkpoint:commit_checkpoint",
        'if manifest.spec_hash != job["spec_hash"]:',
        "if False:",
    ),
    rule(
        "2: no checkpoint beyond the end",
        "service.jobs.checkpoint:commit_checkpoint",
        "if not 0 < manifest.step <= last:",
        "if False:",
    ),
    rule(
        "2: no result without its bytes",
        "service.jobs.finish:_artifacts",
        "if isinstance(attested, Refused):",
        "if False:",
    ),
    rule(
        "2: what was not pruned is pruned later",
        "service.controller:prune_left",
        "kept=deployment.policy.checkpoints_kept",
        "kept=10**6",
    ),
    rule("2: what is referred to is not swept", "service.content.sweep:delete_unreferred", "if key not in kept", ""),
    rule(
        "2: a thumbnail is referred to",
        "referred",
        "artifact.thumbnail <> ''",
        "FALSE",
    ),
    rule(
        "2: before it is there",
        "service.pictures.thumbnails:_look_at",
        'write("name_thumbnail", job=row["job"], path=row["path"], key=_key(row)) for row, _ in small',
        "",
    ),
    rule(
        "2: what was chosen stays with its pictures",
        "service.retention.ages:expire_previews",
        'deployment.store.load("winner", job=job)',
        "()",
    ),
    rule(
        "2: nor what may still be written",
        "service.content.sweep:sweep_attempts",
        "- round(deployment.policy.orphans_s * 1000)",
        "",
    ),
    rule(
        "2: nor what was written while the service was away",
        "service.content.sweep:sweep_attempts",
        'deployment.store.load("ticks")[0]["back_ms"] > before',
        "False",
    ),
    rule(
        "2: the log is referred to",
        "referred",
        "UNION ALL SELECT log_chunk.key, '' AS manifest FROM log_chunk WHERE log_chunk.attempt = :attempt",
        "",
    ),
    rule("2: and it is told apart from before", "sweep_again", ", sweeps_asked = sweeps_asked + 1", ""),
    rule(
        "2: uploads in parts are swept",
        "service.content.sweep:_give_up",
        'deployment.objects.uploads(upload["key"])',
        "()",
    ),
    rule(
        "2: those of users after a day",
        "service.content.sweep:sweep_uploads",
        "- round(deployment.policy.uploads_s * 1000)",
        "",
    ),
    rule("2: but not those of attempts", "uploads_left", "attempt = '' AND", ""),
    rule(
        "2: the other of two uploads goes",
        "service.content.upload:_begin",
        '    deployment.objects.abort(kept["key"], upload)\n',
        "",
    ),
    rule(
        "2: bytes are those of the parts",
        "service.content.parts:attested",
        "*attestations(file.sha256, parts)",
        "found.sha256",
    ),
    rule(
        "2: parts that are there are not granted", "service.content.parts:in_parts", "here[number].is_as(part)", "False"
    ),
    rule("2: what is read back is compared", "service.jobs.verify:verify", "!= file.sha256", "is None"),
    rule(
        "2: and then counts",
        "service.jobs.verify:verify",
        'deployment.store.apply(write("verify_checkpoint", id=row["id"]))',
        "pass",
    ),
    rule(
        "2: and the rest is forgotten",
        "service.jobs.verify:verify",
        'prune(deployment, row["job"], deployment.store.now_ms())',
        "pass",
    ),
    rule(
        "2: nothing goes before something is verified",
        "core.runs.retention:to_prune",
        "return []",
        "return checkpoints[keep:]",
    ),
    rule(
        "7: a node reads its own job's files",
        "service.jobs.checkpoint:sign_downloads",
        "if strange:",
        "request = Downloads(keys=tuple(set(request.keys) - strange))\n    if False:",
    ),
    # 3: exact
    rule(
        "3: what must stay exact is pinned", "service.jobs.checkpoint:_learned", 'job["exact"] == "required"', "False"
    ),
    rule(
        "3: what need not stay exact is free", "service.jobs.checkpoint:_learned", 'job["exact"] == "required"', "True"
    ),
    # 4: it ends
    rule(
        "4: a failure counts",
        "core.jobs.failure:after_failure",
        "job.attempts_failed + meaning.counts",
        "job.attempts_failed",
    ),
    rule(
        "4: only so many are allowed",
        "core.jobs.failure:after_failure",
        "failed >= job.attempts_max",
        "failed > job.attempts_max",
    ),
    rule(
        "4: a failed job waits",
        "core.jobs.failure:after_failure",
        "wait_s(failed, policy) if meaning.counts else 0",
        "0",
    ),
    rule("4: and longer each time", "core.jobs.failure:wait_s", "2 ** (min(failed, 30) - 1)", "1"),
    rule("4: bad input needs a second word", "core.jobs.failure:_confirmed", "if others or again:", "if True:"),
    rule("4: and with that it ends", "core.jobs.failure:_confirmed", "if others or again:", "if False:"),
    rule(
        "4: the only machine's second word counts", "core.jobs.failure:_confirmed", "if others or again:", "if others:"
    ),
    rule(
        "4: memory may be the job's need",
        "core.jobs.failure:after_failure",
        'if kind == "out of memory" and',
        "if False and",
    ),
    rule(
        "4: a job that kills its hosts is blamed",
        "core.jobs.failure:after_interruption",
        "len(machines) >= policy.interruptions_blamed",
        "False",
    ),
    rule("4: a job that goes on is not", "core.jobs.failure:_lost_in_a_row", "lost.advanced or ", ""),
    rule("4: and none twice for the same row", "core.jobs.failure:_lost_in_a_row", "or lost.kind or", "or"),
    rule("4: a release is no loss", "core.jobs.failure:after_interruption", "if released:", "if False:"),
    rule("4: who never begins is given up", "core.jobs.watch:no_progress", "policy.start_s", "1e12"),
    rule("4: who stalls is given up", "core.jobs.watch:no_progress", "policy.stall_s", "1e12"),
    rule("4: who never saves is given up", "core.jobs.watch:no_progress", "policy.commit_s, ", "1e12, "),
    rule("4: who is to save seldom is not", "core.jobs.watch:no_progress", "2 * watched.save_s", "0"),
    rule("4: who does not heed a stop is ended", "unheeded_stops", "stop <> '' AND", "FALSE AND"),
    rule("4: a stop is told", "service.jobs.renew:renew", 'held[0]["stop"] or ', ""),
    rule(
        "4: bans yield where others lack libraries",
        "banned_jobs",
        " AND node.kinds LIKE '%,' || job.wanted || ',%'",
        "",
    ),
    rule(
        "4: a node without the libraries is none that can",
        "queued_for_long",
        " AND node.kinds LIKE '%,' || job.wanted || ',%'",
        "",
    ),
    rule(
        "4: nor is a pool of such nodes",
        "service.jobs.placing.waiting:_may_be_offered",
        "kinds_of_pool(deployment, name, now_ms)",
        'f",{work.wanted},"',
    ),
    rule(
        "4: a node is rented for a kind that those here lack, but not where the pool lacks it too",
        "core.fleet.needs:fits",
        "and has_kind(shape.kinds, need.wanted)",
        "",
    ),
    rule("4: what a pool lacks is looked at again", "kinds_of_pool", " AND joined_ms > :since", ""),
    rule("4: a worker by hand says nothing of a pool", "kinds_of_pool", " AND rented = 1", ""),
    rule(
        "4: a failed probe is not paid for again at once",
        "core.fleet.autoscale:starts_max",
        "now_ms - last_ms < 1000 * pause_s or ",
        "",
    ),
    rule("4: nor each time after the same pause", "core.fleet.autoscale:starts_max", " * 2 ** min(failed - 1, 20)", ""),
    rule(
        "4: nor for ever later", "core.fleet.autoscale:starts_max", "min(policy.rest_max_s, ", "max(policy.rest_max_s, "
    ),
    rule("4: nor by several nodes", "core.fleet.autoscale:starts_max", "0 if waits else 1", "0 if waits else 9"),
    rule(
        "4: nor while another is coming",
        "core.fleet.autoscale:starts_max",
        """ or any(node.state == "starting" for node in nodes)""",
        "",
    ),
    rule("4: but without one there is no such bound", "core.fleet.autoscale:starts_max", "if not failed:", "if False:"),
    rule("4: until one passes", "failed_probes", " AND fit.proof_failed = 0", ""),
    rule("4: of this pool", "failed_probes", "fit.pool = :pool AND ", ""),
    rule("4: a worker by hand that fails pauses no pool", "failed_probes", "rented = 1 AND ", ""),
    rule("4: a node that fails its probe gets no job", "service.fleet.nodes:_welcome", "if failed:", "if False:"),
    rule(
        "4: nor one of a kind that it lacks",
        "core.jobs.claim:mismatch",
        "if lack:",
        "if False:",
    ),
    rule(
        "4: a job that asks for isolation gets it",
        "core.runs.proof:wanted_kind",
        'if isolation == "none"',
        "if True",
    ),
    rule("4: as strong as it asks", "core.runs.proof:offered_kinds", "LEVELS.index(isolation) + 1", "3"),
    rule(
        "4: pictures give way to no job that the node lacks",
        "in_the_way",
        "AND node.kinds LIKE '%,' || waiting.wanted || ',%'",
        "",
    ),
    rule("4: a failed probe is no quarantine", "quarantines_over", " AND node.proof_failed = 0", ""),
    rule(
        "4: a card that computed wrong is tried",
        "service.fleet.nodes:join_pool",
        "if BURST in request.problems:",
        "if False:",
    ),
    rule("4: bans yield", "banned_jobs", "job.state = 'queued' AND", "FALSE AND"),
    rule(
        "4: bans yield only where no other is here",
        "banned_jobs",
        "AND NOT EXISTS (SELECT 1 FROM ban",
        "AND 1 = 0 AND NOT EXISTS (SELECT 1 FROM ban",
    ),
    rule(
        "4: what nothing can run fails",
        "service.jobs.placing.waiting:fail_unmatched",
        'deployment.store.load("queued_for_long", before=before)',
        "[]",
    ),
    rule("4: but not what a node here can", "queued_for_long", "node.state <> 'gone'", "FALSE"),
    rule(
        "4: nor what is offered",
        "service.jobs.placing.waiting:fail_unmatched",
        "_may_be_offered(deployment, row, now_ms)",
        "False",
    ),
    rule("4: silent nodes are given up", "silent_nodes", "seen_ms < :before", "FALSE"),
    rule(
        "4: nodes are rented for work",
        "core.fleet.plan:_rent",
        "max(0, min(covered.left[index], affordable[index] - sum(covered.by_pool[index].values())))",
        "0",
    ),
    rule(
        "4: not for work that a node takes which is coming",
        "core.fleet.plan:_rent",
        "min(covered.left[index], affordable[index] - sum(covered.by_pool[index].values()))",
        "affordable[index]",
    ),
    rule(
        "4: a node is coming while it starts",
        "core.fleet.plan:_rooms",
        'coming = node.state == "starting"',
        "coming = False",
    ),
    rule(
        "4: idle nodes are left to what they may take",
        "core.fleet.plan:_rooms",
        """ or node.state in ("ready", "on_trial")""",
        "",
    ),
    rule(
        "4: who is idle for long takes no old job",
        "core.fleet.needs:cover",
        "not (old and need.since_ms < recent_ms)",
        "True",
    ),
    rule("4: but one that has just come", "core.fleet.needs:cover", "old and need.since_ms < recent_ms", "old"),
    rule(
        "4: a pool has no more than its most",
        "core.fleet.plan:_Pool.most",
        "min(self.starts, self.room + moves)",
        "self.starts",
    ),
    rule("4: what drains costs money", "core.fleet.plan:_begin", "len(pool.nodes) - len(late)", "len(working)"),
    rule(
        "4: a pool keeps its least",
        "core.fleet.plan:plan",
        "_keep_minimum(pool, needs, paces, policy)",
        "pass",
    ),
    rule(
        "4: nor drained below it",
        "core.fleet.plan:_drain",
        "pool.working + pool.coming - pool.now.limits.nodes_min",
        "pool.working + pool.coming",
    ),
    rule(
        "4: but not at once",
        "core.fleet.plan:_drain",
        "_idle_s(node, now_ms) >= policy.idle_s",
        "_idle_s(node, now_ms) >= 0",
    ),
    rule("4: idle nodes are given back", "core.fleet.plan:_drain", "useless[: max(0, spare)]", "[]"),
    rule(
        "4: also to make room",
        "core.fleet.plan:_drain",
        "max(takable, pool.working + pool.coming - pool.now.limits.nodes_min)",
        "pool.working + pool.coming - pool.now.limits.nodes_min",
    ),
    rule("5: the cheapest step of all pools is rented", "core.fleet.plan:_best", "min(found,", "max(found,"),
    rule(
        "5: interruptions make an offer dearer",
        "core.fleet.choice:expect",
        "run_factor(interval_s, between_s=between_s, checkpoint_s=TYPICAL_HELD_UP_S, restart_s=restart_s)",
        "1",
    ),
    rule(
        "5: of an offer's own history",
        "service.fleet.demand:load_histories",
        '*load("lost_on_offers", since=since_ms),',
        "",
    ),
    rule(
        "5: what its provider took back was lost",
        "service.fleet.fleet:_agree",
        ", lost=lost",
        "",
    ),
    rule("5: not what was to go", "service.fleet.nodes:gone", "if lost and not unwanted", "if lost"),
    rule(
        "5: a failed probe makes its offer dearer",
        "core.fleet.choice:expect",
        "2.0 ** min(offer.failed_probes, FAILED_PROBES_MAX)",
        "1",
    ),
    rule(
        "5: idle slots are paid for",
        "core.fleet.choice:expect",
        "max(need.slots, min(shared_by, offer.shape.slots))",
        "offer.shape.slots",
    ),
    rule("4: who never comes is given up", "core.fleet.plan:_begin", "policy.starting_s * 1000", "1e15"),
    rule(
        "4: an orphan is ended",
        "core.fleet.autoscale:reconcile",
        'actions.append(StopInstance(instance.id, "it belongs',
        'str(("no node',
    ),
    rule("4: a double is ended", "core.fleet.autoscale:reconcile", "elif node.instance != instance.id:", "elif False:"),
    rule(
        "1: a token is of this node",
        "service.fleet.identity:identified",
        'if proved.instance != rented["instance"]:',
        "if False:",
    ),
    rule(
        "1: a token is of the machine where its provider shows the node",
        "service.fleet.identity:identified",
        'if proved.machine != rented["shown_machine"]:',
        "if False:",
    ),
    rule(
        "1: nobody joins before its provider shows where it is",
        "service.fleet.identity:identified",
        'if not rented["place"] or not rented["shown_machine"]:',
        "if False:",
    ),
    rule(
        "1: bans follow the machine that is proved",
        "service.fleet.identity:identified",
        "machine=proved.machine",
        "name=request.name",
    ),
    rule(
        "1: nobody joins from a machine that its rental leaves",
        "service.fleet.nodes:_node_of_rental",
        'if rows[0]["leaves"] and',
        "if False and",
    ),
    rule(
        "5: a node that may be moved is not ended before",
        "service.fleet.scaling:give_back",
        "if pool is None or may_leave(pool, row)",
        "if pool is None",
    ),
    rule(
        "5: a bad machine is left",
        "core.fleet.plan:_Pool.rent",
        "if node.offer == offer.offer",
        "if False",
    ),
    rule(
        "5: until that is decided, its instance runs",
        "service.fleet.fleet:_agree",
        "if action.instance not in unless",
        "if True",
    ),
    rule(
        "5: where it is not left, its instance is stopped",
        "core.fleet.plan:plan",
        "[_stop(node) for node in pool.movable]",
        "[]",
    ),
    rule("5: what is to leave is ended at once", "service.jobs.claim:_try", "give_back(deployment, node_id)", "pass"),
    rule(
        "5: with work on it, it stays",
        "instance_to_end",
        "AND NOT EXISTS (SELECT 1 FROM lease WHERE lease.node = node.id)",
        "",
    ),
    rule("5: what is wanted stays", "instance_to_end", "AND state IN ('draining', 'quarantined')", ""),
    rule(
        "5: nor do budgets pay for more nodes",
        "core.fleet.plan:_affordable",
        "taken[need.project] = taken.get(need.project, 0) + jobs * each",
        "pass",
    ),
    rule(
        "5: what has ended is not idle",
        "service.fleet.fleet:_agree",
        ', ended_ms=ends.get(node.instance or "")',
        "",
    ),
    rule(
        "5: the first step was when it was", "service.jobs.renew:_training_ms", " - round(beat.training_s * 1000)", ""
    ),
    rule("5: and not before the attempt", "renew_lease", "WHEN :training_ms < started_ms THEN started_ms", ""),
    rule(
        "5: the loss is the metrics'",
        "renew_lease",
        "WHEN :step = step THEN COALESCE(loss, :loss)",
        "WHEN FALSE THEN loss",
    ),
    rule("5: the newest metrics'", "hold_lease", ":step >= step AND NOT EXISTS", "NOT EXISTS"),
    rule("5: they are steps, too", "hold_lease", "WHEN :step > step THEN :step", "WHEN FALSE THEN step"),
    rule("5: each of which takes its time", "hold_lease", "WHEN :step > step THEN :now", "WHEN FALSE THEN 0"),
    rule("5: and a sign of life", "hold_lease", "WHEN :now > beat_ms THEN :now", "WHEN FALSE THEN 0"),
    rule("5: whose clock is the latest", "hold_lease", "WHEN :now > beat_ms THEN :now", "WHEN TRUE THEN :now"),
    rule(
        "4: what drains is ended",
        "core.fleet.autoscale:reconcile",
        'elif node.state in ("draining", "quarantined") and',
        "elif False and",
    ),
    rule("4: what was taken back is gone", "core.fleet.autoscale:reconcile", "if node.rental in ended:", "if False:"),
    rule(
        "4: what is not in the list is gone",
        "core.fleet.autoscale:reconcile",
        "node.missing + 1 >= LISTS_WITHOUT_MAX",
        "False",
    ),
    rule(
        "4: a bill whose end no list shows ends",
        "service.fleet.fleet:_end_unseen",
        "if to_ms is not None:",
        "if False:",
    ),
    rule(
        "4: nor one whose beginning no list shows",
        "service.fleet.fleet:_end_unseen",
        "each.billed_to_ms is None or each.billed_from_ms is not None",
        "True",
    ),
    rule(
        "4: what never ran was not lost",
        "service.fleet.fleet:_agree",
        "lost = node.rental not in never_ran",
        "lost = True",
    ),
    rule("5: an end that is seen late is settled", "see_instance", "ELSE 0 END", "ELSE instance.settled END"),
    rule("5: with one start-up", "service.money.bill:settlement", '[] if instance["has_start_up"] else ', ""),
    rule("4: not by two lists", "core.fleet.autoscale:unseen_end_ms", "lists < LISTS_WITHOUT_MAX or ", ""),
    rule(
        "4: nor before ten minutes", "core.fleet.autoscale:unseen_end_ms", " or now_ms - missing_since_ms < LOST_MS", ""
    ),
    rule("4: nor while its node is heard of", "bills_of_gone_nodes", "later.state <> 'gone'", "FALSE"),
    rule("4: unless it is heard of", "core.fleet.autoscale:reconcile", " and _silent(node, now_ms, policy)", ""),
    rule(
        "4: an instance is known by its node",
        "core.fleet.autoscale:reconcile",
        "actions.append(Adopt(node.id, instance.id))",
        "pass",
    ),
    rule("4: jobs that no node here may have get another", "core.fleet.needs:cover", "not need.stuck and ", ""),
    rule("4: nor those that are banned from each", "service.fleet.demand:_need", 'bool(row["barred"]) or ', ""),
    rule("4: which are counted once", "needs", "AND id NOT IN (SELECT id FROM barred)", ""),
    rule("4: and are those that wait now", "needs", "AND ready_ms <= :now\n            AND fencing", "AND fencing"),
    rule(
        "4: from each, not from one of them",
        "needs",
        "AND NOT EXISTS (SELECT 1 FROM ban WHERE ban.job = job.id AND ban.machine = node.machine)",
        "AND 1 = 0",
    ),
    rule(
        "4: a failed start is not repeated at once",
        "service.fleet.scaling:_starts_left",
        'if deployment.store.load("failed_starts", pool=pool.limits.name, since=since):',
        "if False:",
    ),
    # 5: every dollar explained
    rule("5: idle time is billed", "service.money.bill:meter", "if node.slots_free and", "if False and"),
    rule(
        "5: where an attempt trained is billed",
        "core.money.cost:_parts",
        "if b > a]",
        'if b > a and cause != "training"]',
    ),
    rule(
        "5: where it downloaded is billed",
        "core.money.cost:_parts",
        "if b > a]",
        'if b > a and cause != "download"]',
    ),
    rule(
        "5: what it lost is billed",
        "core.money.cost:_parts",
        "if b > a]",
        'if b > a and cause not in ("failed", "redone steps")]',
    ),
    rule("5: and as lost", "core.money.cost:_lost_from_ms", "lost_ms = round(", "lost_ms = 0 * round("),
    rule(
        "5: all of it, where it never trained",
        "core.money.cost:lines_of_attempt",
        'is None and state == "failed"',
        "is None and False",
    ),
    rule(
        "5: a failure's loss is a failure's",
        "core.money.cost:lines_of_attempt",
        '"failed" if state == "failed" else',
        "",
    ),
    rule(
        "5: parts cost what the whole costs",
        "core.money.cost:time_cost_micro_usd",
        "max(from_ms, to_ms) // HOUR_MS - price_micro_usd_per_hour * from_ms // HOUR_MS",
        "(max(from_ms, to_ms) - from_ms) // HOUR_MS",
    ),
    rule("5: money splits by slot", "core.job:Node.price_of", " * slots // self.slots", ""),
    rule(
        "5: what a provider bills is settled",
        "service.money.bill:settlement",
        "for line in (*new, correction)",
        "for line in (start_up,)",
    ),
    rule(
        "5: a start-up has a name",
        "service.money.bill:settlement",
        "for line in (*new, correction)",
        "for line in (correction,)",
    ),
    rule("5: other instances of a node are settled too", "service.fleet.fleet:settle", "(row, *others)", "(row,)"),
    rule("5: egress is billed", "service.money.bill:spend", "if sent:", "if False:"),
    rule(
        "5: only who holds the lease downloads",
        "service.jobs.checkpoint:sign_downloads",
        "return LOST\n    return Urls",
        "pass\n    return Urls",
    ),
    rule("5: results are stored too", "stored_of_jobs", "artifact.job, artifact.bytes", "artifact.job, 0 AS bytes"),
    rule(
        "5: checkpoints are stored", "stored_of_jobs", "checkpoint.job, checkpoint.bytes", "checkpoint.job, 0 AS bytes"
    ),
    rule("5: storage is billed", "service.money.bill:storage_since", "if not cost:", "if True:"),
    rule(
        "5: a claim reserves",
        "core.money.budget:reservation",
        "round(price_micro_usd_per_hour * policy.reserve_s / 3600)",
        "0",
    ),
    rule(
        "5: for what it downloads", "core.money.budget:reservation", " + egress_micro_usd(", " + 0 * egress_micro_usd("
    ),
    rule("5: with the newest checkpoint", "measure_checkpoint", "SELECT bytes", "SELECT 0"),
    rule("5: which is not rejected", "measure_checkpoint", "AND state = 'committed'", ""),
    rule("5: at the price of its slots", "core.fleet.choice:reserve", " * need.slots // offer.shape.slots", ""),
    rule("5: and of a node that fits", "core.fleet.plan:_affordable", " if fits(need, offer.shape)", ""),
    rule(
        "5: nor are nodes rented for downloads that no budget pays",
        "core.fleet.choice:reserve",
        "math.ceil(download_bytes)",
        "0",
    ),
    rule("5: who downloads more reserves more", "core.money.budget:more_to_reserve", "missing = sent + ", "missing = "),
    rule("5: or ends", "service.jobs.checkpoint:_count", "        if because:", "        if False:"),
    rule(
        "5: an end gives back",
        "spend",
        "reserved = reserved - :reserved",
        "reserved = reserved - 0 * :reserved",
    ),
    rule("5: an end is spent", "spend", "spent = spent + :micro_usd", "spent = spent"),
    rule("5: a heartbeat reserves more", "service.jobs.budget:out_of_money", "if not least:", "if True:"),
    rule(
        "5: in time",
        "core.money.budget:more_to_reserve",
        "1000 * (policy.stop_margin_s + policy.heartbeat_interval_s)",
        "0",
    ),
    rule(
        "5: or stops it",
        "service.jobs.renew:_without_money",
        "if because:",
        "if False:",
    ),
    rule("5: not more than there is", "service.jobs.budget:out_of_money", "if too_much:", "if False:"),
    rule(
        "5: where little is left, that is reserved",
        "service.jobs.budget:out_of_money",
        "more = least if",
        "more = whole if",
    ),
    rule("5: two heartbeats at once are one", "service.jobs.budget:out_of_money", 'reserved = now["reserved"]', "pass"),
    rule(
        "5: and pay for no download", "service.jobs.budget:out_of_money", 'reserved = now["reserved"]', "return str()"
    ),
    rule(
        "5: what has ended needs nothing", "service.jobs.budget:out_of_money", 'if now["state"] != "live":', "if False:"
    ),
    rule("6: money, where nobody is here", "core.jobs.why:lacks_money", "default=max(1, ", "default=min(0, "),
    # 6: one true sentence why
    rule("6: no money", "core.money.budget:over_budget", "if purse.budget is None or", "if True or"),
    rule("6: waits for its next try", "core.jobs.why:why_queued", "if job.ready_ms > now_ms:", "if False:"),
    rule("6: nobody is here", "core.jobs.why:why_queued", "    if nodes:", "    if True:"),
    rule(
        "6: what keeps the only node from working", "core.jobs.why:_why_not_there", "if not all(reasons):", "if True:"
    ),
    rule("6: that one is starting", "core.jobs.why:_why_not_there", "if coming:", "if False:"),
    rule("6: that its pool does not exist", "core.jobs.supply:what_helps", "if job.pool and", "if False and"),
    rule("6: but one may join it", "service.fleet.supply:load_supply", "*joinable, ", ""),
    rule(
        "6: that the provider is away",
        "service.fleet.fleet:_look",
        "deployment.recent.note_offers(name, None, error.message)",
        "pass",
    ),
    rule(
        "6: what no offer has",
        "service.fleet.fleet:_look",
        "deployment.recent.note_offers(name, None if look.lacks else offers, look.lacks)",
        "pass",
    ),
    rule(
        "6: that none is left",
        "service.fleet.scaling:heed_refusals",
        "deployment.recent.note_refusal(pool.limits.name, refusal.offer, until_ms)",
        "pass",
    ),
    rule("6: that a pool is full", "core.jobs.supply:_why_not_rented", "if not room:", "if False:"),
    rule("6: that a price is not known", "core.jobs.claim:unpriced", "purse.budget is None or", "True or"),
    rule(
        "6: nor that of an offer",
        "core.jobs.supply:_why_not_rented",
        "if offer.price_known or purse.budget is None",
        "",
    ),
    rule("5: a price that is not known", "core.fleet.choice:reserve", "if not offer.price_known:", "if False:"),
    rule("5: what a token says", "service.fleet.admission:_first", "if said is None", "if not said"),
    rule("6: failed it before", "core.jobs.claim:mismatch", "if job.banned:", "if False:"),
    rule("6: memory", "core.jobs.claim:mismatch", "if job.gpu_memory_gb > node.gpu_memory_gb:", "if False:"),
    rule("6: class", "core.jobs.claim:mismatch", "if job.gpu and", "if False and"),
    rule("6: pool", "core.jobs.claim:mismatch", "if job.pool and", "if False and"),
    rule("6: trust", "core.jobs.claim:mismatch", "if job.trust > node.trust:", "if False:"),
    rule("6: numerics", "core.jobs.claim:mismatch", "if job.numerics and", "if False and"),
    rule("6: slots", "core.jobs.claim:mismatch", "if job.slots > node.slots_free:", "if False:"),
    rule("6: what a node is", "core.jobs.claim:locked_out", "if node.state not in WORKING:", "if False:"),
    rule("6: that it pauses", "core.jobs.claim:locked_out", "if node.rest_until_ms > now_ms:", "if False:"),
    rule("6: that it is full", "core.jobs.claim:refusal", "if node.slots_free <= 0:", "if False:"),
    rule(
        "6: a failure's words are one line",
        "service.jobs.finish:_meaning",
        "as_words(outcome.because)",
        "outcome.because",
    ),
    rule(
        "6: a rejection's words are one line",
        "service.jobs.checkpoint:reject_damaged",
        "as_words(request.because)",
        "request.because",
    ),
    # §6: blame and trust
    rule("blame: a ban", "core.jobs.failure:after_failure", "meaning.ban and policy.bans", "False"),
    rule("blame: a ban holds", "interrupted_candidates", "ban.machine = :machine", "FALSE"),
    rule("blame: a strike", "core.jobs.failure:after_failure", "strike=meaning.strike", "strike=0"),
    meaning("blame: not for the network", "download failed", ban=True),
    meaning("blame: a loss of memory strikes", "gpu error", strike=0),
    meaning("blame: slow ones are not the job's fault", "too slow", counts=True),
    rule(
        "blame: a machine keeps its name",
        "service.fleet.identity:known_by_cards",
        'if not request.cards or deployment.store.load("machine", id=request.machine):',
        "if not request.cards:",
    ),
    rule(
        "blame: a machine is known by its cards",
        "service.fleet.identity:known_by_cards",
        "next(found, request.machine)",
        "request.machine",
    ),
    rule(
        "blame: old quarantines lengthen none",
        "core.fleet.trust:quarantines_that_count",
        "now_ms - last_ms <= policy.reputation_s * 1000",
        "True",
    ),
    rule("blame: a record ends somewhere", "machine_tally", " AND ended_ms > :since", ""),
    rule("blame: a list of machines, too", "machines_by_losses", " AND ended_ms > :since", ""),
    meaning("blame: a throttled card is not judged at once", "throttled", strike=4),
    meaning("blame: a throttled card is judged some day", "throttled", strike=0),
    meaning("blame: a job that spilled may come back to the machine", "spilled", ban=True),
    meaning("blame: a card that others fill is no bad card", "crowded", strike=4),
    meaning("blame: a card that others fill does not get the job again", "crowded", ban=False),
    rule(
        "blame: a job that spilled waits for no card that nobody has",
        "service.fleet.speed:_move_spilled",
        'if finds_larger(deployment, lease["job"], spill.needs_gb, now_ms):',
        "if True:",
    ),
    rule(
        "blame: a job that spilled beside faster machines fits there",
        "core.fleet.slowness:why_slow",
        "if spill is not None:",
        "if False:",
    ),
    rule(
        "blame: and needs no larger card, however little is left of it",
        "service.fleet.speed:heed_speed",
        'lease["attempt"] in slow or ',
        "",
    ),
    rule(
        "blame: no driver is waited for without end",
        "core.fleet.slowness:may_tell_later",
        "worked_ms < RECENT_MS and ",
        "",
    ),
    rule("blame: a contrast", "core.fleet.trust:counting", "if strike.elsewhere or", "if True or"),
    rule("blame: by what went well elsewhere", "core.fleet.trust:counting", "if strike.elsewhere or", "if False or"),
    rule("blame: or two workloads", "core.fleet.trust:counting", "on_trial or _has_contrast(own)", "on_trial"),
    rule("blame: that differ", "core.fleet.trust:_has_contrast", "< 2:", "< 1:"),
    rule(
        "blame: of two projects",
        "core.fleet.trust:_has_contrast",
        "for strike in own}) >= 2",
        "for strike in own}) >= 1",
    ),
    rule(
        "blame: or one that went well anywhere",
        "core.fleet.trust:_has_contrast",
        "any(strike.anywhere for strike in own)",
        "False",
    ),
    rule(
        "blame: on another machine",
        "strikes",
        "AND pace.machine <> strike.machine) AS workload_anywhere",
        ") AS workload_anywhere",
    ),
    rule(
        "blame: a word about a job needs that job",
        "core.fleet.trust:counting",
        "its_own_fault and strike in own",
        "its_own_fault",
    ),
    rule(
        "trust: on trial the first failure is enough",
        "core.fleet.trust:is_quarantine_due",
        "STRIKE // 2 if machine.on_trial else ",
        "",
    ),
    rule("trust: longer each time", "core.fleet.trust:judge", "2 ** min(machine.quarantines, 10)", "1"),
    rule(
        "trust: not too many at once", "core.fleet.trust:judge", "if pool.quarantined_lately + 1 >", "if False and 1 >"
    ),
    rule(
        "trust: the last one is not locked out",
        "core.fleet.trust:judge",
        "if not pool.others and not pool.may_rent:",
        "if False:",
    ),
    rule("trust: unless it can be replaced", "core.fleet.autoscale:may_rent", "limits is not None and", "False and"),
    rule("trust: in its own place too", "core.fleet.autoscale:may_rent", "rented - gives_back <", "rented <"),
    rule(
        "trust: where others work it is not the last",
        "nodes_working",
        "state <> 'quarantined' AND machine <> :machine",
        "FALSE",
    ),
    rule("trust: its own nodes are no others", "nodes_working", " AND machine <> :machine THEN", " THEN"),
    rule("trust: nor are those in quarantine", "nodes_working", "state <> 'quarantined' AND ", ""),
    rule("trust: it rests longer each time", "core.fleet.trust:_last", "machine.failures + 1", "0"),
    rule(
        "trust: on trial one job at a time",
        "core.jobs.claim:refusal",
        'if node.state == "on_trial" and',
        "if False and",
    ),
    rule(
        "trust: who went on trial was not sent away",
        "quarantined_lately",
        " AND quarantined_until_ms > quarantined_ms",
        "",
    ),
    rule("trust: in the pool that it joined last", "know_machine", "DO UPDATE SET pool = excluded.pool", "DO NOTHING"),
    rule("trust: and says why", "service.fleet.nodes:_welcome", 'known["because"] or', '"" or'),
    rule("trust: a pause after failures", "core.fleet.trust:rest_ms", "return round(", "return 0 * round("),
    rule("trust: that a success ends", "machine_went_well", "failures = 0, rest_until_ms = 0", "failures = failures"),
    rule("trust: a success ends the trial", "machine_went_well", ", on_trial = 0", ""),
    rule(
        "trust: a quarantine outlasts a join",
        "service.fleet.nodes:_welcome",
        'if known["quarantined_until_ms"] > now_ms:',
        "if False:",
    ),
    rule("trust: so does a trial", "service.fleet.nodes:_welcome", 'if known["on_trial"]:', "if False:"),
    rule("trust: a quarantine ends", "quarantines_over", "machine.quarantined_until_ms <= :now", "FALSE"),
    rule("trust: but not early", "quarantines_over", "machine.quarantined_until_ms <= :now", "TRUE"),
    rule(
        "trust: strikes that are paid for do not count",
        "strikes",
        " AND strike.at_ms > COALESCE(machine.quarantined_ms, -1)",
        "",
    ),
    rule("speed: slow ones move", "core.fleet.pace:too_slow", "if mine <= peers.slow:", "if True:"),
    rule("speed: where that pays", "core.fleet.pace:too_slow", "if saved_s <= policy.move_s:", "if False:"),
    rule("speed: sound ones give way", "core.fleet.pace:worth_replacing", "if saved_s <= policy.move_s:", "if True:"),
    rule("speed: for what waits too", "service.fleet.speed:_outpaced", " + waiting * lease[", " + 0 * lease["),
    rule("speed: but not for ever", "service.fleet.speed:_outpaced", ">= deployment.policy.moves_max", ">= 10**9"),
    rule(
        "speed: unless it is for itself",
        "service.fleet.speed:_outpaced",
        "outlook, left, deployment.policy",
        "outlook, 0, deployment.policy",
    ),
    # Whose turn it is
    rule("turn: interrupted first", "service.jobs.claim:_offered", "yield from _by_project(deployment, again)", "pass"),
    rule(
        "turn: by what was used", "core.jobs.claim:by_fair_share", "decayed(purse, now_ms, policy) / purse.share", "0"
    ),
    rule(
        "turn: which is forgotten",
        "core.jobs.claim:decayed",
        " * 2 ** (-(now_ms - purse.usage_ms) / 1000 / policy.usage_half_life_s)",
        "",
    ),
    rule("turn: an entry charge", "service.jobs.claim:_take", "deployment.policy.entry_charge_usd * 1e6", "0"),
    rule("turn: by priority", "fresh_candidates", "ORDER BY priority DESC, ", "ORDER BY "),
    rule("turn: who holds the base", "core.jobs.claim:_preferred", "first.base in held or", "True or"),
    rule(
        "turn: but not for long",
        "core.jobs.claim:_preferred",
        " or now_ms - first.queued_ms > policy.base_wait_s * 1000",
        "",
    ),
    # Pictures while a job trains
    rule("2: what is to be shown is kept", "core.runs.retention:to_prune", "if not checkpoint.pinned", ""),
    rule("2: and no longer", "service.jobs.finish:finish", 'if KINDS[live["job_kind"]].renders:', "if False:"),
    rule("4: of what waits to be shown the newest stays", "service.jobs.samples:drop_overtaken", "rows[1:]", "()"),
    rule("4: what is not shown in time is given up", "late_samples", "job.submitted_ms < CASE", "0 > CASE"),
    rule("4: but not before", "late_samples", "job.submitted_ms < CASE", "0 < CASE"),
    rule("4: a result waits longer for a node", "late_samples", "THEN CAST(:results_before AS BIGINT)", "THEN :before"),
    rule("5: pictures of steps keep no node", "service.jobs.samples:may_render_steps", "now_ms - since_ms <", "0 <"),
    rule("4: also where no node is left", "queued_for_long", "kind <> 'sample' AND", ""),
    rule("6: who wants no picture of a result gets none", "service.jobs.samples:of_result", "if wanted", "if True"),
    rule(
        "3: a result is shown by its own weights",
        "service.content.inputs:_is_of_result",
        'path in (DIFFUSERS_FILE, f"{SAMPLES}/{PHOTOS}")',
        "True",
    ),
    rule(
        "4: who cancels wants no pictures",
        "service.jobs.steer:cancel",
        'cancel(deployment, row["id"], now_ms, because=because)',
        "pass",
    ),
    rule("4: to none that cannot be billed there", "in_the_way", "node.price_known = 1 AND ", ""),
    rule("4: nor to one without the money for its time", "in_the_way", "CAST(:reserve_h AS DOUBLE PRECISION) *", "0 *"),
    rule("4: or for its downloads", "in_the_way", "CAST(:egress AS DOUBLE PRECISION) *", "0 *"),
    rule(
        "4: pictures go to no node that cannot bill them",
        "core.jobs.samples:may_go_elsewhere",
        "unpriced(purse, node) is None",
        "True",
    ),
    rule("4: rendering gives way", "service.controller:Controller.tick", "give_way(deployment, now_ms)", "pass"),
    rule("4: to what its node can train", "in_the_way", "waiting.gpu_memory_gb <= node.gpu_memory_gb", "TRUE"),
    rule(
        "5: nobody rents for pictures",
        "needs",
        "kind <> 'sample' AND ready_ms <= :now AND id",
        "ready_ms <= :now AND id",
    ),
    rule("5: what they cost is told as that", "service.money.bill:spend", 'KINDS[ending["job_kind"]].renders', "False"),
    rule(
        "3: what is trained again is not shown again", "core.jobs.samples:are_samples_due", "step > rhythm.step and", ""
    ),
    rule(
        "3: who was not heard is told again",
        "service.jobs.samples:committed",
        "render=bool(rows)",
        "render=False",
    ),
    rule(
        "3: what was saved before its node was told is not what was asked for",
        "core.jobs.wishes:saved_for",
        "if step > wish.step",
        "if step",
    ),
    rule(
        "3: what one attempt was told, the next one is told too",
        "core.jobs.wishes:are_to_save",
        "wish.attempt == attempt and wish.saved",
        "wish.saved",
    ),
    rule("3: nobody ends a job early but its owner", "service.jobs.finish:_why_short", "wish.kind ==", "wish.kind !="),
    rule("3: or its spec", "service.jobs.finish:_why_short", ' if spec.get("stop_when_worse") else ""', ""),
    rule(
        "6: a job that ends says what it leaves undone",
        "service.attempts:_undone",
        "if because else []",
        "if not because else []",
    ),
    rule("6: those who follow hear of pictures", "service.jobs.samples:rendered", '"rendered"', '"rendered unseen"'),
    # Photos that are fetched
    rule("4: a restart forgets no time of a fetch", "advance_import", "spent_ms = :spent_ms", "spent_ms = spent_ms"),
    rule("4: no try forgets the time of another", "end_import", "spent_ms = :spent_ms", "spent_ms = spent_ms"),
    rule("4: all photos of a job have a time", "service.content.imports:_check", "turn.spent_ms > ", "False and "),
    rule("4: what nobody wants any more is left", "service.content.imports:_Turn.check", "_check(self)", "pass"),
    rule(
        "4: who is at its limit is not asked for again and again",
        "imports_to_make",
        "AND COALESCE(held.fetches, 0) < :at_once_max\n",
        "\n",
    ),
    rule("4: each project has its share of fetches", "imports_to_make", "COALESCE(held.fetches, 0), ", ""),
    rule(
        "4: of one project the oldest comes first",
        "imports_to_make",
        "photo_import.job LIMIT",
        "photo_import.job DESC LIMIT",
    ),
    # What is kept, and what goes
    rule("2: a job that has not ended keeps its files", "blobs_unused", "job.ended_ms IS NULL OR ", ""),
    rule("2: a base keeps its files", "service.content.blobs:give_up_unused", 'if row["sha256"] not in', "if 0 not in"),
    rule(
        "2: a base keeps its files when a job goes",
        "service.retention.removal:_find",
        'row["sha256"] not in',
        "0 not in",
    ),
    rule("2: another job keeps its files", "service.retention.removal:_is_its_own", 'not blob["others"] and ', ""),
    rule(
        "2: jobs that others submitted are listed first",
        "service.content.blobs:give_up_unused",
        "if _list_inputs(deployment):",
        "if False:",
    ),
    rule(
        "2: what is to be shown does not expire",
        "checkpoints_to_expire",
        "sample.checkpoint = checkpoint.id AND",
        "sample.checkpoint = '' AND",
    ),
    rule(
        "2: only a job that has ended is deleted",
        "service.retention.removal:refuse_open",
        'if job["state"] not in ENDED:',
        "if False:",
    ),
]
