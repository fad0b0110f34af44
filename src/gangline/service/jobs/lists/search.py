"""Search a page of a list of jobs: read the texts of those that its other filters let through, as many as a page may compare."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from gangline.core.jobs.lists.filters import ListPosition
from gangline.core.jobs.lists.ids import as_list
from gangline.core.jobs.lists.search import SEARCHED_AT_ONCE, SEARCHED_BYTES_MAX, SearchedJob, is_found
from gangline.service.deployment import Deployment


def search_jobs(
    deployment: Deployment,
    project: str,
    search: str,
    given: Sequence[ListPosition],
    following: ListPosition | None,
    limit: int,
) -> tuple[tuple[ListPosition, ...], ListPosition | None]:
    """Return the first `limit` of these jobs that have the text, and where the next page begins: after the last job that was compared."""
    bases = _names_of_bases(deployment, project) if given else {}
    found, characters = list[ListPosition](), 0
    for start in range(0, len(given), SEARCHED_AT_ONCE):
        part = given[start : start + SEARCHED_AT_ONCE]
        if characters > SEARCHED_BYTES_MAX:
            return tuple(found), given[start - 1]
        jobs = _read(deployment, [at.id for at in part], bases)
        characters += sum(len(job.spec) for job in jobs.values())
        for at in part:
            if at.id not in jobs or not is_found(search, jobs[at.id]):
                continue
            found.append(at)
            if len(found) == limit:
                return tuple(found), at if at != given[-1] else following
    return tuple(found), following


def _read(deployment: Deployment, ids: Sequence[str], bases: Mapping[str, Sequence[str]]) -> dict[str, SearchedJob]:
    listed, labels = as_list(ids), defaultdict[str, dict[str, str]](dict)
    for row in deployment.store.load("labels_of_jobs", **listed):
        labels[row["job"]][row["key"]] = row["value"]
    rows = deployment.store.load("searched_jobs", **listed)
    return {
        row["id"]: SearchedJob(**row, labels=labels.get(row["id"], {}), bases=bases.get(row["base"], ()))
        for row in rows
    }


def _names_of_bases(deployment: Deployment, project: str) -> Mapping[str, Sequence[str]]:
    """Return the names of the project's bases, by the id of the base."""
    found = defaultdict[str, list[str]](list)
    for row in deployment.store.load("bases", project=project):
        found[row["base_id"]].append(row["name"])
    return found
