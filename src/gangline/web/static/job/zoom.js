// One zoom for the timeline and all charts of a job: a span of time, in ms. Who moves it says what `all` is that it can show itself.
const SHORTEST_MS = 10;
const hearers = [];
let span = null;

export const zoomed = () => span;
export const onZoom = (hear) => hearers.push(hear);

export function zoomTo(wanted, all) {
  let found = wanted && all && [Math.max(all[0], wanted[0]), Math.min(all[1], wanted[1])];
  if (found && (found[1] - found[0] < SHORTEST_MS || (found[0] <= all[0] && found[1] >= all[1]))) found = null;
  if (String(found) === String(span)) return;
  span = found;
  hearers.forEach((hear) => hear(span));
}

export function zoomBy(factor, all, centre) {
  const [from, to] = span ?? all, middle = Math.min(to, Math.max(from, centre ?? (from + to) / 2));
  if (factor < 1 && (to - from) * factor < SHORTEST_MS) return;
  zoomTo([middle - (middle - from) * factor, middle + (to - middle) * factor], all);
}

export function pan(ms, all) {
  if (!span) return;
  const by = Math.max(all[0] - span[0], Math.min(all[1] - span[1], ms));
  if ((by < 0) === (ms < 0)) zoomTo([span[0] + by, span[1] + by], all);
}

// The keys that charts and the timeline have in common. Returns whether it was one of them.
export function zoomKey({ key, shiftKey }, all, centre) {
  if (key === "+" || key === "=") zoomBy(0.5, all, centre);
  else if (key === "-") zoomBy(2, all, centre);
  else if (key === "0" || key === "Escape") zoomTo(null);
  else if (shiftKey && (key === "ArrowLeft" || key === "ArrowRight")) pan((span ? span[1] - span[0] : 0) * (key === "ArrowLeft" ? -0.25 : 0.25), all);
  else return false;
  return true;
}
