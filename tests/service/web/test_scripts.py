"""The page's scripts as this server sends them: few bytes for each screen, and few altogether."""

import re
from collections.abc import Callable
from posixpath import dirname, join, normpath

from gangline.web.frame.assets import asset_address, assets
from tests.service.conftest import Service
from tests.service.web.conftest import Browser
from tests.service.web.test_styles import ALSO, OWN, shown

OF_A_SCREEN_MAX, COMPRESSED_MAX = 65_000, 100_000
IMPORTED = re.compile(r'^import (?:[^"]*? from )?"([^"]+)";$', re.MULTILINE)
SCRIPTS = {path: asset.content.decode() for path, asset in assets().items() if path.endswith(".js")}


def with_imports(paths: list[str]) -> set[str]:
    found, ahead = set[str](), paths
    while ahead:
        path = ahead.pop()
        if path not in found:
            found.add(path)
            ahead += [normpath(join(dirname(path), each)) for each in IMPORTED.findall(SCRIPTS[path])]
    return found


def test_a_screen_loads_few_scripts(page: Service, signed_in: Callable[[str], Browser]) -> None:
    browser = signed_in("operator")
    loaded = {
        name: with_imports(re.findall(r'<script [^>]*src="/assets/[0-9a-f]+/([^"]+)"', shown(page, browser, at)))
        for name, at in (OWN | {at: at for at in ALSO}).items()
    }
    assert loaded["job"] > {"htmx.js", "page.js", "clock.js", "job/charts.js", "job/log.js"}
    assert loaded["new"] > {"new/form.js", "new/photos.js", "new/tiles.js", "new/writing.js"}
    sizes = {name: sum(len(assets()[path].compressed) for path in paths) for name, paths in loaded.items()}
    assert max(sizes.values()) < OF_A_SCREEN_MAX, sizes


def test_all_scripts_together_are_few_bytes_as_browsers_ask_for_them(page: Service) -> None:
    sent = 0
    for path, text in SCRIPTS.items():
        answer = page.http.get(asset_address(path), headers={"Accept-Encoding": "gzip"})
        assert (answer.headers["content-encoding"], answer.text) == ("gzip", text)
        sent += int(answer.headers["content-length"])
    assert sent < COMPRESSED_MAX
