"""Methods of the synchronous client by the names that they had before its nouns, for code that was written then."""

import warnings
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

RELEASED = MappingProxyType(
    {
        "upload": "files.upload",
        "download": "files.download",
        "submit": "jobs.submit",
        "submit_batch": "jobs.submit_batch",
        "place": "jobs.place",
        "job": "jobs.get",
        "find_job": "jobs.find",
        "cancel": "jobs.cancel",
        "pause": "jobs.pause",
        "resume": "jobs.resume",
        "save": "jobs.save",
        "sample": "jobs.sample",
        "finish": "jobs.finish",
        "retry": "jobs.retry",
        "extension": "jobs.extension",
        "extend": "jobs.extend",
        "job_offers": "jobs.offers",
        "what_goes": "jobs.removal",
        "remove": "jobs.remove",
        "checkpoint": "checkpoints.get",
        "download_checkpoint": "checkpoints.download",
        "pin_checkpoint": "checkpoints.pin",
        "follow_events": "events.follow",
        "follow_logs": "logs.follow",
        "add_base": "bases.add",
        "base": "bases.get",
        "forget_base": "bases.remove",
        "node": "nodes.get",
        "drain_node": "nodes.drain",
        "quarantine_node": "nodes.quarantine",
        "release_node": "nodes.release",
        "node_logs": "nodes.logs",
        "node_bill": "nodes.bill",
        "pool": "pools.get",
        "add_pool": "pools.add",
        "set_pool": "pools.set",
        "pause_pool": "pools.pause",
        "resume_pool": "pools.resume",
        "sync_pool": "pools.sync",
        "pool_instances": "pools.instances",
        "remove_pool": "pools.remove",
        "pool_drivers": "pools.drivers",
        "project": "projects.current",
        "add_project": "projects.add",
        "set_project": "projects.set",
        "add_key": "keys.add",
        "revoke_key": "keys.revoke",
        "add_join_token": "join_tokens.add",
        "revoke_join_token": "join_tokens.revoke",
        "set_secret": "secrets.set",
        "remove_secret": "secrets.remove",
    }
)
"""The method that does it now, by its released name."""
CALLED = MappingProxyType(
    {
        "ArtifactCalls": "artifacts.list",
        "BaseCalls": "bases.list",
        "CheckpointCalls": "checkpoints.list",
        "EventCalls": "events.list",
        "JobCalls": "jobs.list",
        "JoinTokenCalls": "join_tokens.list",
        "KeyCalls": "keys.list",
        "LogCalls": "logs.get",
        "MetricCalls": "metrics.get",
        "NodeCalls": "nodes.list",
        "PoolCalls": "pools.list",
        "ProjectCalls": "projects.list",
        "SecretCalls": "secrets.list",
        "StorageCalls": "storage.get",
    }
)
"""The method of a noun that does what it meant to call the noun, by its class."""
LISTED = frozenset({"pool_drivers", "pool_instances"})
"""Methods that returned lists, as most nouns did when they were called."""


class ReleasedNames:
    """The released names, each with a warning. Type checkers do not see them, so that an editor offers the nouns alone."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name not in RELEASED:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            _warn(name, RELEASED[name], stacklevel=3)
            found = attrgetter(RELEASED[name])(self)
            return (lambda *given, **named: [*found(*given, **named)]) if name in LISTED else found


def call_noun(noun: object, *given: Any, **named: Any) -> Any:
    """Do what it meant to call a noun when it was a method, such as `client.bases()`. But for jobs, lists were lists."""
    name, _, method = CALLED[type(noun).__name__].partition(".")
    _warn(name, f"{name}.{method}", stacklevel=4)
    found = getattr(noun, method)(*given, **named)
    return [*found] if method == "list" and name != "jobs" else found


def _warn(old: str, new: str, *, stacklevel: int) -> None:
    """Warn the line that used the older name; `stacklevel` is its place in the stack, as `warnings.warn` counts."""
    warnings.warn(f"client.{old}(…) is client.{new}(…) now", DeprecationWarning, stacklevel=stacklevel)
