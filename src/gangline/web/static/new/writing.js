// Have captions written for the photos that have none, with the model of an earlier job, and take them over when the job has ended.
import { onServer } from "../elements.js";
import { say } from "../page.js";
import * as photos from "./photos.js";
import { answered } from "./uploads.js";

const button = document.querySelector("[data-write]"), RESULT = "captions.jsonl", AGAIN_MS = 2000;

button?.addEventListener("click", async () => {
  if (!button.dataset.write) return say("A model writes captions, and this project has none yet.", { hint: "Upload one once: gangline captions write PHOTOS --model FOLDER (gangline docs captions)." });
  const only = photos.uncaptioned(), version = photos.dataset();
  if (!version) return say("The photos are not ready yet.", { hint: "Try again once they are checked." });
  if (!only.length) return say("Every photo has a caption.");
  button.disabled = true;
  const words = button.textContent;
  try {
    const { spec } = await answered("GET", `/v1/jobs/${button.dataset.write}`);
    const job = await answered("POST", "/v1/jobs", { spec: { ...spec, photos: version, only }, name: `captions of ${version}` });
    await ended(job);
    const file = (await answered("GET", `/v1/jobs/${job.summary.id}/artifacts`)).find((each) => each.path === RESULT);
    const response = await fetch(onServer(file.url));
    if (!response.ok) throw new Error(`the captions could not be read: the store answered ${response.status}`);
    const lines = (await response.text()).split("\n").filter(Boolean).map((line) => JSON.parse(line));
    say(`${photos.caption(new Map(lines.map(({ photo, caption }) => [photo, caption])))} captions were written.`);
  } catch (error) {
    say(`No captions were written: ${error.message}`, { bad: true });
  } finally {
    button.disabled = false;
    button.textContent = words;
  }
});

async function ended({ summary }) {
  while (!["succeeded", "failed", "canceled"].includes(summary.state)) {
    button.textContent = summary.state === "running" ? `Writing ${summary.step} of ${summary.steps}…` : "Waiting for a node…";
    button.title = summary.because;
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
    ({ summary } = await answered("GET", `/v1/jobs/${summary.id}`));
  }
  if (summary.state !== "succeeded") throw new Error(summary.because);
}
