// The series of a job as charts with one axis and one cursor, in the zoom that they share with the timeline. Points beyond `next` are asked for again: another attempt may replace them.
import { AGAIN_MS, by, colour as resolved, make, mayPass, onNews, onTheme, write } from "../elements.js";
import { ask } from "../page.js";
import { onZoom, pan, zoomBy, zoomKey, zoomTo, zoomed } from "./zoom.js";

const { job } = by("job").dataset, list = by("chart-list");
const reduced = { held_out_loss: "held out", smoothed: "smoothed", loss: "each step", learning_rate: "U-Net", text_encoder_learning_rate: "text encoders",
  lora_b_learning_rate: "matrices B", text_encoder_lora_b_learning_rate: "text encoders' B", images_per_second: "all GPUs", images_per_second_per_gpu: "a GPU" };
const GROUPS = [
  { title: "Loss", of: ["loss", "smoothed", "held_out_loss"], large: true, log: true },
  { title: "Held-out PSNR, dB", of: ["held_out_psnr"] },
  { title: "Learning rate", of: ["learning_rate", "text_encoder_learning_rate", "lora_b_learning_rate", "text_encoder_lora_b_learning_rate"] },
  { title: "Seconds per step", of: ["seconds_per_step"], band: true },
  { title: "Memory, GB", of: ["memory_gb"], zero: true },
  { title: "Gradient norm", of: ["gradient_norm"] },
  { title: "Images a second", of: ["images_per_second", "images_per_second_per_gpu"] },
  { title: "Share of the GPU's peak", of: ["share_of_peak"] },
  { title: "Dollars", of: ["dollars"], zero: true, money: true },
];
const HIDDEN = ["smoothed_loss", "held_out_loss_noise", "held_out_psnr_noise"]; // shown otherwise, or in the table alone
const COLOURS = ["--series-2", "--series-3", "--series-4", "--series-1"];
const THIN = { loss: "--series-faint" };
const DASHES = [[], [6, 3], [2, 2], [8, 3, 2, 3]]; // colour is not the only difference

let points = [], next = 0, timeline = null, charts = [], busy = false, asked = "", told = 0, moment = 0, again = 0;
const colour = (name) => resolved(`var(${name})`, list);

// Reading

async function read() {
  if (busy) return;
  busy = true;
  let failed = false;
  try {
    for (let wanted = null, of = null; wanted !== asked || of !== moment; ) {
      [wanted, of] = [asked, moment];
      const old = !timeline || Date.now() - told > 30_000; // money rises with time, and the band hardly moves
      const [metrics, story] = await Promise.all([ask("GET", `/v1/jobs/${job}/metrics?after=${next}`), old && ask("GET", `/v1/jobs/${job}/timeline`)]);
      failed = [metrics, story].some((each) => each && !each.ok && mayPass(each.status));
      if (!metrics.ok) return;
      if (of !== moment) continue; // of a replay
      if (story.ok) {
        timeline = await story.json();
        told = Date.now();
      }
      const found = await metrics.json();
      points = points.filter((each) => each.step <= next).concat(found.points);
      next = found.next;
      tellHeldOut();
      draw();
    }
  } catch { // the stream says that the server is away
    failed = true;
  } finally {
    busy = false;
    if (failed) again ||= setTimeout(() => { again = 0; asked = ""; pulse(); }, AGAIN_MS);
  }
}

function tellHeldOut() { // what the result's report says of held-out photos, where nothing was measured on the way
  const [before, after] = (by("job-pulse").dataset.heldOut ?? "").split(" ").map(Number), last = points.at(-1);
  if (after === undefined || !last || points.some(({ values }) => "held_out_loss" in values)) return;
  last.values.held_out_loss = after;
  points.unshift({ step: 0, at_ms: points[0].at_ms, values: { held_out_loss: before } });
}

function pulse() {
  const { step, committed, state } = by("job-pulse").dataset;
  const now = `${step} ${committed} ${state}`;
  if (now === asked) return;
  asked = now;
  read();
}

// What is drawn

const overTime = () => by("chart-x").value === "time";
const span = () => Math.max(1, Math.round(1.0965 ** Number(by("chart-smooth").value))); // 1 to about 10,000 steps

function smoothed(weight) {
  let mean = 0, sum = 0, before = points[0]?.step - 1;
  return points.map(({ step, values }) => {
    if (values.loss === undefined) return null;
    const keep = weight ** (step - before); // points are means over the steps since the one before
    before = step;
    mean = keep * mean + (1 - keep) * values.loss;
    sum = keep * sum + (1 - keep);
    return mean / sum;
  });
}

