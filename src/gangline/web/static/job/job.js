// The screen of a job: its dialogs, what is copied, and its spec as JSON.
import { ask, say } from "../page.js";

const job = document.getElementById("job").dataset.job;

document.addEventListener("click", (event) => {
  const opens = event.target.closest?.("[data-opens]");
  if (opens) {
    const dialog = document.getElementById(`dialog-${opens.dataset.opens}`);
    if (!dialog) return;
    dialog.querySelectorAll(".error[role=alert]").forEach((each) => (each.hidden = true));
    if (opens.dataset.from) dialog.querySelector("[name=from]").value = opens.dataset.from;
    dialog.showModal();
    dialog.dispatchEvent(new Event("opened"));
  }
  event.target.closest?.("[data-closes]")?.closest("dialog").close();
  const copies = event.target.closest?.("[data-copy]");
  if (copies) copy(copies.dataset.copy);
});

document.body.addEventListener("toast", () => {
  for (const dialog of document.querySelectorAll("main dialog[open]")) {
    const before = dialog.querySelector("[name=before]");
    if (before) before.value = dialog.querySelector("[name=labels]").value; // what is there now
    dialog.close();
  }
});

document.body.addEventListener("gone", () => {
  document.getElementById("job-actions").hidden = true;
  document.getElementById("job-deleted").hidden = false;
});

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    say("Copied.");
  } catch {
    say("The browser does not let this page copy.", { hint: text.length < 100 ? text : "Select the text and copy it.", bad: true });
  }
}

const json = document.getElementById("spec-json");
json.addEventListener("toggle", async () => {
  const place = json.querySelector("pre");
  if (!json.open || place.textContent) return;
  const answer = await ask("GET", `/v1/jobs/${job}`);
  place.textContent = answer.ok ? JSON.stringify((await answer.json()).spec, null, 2) : "The server does not answer.";
});
document.getElementById("spec-copy").addEventListener("click", () => copy(json.querySelector("pre").textContent));
