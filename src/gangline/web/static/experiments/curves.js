// The losses of all jobs of an experiment in one chart, coloured by a setting; pictures that came are asked for now and then.
import { by, colour as resolved, listed, make, onTheme, part } from "../elements.js";
import { ask } from "../page.js";

const experiment = by("experiment").dataset.experiment, place = by("curves-plot"), legend = by("curves-legend"), coloured = by("coloured");
const AT_ONCE = 60, JOBS_MAX = 240, POINTS = 80, AGAIN_MS = 15000, SOON_MS = 2000;
const ENDED = ["succeeded", "failed", "canceled"], whole = new Set(); // jobs whose curve is all that it will be
let runs = [], losses = new Map(), plot = null, lines = [], look = "", brought = null, due = 0, later = 0, busy = false, over = false, news = false;

const colour = (text) => resolved(text, place);

async function read() {
  if (busy) return;
  busy = true;
  due = performance.now() + (plot ? AGAIN_MS : SOON_MS);
  try {
    const answer = await ask("GET", `/v1/experiments/${experiment}/runs`);
    if (!answer.ok) return;
    const all = await answer.json();
    runs = all.filter((each) => each.step > 0).slice(0, JOBS_MAX);
    const asked = runs.filter((each) => !whole.has(each.job));
    for (let at = 0; at < asked.length; at += AT_ONCE) {
      const found = await part(`/jobs/curves?${listed("job", asked.slice(at, at + AT_ONCE).map((each) => each.job))}`);
      if (!found.ok) return;
      for (const [job, each] of Object.entries(await found.json())) losses.set(job, each.losses);
    }
    asked.filter((each) => ENDED.includes(each.state)).forEach((each) => whole.add(each.job));
    over = all.every((each) => ENDED.includes(each.state));
    draw();
  } catch { // the stream says that the server is away
  } finally {
    busy = false;
  }
}

const words = (value) => (value === undefined ? "default" : typeof value === "string" ? value : JSON.stringify(value));

// Values of a setting: numbers in order along one scale of colour, others in colours of their own.
function groups() {
  const name = coloured.value, found = new Map();
  for (const run of runs) {
    const value = name ? run.settings[name] : `#${run.number} ${run.name}`;
    if (!found.has(words(value))) found.set(words(value), { value, word: words(value), runs: [] });
    found.get(words(value)).runs.push(run);
  }
  const all = [...found.values()], numeric = all.every((each) => typeof each.value === "number");
  if (numeric) all.sort((one, two) => one.value - two.value);
  all.forEach((each, at) => {
    const share = all.length > 1 ? at / (all.length - 1) : 0.5;
    const hue = numeric ? 250 - 230 * share : (at * 137.5 + 210) % 360; // the golden angle keeps neighbours apart
    each.colour = colour(`light-dark(hsl(${hue} 75% 36%), hsl(${hue} 75% 70%))`);
    each.dash = numeric ? [] : [[], [6, 3], [2, 2], [9, 3, 2, 3]][at % 4];
  });
  return all;
}

function draw() {
  const known = runs.filter((each) => losses.get(each.job)?.length > 1);
  by("curves-said").textContent = known.length ? "" : "Curves come with the first steps.";
  if (!known.length) return;
  const far = Math.max(...known.map((each) => each.step)), x = Array.from({ length: POINTS + 1 }, (_, at) => (far * at) / POINTS);
  const shown = groups(), series = [{}], data = [x];
  for (const group of shown) {
    for (const run of group.runs) {
      const values = losses.get(run.job);
      if (!(values?.length > 1)) continue;
      const faint = brought !== null && brought !== group.word;
      series.push({ stroke: faint ? colour("var(--line)") : group.colour, width: faint ? 1 : 1.6, dash: group.dash, points: { show: false }, label: run.name, run, group });
      data.push(x.map((step) => at(values, run.step, step)));
    }
  }
  const text = colour("var(--muted)"), grid = { stroke: colour("var(--line)"), width: 1 }, axis = { stroke: text, grid, ticks: grid, font: "12px system-ui, sans-serif" };
  lines = series;
  const now = JSON.stringify([text, grid, by("curves-log").checked, series.map(({ run, stroke, width, dash }) => [run?.job, stroke, width, dash])]);
  const { min, max } = plot?.scales.x ?? {}, zoomed = plot && (min > 0 || max < plot.data[0][POINTS]);
  if (plot && now === look) plot.setData(data, false);
  else build(data, axis);
  look = now;
  plot.setScale("x", zoomed ? { min, max } : { min: 0, max: far });
  write(shown);
}

function build(data, axis) {
  plot?.destroy();
  plot = new uPlot({
    width: Math.max(200, place.clientWidth), height: 300, legend: { show: false },
    cursor: { y: false, focus: { prox: 24 }, drag: { x: true, y: false } }, focus: { alpha: 0.25 },
    scales: { x: { time: false }, y: { distr: by("curves-log").checked ? 3 : 1 } },
    axes: [{ ...axis, values: (_, splits) => splits.map((value) => value.toLocaleString()) }, { ...axis, size: 60 }],
    series: lines, hooks: { setSeries: [(_, number) => told(lines[number]?.run)] },
  }, data, place);
}

// The curve of a job has its values at equal distances up to its step.
function at(values, steps, step) {
  if (step > steps) return null;
  const exact = (step / steps) * (values.length - 1), low = Math.floor(exact), high = Math.min(values.length - 1, low + 1);
  return values[low] + (values[high] - values[low]) * (exact - low);
}

function told(run) {
  by("curves-said").textContent = run ? `${run.name}: ${Object.entries(run.settings).map(([name, value]) => `${name} ${words(value)}`).join(", ")}, seed ${run.seed}, step ${run.step.toLocaleString()}` : "\u00a0";
}

function write(shown) {
  const few = shown.slice(0, 24).map((group) => {
    const swatch = make("i");
    swatch.style.borderTop = `3px ${group.dash.length ? "dashed" : "solid"} ${group.colour}`;
    const button = make("button", { type: "button", className: "quiet entry", ariaPressed: String(brought === group.word) }, swatch, ` ${group.word}`);
    button.dataset.word = group.word;
    return button;
  });
  const focused = document.activeElement?.closest?.("#curves-legend button")?.dataset.word;
  legend.replaceChildren(...few);
  few.find((each) => each.dataset.word === focused)?.focus();
}

legend.addEventListener("click", (event) => {
  const word = event.target.closest("button")?.dataset.word;
  if (word === undefined) return;
  brought = brought === word ? null : word;
  draw();
});
coloured.addEventListener("change", () => { brought = null; draw(); });
by("curves-log").addEventListener("change", draw);
onTheme(draw);
new ResizeObserver(() => plot?.setSize({ width: Math.max(200, place.clientWidth), height: 300 })).observe(place);
document.body.addEventListener("htmx:sse:after:message", ({ detail: { message } }) => {
  news ||= message.event !== "alive";
  later ||= setTimeout(() => { // after the last message, too
    later = 0;
    if (over && !news) return;
    news = false;
    read();
    by("matrix-form")?.dispatchEvent(new Event("refresh"));
  }, due - performance.now());
});
read();
