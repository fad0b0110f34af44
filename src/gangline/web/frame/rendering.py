"""Render templates. What comes from outside is escaped everywhere; a name that a template does not get is an error."""

from functools import cache
from hashlib import sha256
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from gangline.core.display import printable
from gangline.core.experiments.grid import setting_word
from gangline.core.experiments.terms import MEASURES
from gangline.core.fleet.slowness import limits_in_words
from gangline.core.words import counted, size_words
from gangline.version import VERSION
from gangline.web.frame import figures
from gangline.web.frame.assets import asset_address
from gangline.web.frame.together import actions_together

REPLACES = ' hx-swap-oob="outerMorph"'
"""What a fragment of a stream has besides what it has in its page."""


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("gangline.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "money": figures.money,
        "exact": figures.exact,
        "span": figures.span,
        "pace": figures.pace,
        "number": figures.number,
        "percent": figures.percent_shown,
        "share": figures.share_shown,
        "moment": figures.moment_shown,
        "coded": figures.coded,
        "written": figures.value_written,
        "size": size_words,
        "limits": limits_in_words,
        "shown": printable,
        "actions": actions_together,
        "setting": setting_word,
        "query": urlencode,
        "digest": digest_of_html,
    }
    made.globals |= {
        "asset": asset_address,
        "ago": figures.ago,
        "cost": figures.cost_shown,
        "sentences": figures.as_sentences,
        "counted": counted,
        "MEASURES": MEASURES,
        "version": VERSION,
    }
    return made


@cache
def _template(name: str) -> Template:
    return _environment().get_template(name)


def digest_of_html(html: str) -> str:
    """Return a short name of HTML: the same for an element of a page as for its fragment in the stream, which says that it replaces it."""
    return sha256(html.replace(REPLACES, "").encode()).hexdigest()[:32]


def filled_template(name: str, /, **values: Any) -> str:
    """Return a template of `templates` with these values."""
    return _template(name).render(values)


def block(name: str, part: str, /, **values: Any) -> str:
    """Return one macro of a template: a fragment that the whole page and its stream have in common."""
    return str(getattr(_module(name), part)(**values))


@cache
def _module(name: str) -> Any:
    return _template(name).module
