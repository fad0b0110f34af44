// The log of a job: its end first, older parts as one scrolls up or searches, new ones as they come. Cursors are `fencing.byte`.
import { AGAIN_MS, by, make, mayPass, onNews } from "../elements.js";
import { ask } from "../page.js";

const PIECE = 400_000; // bytes that are asked for at once
const LINES = 200; // of a block: what is not in view is not laid out
const KEPT = 64_000_000; // characters; older parts go when more is loaded at the end
const { job } = by("job").dataset;
const box = by("log-text"), search = by("log-search"), attempt = by("log-attempt");
const STYLED = /\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])/g;

let logs = []; // of each attempt: its fencing number, and its bytes
let first = null, next = null; // what is loaded: from the one up to the other
let loading = Promise.resolve(), opened = 0, held = "", size = 0, sticks = true;

function extents() {
  return by("job-pulse").dataset.logs.split(",").filter(Boolean).map((each) => {
    const [id, fencing, bytes] = each.split(" ");
    return { id, fencing: Number(fencing), bytes: Number(bytes) };
  });
}
const chosen = () => logs.filter((each) => !attempt.value || each.id === attempt.value);

function readable(text) { // colours and cursor movements are not shown; a line that was redrawn is shown as it was at last
  return text.replace(STYLED, "").replace(/[^\n]*\r(?=[^\n])/g, "").replace(/[\x00-\x08\x0b-\x1f\x7f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, (each) => (each === "\r" ? "" : "\ufffd"));
}

async function piece(from, before) {
  let text = "", at = from;
  for (;;) {
    const answer = await ask("GET", `/v1/jobs/${job}/logs?after=${at}${before ? `&before=${before}` : ""}`);
    if (!answer.ok) throw Object.assign(new Error("the log cannot be read"), { status: answer.status });
    const found = await answer.json();
    text += found.text;
    if (found.next === at || !found.text || text.length > PIECE) return { text, next: found.next };
    at = found.next;
  }
}

function blocks(text) {
  const lines = text.split("\n"), made = document.createDocumentFragment();
  for (let at = 0; at < lines.length; at += LINES) {
    const part = lines.slice(at, at + LINES);
    const block = make("div", { className: "block" }, part.join("\n") + (at + LINES < lines.length ? "\n" : ""));
    block.style.containIntrinsicBlockSize = `auto ${part.length * 18}px`;
    growth.observe(block);
    made.append(block);
  }
  return made;
}

// Loading: one after another. What fails is tried again after a while.

const failed = new Set();
let again = 0;

function then(what) {
  const mine = opened;
  loading = loading.then(() => (mine === opened ? what() : undefined)).catch(({ status }) => {
    if (!mayPass(status)) return note("The log cannot be read.");
    note("The log cannot be read now; it is tried again.");
    failed.add(what);
    again ||= setTimeout(tryAgain, AGAIN_MS);
  });
  return loading;
}

async function tryAgain() {
  const all = [...failed];
  again = 0;
  failed.clear();
  await Promise.all(all.map(then));
  if (!failed.size) note("");
}

function note(text) {
  let place = box.querySelector(".note");
  if (!text) return place?.remove();
  place ??= box.appendChild(make("p", { className: "note muted" }));
  place.textContent = text;
}

function open() {
  opened++;
  first = next = null;
  held = "";
  size = 0;
  box.replaceChildren();
  found = [];
  const last = chosen().at(-1);
  if (!last) return note("Nothing was printed yet.");
  const from = Math.max(0, last.bytes - PIECE);
  first = { fencing: last.fencing, byte: from };
  next = `${last.fencing}.${from}`;
  return then(newer).then(() => {
    if (box.clientHeight && box.scrollHeight < 2 * box.clientHeight) return then(older);
  }).then(() => {
    sticks = true;
    toEnd();
  });
}

async function newer() {
  const last = chosen().at(-1);
  if (!last || next === null) return;
  const mine = opened, end = attempt.value ? `${last.fencing + 1}.0` : "";
  for (;;) {
    const read = await piece(next, end);
    if (mine !== opened) return;
    next = read.next;
    if (!read.text) return;
    add(read.text);
  }
}

function add(text) {
  const stays = by("log-follow").checked && sticks;
  note("");
  const whole = held + text, cut = whole.lastIndexOf("\n");
  box.querySelector(".begun")?.remove();
  held = whole.slice(cut + 1); // a line that is not at its end yet
  if (cut >= 0) box.append(blocks(readable(whole.slice(0, cut))));
  if (held) box.append(make("div", { className: "block begun" }, readable(held)));
  size += text.length;
  while (box.children.length > 3 && size > KEPT) {
    size -= box.firstElementChild.textContent.length;
    box.firstElementChild.remove();
    first = null; // what is above is not known by a cursor any more
  }
  if (stays) toEnd();
  if (search.value) look();
}

function before() { // where the part before what is loaded begins and ends; null if there is none
  if (!first) return null;
  if (first.byte > 0) return { fencing: first.fencing, from: Math.max(0, first.byte - PIECE), end: `${first.fencing}.${first.byte}` };
  const earlier = chosen().filter((each) => each.fencing < first.fencing).at(-1);
  return earlier ? { fencing: earlier.fencing, from: Math.max(0, earlier.bytes - PIECE), end: `${earlier.fencing + 1}.0` } : null;
}

async function older() {
  const part = before(), mine = opened;
  if (!part || size > KEPT) return false;
  const { text } = await piece(`${part.fencing}.${part.from}`, part.end);
  if (mine !== opened) return false;
  first = { fencing: part.fencing, byte: part.from };
  if (text) {
    size += text.length;
    const below = box.scrollHeight - box.scrollTop, old = box.firstElementChild;
    const made = blocks(readable(text.endsWith("\n") ? text.slice(0, -1) : text));
    if (!text.endsWith("\n") && old?.firstChild && part.end.split(".")[1] !== "0") {
      made.lastChild.append(old.textContent); // a line that the border of two parts went through
      old.remove();
    }
    const fresh = [...made.children];
    box.prepend(made);
    box.scrollTop = box.scrollHeight - below;
    if (search.value) found = [...matches(search.value.toLowerCase(), fresh), ...found.filter((each) => each.block !== old || old.isConnected)];
  }
  return true;
}

const isAtEnd = () => box.scrollHeight - box.scrollTop - box.clientHeight < 40;
const toEnd = () => { box.scrollTop = box.scrollHeight; };
// A block gets its real height when it is first shown. That may be after the log was scrolled to its end, so it is scrolled there again.
const growth = new ResizeObserver(() => { if (sticks && by("log-follow").checked) toEnd(); });
growth.observe(box);
let scrolls = false, top = 0;
box.addEventListener("scroll", () => {
  if (isAtEnd() || box.scrollTop < top) sticks = isAtEnd(); // what grows below leaves it as it is
  top = box.scrollTop;
  if (box.scrollTop < 400 && first && !scrolls) {
    scrolls = true;
    then(older).finally(() => (scrolls = false));
  }
});

// Search: in what is loaded, then in older parts

let found = [], at = -1, looking = 0;
const marks = window.Highlight && CSS.highlights;

function matches(words, blocks = box.querySelectorAll(".block")) {
  const ranges = [];
  for (const block of blocks) {
    const node = block.firstChild;
    if (!node) continue;
    const text = block.textContent.toLowerCase();
    if (block.childNodes.length > 1) block.normalize();
    for (let place = text.indexOf(words); place >= 0 && ranges.length < 20_000; place = text.indexOf(words, place + words.length)) ranges.push({ block, place });
  }
  return ranges;
}

function look() {
  const words = search.value.toLowerCase(), now = found[at];
  found = words ? matches(words) : [];
  at = now ? found.findIndex((each) => each.block === now.block && each.place === now.place) : -1;
  if (marks) marks.delete("found-now");
  say();
}

function say(more = "") {
  by("log-found").textContent = !search.value ? "" : found.length ? `${at < 0 ? "" : `${at + 1} of `}${found.length.toLocaleString()}${more}` : more || "not found";
}

function rangeOf({ block, place }) {
  const range = document.createRange();
  range.setStart(block.firstChild, place);
  range.setEnd(block.firstChild, Math.min(block.firstChild.length, place + search.value.length));
  return range;
}

function show() {
  const range = rangeOf(found[at]);
  if (marks) {
    marks.set("found", new Highlight(...found.slice(Math.max(0, at - 200), at + 200).map(rangeOf)));
    marks.set("found-now", new Highlight(range));
  } else {
    getSelection().removeAllRanges();
    getSelection().addRange(range);
  }
  found[at].block.scrollIntoView({ block: "nearest" });
  const line = range.getBoundingClientRect(), view = box.getBoundingClientRect();
  if (line.top < view.top + 20 || line.bottom > view.bottom - 20) box.scrollTop += line.top - view.top - box.clientHeight / 2;
  say();
}

async function go(step) {
  if (!search.value) return;
  by("log-follow").checked = false;
  const mine = ++looking;
  if (!found.length) look();
  const now = found[at], beyond = at >= 0 && at + step < 0;
  while ((!found.length || beyond && mine === looking) && before() && size <= KEPT) {
    const had = found.length;
    say(" – reading older parts…");
    if ((await then(older)) === undefined) return say(" – older parts cannot be read now");
    await new Promise(requestAnimationFrame); // the page stays usable
    if (mine !== looking) return;
    at = had && found.length > had ? found.indexOf(now) : at;
    if (found.length > had) break;
  }
  if (!found.length) return say();
  at = at < 0 ? (step < 0 ? found.length - 1 : nearest()) : (at + step + found.length) % found.length;
  show();
}

function nearest() { // the first one in view or below
  const top = box.getBoundingClientRect().top;
  const place = found.findIndex((each) => each.block.getBoundingClientRect().bottom > top);
  return Math.max(0, place);
}

let typed = 0;
search.addEventListener("input", () => {
  clearTimeout(typed);
  looking++;
  typed = setTimeout(() => { at = -1; look(); if (marks && !search.value) marks.clear(); if (search.value) go(-1); }, 250);
});
search.addEventListener("keydown", (event) => {
  if (event.key !== "Enter") return;
  event.preventDefault();
  go(event.shiftKey ? 1 : -1);
});
by("log-next").addEventListener("click", () => go(1));
by("log-previous").addEventListener("click", () => go(-1));
by("log-wrap").addEventListener("change", (event) => box.classList.toggle("unwrapped", !event.target.checked));
by("log-follow").addEventListener("change", (event) => {
  sticks = event.target.checked;
  if (sticks) toEnd();
});
attempt.addEventListener("change", open);

function pulse() {
  const now = extents(), changed = JSON.stringify(now) !== JSON.stringify(logs);
  if (!changed) return;
  const had = logs.length;
  logs = now;
  while (attempt.options.length - 1 < logs.length) {
    const each = logs[attempt.options.length - 1];
    attempt.append(new Option(`${each.fencing}`, each.id));
  }
  if (!had || next === null) open();
  else then(newer);
}
onNews(pulse);
let shown = "";
document.body.addEventListener("moment", () => { // of a replay: there may be less now
  const now = by("job-pulse").dataset.logs;
  if (now === shown) return;
  shown = now;
  logs = extents();
  attempt.length = Math.min(attempt.length, logs.length + 1);
  open();
});
pulse();
if (!logs.length) note("Nothing was printed yet.");
