"""The screens of the page. What holds for all of them is tested for each: a new screen is a line here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from tests.browser.hostile import hostile
from tests.waiting import until

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
    in which `ready` is visible. With every change it is looked at in the light and, if it is `dark`, in the dark, too. `shows` are places
    of hostile texts that it shows, with blanks between them."""

    address: str
    then: Callable[["Page"], object] | None = None
    ready: str = ""
    signed_in: bool = True
    refused: bool = False
    nightly: bool = False
    dark: bool = False
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


def wait_for_captions(page: "Page") -> None:
    until(lambda: page.evaluate("document.querySelector('.photo textarea')?.value"))


def ask_before_canceling(page: "Page") -> None:
    page.get_by_role("button", name="Cancel", exact=True).click()


def ask_before_revoking(page: "Page") -> None:
    page.locator("#keys tr", has_text="WantedKey.name").get_by_role("button", name="Revoke").click()


SCREENS: Mapping[str, Screen] = {
    "jobs": Screen(
        address="/",
        dark=True,
        shows="Join.name Failed.because WantedJoinToken.pool NewExperiment.name NewExperiment.labels "
        "Submission.name Submission.labels LabelChanges.labels WantedClone.name LoraSpec.prompt "
        "SubjectEntry.prompt Needs.gpu Needs.pool DataRef.place CommandSpec.command",
    ),
    "jobs of a state": Screen(
        address="/?state=running&state=queued",
        nightly=True,
        shows="Join.name Failed.because WantedJoinToken.pool Submission.name Submission.labels "
        "LabelChanges.labels WantedClone.name LoraSpec.prompt SubjectEntry.prompt Needs.gpu "
        "Needs.pool DataRef.place CommandSpec.command",
    ),
    "a list without jobs": Screen(address="/?search=there-is-no-such-job", nightly=True),
    "a search for code": Screen(
        address="/?search=%22%3E%3Cimg+src%3D%2Fhostile+onerror%3D1%3E&label=hostile&owner=me", nightly=True
    ),
    "an address that is wrong": Screen(address="/?label=%3D", nightly=True, refused=True),
    "a job": Screen(
        address="/jobs/{job}",
        dark=True,
        ready="#log-text >> text=Log.text",
        shows="Join.name Join.gpu File.path Reject.because Log.text Failed.because WantedKey.name "
        "Submission.name Submission.labels LabelChanges.labels LoraSpec.base_licence "
        "LoraSpec.prompt LoraSpec.caption_separator LoraSpec.class_prompt LoraSpec.target_modules "
        "LoraSpec.sample_prompts SamplePrompt.negative_prompt LoraSpec.output_name",
    ),
    "files of a checkpoint": Screen(
        address="/jobs/{job}",
        then=open_files,
        ready="#files-found li",
        nightly=True,
        shows="Join.name Join.gpu Commit.manifest File.path Reject.because Failed.because "
        "WantedKey.name Submission.name Submission.labels LabelChanges.labels "
        "LoraSpec.base_licence LoraSpec.prompt LoraSpec.caption_separator LoraSpec.class_prompt "
        "LoraSpec.target_modules LoraSpec.sample_prompts SamplePrompt.negative_prompt "
        "LoraSpec.output_name",
    ),
    "a question": Screen(
        address="/jobs/{waiting}",
        then=ask_before_canceling,
        ready="#confirm",
        shows="File.path WantedKey.name LoraSpec.base_licence LoraSpec.prompt "
        "LoraSpec.caption_separator LoraSpec.class_prompt LoraSpec.target_modules "
        "LoraSpec.sample_prompts SamplePrompt.negative_prompt Needs.gpu Needs.pool "
        "LoraSpec.output_name",
        nightly=True,
    ),
    "a spec as JSON": Screen(
        address="/jobs/{job}",
        then=show_json,
        ready="#spec-json >> text=SamplePrompt.prompt",
        nightly=True,
        shows="Join.name Join.gpu File.path Reject.because Failed.because WantedKey.name "
        "Submission.name Submission.labels LabelChanges.labels LoraSpec.base_licence "
        "LoraSpec.prompt LoraSpec.caption_separator LoraSpec.class_prompt LoraSpec.target_modules "
        "LoraSpec.sample_prompts SamplePrompt.prompt SamplePrompt.negative_prompt "
        "LoraSpec.output_name",
    ),
    "a scratch job": Screen(
        address="/jobs/{scratch}",
        then=show_json,
        ready="#spec-json >> text=DataRef.where",
        nightly=True,
        shows="File.path WantedKey.name ScratchSpec.base_licence DataRef.place DataRef.id DataRef.where "
        "TrainingPhase.where ScratchSpec.held_out ScratchSpec.sample_prompts",
    ),
    "a job of several subjects": Screen(
        address="/jobs/{subjects}",
        nightly=True,
        shows="WantedKey.name SubjectEntry.folder SubjectEntry.prompt SubjectEntry.class_prompt",
    ),
    "a job that has ended": Screen(
        address="/jobs/{album}",
        nightly=True,
        shows="Join.name Join.gpu WantedKey.name Submission.name LoraSpec.sample_prompts Output.path",
    ),
    "a command": Screen(
        address="/jobs/{command}",
        then=show_json,
        ready="#spec-json >> text=BroughtFolder",
        nightly=True,
        shows="File.path WantedKey.name CommandSpec.command BroughtFolder.name CommandSpec.python "
        "CommandSpec.checkpoints CommandSpec.results CommandSpec.complete_when CommandSpec.step",
    ),
    "a job of captions": Screen(
        address="/jobs/{captions}",
        nightly=True,
        shows="WantedKey.name CaptionSpec.prefix CaptionSpec.exclude CaptionSpec.instruction",
    ),
    "a clone": Screen(
        address="/jobs/{clone}",
        nightly=True,
        shows="File.path WantedKey.name Submission.labels LabelChanges.labels WantedClone.changes "
        "WantedClone.name LoraSpec.base_licence LoraSpec.caption_separator LoraSpec.class_prompt "
        "LoraSpec.target_modules LoraSpec.sample_prompts SamplePrompt.negative_prompt "
        "LoraSpec.output_name",
    ),
    "all events of a job": Screen(
        address="/jobs/{job}/events", nightly=True, shows="Join.name Reject.because Failed.because Submission.name"
    ),
    "what differs between two jobs": Screen(
        address="/jobs/{job}/diff?with={other}",
        shows="Join.gpu Failed.because NewExperiment.name Submission.spec Submission.name "
        "WantedClone.name LoraSpec.prompt SubjectEntry.prompt DataRef.place CommandSpec.command",
    ),
    "pictures of a job": Screen(
        address="/jobs/{album}/pictures", ready="#grid img", shows="Submission.name LoraSpec.sample_prompts"
    ),
    "a picture": Screen(
        address="/jobs/{album}/pictures?picture=" + PICTURE,
        ready="#viewer",
        shows="Submission.name LoraSpec.sample_prompts",
    ),
    "two steps under a slider": Screen(
        address="/jobs/{album}/pictures?against=step&picture=" + PICTURE,
        ready="#divider",
        nightly=True,
        shows="Submission.name LoraSpec.sample_prompts",
    ),
    "pictures of two jobs": Screen(
        address="/jobs/{album}/pictures?view=side&with={run}&picture=" + PICTURE,
        ready="[data-pane=a] figcaption",
        nightly=True,
        shows="NewExperiment.name Submission.name WantedClone.name LoraSpec.prompt SubjectEntry.prompt "
        "LoraSpec.sample_prompts DataRef.place CommandSpec.command",
    ),
    "pictures of a job of an experiment": Screen(
        address="/jobs/{run}/pictures",
        ready="#grid img",
        nightly=True,
        shows="LoraSpec.sample_prompts NewExperiment.name NewExperiment.spec",
    ),
    "experiments": Screen(address="/experiments", shows="NewExperiment.name"),
    "an experiment": Screen(
        address="/experiments/{experiment}",
        ready="#curves-plot canvas",
        shows="NewExperiment.spec NewExperiment.name Setting.value",
    ),
    "new job": Screen(
        address="/new",
        dark=True,
        ready="#plan .figures, #plan .lacks",
        shows="Join.name Join.gpu WantedBase.licence Preset.name Preset.about Offer.gpu",
    ),
    "new job like another": Screen(
        address="/new?from={job}",
        ready="#plan .figures",
        nightly=True,
        shows="Join.name Join.gpu WantedBase.licence LoraSpec.base_licence LoraSpec.prompt "
        "LoraSpec.caption_separator LoraSpec.class_prompt LoraSpec.target_modules Preset.name "
        "Preset.about Offer.gpu",
    ),
    "new job on a data set": Screen(
        address="/new?dataset=hostile@1",
        then=wait_for_captions,
        ready=".photo img",
        shows="Preset.name Preset.about Caption.text Photo.path",
        nightly=True,
    ),
    "new job of a recipe": Screen(
        address="/new",
        then=fill_in_a_recipe,
        nightly=True,
        shows="Preset.name Preset.about Recipe.prompt Recipe.name",
    ),
    "fleet": Screen(
        address="/fleet",
        dark=True,
        shows="Join.name Join.gpu Notice.because WantedPool.offers PoolChange.offers Offer.id Offer.gpu",
    ),
    "a node": Screen(
        address="/fleet/{node}",
        shows="Join.machine Join.name Join.gpu Join.capabilities Join.problems Join.measured "
        "Notice.because Failed.because NewExperiment.name Submission.name",
    ),
    "a rented node": Screen(address="/fleet/{rented}", nightly=True, shows="Join.place Offer.id"),
    "queue": Screen(
        address="/queue",
        shows="WantedJoinToken.pool Submission.name WantedClone.name LoraSpec.prompt "
        "SubjectEntry.prompt Needs.gpu Needs.pool DataRef.place CommandSpec.command",
    ),
    "cost": Screen(address="/cost"),
    "cost by job": Screen(address="/cost?by=job", nightly=True, shows="NewExperiment.name Submission.name"),
    "cost by node": Screen(address="/cost?by=node", nightly=True, shows="Join.name"),
    "keys": Screen(address="/keys", shows="WantedKey.name WantedJoinToken.name WantedJoinToken.pool"),
    "a question about a key": Screen(
        address="/keys",
        then=ask_before_revoking,
        ready="#confirm",
        nightly=True,
        shows="WantedKey.name WantedJoinToken.name WantedJoinToken.pool",
    ),
    "notices": Screen(address="/notices", shows="WantedEndpoint.name EndpointChange.name"),
    "log of notices": Screen(address="/notices/{endpoint}/log", shows="WantedEndpoint.name", nightly=True),
    "sign-in": Screen(address="/sign-in", signed_in=False),
}
"""The screens of a server."""
REPLAYED: Mapping[str, Screen] = {
    "jobs": Screen(address="/", nightly=True, shows="Scenario.title"),
    "a job": Screen(
        address="/jobs/{job}", ready="#chart-list canvas", nightly=True, shows="Scenario.title Scenario.gpu"
    ),
}
"""The screens of a replay."""
