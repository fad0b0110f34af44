"""What a chat shows is what the message says: no name in it formats text, pings anybody or hides a link."""

import json
import re
from email import message_from_bytes
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from gangline.core.display import printable
from gangline.core.notices.chat import (
    DESCRIPTION_MAX,
    HEADER_MAX,
    SECTION_MAX,
    TEXT_MAX,
    TITLE_MAX,
    discord_request,
    safe_file_name,
    slack_request,
)
from gangline.core.notices.message import NoticeMessage, NoticePicture

URL = "https://chat.example/hooks/T0/B0"
PNG = b"\x89PNG\r\n\x1a\nimage\r\n--"
TIMBER = NoticeMessage(
    title="Timber is ready",
    lines=("It took 12 min on one machine and cost $0.42.",),
    command="gangline artifacts job-1 --to timber",
)
MARKUP = st.text("*_~`[]()<>|#-+=!@&:/.\\ \nab1\u202e\u200d", max_size=60)
TEXTS = st.one_of(MARKUP, st.text(max_size=60))
HOSTILE = "<!channel> @everyone <@U1> *b* _i_ ~s~ `c` [x](http://a) <http://a|b> &lt; # h > q\n- l\n1. o\n\u202egpj"


def parsed(request: Any) -> dict[str, Any]:
    return json.loads(request.body)


def shown(markdown: str) -> tuple[str, set[str]]:
    """The text that a reader of Markdown sees, line by line, and the kinds of markup in it."""
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(markdown)
    text, kinds = "", set[str]()
    for token in tokens:
        kinds.add(token.type)
        text += "\n".join(_text(token, kinds))
        text += "\n" if token.type in ("inline", "fence") else ""
    return text.rstrip("\n"), kinds


def _text(token: Token, kinds: set[str]) -> list[str]:
    lines = [token.content] if token.type in ("fence", "code_block") else [""]
    for child in token.children or ():
        kinds.add(child.type)
        if child.type in ("softbreak", "hardbreak"):
            lines.append("")
        else:
            lines[-1] += child.content
    return lines


PLAIN = {"paragraph_open", "paragraph_close", "inline", "text", "text_special", "softbreak"}


def message(title: str, line: str) -> NoticeMessage:
    return NoticeMessage(title=title, lines=(line,), command="gangline jobs ls")


def as_read(*texts: str) -> str:
    return "\n".join(found for text in texts if (found := printable(text).strip()))


# ----------------------------------------------------------------------------------------------------- Slack and compatible


def test_slack_gets_blocks_of_plain_text_and_others_the_same_text() -> None:
    request = slack_request(URL, TIMBER)
    assert request.url == URL and dict(request.headers) == {"Content-Type": "application/json"}
    assert parsed(request) == {
        "text": "Timber is ready\nIt took 12 min on one machine and cost $0.42.\n`gangline artifacts job-1 --to timber`",
        "blocks": [
            {"type": "header", "text": {"type": "plain_text", "text": "Timber is ready", "emoji": False}},
            {
                "type": "section",
                "text": {
                    "type": "plain_text",
                    "text": "It took 12 min on one machine and cost $0.42.",
                    "emoji": False,
                },
            },
            {"type": "section", "text": {"type": "mrkdwn", "text": "`gangline artifacts job-1 --to timber`"}},
        ],
    }


def test_a_usual_name_is_readable_without_markdown() -> None:
    text = parsed(slack_request(URL, message("timber_v2-final (3) is ready", "It cost $0.42.")))["text"]
    assert text == "timber_v2-final (3) is ready\nIt cost $0.42.\n`gangline jobs ls`"


@given(TEXTS, TEXTS)
@example(HOSTILE, HOSTILE)
def test_no_name_is_markup_for_mattermost_or_slack(title: str, line: str) -> None:
    text = parsed(slack_request(URL, message(f"x {title}", f"{line} x")))["text"]
    read, kinds = shown(text)
    assert kinds <= PLAIN | {"code_inline"}
    assert read == as_read(f"x {title}", f"{line} x").replace("@", "＠") + "\ngangline jobs ls"
    assert "<" not in text and ">" not in text, "mrkdwn has no mention or link without them"


