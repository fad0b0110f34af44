// Where each picture stands in the grid: prompts across, steps down, in each step a place for each seed of the prompt.
import { by } from "../elements.js";

export const grid = () => by("grid");
const seeds = () => Number(grid()?.dataset.seeds || 1);
export const rows = () => [...document.querySelectorAll("#grid .prow")];
export const linkAt = (path) => (path ? document.querySelector(`#grid a[data-path="${CSS.escape(path)}"]`) : null);

export function placeOf(link) {
  const cell = link.parentElement, row = cell.parentElement;
  const at = [...row.children].indexOf(cell) - 1;
  const column = Math.floor(at / seeds());
  const head = by("steps").children[column + 1], { step, of, weights, winner } = head.dataset;
  const { path, sha, seed, size } = link.dataset;
  return { link, row, at, column, slot: at % seeds(), path, sha, seed, size, of, weights, state: head.title, step: Number(step), won: winner !== undefined,
    text: row.firstElementChild.firstElementChild.textContent, prompt: row.dataset.prompt, name: nameOf({ of, step: Number(step) }) };
}

export function nameOf({ of, step }) {
  return of === "base" ? "the base" : of === "result" ? `the result, step ${step.toLocaleString()}` : `step ${step.toLocaleString()}`;
}

const inCell = (row, at) => row?.children[at + 1]?.querySelector("a");

// The next picture of the same step that there is: of the next seed, else of the next prompt.
export function byPrompt(place, way) {
  const all = rows(), count = seeds();
  for (let at = all.indexOf(place.row) * count + place.slot + way; at >= 0 && at < all.length * count; at += way) {
    const found = inCell(all[Math.floor(at / count)], place.column * count + (at % count));
    if (found) return found;
  }
  return null;
}

export function byStep(place, way) {
  const columns = by("steps").children.length - 1;
  for (let column = place.column + way; column >= 0 && column < columns; column += way) {
    const found = inCell(place.row, column * seeds() + place.slot);
    if (found) return found;
  }
  return null;
}

export function baseOf(place) {
  const all = [...by("steps").children].slice(1);
  const column = all.findIndex((each) => each.dataset.of === "base");
  return column < 0 ? null : inCell(place.row, column * seeds() + place.slot);
}
