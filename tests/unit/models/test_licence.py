"""The licence of a base, from its card."""

import pytest

from gangline.core.models.licence import licence_of


@pytest.mark.parametrize(
    ("readme", "licence"),
    [
        ("---\nlicense: openrail++\n---\n# A model", "openrail++"),
        ("---\r\nlicense: mit\r\n---\r\n", "mit"),
        ("---\nlicense: other\nlicense_name: 'a licence of ours'\n---\n", "a licence of ours"),
        ("# A model\nlicense: mit\n", ""),
        ("---\ntags:\n- license\n---\nlicense: mit", ""),
        ("", ""),
    ],
)
def test_a_card_says_its_licence_at_its_beginning_or_not_at_all(readme: str, licence: str) -> None:
    assert licence_of(readme) == licence
