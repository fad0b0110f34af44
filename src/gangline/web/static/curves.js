// Small curves of the loss in the list of jobs: asked for the jobs in view, and again now and then while they run.
const AGAIN_MS = 20000;
const asked = new Map(); // job -> when
const inView = new Set();

const watcher = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) isIntersecting ? inView.add(target) : inView.delete(target);
  later();
}, { rootMargin: "200px" });

function watchAll() {
  document.querySelectorAll("#jobs .job:not([data-watched])").forEach((row) => {
    row.dataset.watched = "";
    watcher.observe(row);
  });
}

let waiting = 0;
function later() {
  if (!waiting) waiting = setTimeout(load, 150);
}

async function load() {
  waiting = 0;
  const now = performance.now();
  const due = [...inView].filter((row) => {
    if (!row.isConnected) return inView.delete(row), false;
    if (!row.querySelector(".curve")?.offsetParent) return false; // too narrow a page
    const at = asked.get(row.id);
    return at === undefined || (row.dataset.state === "running" && now - at > AGAIN_MS);
  }).slice(0, 60);
  if (!due.length) return;
  due.forEach((row) => asked.set(row.id, now));
  const query = due.map((row) => `job=${encodeURIComponent(row.id)}`).join("&");
  const response = await fetch(`/jobs/curves?${query}`, { headers: { "HX-Request": "true" } }).catch(() => null);
  if (!response?.ok) return;
  const found = await response.json();
  for (const [job, losses] of Object.entries(found)) draw(document.getElementById(`curve-${job}`), losses);
}

function draw(place, losses) {
  if (!place || losses.length < 2) return;
  const low = Math.min(...losses), high = Math.max(...losses), scale = high > low ? 18 / (high - low) : 0;
  const points = losses.map((loss, at) => `${((at * 72) / (losses.length - 1)).toFixed(1)},${(20 - (loss - low) * scale).toFixed(1)}`).join(" ");
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg"), line = document.createElementNS(space, "polyline");
  svg.setAttribute("viewBox", "0 0 72 22");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("class", "spark");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `Loss from ${losses[0].toPrecision(3)} to ${losses.at(-1).toPrecision(3)}`);
  line.setAttribute("points", points);
  line.setAttribute("fill", "none");
  svg.append(line);
  place.replaceChildren(svg);
}

watchAll();
document.body.addEventListener("htmx:after:swap", watchAll);
document.body.addEventListener("htmx:sse:after:message", watchAll);
setInterval(() => { if (!document.hidden) later(); }, AGAIN_MS / 2);
document.body.addEventListener("moment", () => { // of a replay: a job that has no loss now may have had one when it was drawn
  for (const row of document.querySelectorAll("#jobs .job")) {
    if (row.querySelector(".loss").textContent) continue;
    row.querySelectorAll("[hx-morph-skip]").forEach((each) => {
      each.replaceChildren();
      delete each.dataset.shown;
    });
  }
  asked.clear();
  later();
});