function times() { // a message has several points, and came with the last: those before it were as much earlier as their steps took
  const found = points.map((each) => each.at_ms);
  for (let at = points.length - 2; at >= 0; at--) {
    if (points[at].at_ms !== points[at + 1].at_ms) continue;
    const took = (points[at + 1].step - points[at].step) * (points[at + 1].values.seconds_per_step ?? 0) * 1000;
    found[at] = found[at + 1] - took;
  }
  for (let at = 1; at < found.length; at++) found[at] = Math.max(found[at], found[at - 1] + 1);
  return found;
}

function dollars() {
  const spent = timeline?.spent ?? [];
  let at = 0;
  return times().map((at_ms) => {
    while (at < spent.length && spent[at].at_ms <= at_ms) at++;
    const [one, other] = [spent[at - 1], spent[at]];
    if (!one || !other) return one?.usd ?? null;
    return one.usd + (other.usd - one.usd) * (at_ms - one.at_ms) / (other.at_ms - one.at_ms);
  });
}

function column(name) {
  if (name === "smoothed") return smoothed(1 - 1 / span());
  if (name === "dollars") return dollars();
  return points.map(({ values }) => values[name] ?? null);
}

function xs() {
  if (!overTime()) return points.map((each) => each.step);
  return times().map((each) => each / 1000);
}

function groups() {
  const names = new Set(points.flatMap(({ values }) => Object.keys(values)));
  if (names.has("loss")) names.add("smoothed");
  if (timeline?.spent?.some(({ usd }) => usd > 0)) names.add("dollars"); // none without a price
  const known = new Set([...HIDDEN, ...GROUPS.flatMap((each) => each.of)]);
  const others = [...names].filter((name) => !known.has(name)).sort().map((name) => ({ title: name, of: [name] }));
  return [...GROUPS, ...others].map((each) => ({ ...each, of: each.of.filter((name) => names.has(name)) })).filter((each) => each.of.length);
}

function figure(value, digits = 5) {
  if (value == null) return "–";
  const short = +value.toPrecision(digits), size = Math.abs(short);
  return size >= 1e5 || (size && size < 1e-3) ? short.toExponential() : String(short);
}

function dollarsOf(value) { // in cents; of less, two digits
  if (value == null) return "–";
  return `$${value.toFixed(!value ? 0 : Math.abs(value) >= 1 ? 2 : Math.min(9, Math.max(4, 1 - Math.floor(Math.log10(Math.abs(value))))))}`;
}

const shownOf = (group, value, digits) => (group.money ? dollarsOf(value) : figure(value, digits));

function draw() {
  const x = xs(), found = groups();
  by("chart-none").hidden = points.length > 0;
  const shape = JSON.stringify([found.map((each) => each.of), overTime(), by("chart-log").checked]);
  if (list.dataset.shape !== shape) build(found, shape);
  for (const chart of charts) {
    let columns = chart.group.of.map(column);
    if (chart.log) columns = columns.map((values) => values.map((value) => (value > 0 ? value : null)));
    chart.plot.setData([x, ...columns], false);
  }
  scale();
  if (by("chart-table").open) table();
}

function build(found, shape) {
  charts.forEach((each) => each.plot.destroy());
  list.replaceChildren();
  list.dataset.shape = shape;
  charts = found.map(chartOf);
}

