"""Read a model's licence from its card: from the YAML at the beginning of its README, as the hub does."""

import re

FRONT = re.compile(r"\A\ufeff?---\s*\n(.*?)\n---\s*(\n|\Z)", re.DOTALL)
LICENCE = re.compile(r"^(license_name|license):[ \t]*(.+?)[ \t]*$", re.MULTILINE)


def licence_of(readme: str) -> str:
    """Return the licence, empty if the card states none. A `license_name` overrides `license`, which is `other` then.

    >>> licence_of("---\\nlicense: openrail++\\ntags:\\n- a\\n---\\n# A model")
    'openrail++'
    """
    front = FRONT.match(readme.replace("\r\n", "\n"))
    said = dict(LICENCE.findall(front[1])) if front else {}
    return (said.get("license_name") or said.get("license") or "").strip("\"'")
