// One picture large: another prompt, another step, zoom, and two pictures beside each other or under a slider. The address keeps what is open.
import { by, onServer, part, write } from "../elements.js";
import { ask, askForKey, readProblem, say } from "../page.js";
import { baseOf, byPrompt, byStep, linkAt, nameOf, placeOf, rows } from "./places.js";
import { zoomable } from "./zoom.js";

const viewer = by("viewer"), stage = by("stage"), divider = by("divider"), against = by("against"), view = by("view"), problem = by("stage-problem");
const job = by("pictures").dataset.job, experiment = by("pictures").dataset.experiment, may = "may" in by("pictures").dataset;
const panes = Object.fromEntries([...stage.querySelectorAll(".pane")].map((each) => [each.dataset.pane, each]));

let place = null; // of the picture that is open
let pinned = null; // the path of the picture that others are compared with
let other = null; // another job: its id and its pictures
let split = 50;

const full = (of, sha) => onServer(`/jobs/${of}/pictures/${sha}`);
const small = (of, sha) => onServer(`/v1/jobs/${of}/pictures/${sha}/thumbnail`);

// Which picture

export function show(link, { push = false, replace = true } = {}) {
  if (!link) return;
  const opens = !viewer.open;
  place = placeOf(link);
  if (opens) {
    viewer.showModal();
    viewer.append(by("toasts")); // else they would be behind it
  }
  draw();
  if (opens) zoom.fit();
  // The way back closes the viewer: what is open has an entry of its own, and the next one takes it over.
  if (push && opens && !history.state?.viewed) history.pushState({ htmx: true, viewed: true }, "", address()); // htmx writes its mark over one that lacks it
  else if (replace) history.replaceState(history.state, "", address());
}

export function openAt({ search }) {
  const asked = new URLSearchParams(search), link = linkAt(asked.get("picture"));
  if (!link) return viewer.open && viewer.close();
  const how = asked.get("against") ?? "", beside = asked.get("with");
  if (["base", "step", "pin"].includes(how)) against.value = how;
  pinned = asked.get("pin");
  if (asked.get("view") === "side") view.value = "side";
  show(link, { replace: false });
  if (beside) suggest().then(() => compareWith(beside)).catch((why) => say(why.message, { bad: true }));
}

function address() {
  const asked = new URLSearchParams({ picture: place.path });
  if (against.value === "job" && other) asked.set("with", other.id);
  else if (against.value && against.value !== "job") asked.set("against", against.value);
  if (against.value === "pin" && pinned) asked.set("pin", pinned);
  if (against.value && view.value === "side") asked.set("view", "side");
  return `?${asked}`;
}

// The grid has changed: what is open stays, with what is known of it now.
export function refresh() {
  if (!viewer.open || !place) return;
  const link = linkAt(place.path);
  if (!link) return say("This picture is not there any more.");
  const before = place.sha;
  place = placeOf(link);
  before === place.sha ? words() : draw();
}

// What is drawn

function draw() {
  words();
  load(panes.b, job, place.sha, place.name);
  const compared = otherPicture();
  view.hidden = !against.value;
  const beside = Boolean(compared);
  panes.a.hidden = !beside;
  stage.dataset.view = beside ? view.value : "one";
  divider.hidden = !beside || view.value !== "slider";
  panes.b.lastElementChild.hidden = !beside;
  if (compared) load(panes.a, compared.job, compared.sha, compared.name);
  problem.hidden = !against.value || beside || (against.value === "job" && !other);
  if (!problem.hidden) problem.textContent = { base: "There is no picture of the base for this prompt and seed.", step: "This is the first step.", pin: "The pinned picture is not there any more.",
    job: `${other?.name} has no picture of this prompt.` }[against.value];
  slide(split);
}

function words() {
  const all = rows();
  write(by("viewer-prompt"), place.text);
  const at = `prompt ${all.indexOf(place.row) + 1} of ${all.length}`;
  write(by("viewer-place"), `${place.name}${place.won ? " ★ winner" : ""} · seed ${place.seed} · ${place.size.startsWith("0") ? "" : `${place.size} · `}${at}`);
  write(by("viewer-weights"), `· ${place.state}`);
  const stored = place.weights !== "none";
  able("prompt-back", byPrompt(place, -1));
  able("prompt-on", byPrompt(place, 1));
  able("step-back", byStep(place, -1));
  able("step-on", byStep(place, 1));
  able("weights", stored);
  if (may) {
    able("win", stored);
    viewer.querySelector('[data-do="win"]').hidden = place.won;
    viewer.querySelector('[data-do="undo"]').hidden = !place.won;
    const start = by("viewer-start");
    start.setAttribute("aria-disabled", String(!stored));
    if (stored) start.href = onServer(`/new?from=${encodeURIComponent(job)}&step=${place.step}`);
    else start.removeAttribute("href");
  }
  by("viewer-download").href = full(job, place.sha);
  by("viewer-download").download = `${job}-${place.path.split("/").slice(1).join("-")}`;
  if (by("viewer-files").dataset.step !== String(place.step)) by("viewer-files").hidden = true;
}

