// The grid of pictures: one stop for the tab key, arrow keys from cell to cell, the size of the cells; what is looked at stays where it is.
import { by } from "../elements.js";
import { openAt, refresh, show } from "./viewer.js";
import { grid, linkAt, rows } from "./places.js";

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
  const cell = link.parentElement, row = cell.parentElement, at = [...row.children].indexOf(cell);
  const all = rows(), line = all.indexOf(row);
  const along = (from, way) => { for (let to = from; to > 0 && to < row.children.length; to += way) { const found = row.children[to].querySelector("a"); if (found) return found; } };
  const down = (from, way) => { for (let to = from; to >= 0 && to < all.length; to += way) { const found = all[to].children[at]?.querySelector("a"); if (found) return found; } };
  const moves = { ArrowLeft: () => along(at - 1, -1), ArrowRight: () => along(at + 1, 1), ArrowUp: () => down(line - 1, -1), ArrowDown: () => down(line + 1, 1),
    Home: () => along(1, 1), End: () => along(row.children.length - 1, -1) };
  const to = moves[event.key]?.();
  if (!(event.key in moves)) return;
  event.preventDefault();
  if (!to) return;
  to.focus({ preventScroll: true });
  to.parentElement.scrollIntoView({ block: "nearest", inline: "nearest" });
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
  const { left, right } = box.firstElementChild.firstElementChild.getBoundingClientRect();
  const step = [...by("steps").children].slice(1).find((each) => each.getBoundingClientRect().left >= (box.scrollLeft ? right : left));
  held = step ? { id: step.id, left: step.offsetLeft } : null;
});
document.body.addEventListener("htmx:sse:after:message", () => {
  const box = grid(), step = held && by(held.id);
  if (box && step && box.scrollLeft && step.offsetLeft !== held.left) box.scrollLeft += step.offsetLeft - held.left;
  sized();
  settle();
  refresh();
});
document.body.addEventListener("htmx:after:swap", () => { sized(); settle(); });

sized();
settle();
openAt(location);
