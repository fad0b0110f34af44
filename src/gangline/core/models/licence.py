"""What a model's card says of its licence: the YAML at the beginning of its README, as the hub reads it."""

import re

FRONT = re.compile(r"\A\ufeff?---\s*\n(.*?)\n---\s*(\n|\Z)", re.DOTALL)
LICENCE = re.compile(r"^(license_name|license):[ \t]*(.+?)[ \t]*$", re.MULTILINE)


def licence_of(readme: str) -> str:
    """Empty where it says nothing. A name of its own goes before `other`.

    >>> licence_of("---\\nlicense: openrail++\\ntags:\\n- a\\n---\\n# A model")
    'openrail++'
    """
    front = FRONT.match(readme.replace("\r\n", "\n"))
    said = dict(LICENCE.findall(front[1])) if front else {}
    return (said.get("license_name") or said.get("license") or "").strip("\"'")
