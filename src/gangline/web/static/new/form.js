// The form of a new job: its plan follows what one types, problems stand at their fields, and a draft survives a reload.
import { by, marked, onServer, sentences } from "../elements.js";
import { readProblem, say } from "../page.js";
import * as photos from "./photos.js";
import { answered, hashed, send } from "./uploads.js";
import "./drops.js";
import "./writing.js";

const form = by("new"), plan = by("plan");
const PLAN_MS = 350, DRAFT = `gangline.new${location.search}`, OWN = ["photos", "count", "held_out", "recipe"];

// The plan

let later = 0;
function replan() {
  clearTimeout(later);
  later = setTimeout(() => plan.dispatchEvent(new Event("plan")), PLAN_MS);
}

function changed() {
  if (toldBy === "start") toldBy = "typed"; // the next plan says what is still wrong
  keep();
  replan();
}

form.addEventListener("input", ({ target }) => {
  if (target.closest("[data-photos]") || target.id === "recipe") return;
  if (target.matches("[data-find]")) return find(target.value);
  if (target.name === "preset") showPresets();
  if (target.name === "base") showHub();
  mark(target);
  changed();
});

const unfolded = {}; // parts of the plan that were opened or closed stay so
plan.addEventListener("click", ({ target }) => {
  const part = target.closest("summary")?.parentElement;
  if (part) unfolded[part.className] = !part.open;
});
plan.addEventListener("htmx:after:swap", () => {
  for (const [name, open] of Object.entries(unfolded)) plan.querySelectorAll(`details.${name}`).forEach((part) => (part.open = open));
});

by("photos").addEventListener("photos", () => {
  changed();
  if (waits) startWhenReady();
});

// Problems: at their field, or above the plan. What was typed stays.

function clear() {
  form.querySelectorAll("[aria-invalid]").forEach((each) => each.removeAttribute("aria-invalid"));
  form.querySelectorAll(".setting .wrong").forEach((each) => (each.hidden = true));
  by("problem").hidden = true;
  toldBy = "";
}

// What is wrong with a base that is on the hub is wrong with what names it.
const fieldFor = (name) => (name === "base" && form.elements.base.value === "hub" ? "hub" : name);
const fieldOf = (name) => form.elements[name] ?? form.elements[name.split(".")[0]];
const placeOf = (name) => by(`s-${name.replaceAll(".", "-")}-problem`) ?? by(`s-${name.split(".")[0]}-problem`);

// If a new plan cannot be computed, the old one stays on the screen and is marked as old.
function age(old) {
  const stale = old && plan.querySelector(".short") !== null;
  plan.classList.toggle("stale", stale);
  form.querySelector("[data-stale]").hidden = !stale;
}

let toldBy = ""; // who said what is shown: the plan, or Start

function show(problem, { focus = false, by: teller = "start" } = {}) {
  clear();
  toldBy = teller;
  const [, named, rest] = /^([a-z_.]+): (.*)$/s.exec(problem.detail) ?? [];
  const found = problem.problems.length ? problem.problems : named && placeOf(named) ? [{ field: named, message: rest }] : [];
  const elsewhere = [];
  let first = null;
  for (const { field, message } of found) {
    const name = fieldFor(field), place = placeOf(name), control = fieldOf(name);
    if (!place) { elsewhere.push(`${field} ${message}`); continue; }
    place.replaceChildren(...marked(sentences(message, found.length === 1 ? problem.hint : "")));
    place.hidden = false;
    for (let folded = place.closest("details:not([open])"); folded; folded = folded.parentElement.closest("details:not([open])")) folded.open = true;
    if (control?.setAttribute && control.type !== "hidden") control.setAttribute("aria-invalid", "true");
    first ??= control?.type === "hidden" ? form.querySelector("[data-choose]") : control;
  }
  const words = found.length ? sentences(...elsewhere) : sentences(problem.detail, problem.hint);
  const above = by("problem");
  above.replaceChildren(...marked(words));
  above.hidden = !words;
  if (focus) (first ?? above).focus?.();
}

