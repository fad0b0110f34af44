// Small curves of the loss and last pictures in the list of jobs.
import { by, make } from "./elements.js";
import { draw, follow } from "./sparks.js";

function show(job, { losses, picture }) {
  const low = Math.min(...losses), range = Math.max(...losses) - low;
  draw(by(`curve-${job}`), 72, losses.map((loss) => (range ? (loss - low) / range : 0)), `Loss from ${losses[0]?.toPrecision(3)} to ${losses.at(-1)?.toPrecision(3)}`);
  if (picture) hang(by(`picture-${job}`), picture);
}

function hang(place, address) {
  if (!place || place.dataset.shown === address) return;
  place.dataset.shown = address;
  const image = make("img", { width: 40, height: 40, alt: "Pictures", src: address });
  const link = make("a", { href: address.replace(/^\/v1(.*\/pictures)\/.*/, "$1") }, image);
  image.decode().then(() => place.replaceChildren(link), () => {});
}

const again = follow({ rows: "#jobs .job", name: "job", address: "/jobs/curves", againMs: 20000, due: (row, first) => first || row.dataset.state === "running", show });
document.body.addEventListener("moment", () => { // of a replay: a job that has no loss now may have had one when it was drawn
  for (const row of document.querySelectorAll("#jobs .job")) {
    if (row.querySelector(".loss").textContent) continue;
    row.querySelectorAll("[hx-morph-skip]").forEach((each) => {
      each.replaceChildren();
      delete each.dataset.shown;
    });
  }
  again();
});