function chartOf(group) {
  const head = make("figcaption", {}, make("b", {}, group.title)), place = make("div", { tabIndex: 0, role: "img", className: "plot" });
  const box = make("figure", { className: group.large ? "chart large" : "chart" }, head, place);
  const shown = group.of.map((name, at) => {
    const swatch = make("i"), value = make("span", { className: "value" });
    swatch.style.borderTop = `3px ${at % 2 && !group.large ? "dashed" : "solid"} ${colour(lineOf(name, at))}`;
    const entry = make("span", { className: "entry" }, swatch, group.of.length > 1 ? ` ${reduced[name] ?? name} ` : "", value);
    group.large ? head.firstChild.after(entry) : head.append(entry); // what counts most is drawn last, and named first
    return value;
  });
  if (group.band && timeline?.bands?.length) head.append(make("span", { className: "entry others" }, others()));
  const where = make("span", { className: "where" });
  head.append(where);
  list.append(box);
  const log = Boolean(group.log && by("chart-log").checked);
  const grid = { stroke: colour("--line"), width: 1 }, text = colour("--muted");
  const axis = { stroke: text, grid, ticks: grid, font: "12px system-ui, sans-serif" };
  const chart = { group, log, place };
  const plot = new uPlot({
    width: Math.max(200, box.clientWidth), height: group.large ? 280 : 180,
    legend: { show: false },
    cursor: { y: false, sync: { key: "job", scales: ["x", null], setSeries: false }, drag: { x: true, y: false }, points: { size: 6 } },
    scales: { x: { time: overTime() }, y: { distr: log ? 3 : 1, range: log ? undefined : (_, low, high) => bounds(low, high, group) } },
    axes: [{ ...axis, size: 32, space: 76, values: (u, splits) => overTime() ? clocks(u, splits) : splits.map((value) => Number.isInteger(value) ? value.toLocaleString() : "") },
      { ...axis, size: 64, values: (_, splits) => splits.map((value) => (value == null ? "" : shownOf(group, value, 3))) }],
    series: [{}, ...group.of.map((name, at) => ({
      label: name, stroke: colour(lineOf(name, at)), spanGaps: true, dash: group.large ? [] : DASHES[at % DASHES.length],
      width: name === "held_out_loss" ? 2.5 : THIN[name] ? 1 : 1.8, points: { show: name.startsWith("held_out") ? true : undefined, size: 6, fill: colour(lineOf(name, at)) },
    }))],
    hooks: {
      setCursor: [(u) => legend(u, chart, shown, where)],
      setData: [(u) => legend(u, chart, shown, where)],
      setSelect: [(u) => { if (u.select.width > 3) zoomTo([u.select.left, u.select.left + u.select.width].map((left) => timeOf(u.posToVal(left, "x"))), all()); u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false); }],
      drawClear: group.band ? [bandOf] : [],
    },
  }, [[], ...group.of.map(() => [])], place);
  plot.over.addEventListener("dblclick", () => zoomTo(null, all()));
  place.addEventListener("keydown", (event) => keys(event, chart));
  return Object.assign(chart, { plot });
}

function clocks({ scales: { x } }, splits) {
  const shown = x.max - x.min;
  const style = shown > 2 * 86400 ? { month: "2-digit", day: "2-digit", hour: "2-digit" } : { hour: "2-digit", minute: "2-digit", ...(shown < 900 && { second: "2-digit" }) };
  const format = new Intl.DateTimeFormat(undefined, { ...style, hourCycle: "h23" });
  return splits.map((value) => format.format(value * 1000));
}

const lineOf = (name, at) => THIN[name] ?? (name === "held_out_loss" ? "--series-1" : name === "smoothed" ? "--series-2" : COLOURS[at % COLOURS.length]);

function bounds(low, high, group) {
  if (low == null) return [0, 1];
  if (group.zero) low = Math.min(0, low);
  for (const band of group.band ? timeline?.bands ?? [] : []) [low, high] = [Math.min(low, band.low), Math.max(high, band.high)];
  const room = (high - low || Math.abs(high) || 1) * 0.05;
  return [group.zero && low === 0 ? 0 : low - room, high + room];
}

const others = () => "shaded: most machines, " + timeline.bands.map((each) => `${each.gpu || "CPU"} ${figure(each.low, 3)} to ${figure(each.high, 3)}`).join(", ");

function bandOf(u) { // how fast most machines of its kind are at such work
  const bands = timeline?.bands ?? [];
  if (!bands.length) return;
  u.ctx.save();
  u.ctx.beginPath();
  u.ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
  u.ctx.clip();
  u.ctx.fillStyle = colour("--band");
  for (const { low, high } of bands) {
    const top = u.valToPos(high, "y", true);
    u.ctx.fillRect(u.bbox.left, top, u.bbox.width, Math.max(2, u.valToPos(low, "y", true) - top));
  }
  u.ctx.restore();
}

function legend(u, chart, shown, where) {
  const at = u.cursor.idx ?? u.data[0].length - 1;
  shown.forEach((place, number) => {
    const values = u.data[number + 1];
    let from = at;
    while (from > 0 && values[from] == null) from--; // what is measured at intervals: the last that was
    write(place, shownOf(chart.group, values[from]));
  });
  const point = points[at];
  write(where, point ? `step ${point.step.toLocaleString()}` : "");
  const words = chart.group.of.map((name, number) => `${reduced[name] ?? name} ${shown[number].textContent}`).join(", ");
  chart.place.setAttribute("aria-label", `${chart.group.title}: ${where.textContent}, ${words}. Arrow keys move, plus and minus zoom, 0 shows all.`);
}

