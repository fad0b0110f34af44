"""The screens of the page. What holds for all of them is tested for each: a new screen is a line here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from tests.browser.hostile import hostile

if TYPE_CHECKING:
    from playwright.sync_api import Page

PICTURE = quote("samples/step-000050/prompt-00-seed-1.png")
RECIPE = f"""
prompt = '''{hostile("Recipe.prompt")}'''
name = '''{hostile("Recipe.name")}'''
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """The address of a screen, in which `{job}` and the like are ids of `HostileIds`; `then` brings it into the state that is looked at,
    in which `ready` is visible. `shows` are places of hostile texts that it shows, with blanks between them."""

    address: str
    then: Callable[["Page"], object] | None = None
    ready: str = ""
    signed_in: bool = True
    refused: bool = False
    nightly: bool = False
    shows: str = ""


def open_files(page: "Page") -> None:
    page.get_by_role("button", name="Files").first.click()


def show_json(page: "Page") -> None:
    page.get_by_text("As JSON").click()


def fill_in_a_recipe(page: "Page") -> None:
    page.get_by_text("Several jobs, name, recipe").click()
    page.locator("#recipe").fill(RECIPE)
    page.get_by_role("button", name="Fill in the form").click()
    page.locator("#toasts").get_by_text("The form has the settings").wait_for()


def ask_before_canceling(page: "Page") -> None:
    page.get_by_role("button", name="Cancel", exact=True).click()


def ask_before_revoking(page: "Page") -> None:
    page.locator("#keys tr", has_text="WantedKey.name").get_by_role("button", name="Revoke").click()


SCREENS: Mapping[str, Screen] = {
    "jobs": Screen(address="/"),
    "jobs of a state": Screen(address="/?state=running&state=queued", nightly=True),
    "a list without jobs": Screen(address="/?search=there-is-no-such-job"),
    "a search for code": Screen(
        address="/?search=%22%3E%3Cimg+src%3D%2Fhostile+onerror%3D1%3E&label=hostile&owner=me", nightly=True
    ),
    "an address that is wrong": Screen(address="/?label=%3D", refused=True),
    "a job": Screen(address="/jobs/{job}", ready="#log-text >> text=Log.text"),
    "files of a checkpoint": Screen(address="/jobs/{job}", then=open_files, ready="#files-found li"),
    "a question": Screen(address="/jobs/{waiting}", then=ask_before_canceling, ready="#confirm"),
    "a spec as JSON": Screen(
        address="/jobs/{job}", then=show_json, ready="#spec-json >> text=SamplePrompt.prompt", nightly=True
    ),
    "a scratch job": Screen(
        address="/jobs/{scratch}", then=show_json, ready="#spec-json >> text=DataRef.where", nightly=True
    ),
    "a job of several subjects": Screen(address="/jobs/{subjects}", nightly=True),
    "a job that has ended": Screen(address="/jobs/{album}", nightly=True),
    "a command": Screen(address="/jobs/{command}", then=show_json, ready="#spec-json >> text=BroughtFolder", nightly=True),
    "a job of captions": Screen(address="/jobs/{captions}", nightly=True),
    "a clone": Screen(address="/jobs/{clone}", nightly=True),
    "all events of a job": Screen(address="/jobs/{job}/events"),
    "what differs between two jobs": Screen(address="/jobs/{job}/diff?with={other}"),
    "pictures of a job": Screen(address="/jobs/{album}/pictures", ready="#grid img"),
    "a picture": Screen(address="/jobs/{album}/pictures?picture=" + PICTURE, ready="#viewer"),
    "two steps under a slider": Screen(
        address="/jobs/{album}/pictures?against=step&picture=" + PICTURE, ready="#divider", nightly=True
    ),
    "pictures of two jobs": Screen(
        address="/jobs/{album}/pictures?view=side&with={run}&picture=" + PICTURE, ready="[data-pane=a] figcaption"
    ),
    "experiments": Screen(address="/experiments"),
    "an experiment": Screen(address="/experiments/{experiment}", ready="#curves-plot canvas"),
    "new job": Screen(address="/new", ready="#plan .figures, #plan .lacks"),
    "new job like another": Screen(address="/new?from={job}", ready="#plan .figures", nightly=True),
    "new job on a data set": Screen(address="/new?dataset=hostile@1", ready=".photo img"),
    "new job of a recipe": Screen(address="/new", then=fill_in_a_recipe, nightly=True),
    "fleet": Screen(address="/fleet"),
    "a node": Screen(address="/fleet/{node}"),
    "a rented node": Screen(address="/fleet/{rented}", nightly=True),
    "queue": Screen(address="/queue"),
    "cost": Screen(address="/cost"),
    "cost by job": Screen(address="/cost?by=job", nightly=True),
    "cost by node": Screen(address="/cost?by=node", nightly=True),
    "keys": Screen(address="/keys"),
    "a question about a key": Screen(address="/keys", then=ask_before_revoking, ready="#confirm"),
    "notices": Screen(address="/notices"),
    "log of notices": Screen(address="/notices/{endpoint}/log"),
    "sign-in": Screen(address="/sign-in", signed_in=False),
}
"""The screens of a server."""
REPLAYED: Mapping[str, Screen] = {
    "jobs": Screen(address="/", shows="Scenario.title"),
    "a job": Screen(address="/jobs/{job}", ready="#chart-list canvas", shows="Scenario.title Scenario.gpu"),
}
"""The screens of a replay."""
