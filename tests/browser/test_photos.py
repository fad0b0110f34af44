"""Photos that are dropped into the form of a new job: each has its own caption, also after a reload, and what cannot be read is named."""

import base64
import hashlib
import re
from collections.abc import Mapping

import pytest
from playwright.sync_api import Page, expect

from tests.browser.cluster import Cluster
from tests.browser.conftest import Tab
from tests.browser.conftest import one_cluster as cluster
from tests.browser.conftest import one_tab as tab
from tests.service.datasets.conftest import Sets, picture
from tests.waiting import until

__all__ = ["cluster", "tab"]  # fixtures
pytestmark = pytest.mark.nightly
A = {"a/1.png": picture(1), "a/1.txt": b"of a"}
B = {"b/1.png": picture(2, (32, 24)), "b/1.txt": b"of b"}
DROP = """([files, unreadable]) => {
  const folders = new Map(), because = new DOMException("It cannot be read.", "NotReadableError");
  for (const [path, content] of Object.entries(files)) {
    const [folder, name] = path.split("/"), file = new File([Uint8Array.from(atob(content), (each) => each.charCodeAt(0))], name);
    if (unreadable.includes(path)) file.text = () => Promise.reject(because);
    const unopened = unreadable.includes(path) && !name.endsWith(".txt");
    const entry = { isFile: true, name, file: (done, failed) => (unopened ? failed(because) : done(file)) };
    folders.set(folder, [...(folders.get(folder) ?? []), entry]);
  }
  const entry = (name, left) => ({ isFile: false, name, createReader: () => ({ readEntries: (done) => done(left.splice(0)) }) });
  const items = [...folders].map(([name, left]) => ({ webkitGetAsEntry: () => entry(name, left) }));
  dispatchEvent(Object.assign(new Event("drop"), { dataTransfer: { types: ["Files"], items } }));
}"""


def drop(page: Page, files: Mapping[str, bytes], unreadable: tuple[str, ...] = ()) -> None:
    """Let folders of files fall onto the page. A text that is unreadable can be opened, and not read."""
    page.evaluate(
        DROP, [{path: base64.b64encode(content).decode() for path, content in files.items()}, list(unreadable)]
    )


def captions(page: Page, sets: Sets) -> dict[str, str]:
    """Return the hashes of the captions of the data set, as soon as it is ready, by their paths."""
    says = page.locator("#photos [data-summary]")
    until(lambda: (sets.check(), says.inner_text())[1].endswith("ready"))
    found = re.search(r"(\S+)@(\d+) · ready", says.inner_text())
    assert found
    return {each["path"]: each["sha256"] for each in sets.files(found[1], int(found[2])) if each["role"] == "caption"}


def stored(text: str) -> str:
    return hashlib.sha256(f"{text}\n".encode()).hexdigest()


def test_photos_of_two_folders_with_the_same_names_keep_their_own_captions(tab: Tab, cluster: Cluster) -> None:
    page = tab.open("/new").page
    drop(page, A | B)
    expect(page.locator(".photo")).to_have_count(2)
    assert captions(page, Sets(cluster.service)) == {"1.txt": stored("of a"), "1-2.txt": stored("of b")}


def test_a_second_folder_leaves_the_captions_of_the_first(tab: Tab, cluster: Cluster) -> None:
    page, sets = tab.open("/new").page, Sets(cluster.service)
    drop(page, A)
    page.locator(".photo textarea").fill("typed")
    drop(page, B)
    expect(page.locator(".photo")).to_have_count(2)
    assert captions(page, sets) == {"1.txt": stored("typed"), "1-2.txt": stored("of b")}


def test_captions_that_come_later_or_from_a_folder_of_their_own_find_their_photos(tab: Tab, cluster: Cluster) -> None:
    page, sets = tab.open("/new").page, Sets(cluster.service)
    drop(page, {"photos/1.png": A["a/1.png"], "texts/1.txt": b"beside"})
    expect(page.locator(".photo textarea")).to_have_value("beside")
    drop(page, {"texts/1.txt": b"later"})
    expect(page.locator(".photo textarea")).to_have_value("later")
    assert captions(page, sets) == {"1.txt": stored("later")}


def test_a_photo_that_is_there_already_brings_its_caption_to_the_one_that_has_none(tab: Tab, cluster: Cluster) -> None:
    page, sets = tab.open("/new").page, Sets(cluster.service)
    drop(page, {"a/1.png": A["a/1.png"]})
    assert captions(page, sets) == {}
    page.reload()
    assert captions(page, sets) == {}
    drop(page, A)
    expect(page.locator("[data-notes]")).to_contain_text("1-2.png is here already")
    expect(page.locator(".photo textarea")).to_have_value("of a")
    assert captions(page, sets) == {"1.txt": stored("of a")}


def test_a_caption_that_was_changed_before_a_reload_is_the_one_of_the_data_set(tab: Tab, cluster: Cluster) -> None:
    page, sets = tab.open("/new").page, Sets(cluster.service)
    drop(page, A)
    expect(page.locator(".photo")).to_have_count(1)
    assert captions(page, sets) == {"1.txt": stored("of a")}
    page.locator(".photo textarea").fill("changed")
    page.reload()
    expect(page.locator(".photo textarea")).to_have_value("changed")
    assert captions(page, sets) == {"1.txt": stored("changed")}


def test_files_that_cannot_be_read_are_named_and_the_others_taken(tab: Tab, cluster: Cluster) -> None:
    page = tab.open("/new").page
    drop(page, A | B | {"b/2.txt": b""}, ("a/1.txt", "b/1.png", "b/2.txt"))
    expect(page.locator("[data-notes]")).to_contain_text("Could not be read: b/1.png, a/1.txt, b/2.txt.")
    expect(page.locator(".photo")).to_have_count(1)
    captions(page, Sets(cluster.service))


def test_photos_wait_for_a_script_that_could_not_be_loaded(tab: Tab, cluster: Cluster) -> None:
    tab.asked += ["404", "hash.js"]
    page, script = tab.page, re.compile(r"/new/hash\.js$")
    page.route(script, lambda route: route.fulfill(status=404, body=""))
    tab.open("/new")
    drop(page, A)
    expect(page.locator("[data-sent]")).to_contain_text("A script of this page cannot be loaded")
    page.unroute(script)
    page.get_by_role("button", name="Try again").click()
    assert captions(page, Sets(cluster.service)) == {"1.txt": stored("of a")}
