// The timeline in the zoom of the charts. The server draws the span that is looked at; while there is one, the stream leaves the drawing alone.
import { AGAIN_MS, by, mayPass } from "../elements.js";
import { ask } from "../page.js";
import { onZoom, pan, zoomBy, zoomKey, zoomTo, zoomed } from "./zoom.js";

const WAIT_MS = 40; // while a key is held
const LEAST = 4; // of a drawing's thousand units: less is a click
const { job } = by("job").dataset, section = by("timeline");
const place = () => by("job-timeline"), drawing = () => place().querySelector(".job-timeline");
let due = 0, turn = 0, all = null, drag = null, band = null;

function whole() { // as it was when the zoom began: the newest drawing of all
  if (!all || !place().hasAttribute("hx-morph-skip")) all = sides();
  return all;
}

function sides() {
  const { from, to } = drawing().dataset;
  return [Number(from), Number(to)];
}

async function show() {
  const span = zoomed(), mine = ++turn;
  const answer = await ask("GET", `/jobs/${job}/timeline${span ? `?from_ms=${Math.floor(span[0])}&to_ms=${Math.ceil(span[1])}` : ""}`).catch(() => null);
  if (mine !== turn) return;
  if (!answer?.ok) return mayPass(answer?.status) && later(AGAIN_MS);
  place().innerHTML = await answer.text(); // the server has escaped what is in it
  place().toggleAttribute("hx-morph-skip", Boolean(span));
}

function later(ms = WAIT_MS) {
  clearTimeout(due);
  due = setTimeout(show, ms);
}

onZoom((span) => {
  whole();
  if (span) place().setAttribute("hx-morph-skip", "");
  later();
});
document.body.addEventListener("moment", () => { // of a replay
  if (zoomed()) later();
});

// Drag over it to zoom

function at(event) { // in the units of the drawing, and as a time
  const svg = drawing(), [left, right] = svg.dataset.plot.split(" ").map(Number), [from, to] = sides();
  const x = Math.min(right, Math.max(left, new DOMPoint(event.clientX, 0).matrixTransform(svg.getScreenCTM().inverse()).x));
  return { x, ms: from + (to - from) * (x - left) / (right - left) };
}

section.addEventListener("pointerdown", (event) => {
  if (event.button || event.pointerType === "touch" || !event.target.closest("#job-timeline .job-timeline")) return; // a finger scrolls
  drag = at(event);
});
window.addEventListener("pointermove", (event) => {
  if (!drag) return;
  const now = at(event);
  band ??= document.createElementNS("http://www.w3.org/2000/svg", "rect");
  if (!band.isConnected) drawing().append(band);
  for (const [name, value] of Object.entries({ class: "span", x: Math.min(drag.x, now.x), y: 0, width: Math.abs(now.x - drag.x), height: 94 })) band.setAttribute(name, value);
  event.preventDefault();
});
window.addEventListener("pointerup", (event) => {
  if (!drag) return;
  const [one, other] = [drag, at(event)];
  stop();
  if (Math.abs(other.x - one.x) > LEAST) zoomTo([one.ms, other.ms].sort((a, b) => a - b), whole());
});
window.addEventListener("pointercancel", stop);

function stop() {
  band?.remove();
  drag = band = null;
}

section.addEventListener("dblclick", (event) => event.target.closest("#job-timeline") && zoomTo(null));

// Keys and buttons

section.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && drag) stop();
  else if (event.target.id !== "job-timeline" || event.ctrlKey || event.metaKey || event.altKey) return;
  else if (zoomed() && !event.shiftKey && (event.key === "ArrowLeft" || event.key === "ArrowRight")) {
    const [from, to] = zoomed();
    pan((to - from) * (event.key === "ArrowLeft" ? -0.25 : 0.25), whole());
  } else if (!zoomKey(event, whole())) return;
  event.preventDefault();
});
section.querySelectorAll("[data-zoom]").forEach((each) => each.addEventListener("click", () => {
  ({ in: () => zoomBy(0.5, whole()), out: () => zoomBy(2, whole()), all: () => zoomTo(null) })[each.dataset.zoom]();
}));
