// The list of nodes: small curves of the last hour for nodes in view, and what is selected.
const AGAIN_MS = 60000, PART = 60;
const asked = new Map(); // node -> when
const inView = new Set();
const watcher = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) isIntersecting ? inView.add(target) : inView.delete(target);
  later();
}, { rootMargin: "200px" });

function watch() {
  document.querySelectorAll("#nodes .node:not([data-watched])").forEach((row) => {
    row.dataset.watched = "";
    watcher.observe(row);
  });
  count();
}

let waiting = 0;
function later() {
  waiting ||= setTimeout(load, 150);
}

async function load() {
  waiting = 0;
  const now = performance.now();
  for (const row of inView) if (!row.isConnected) inView.delete(row);
  const due = [...inView].filter((row) => row.querySelector(".sparks")?.offsetParent && !(now - asked.get(row.id) < AGAIN_MS)).slice(0, PART);
  if (!due.length) return;
  due.forEach((row) => asked.set(row.id, now));
  const query = due.map((row) => `node=${encodeURIComponent(row.id)}`).join("&");
  const response = await fetch(`/fleet/sparks?${query}`, { headers: { "HX-Request": "true" } }).catch(() => null);
  if (!response?.ok) return;
  for (const [node, shares] of Object.entries(await response.json())) draw(document.getElementById(`spark-${node}`), shares);
  later();
}

function draw(place, shares) {
  if (!place || shares.length < 2) return;
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg"), line = document.createElementNS(space, "polyline");
  for (const [name, value] of Object.entries({ viewBox: "0 0 60 22", preserveAspectRatio: "none", class: "spark", role: "img" })) svg.setAttribute(name, value);
  svg.setAttribute("aria-label", `Busy in the last hour: ${Math.round((100 * shares.reduce((a, b) => a + b)) / shares.length)} % on average`);
  line.setAttribute("points", shares.map((share, at) => `${((60 * at) / (shares.length - 1)).toFixed(1)},${(21 - 20 * share).toFixed(1)}`).join(" "));
  line.setAttribute("fill", "none");
  svg.append(line);
  place.replaceChildren(svg);
}

// Selection, with shift for a range

let last = null;
const boxes = () => [...document.querySelectorAll("#nodes input[name=node]")];

function count() {
  const bulk = document.getElementById("bulk-nodes");
  if (!bulk) return;
  const chosen = boxes().filter((each) => each.checked).length;
  bulk.hidden = !chosen;
  bulk.querySelector("[data-count]").textContent = chosen;
}

function clear() {
  boxes().forEach((each) => (each.checked = false));
  count();
}

document.addEventListener("click", (event) => {
  if (event.target.closest?.("[data-clear-nodes]")) return clear();
  const box = event.target.closest?.("#nodes input[name=node]");
  if (!box) return;
  if (event.shiftKey && last && last !== box) {
    const all = boxes(), from = all.indexOf(last), to = all.indexOf(box);
    if (from >= 0) all.slice(Math.min(from, to), Math.max(from, to) + 1).forEach((each) => (each.checked = box.checked));
  }
  last = box;
  count();
});
document.body.addEventListener("toast", clear);

watch();
document.body.addEventListener("htmx:after:swap", watch);
document.body.addEventListener("htmx:sse:after:message", watch);
setInterval(() => { if (!document.hidden) later(); }, AGAIN_MS / 4);