form.addEventListener("htmx:before:response", async (event) => {
  const { ctx } = event.detail, { raw } = ctx.response;
  if (raw.status === 401) return; // page.js asks for the key
  const ofPlan = ctx.sourceElement === plan;
  if (ofPlan) age(!raw.ok);
  if (raw.ok) return ofPlan && toldBy === "start" ? undefined : clear();
  event.stopPropagation(); // it is said here
  if (ofPlan && toldBy === "start") return; // what Start lacks stays until something is typed
  show(await readProblem(raw.clone()), { focus: !ofPlan, by: ofPlan ? "plan" : "start" });
});

// Start: at once, or as soon as the photos are there and checked

let waits = false;
const start = form.querySelector("[data-start]"), told = form.querySelector("[data-waits]");
function wait(on) {
  waits = on;
  told.hidden = !on;
  told.textContent = on ? "It starts as soon as the photos are ready." : "";
  if (start) start.textContent = on ? "Do not start" : "Start";
}

function startWhenReady() {
  if (photos.trouble()) { wait(false); say(photos.trouble(), { bad: true }); return; }
  if (photos.settled()) { wait(false); form.requestSubmit(start); }
}

document.addEventListener("submit", (event) => {
  if (event.target !== form) return;
  const stop = () => { event.preventDefault(); event.stopImmediatePropagation(); };
  if (waits) { stop(); return wait(false); }
  const lacks = [];
  if (!form.elements.from.value && !Number(form.elements.count.value) && !form.elements.photos.value && !photos.more().photos) lacks.push({ field: "photos", message: "Add photos to train on" });
  if (form.elements.base.value === "hub" && !form.elements.hub.value.trim()) lacks.push({ field: "hub", message: "Name a repository on the hub, such as ORGANISATION/NAME" });
  if (!form.elements.base.value && !form.elements.from.value && !photos.more().base) lacks.push({ field: "base", message: "Choose a base" });
  if (!form.elements.prompt.value.trim() && !photos.more().subjects) lacks.push({ field: "prompt", message: "Say what is in the photos" });
  if (lacks.length) { stop(); return show({ detail: "", hint: "", problems: lacks }, { focus: true }); }
  if (photos.settled()) return;
  stop();
  if (photos.trouble()) return say(photos.trouble(), { bad: true });
  wait(true);
}, true);

form.addEventListener("htmx:config:request", ({ detail: { ctx } }) => {
  if (ctx.sourceElement === form) ctx.request.headers["Idempotency-Key"] = form.getAttribute("data-key");
});
form.addEventListener("htmx:after:request", ({ detail: { ctx } }) => {
  if (ctx.sourceElement === form && ctx.response.raw.ok) { form.started = true; sessionStorage.removeItem(DRAFT); }
});
addEventListener("pageshow", ({ persisted }) => { if (persisted && form.started) location.reload(); }); // another job has a key of its own

// Presets show what they set where nothing was typed

function showPresets() {
  const settings = Object.assign({}, ...[...form.querySelectorAll("[name=preset]:checked")].map((each) => JSON.parse(each.dataset.settings)));
  form.querySelectorAll("[data-default]").forEach((field) => {
    const set = settings[field.name], text = set === undefined ? field.dataset.default : set === true ? "yes" : set === false ? "no" : [].concat(set).join(", ");
    if (field.matches("select")) field.options[0].textContent = text || "default";
    else field.placeholder = text;
    field.classList.toggle("preset-value", set !== undefined);
  });
}

function showHub() {
  const on = form.elements.base.value === "hub";
  form.querySelector("[data-hub]").hidden = !on;
}

