// The grid of pictures: one stop for the tab key, arrow keys that mean what they do in an open picture, the size of the cells; what is looked at
// stays where it is.
import { by } from "../elements.js";
import { openAt, refresh, show } from "./viewer.js";
import { byPrompt, byStep, grid, linkAt, placeOf } from "./places.js";

const SIZE = "gangline-picture-size";
let current = null; // the path of the cell that the tab key stops at

function stop(link) {
  if (!link) return;
  document.querySelectorAll('#grid a[tabindex="0"]').forEach((each) => each !== link && (each.tabIndex = -1));
  link.tabIndex = 0;
  current = link.dataset.path;
}

function settle() {
  const all = document.querySelectorAll("#grid a");
  const kept = linkAt(current) ?? all[0];
  all.forEach((each) => { if (each !== kept && each.tabIndex !== -1) each.tabIndex = -1; });
  stop(kept);
}

document.addEventListener("focusin", (event) => {
  const link = event.target.closest?.("#grid a");
  if (link) stop(link);
});

document.addEventListener("keydown", (event) => {
  const link = event.target.closest?.("#grid a");
  if (!link || event.altKey || event.ctrlKey || event.metaKey) return;
  const place = placeOf(link), far = (next, way) => { let last = null; for (let to = next(place, way); to; to = next(placeOf(to), way)) last = to; return last; };
  const moves = { ArrowLeft: () => byPrompt(place, -1), ArrowRight: () => byPrompt(place, 1), ArrowUp: () => byStep(place, -1), ArrowDown: () => byStep(place, 1),
    Home: () => far(byStep, -1), End: () => far(byStep, 1) };
  const to = moves[event.key]?.();
  if (!(event.key in moves)) return;
  event.preventDefault();
  if (!to) return;
  to.focus({ preventScroll: true });
  to.scrollIntoView({ block: "nearest", inline: "nearest" });
});

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("#grid a");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  show(link, { push: true });
});

// The size of the cells, kept in this browser

const size = by("cell-size");
function sized() {
  grid()?.style.setProperty("--cell", `${size.value}px`);
}
size.addEventListener("input", () => {
  sized();
  localStorage.setItem(SIZE, size.value);
});
size.value = localStorage.getItem(SIZE) || (innerWidth < 600 ? 96 : 128);

// What comes while one looks: a step that comes in before others moves none of them on the screen

let held = null;
document.body.addEventListener("htmx:sse:before:message", () => {
  const box = grid();
  if (!box) return;
  const { top, bottom } = by("steps").firstElementChild.getBoundingClientRect();
  const step = [...by("steps").children].slice(1).find((each) => each.getBoundingClientRect().top >= (box.scrollTop ? bottom : top));
  held = step ? { id: step.id, top: step.offsetTop } : null;
});
document.body.addEventListener("htmx:sse:after:message", () => {
  const box = grid(), step = held && by(held.id);
  if (box && step && box.scrollTop && step.offsetTop !== held.top) box.scrollTop += step.offsetTop - held.top;
  sized();
  settle();
  refresh();
});
document.body.addEventListener("htmx:after:swap", () => { sized(); settle(); });

sized();
settle();
openAt(location);