@given(TEXTS)
def test_slack_itself_interprets_nothing_but_the_command(line: str) -> None:
    blocks = parsed(slack_request(URL, message(line or "x", line or "x")))["blocks"]
    assert [block["text"]["type"] for block in blocks] == ["plain_text", "plain_text", "mrkdwn"]
    assert all(block["text"].get("emoji", False) is False for block in blocks)


def test_slack_messages_stay_within_its_limits() -> None:
    long = NoticeMessage(title="*" * 500, lines=("@" * 5000, "&" * 5000), command="gangline jobs ls")
    told = parsed(slack_request(URL, long))
    assert len(told["blocks"][0]["text"]["text"]) == HEADER_MAX
    assert len(told["blocks"][1]["text"]["text"]) == SECTION_MAX
    assert len(told["text"]) <= TEXT_MAX + 50
    assert not re.search(r"&(?!amp;)", told["text"]), "an escape is not cut in two"


# ------------------------------------------------------------------------------------------------------------------ Discord


def test_discord_gets_an_embed_that_pings_nobody() -> None:
    told = parsed(discord_request(URL, message("@everyone", "<@&1>")))
    assert told["allowed_mentions"] == {"parse": []}
    [embed] = told["embeds"]
    assert embed["title"] == r"\@everyone" and embed["description"] == "\\<\\@\\&1\\>\n```\ngangline jobs ls\n```"


def test_a_discord_message_shows_by_its_colour_whether_somebody_has_to_act() -> None:
    urgent = NoticeMessage(title="Timber failed", lines=(), urgent=True)
    assert len({parsed(discord_request(URL, each))["embeds"][0]["color"] for each in (urgent, TIMBER)}) == 2


@given(TEXTS, TEXTS)
@example(HOSTILE, HOSTILE)
def test_no_name_is_markup_for_discord(title: str, line: str) -> None:
    [embed] = parsed(discord_request(URL, message(f"x {title}", f"{line} x")))["embeds"]
    read, kinds = shown(embed["description"])
    assert kinds <= PLAIN | {"fence"}
    assert read == as_read(f"{line} x") + "\ngangline jobs ls"
    assert shown(embed["title"]) == (as_read(f"x {title}"), PLAIN & shown(embed["title"])[1])


def test_discord_messages_stay_within_its_limits() -> None:
    long = NoticeMessage(title="*" * 500, lines=("@" * 5000, "&" * 5000), command="c" * 200)
    [embed] = parsed(discord_request(URL, long))["embeds"]
    assert len(embed["title"]) <= TITLE_MAX and len(embed["description"]) <= 4096
    assert len(embed["title"]) + len(embed["description"]) <= 6000 and DESCRIPTION_MAX < 4096


def test_a_picture_is_a_file_of_the_form_and_the_image_of_the_embed() -> None:
    picture = NoticePicture(name='gr"id\r\n.png', content=PNG)
    request = discord_request(URL, NoticeMessage(title="Timber is ready", lines=(), picture=picture))
    assert request == discord_request(URL, NoticeMessage(title="Timber is ready", lines=(), picture=picture))
    head = "".join(f"{name}: {value}\r\n" for name, value in request.headers)
    parts = message_from_bytes(head.encode() + b"\r\n" + request.body).get_payload()
    assert isinstance(parts, list)
    payload, file = (part for part in parts if not isinstance(part, str))
    assert payload.get_param("name", header="Content-Disposition") == "payload_json"
    told = json.loads(payload.get_payload(decode=True))  # pyright: ignore[reportArgumentType]
    assert told["embeds"][0]["image"] == {"url": "attachment://gr-id-.png"}
    assert file.get_param("name", header="Content-Disposition") == "files[0]"
    assert (file.get_filename(), file.get_content_type()) == ("gr-id-.png", "image/png")
    assert file.get_payload(decode=True) == PNG


@pytest.mark.parametrize(("name", "safe"), [("grid.png", "grid.png"), ("..", "picture"), ("a/ü\n.png", "a-.png")])
def test_a_file_name_has_no_character_with_a_meaning(name: str, safe: str) -> None:
    assert safe_file_name(NoticePicture(name=name, content=b"")) == safe