// A draft brings back the recipe, whose base no page offers that is loaded again.
function offerBaseOfRecipe() {
  const { base } = form.elements;
  if (!photos.more().base) return;
  if (base.options[0].value) base.prepend(new Option("", ""));
  base.options[0].textContent = "as in the recipe";
}

function mark(field) {
  const group = field.closest?.(".group"), said = group?.querySelector("[data-set]");
  if (!said) return;
  const count = [...group.querySelectorAll("[data-default]")].filter((each) => each.value).length;
  said.textContent = count ? `${count} ${count === 1 ? "setting" : "settings"} changed` : "";
}

function find(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  let found = 0;
  for (const group of form.querySelectorAll(".group")) {
    const hits = [...group.querySelectorAll(".setting")].filter((each) => {
      const all = `${each.dataset.setting} ${each.textContent}`.toLowerCase();
      each.hidden = !words.every((word) => all.includes(word));
      return !each.hidden;
    });
    found += hits.length;
    group.hidden = !hits.length;
    group.open = words.length ? hits.length > 0 : [...group.querySelectorAll("[data-default]")].some((each) => each.value);
  }
  form.querySelector("[data-none]").hidden = found > 0;
}

// A recipe fills in the fields

document.body.addEventListener("htmx:after:swap", () => {
  const settings = by("settings");
  if (settings.seen) return;
  settings.seen = true;
  const { dataset: reference, name, labels, told } = settings.dataset;
  if (name) form.elements.name.value = name;
  if (labels) form.elements.labels.value = labels;
  if (/^[A-Za-z0-9][\w.-]*@\d+$/.test(reference)) photos.open(reference);
  say(told);
  showPresets();
  showHub();
  photos.summary();
  changed();
});
by("settings").seen = true;

// The draft

function keep() {
  if (form.started) return;
  const fields = [...new FormData(form)].filter(([name]) => !OWN.includes(name));
  try { sessionStorage.setItem(DRAFT, JSON.stringify({ fields, photos: photos.draft() })); } catch { /* a browser may allow none */ }
}

function restore() {
  let before = null;
  try { before = JSON.parse(sessionStorage.getItem(DRAFT)); } catch { /* as if there were none */ }
  if (!before) return false;
  for (const box of form.querySelectorAll("[name=preset]")) box.checked = false;
  for (const [name, value] of before.fields) {
    if (name === "preset") { const box = form.querySelector(`[name=preset][value="${CSS.escape(value)}"]`); if (box) box.checked = true; continue; }
    const field = form.elements[name];
    if (field && name !== "from") field.value = value;
    if (name === "more") offerBaseOfRecipe();
  }
  form.querySelectorAll(".group").forEach((group) => mark(group.querySelector("[data-default]")));
  if (before.photos.photos.length || before.photos.left) { photos.restore(before.photos); return true; }
  return false;
}

// Start from another job's LoRA: it becomes a file of this project

async function bringLora() {
  const path = form.getAttribute("data-lora"), job = form.elements.from.value;
  try {
    const found = (await answered("GET", `/v1/jobs/${job}/artifacts`)).find((each) => each.path === path);
    if (!found) throw new Error(`${job} has no ${path} any more`);
    const response = await fetch(onServer(found.url));
    if (!response.ok) throw new Error(`${path} could not be read: the store answered ${response.status}`);
    const blob = await response.blob(), file = { blob, ...(await hashed(blob)), sent: 0 };
    await send([file], new AbortController().signal, () => {});
    form.elements.init_lora.value = JSON.stringify({ path: path.split("/").pop(), bytes: file.bytes, sha256: file.sha256 });
    changed();
  } catch (error) {
    show({ detail: error.message, hint: "The job would start without that LoRA.", problems: [] });
  }
}

const drafted = restore();
if (!drafted && form.elements.photos.value) photos.open(form.elements.photos.value);
if (form.getAttribute("data-lora") && !form.elements.init_lora.value) bringLora();
showPresets();
showHub();
photos.summary();
