"""docs/notices/people.md shows messages as they are, and has the kinds of notices and the numbers of the code."""

import re
from typing import Any

from gangline.core.notices.digest import message_of
from gangline.core.notices.facts import NoticeFact, NoticeJob
from gangline.core.notices.kinds import FOR_PEOPLE, FOR_WEBHOOKS, NOTICES
from gangline.core.notices.message import NoticeMessage
from gangline.core.notices.pacing import INTERVAL_S, INTERVAL_S_MAX, PICTURES_S, parse_quiet_hours
from gangline.core.notices.pictures import PICTURE_BYTES_MAX
from gangline.core.server.settings import ServerSettings, merge_file
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "notices" / "people.md").read_text()
NAMES = ("Timber", "Rover", "Pepper", "Ruby", "Iditarod", "Lead", "Swing", "Team", "Wheel", "Point", "Husky", "Sled")


def job(name: str, **known: Any) -> NoticeJob:
    return NoticeJob(id=f"job-of-{name}", name=name, took_s=4320, machines=2, interruptions=3, **known)


def shown(message: NoticeMessage) -> str:
    return "```\n" + "\n".join((message.title, *message.lines, message.command)) + "\n```"


def test_the_page_shows_a_message_as_it_is() -> None:
    ready = NoticeJob(
        id="job-0190c3a1f4b9c01d2e3", name="Timber", took_s=4320, machines=2, interruptions=3, cost_usd=0.42
    )
    assert shown(message_of([NoticeFact(kind="succeeded", because="", job=ready)])) in PAGE


def test_the_page_shows_a_digest_as_it_is() -> None:
    done = [NoticeFact(kind="succeeded", because="", job=job(name, cost_usd=0.25)) for name in NAMES]
    failed = [
        NoticeFact(kind="failed", because="out of memory", job=job("Balto", cost_usd=0.05)),
        NoticeFact(kind="failed", because="training diverged: the loss is NaN", job=job("Togo", cost_usd=0.05)),
    ]
    assert shown(message_of([*done, *failed])) in PAGE


def test_the_page_has_each_kind_with_its_sentence_and_who_gets_it_by_default() -> None:
    rows = {
        kind: (says, default) for kind, says, default in re.findall(r"^\| `(\w+)` \| (.+?\.) \| (.+) \|$", PAGE, re.M)
    }
    assert list(rows) == list(NOTICES)
    for kind, notice in NOTICES.items():
        default = [who for who, kinds in (("people", FOR_PEOPLE), ("webhooks", FOR_WEBHOOKS)) if kind in kinds]
        assert rows[kind] == (notice.says, ", ".join(default) or "–")


def test_the_page_has_the_numbers_of_the_code() -> None:
    assert f"one message in {INTERVAL_S / 60:.0f} minutes at most" in PAGE
    assert f"waits up to {PICTURES_S / 60:.0f} minutes" in PAGE
    assert f"at most {PICTURE_BYTES_MAX / 1e6:.0f} MB" in PAGE
    assert INTERVAL_S_MAX == 86_400 and "to a day" in PAGE
    [quiet] = re.findall(r"quiet hours such as `(.+?)`", PAGE)
    assert str(parse_quiet_hours(quiet)) == quiet


def test_the_settings_of_the_page_are_settings() -> None:
    [text] = re.findall(r"```toml\n(.*?)```", PAGE, re.S)
    of = merge_file(ServerSettings, text.replace("user", "#"), "gangline.toml").settings.mail
    assert (of.host, of.sender, of.port_used) == ("smtp.example.org", "gangline@example.org", 587)
    assert not of.why_refused("someone@example.org") and of.why_refused("someone@sub.example.org")
    assert f"`interval_min_s` seconds ({of.interval_min_s:g})" in PAGE