// What cannot be done now keeps its place, so that nothing moves, and the focus.
function able(action, yes) {
  viewer.querySelector(`[data-do="${action}"]`).setAttribute("aria-disabled", String(!yes));
}

async function load(pane, of, sha, name) {
  const image = pane.firstElementChild, src = full(of, sha);
  write(pane.lastElementChild, name);
  image.alt = `${place.text}, ${name}`;
  if (image.dataset.wanted === src) return;
  image.dataset.wanted = src;
  const known = document.querySelector(`#grid a[data-sha="${sha}"] img`);
  if (known || of !== job) image.src = small(of, sha); // at once, until the whole one is here
  const whole = new Image();
  whole.src = src;
  try {
    await whole.decode();
    if (image.dataset.wanted !== src) return;
    image.src = src;
    if (pane === panes.b) ahead();
  } catch {
    if (image.dataset.wanted === src) { problem.textContent = "This picture cannot be loaded: it may have expired."; problem.hidden = false; }
  }
}

function ahead() { // what the arrow keys lead to
  for (const link of [byStep(place, 1), byPrompt(place, 1), byStep(place, -1), byPrompt(place, -1)]) if (link) new Image().src = full(job, link.dataset.sha);
}

// Which other picture it is compared with

function otherPicture() {
  const link = { base: () => baseOf(place), step: () => byStep(place, -1), pin: () => linkAt(pinned) }[against.value]?.();
  if (link) return { job, sha: link.dataset.sha, name: placeOf(link).name };
  if (against.value !== "job" || !other) return null;
  const same = other.pictures.filter((each) => (place.text && each.text ? each.text === place.text : each.prompt === Number(place.prompt)));
  const seeded = same.filter((each) => String(each.seed) === place.seed), found = seeded.length ? seeded : same;
  const far = (each) => (each.of === place.of ? 0 : each.of === "base" || place.of === "base" ? 1e15 : 0.5) + Math.abs(each.step - place.step);
  const best = found.sort((one, two) => far(one) - far(two))[0];
  return best ? { job: other.id, sha: best.sha256, name: `${other.name}: ${nameOf(best)}` } : null;
}

async function compareWith(wanted) {
  const known = [...by("other-jobs").options].find((each) => each.dataset.name === wanted);
  const id = known?.value ?? wanted, found = [];
  for (let next = `/v1/jobs/${encodeURIComponent(id)}/pictures`; next; ) {
    const answer = await ask("GET", next);
    if (!answer.ok) throw new Error((await readProblem(answer)).detail);
    const some = await answer.json();
    found.push(...some);
    next = /<([^>]+)>; *rel="?next/.exec(answer.headers.get("Link") ?? "")?.[1];
    if (!some.length) break;
  }
  other = { id, name: [...by("other-jobs").options].find((each) => each.value === id)?.dataset.name || id, pictures: found };
  against.value = "job";
  by("other").hidden = true;
  changed();
}

async function suggest() {
  const list = by("other-jobs");
  if (list.options.length) return;
  const of = experiment ? await ask("GET", `/v1/experiments/${experiment}/runs`) : null;
  const runs = of?.ok ? await of.json() : [];
  const newest = await ask("GET", "/v1/jobs?limit=50");
  const told = (each) => Object.entries(each.settings).map(([name, value]) => `${name}=${JSON.stringify(value)}`).join(" ");
  const jobs = newest.ok ? (await newest.json()).jobs.map((each) => ({ job: each.id, name: each.name, settings: {} })) : [];
  const seen = new Set([job]);
  for (const each of [...runs, ...jobs]) {
    if (seen.has(each.job)) continue;
    seen.add(each.job);
    const option = new Option(`${each.name || each.job} ${told(each)}`, each.job);
    option.dataset.name = each.name;
    list.append(option);
  }
}

function changed() {
  draw();
  history.replaceState(history.state, "", address());
}

against.addEventListener("change", () => {
  if (against.value === "pin") pinned = place.path;
  const asks = against.value === "job";
  by("other").hidden = !asks;
  if (asks) suggest().then(() => by("other-job").focus());
  changed();
});
view.addEventListener("change", () => { changed(); zoom.fit(); });
by("other").addEventListener("submit", async (event) => {
  event.preventDefault();
  const error = by("other").querySelector("[role=alert]");
  try {
    error.hidden = true;
    await compareWith(by("other-job").value.trim());
  } catch (why) {
    error.textContent = why.message;
    error.hidden = false;
  }
});

