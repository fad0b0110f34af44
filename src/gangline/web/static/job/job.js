// The screen of a job: its dialogs, and its spec as JSON.
import { by } from "../elements.js";
import { ask, reload } from "../page.js";

const { job } = by("job").dataset;

document.addEventListener("click", (event) => {
  const opens = event.target.closest?.("[data-opens]");
  if (opens) {
    const dialog = by(`dialog-${opens.dataset.opens}`);
    if (!dialog) return;
    dialog.querySelectorAll(".error[role=alert]").forEach((each) => (each.hidden = true));
    if (opens.dataset.from) begin(dialog.querySelector("[name=from]"), opens.dataset.from);
    dialog.showModal();
    preview(dialog);
  }
  event.target.closest?.("[data-closes]")?.closest("dialog").close();
});

function begin(select, step) { // a checkpoint may have come after the page was loaded
  if (![...select.options].some((each) => each.value === step)) select.add(new Option(`from the checkpoint of step ${step}`, step));
  select.value = step;
}

// What a form would do is shown while one types.

let typed = 0;
document.addEventListener("input", (event) => {
  const dialog = event.target.closest?.("dialog");
  clearTimeout(typed);
  if (dialog) typed = setTimeout(() => preview(dialog), 350);
});

function preview(dialog) {
  if (dialog.open) dialog.querySelector("[data-preview]")?.dispatchEvent(new Event("preview"));
}

// What was done shows at once: labels and pins are no events, which the stream would bring.

document.addEventListener("toast", () => {
  for (const dialog of document.querySelectorAll("main dialog[open]")) {
    const before = dialog.querySelector("[name=before]");
    if (before) before.value = dialog.querySelector("[name=labels]").value; // what is there now
    dialog.close();
  }
  reload();
});

document.body.addEventListener("gone", () => {
  by("job-actions").hidden = true;
  by("job-deleted").hidden = false;
});

const json = by("spec-json");
json.addEventListener("toggle", async () => {
  const place = json.querySelector("pre");
  if (!json.open || place.textContent) return;
  const answer = await ask("GET", `/v1/jobs/${job}`);
  place.textContent = answer.ok ? JSON.stringify((await answer.json()).spec, null, 2) : "The server does not answer.";
});