// Zoom: a span of time, which the charts show by step or by time

function between(value, from, to) { // both ascend
  let low = 0, high = from.length - 1;
  if (value <= from[0]) return to[0];
  if (value >= from[high]) return to[high];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    from[middle] <= value ? (low = middle) : (high = middle);
  }
  return to[low] + (to[high] - to[low]) * (value - from[low]) / (from[high] - from[low]);
}

const steps = () => points.map((each) => each.step);
const timeOf = (x) => overTime() ? x * 1000 : between(x, steps(), times());
function all() {
  const found = times();
  return [found[0], found[found.length - 1]];
}

function scale() {
  const x = xs();
  if (!x.length) return;
  const span = zoomed();
  let [min, max] = !span ? [x[0], x[x.length - 1]] : overTime() ? span.map((each) => each / 1000) : span.map((each) => between(each, times(), steps()));
  if (max <= min) max = min + 1;
  charts.forEach(({ plot }) => plot.setScale("x", { min, max }));
}
onZoom(scale);

function keys(event, { plot, place }) {
  const x = plot.data[0], at = plot.cursor.idx ?? x.length - 1;
  const moves = { ArrowLeft: at - 1, ArrowRight: at + 1, PageUp: at - 20, PageDown: at + 20, Home: 0, End: x.length - 1 };
  if (zoomKey(event, all(), timeOf(x[at]))) { // done
  } else if (event.key in moves) {
    const to = Math.min(x.length - 1, Math.max(0, moves[event.key]));
    follow(timeOf(x[to]));
    queueMicrotask(() => { // uPlot sets a scale in one too
      plot.setCursor({ left: plot.valToPos(x[to], "x"), top: plot.over.clientHeight / 2 }, true, true);
      write(by("chart-said"), place.getAttribute("aria-label").split(". Arrow")[0]);
    });
  } else return;
  event.preventDefault();
}

function follow(at_ms) { // the cursor is in the span that is shown
  const [from, to] = zoomed() ?? [-Infinity, Infinity];
  if (at_ms < from) pan(at_ms - from, all());
  if (at_ms > to) pan(at_ms - to, all());
}

// The same as a table

function table() {
  const names = [...new Set(points.flatMap(({ values }) => Object.keys(values)))];
  const place = by("chart-table").querySelector("div"), every = Math.max(1, Math.ceil(points.length / 200));
  const meaning = Object.fromEntries([...document.querySelectorAll("#chart-meaning dt")].map((each) => [each.textContent, each.nextElementSibling.textContent]));
  const made = make("table"), head = made.createTHead().insertRow(), body = made.createTBody();
  for (const name of ["step", ...names]) head.append(make("th", { scope: "col", className: "num", title: meaning[name] ?? "" }, name));
  points.filter((each, at) => at % every === 0 || at === points.length - 1).reverse().forEach(({ step, values }) => {
    const row = body.insertRow();
    for (const value of [step.toLocaleString(), ...names.map((name) => figure(values[name]))]) Object.assign(row.insertCell(), { textContent: value, className: "num" });
  });
  place.replaceChildren(made);
}

// Controls

function redraw() {
  list.dataset.shape = "";
  if (points.length) draw();
}
by("chart-x").addEventListener("change", () => draw());
by("chart-log").addEventListener("change", () => draw());
by("chart-smooth").addEventListener("input", () => { said(); requestAnimationFrame(draw); });
by("chart-table").addEventListener("toggle", () => by("chart-table").open && table());
document.querySelectorAll("#charts [data-zoom]").forEach((each) => each.addEventListener("click", () => {
  if (charts.length) ({ in: () => zoomBy(0.5, all()), out: () => zoomBy(2, all()), all: () => zoomTo(null) })[each.dataset.zoom]();
}));
const said = () => write(by("chart-smooth-out"), span() === 1 ? "1 step" : `${span().toLocaleString()} steps`);
onTheme(redraw);
new ResizeObserver(() => charts.forEach(({ plot, place, group }) => plot.setSize({ width: Math.max(200, place.clientWidth), height: group.large ? 280 : 180 }))).observe(list);
onNews(pulse);
document.body.addEventListener("moment", () => { // of a replay: there may be fewer points now
  moment++;
  [points, next, timeline, asked] = [[], 0, null, ""];
  pulse();
});
said();
pulse();