// The slider

function slide(to) {
  split = Math.min(100, Math.max(0, to));
  panes.a.style.clipPath = stage.dataset.view === "slider" ? `inset(0 ${100 - split}% 0 0)` : "";
  divider.style.left = `${split}%`;
  divider.setAttribute("aria-valuenow", Math.round(split));
}
divider.addEventListener("pointerdown", (event) => { divider.setPointerCapture(event.pointerId); event.preventDefault(); divider.focus(); });
divider.addEventListener("pointermove", (event) => {
  if (!divider.hasPointerCapture(event.pointerId)) return;
  const { left, width } = stage.getBoundingClientRect();
  slide((100 * (event.clientX - left)) / width);
});

// What is done

const DO = {
  close: () => viewer.close(),
  "prompt-back": () => show(byPrompt(place, -1)),
  "prompt-on": () => show(byPrompt(place, 1)),
  "step-back": () => show(byStep(place, -1)),
  "step-on": () => show(byStep(place, 1)),
  "zoom-in": () => zoom.by(1.5),
  "zoom-out": () => zoom.by(1 / 1.5),
  fit: () => zoom.fit(),
  win: () => choose("PUT", { step: place.step }, (found) => `Step ${found.step.toLocaleString()} is the winner. Its weights are kept until you undo it or choose another.`),
  undo: () => choose("DELETE", undefined, () => "No step is chosen. Its weights expire by their age again, unless they were pinned before."),
  weights: showFiles,
};

async function choose(method, value, told) {
  const answer = await ask(method, `/v1/jobs/${job}/winner`, value);
  if (answer.ok) return say(told(await answer.json()));
  const { detail, hint } = await readProblem(answer);
  say(detail, { hint, bad: true });
}

async function showFiles() {
  const files = by("viewer-files");
  if (!files.hidden) return (files.hidden = true);
  const { step } = place, answer = await part(`/jobs/${job}/weights/${step}`);
  if (answer.status === 401) return askForKey();
  if (answer.ok) files.innerHTML = await answer.text(); // the server has escaped it
  else write(files, (await readProblem(answer)).detail);
  files.dataset.step = step;
  files.hidden = false;
}

const KEYS = { ArrowLeft: "prompt-back", ArrowRight: "prompt-on", ArrowUp: "step-back", ArrowDown: "step-on", "+": "zoom-in", "=": "zoom-in", "-": "zoom-out", 0: "fit" };
viewer.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && by("other").contains(event.target)) { // of the question for another job alone
    event.preventDefault();
    against.value = other ? "job" : "";
    by("other").hidden = true;
    against.focus();
    return changed();
  }
  if (event.target.matches("select, input") || event.altKey || event.ctrlKey || event.metaKey) return;
  const across = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (across && (event.shiftKey || event.target === divider)) {
    if (divider.hidden) return;
    slide(split + across * 2);
  } else if (event.target === divider && (event.key === "Home" || event.key === "End")) slide(event.key === "Home" ? 0 : 100);
  else if (KEYS[event.key]) DO[KEYS[event.key]]();
  else return;
  event.preventDefault();
});
viewer.addEventListener("click", (event) => {
  const button = event.target.closest("[data-do]");
  if (button && button.getAttribute("aria-disabled") !== "true") DO[button.dataset.do]();
});
viewer.addEventListener("close", () => {
  const link = linkAt(place?.path);
  document.body.append(by("toasts"));
  for (const pane of Object.values(panes)) { pane.firstElementChild.removeAttribute("src"); delete pane.firstElementChild.dataset.wanted; }
  back(link);
  if (new URLSearchParams(location.search).has("picture")) history.replaceState(history.state, "", location.pathname); // else the way back closed it
});

function back(link) {
  link?.focus({ preventScroll: true });
  link?.scrollIntoView({ block: "nearest", inline: "nearest" });
}

document.addEventListener("htmx:before:history:restore", (event) => {
  if (event.detail.path.split("?")[0] === location.pathname) event.preventDefault(); // the page is there: the viewer alone comes and goes
});
addEventListener("popstate", () => {
  const link = viewer.open && linkAt(place?.path);
  openAt(location);
  if (link && !viewer.open) setTimeout(() => back(link), 100); // the browser resets the focus when it has gone back
});

const zoom = zoomable(stage, {
  swiped: (way, sign) => show((way === "across" ? byPrompt : byStep)(place, sign)),
  zoomed: (scale) => write(by("zoom-now"), scale === 1 ? "Fit" : `${scale.toFixed(1)} ×`),
});
