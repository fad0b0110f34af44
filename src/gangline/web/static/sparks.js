// Small curves in the rows of a list: asked for as rows come into view, and again now and then.
import { listed, onNews, part } from "./elements.js";

const AT_ONCE = 60;

// `due` says whether a row is asked for, the first time in its state or again; `show` gets an id and what the server has found of it.
export function follow({ rows, name, address, againMs, due, show }) {
  const inView = new Set();
  let waiting = 0, asked = new WeakMap(); // of a row, not of its id: one that comes again is empty
  const later = () => { waiting ||= setTimeout(load, 150); };
  const watcher = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) isIntersecting ? inView.add(target) : inView.delete(target);
    later();
  }, { rootMargin: "200px" });

  function watch() {
    document.querySelectorAll(`${rows}:not([data-watched])`).forEach((row) => {
      row.dataset.watched = "";
      watcher.observe(row);
    });
  }

  async function load() {
    waiting = 0;
    const now = performance.now();
    for (const row of inView) if (!row.isConnected) inView.delete(row);
    const wanted = [...inView].filter((row) => {
      const before = asked.get(row), first = before?.state !== row.dataset.state;
      return (first || now - before.at >= againMs) && due(row, first);
    }).slice(0, AT_ONCE);
    if (!wanted.length) return;
    wanted.forEach((row) => asked.set(row, { at: now, state: row.dataset.state }));
    const answer = await part(`${address}?${listed(name, wanted.map((row) => row.id))}`).catch(() => null);
    if (!answer?.ok) return;
    for (const [id, found] of Object.entries(await answer.json())) show(id, found);
    later();
  }

  watch();
  onNews(() => { watch(); later(); });
  setInterval(() => { if (!document.hidden) later(); }, againMs / 2);
  return () => { asked = new WeakMap(); later(); };
}

// Draw values of 0 to 1 over the whole of a place that is 22 pixels high.
export function draw(place, width, values, label) {
  if (!place || values.length < 2) return;
  const [svg, line] = ["svg", "polyline"].map((tag) => document.createElementNS("http://www.w3.org/2000/svg", tag));
  const set = (element, attributes) => Object.entries(attributes).forEach(([name, value]) => element.setAttribute(name, value));
  set(svg, { viewBox: `0 0 ${width} 22`, preserveAspectRatio: "none", class: "spark", role: "img", "aria-label": label });
  set(line, { points: values.map((value, at) => `${((width * at) / (values.length - 1)).toFixed(1)},${(21 - 20 * value).toFixed(1)}`).join(" "), fill: "none" });
  svg.append(line);
  place.replaceChildren(svg);
}
