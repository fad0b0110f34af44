// The photos of a new job: sent as they are chosen, made a version of a data set, checked, shown with what was found, captioned.
import { by, make } from "../elements.js";
import { say, ask_first } from "../page.js";
import { captionName, captionOf, paired, placeOf, roleOf } from "./captions.js";
import { show, tile } from "./tiles.js";
import { answered, hashed, send } from "./uploads.js";

const SHOWN = 60, CHANGED_MS = 700, PAGE = 1000, JSON_MAX = 400_000;
const section = by("photos"), form = by("new");
const part = (name) => section.querySelector(`[data-${name}]`);
const list = part("photos"), template = section.querySelector("template");

let photos = [], others = [], held = new Set(JSON.parse(form.elements.held_out.value || "[]"));
let name = "", number = 0, version = null, suggested = "";
let running = false, changed = 0, problem = "", stopping = new AbortController(), all = false, timer = 0;

export const dataset = () => (version?.state === "ready" && !running && !timer ? `${name}@${number}` : "");
export const settled = () => !photos.length || Boolean(dataset());
export const trouble = () => problem || (version?.state === "refused" ? version.because : "");

// What the form sends of them

function tell() {
  form.elements.photos.value = dataset();
  if (photos.length || !form.elements.from.value) form.elements.count.value = photos.length;
  const paths = photos.map((photo) => photo.path).filter((path) => held.has(path));
  form.elements.held_out.value = paths.length && photos.length ? JSON.stringify(paths) : "";
  section.dispatchEvent(new Event("photos"));
}

export function draft() {
  const file = ({ path, sha256, bytes }) => ({ path, sha256, bytes });
  const here = photos.filter((photo) => photo.here).map((photo) => ({ ...file(photo), caption: photo.caption, text: photo.text?.here ? { ...file(photo.text), unread: photo.text.unread, of: photo.text.of } : null }));
  return { name, number, photos: here, left: photos.length - here.length, others: others.filter((each) => each.here).map(file), held: [...held] };
}

export async function restore(before) {
  if (!before?.photos?.length) return before?.left ? note(`${before.left} photos had not arrived. Add them again; nothing is sent twice.`) : undefined;
  ({ name, number } = before);
  held = new Set(before.held);
  photos = before.photos.map(({ text, ...photo }) => ({ ...photo, sent: photo.bytes, here: true, text: text && { ...text, here: true, sent: text.bytes } }));
  others = before.others.map((each) => ({ ...each, here: true }));
  if (before.left) note(`${before.left} photos had not arrived. Add them again; nothing is sent twice.`);
  const unread = photos.filter((photo) => photo.text?.unread);
  if (unread.length) {
    const files = await filesOf(name, number).catch((error) => (say(error.message, { bad: true }), []));
    const urls = new Map(files.map((file) => [file.path, file.url]));
    for (const { text } of unread) text.url = urls.get(text.path);
  }
  draw();
  work();
}

// A version that is there already

async function filesOf(of, at) {
  const files = [];
  for (let after = ""; ; after = files.at(-1).path) {
    const some = await answered("GET", `/v1/datasets/${of}/${at}/files?limit=${PAGE}${after && `&after=${encodeURIComponent(after)}`}`);
    files.push(...some);
    if (some.length < PAGE) return files;
  }
}

export async function open(reference) {
  const [of, at] = reference.split("@");
  try {
    const found = await answered("GET", `/v1/datasets/${of}/${at}`), files = await filesOf(of, at);
    const of_role = (role) => files.filter((file) => file.role === role);
    const paths = of_role("photo").map((file) => file.path), texts = new Map(of_role("caption").map((file) => [file.path, file]));
    photos = of_role("photo").map((file) => {
      const text = texts.get(captionOf(file.path, [...texts.keys()], paths));
      return { path: file.path, sha256: file.sha256, bytes: file.bytes, sent: file.bytes, here: true, caption: "", text: text && { ...text, here: true, unread: true } };
    });
    const used = new Set(photos.map((photo) => photo.text?.path));
    others = files.filter((file) => file.role === "mask" || (file.role === "caption" && !used.has(file.path))).map((file) => ({ ...file, here: true }));
    name = of;
    number = Number(at);
    version = found;
    problem = "";
    draw();
    tell();
  } catch (error) {
    say(error.message, { bad: true });
  }
}

// Captions that a job writes: a photo that got one meanwhile keeps it

const isBare = (photo) => !photo.caption.trim() && !photo.text?.unread;
export const uncaptioned = () => photos.filter(isBare).map((photo) => photo.path);

export function caption(written) {
  const bare = photos.filter((photo) => isBare(photo) && written.get(photo.path));
  for (const photo of bare) photo.caption = written.get(photo.path);
  draw();
  if (bare.length) touch(0);
  return bare.length;
}

// New ones

export function add(chosen) {
  const files = [...chosen].sort((one, other) => one.path.localeCompare(other.path, undefined, { numeric: true }));
  const taken = new Set([...photos, ...others].map((each) => each.path)), skipped = [], unread = [], texts = [], came = new Map(); // photos by the paths that they came from
  for (const { path, file } of files) {
    if (!file) { unread.push(path); continue; }
    const role = roleOf(path.includes("/masks/") ? path.slice(path.indexOf("masks/")) : path);
    if (!role) { if (!file.name.startsWith(".")) skipped.push(file.name); continue; }
    if (role === "caption") { texts.push({ path, file }); continue; }
    const there = photos.find((photo) => photo.file && photo.file.name === file.name && photo.file.size === file.size && photo.file.lastModified === file.lastModified);
    if (there) { came.set(path, there); continue; }
    const place = placeOf(path, taken);
    taken.add(place);
    if (role === "other") others.push({ path: place, blob: file });
    else {
      photos.push({ path: place, file, blob: file, bytes: file.size, sent: 0, caption: "" });
      came.set(path, photos.at(-1));
    }
    if (role === "photo" && path.includes("/")) suggested ||= path.split("/")[0];
  }
  Promise.all(texts.map(async ({ path, file }) => {
    try { return [path, (await file.text()).trim()]; } catch { unread.push(path); }
  })).then((read) => {
    const alone = !came.size && !skipped.length; // captions that came without photos are for those that are here
    const found = paired(new Map(read.filter(Boolean)), came, photos, (photo) => alone || isBare(photo));
    for (const [photo, caption] of found) Object.assign(photo, { caption, text: null });
    const few = (all) => all.slice(0, 5).join(", ") + (all.length > 5 ? ` and ${all.length - 5} more` : "");
    note([skipped.length && `Not used: ${few(skipped)}. Photos are JPEG, PNG, WebP, AVIF, BMP, TIFF or GIF files.`, unread.length && `Could not be read: ${few(unread)}.`].filter(Boolean).join(" "));
    draw();
    touch(0);
  });
}

function touch(ms = CHANGED_MS) {
  changed++;
  version = null;
  problem = "";
  clearTimeout(timer);
  timer = setTimeout(() => { timer = 0; work(); }, ms);
  tell();
  summary();
}

// Hash, send, make a version, follow its check; and again if something has changed meanwhile

async function work() {
  if (running) return;
  running = true;
  stopping = new AbortController();
  const { signal } = stopping;
  try {
    for (let at = -1; at !== changed && photos.length; ) {
      at = changed;
      await hashAll(signal);
      const texts = photos.filter((photo) => photo.text && !photo.text.here).map((photo) => photo.text);
      const files = [...photos, ...others, ...texts].filter((each) => !each.here);
      summary();
      await send(files, signal, progress);
      files.forEach((file) => (file.here = true));
      photos.forEach(state);
      if (at !== changed) continue;
      version = await makeVersion(signal);
      number = version.number;
      summary();
      for (let wait = 400; version.state === "checking" && at === changed; wait = Math.min(wait * 1.3, 3000)) {
        await new Promise((resolve) => setTimeout(resolve, wait));
        signal.throwIfAborted();
        version = await answered("GET", `/v1/datasets/${name}/${number}`);
        summary();
      }
    }
  } catch (error) {
    problem = signal.aborted ? "The upload was stopped." : error.message;
  } finally {
    running = false;
    if (!photos.length) version = null;
    photos.forEach(state);
    summary();
    tell();
  }
}

async function hashAll(signal) {
  for (const file of [...photos, ...others]) {
    if (file.sha256) continue;
    signal.throwIfAborted();
    Object.assign(file, await hashed(file.blob));
    progress();
  }
  const seen = new Map(), twice = photos.filter((photo) => seen.get(photo.sha256) ?? !seen.set(photo.sha256, photo));
  if (twice.length) {
    note(`${twice.length === 1 ? `${twice[0].path} is` : `${twice.length} photos are`} here already, under another name, and left out.`);
    photos = photos.filter((photo) => !twice.includes(photo));
    for (const { sha256, caption, row } of twice) {
      const first = seen.get(sha256), box = first.row?.querySelector("textarea");
      row?.remove();
      if (!isBare(first)) continue;
      first.caption = caption;
      if (box) box.value = caption;
    }
  }
  const paths = photos.map((photo) => photo.path);
  for (const photo of photos) {
    const caption = photo.caption.trim();
    if (photo.text?.unread) continue;
    if (!caption) photo.text = null;
    else if (photo.text?.of !== caption) {
      const blob = new Blob([`${caption}\n`]);
      photo.text = { path: photo.text?.path || captionName(photo.path, paths), blob, of: caption, ...(await hashed(blob)), sent: 0 };
    }
  }
}

async function makeVersion(signal) {
  const row = ({ path, sha256, bytes }) => ({ path, sha256, bytes });
  const files = [...photos.flatMap((photo) => (photo.text ? [photo, photo.text] : [photo])), ...others].map(row);
  name ||= newName();
  const text = JSON.stringify({ files });
  if (text.length < JSON_MAX) return answered("POST", `/v1/datasets/${name}/versions`, { files });
  const blob = new Blob([text]), manifest = { blob, ...(await hashed(blob)), sent: 0 };
  await send([manifest], signal, () => {});
  return answered("POST", `/v1/datasets/${name}/versions`, { manifest: { sha256: manifest.sha256, bytes: manifest.bytes } });
}

function newName() {
  const words = suggested.replace(/[^A-Za-z0-9._-]+/g, "-").replace(/^[^A-Za-z0-9]+/, "").slice(0, 60) || "photos";
  const at = new Date(), day = `${at.getFullYear()}${String(at.getMonth() + 1).padStart(2, "0")}${String(at.getDate()).padStart(2, "0")}`;
  return `${words}-${day}-${Math.random().toString(36).slice(2, 6)}`;
}

// What one sees

let frame = 0;
function progress() {
  frame ||= requestAnimationFrame(() => { frame = 0; photos.forEach(state); summary(); });
}

let noted = "";
function note(text) {
  noted = text;
  notes();
}

function notes() {
  part("notes").replaceChildren(...[noted, ...(version?.findings?.notes ?? [])].filter(Boolean).map((text) => make("li", {}, text)));
}

export function more() { // what a recipe brought that has no field
  try { return JSON.parse(form.elements.more.value || "{}"); } catch { return {}; }
}

// Without photos here, those of the recipe count, or those of the job that the form began from.
function countElsewhere() {
  const ofRecipe = more().photos, ofJob = form.elements.from.value && Number(form.elements.count.value);
  if (Array.isArray(ofRecipe)) return `the ${ofRecipe.length} photos of the recipe`;
  return ofJob ? `the ${ofJob} photos of that job` : "";
}

export function summary() {
  const bytes = photos.reduce((sum, photo) => sum + photo.bytes, 0), sent = photos.reduce((sum, photo) => sum + (photo.sent || 0), 0);
  const captioned = photos.filter((photo) => photo.caption.trim() || photo.text?.unread).length, unhashed = photos.filter((photo) => !photo.sha256).length;
  const [unit, name_of_unit] = bytes < 1e6 ? [1e3, "kB"] : [1e6, "MB"], amount = (value) => (value / unit).toFixed(unit === 1e3 ? 0 : 1);
  const count = `${photos.length} ${photos.length === 1 ? "photo" : "photos"}${captioned ? `, ${captioned} with a caption` : ""}`;
  const ready = dataset();
  const doing = problem ? "" : unhashed ? "reading" : sent < bytes ? "sending" : version?.state === "checking" || running || timer ? "checking" : "";
  part("summary").textContent = !photos.length ? countElsewhere() : `${count}${ready ? ` · ${ready} · ready` : doing ? ` · ${doing}…` : ""}`;
  const place = part("sending");
  place.hidden = !photos.length || (!problem && sent >= bytes && !unhashed);
  place.querySelector("progress").value = bytes ? sent / bytes : 0;
  part("sent").textContent = problem || `${amount(sent)} of ${amount(bytes)} ${name_of_unit}`;
  part("cancel").hidden = Boolean(problem);
  part("again").hidden = !problem;
  section.classList.toggle("has", Boolean(photos.length));
  part("tools").hidden = !photos.length;
  const refusal = version?.state === "refused" ? `These photos cannot be used: ${version.because}` : "";
  const wrong = by("s-photos-problem");
  if (refusal) { wrong.textContent = refusal; wrong.hidden = false; } else if (photos.length) wrong.hidden = true;
  if (version?.findings && version.findings !== section.findings) {
    section.findings = version.findings;
    notes();
    photos.forEach(state);
  }
}

const state = (photo) => show(photo, version);

function draw() {
  const shown = all ? photos : photos.slice(0, SHOWN);
  for (const photo of shown) photo.row ??= tile(photo, template, held.has(photo.path));
  list.replaceChildren(...shown.map((photo) => photo.row));
  for (const photo of shown) {
    const box = photo.row.querySelector("textarea");
    if (document.activeElement !== box && box.value !== photo.caption) box.value = photo.caption;
    state(photo);
  }
  part("all").hidden = shown.length === photos.length;
  part("all").textContent = `Show all ${photos.length}`;
  summary();
}

// What one does

list.addEventListener("input", ({ target }) => {
  const photo = target.closest(".photo").photo;
  if (target.matches("textarea")) { photo.caption = target.value; touch(4000); }
  if (target.matches("[data-hold]")) { target.checked ? held.add(photo.path) : held.delete(photo.path); tell(); }
});
list.addEventListener("change", ({ target }) => { if (target.matches("textarea")) touch(200); });
list.addEventListener("click", ({ target }) => {
  if (!target.closest("[data-remove]")) return;
  const row = target.closest(".photo"), next = row.nextElementSibling || row.previousElementSibling;
  photos = photos.filter((photo) => photo !== row.photo);
  held.delete(row.photo.path);
  if (row.querySelector("img").src.startsWith("blob:")) URL.revokeObjectURL(row.querySelector("img").src);
  draw();
  (next?.querySelector("[data-remove]") || section.querySelector("[data-choose]")).focus();
  touch();
});
section.addEventListener("click", async ({ target }) => {
  const way = target.closest("[data-choose]")?.dataset.choose;
  if (way) by(way).click();
  if (target.closest("[data-all]")) { all = true; draw(); }
  if (target.closest("[data-cancel]")) stopping.abort();
  if (target.closest("[data-again]")) { problem = ""; work(); summary(); }
  if (target.closest("[data-clear-photos]") && (await ask_first("Remove all photos from this job? The data set stays.", { yes: "Remove all", no: "Keep them" }))) {
    stopping.abort();
    [photos, others, held, name, number, version, problem, all] = [[], [], new Set(), "", 0, null, "", false];
    changed++;
    note("");
    draw();
    tell();
  }
});
for (const id of ["files", "folder", "camera"]) {
  const input = by(id);
  input.addEventListener("change", () => {
    const files = [...input.files].map((file) => ({ path: file.webkitRelativePath || (id === "camera" ? `${Date.now()}-${file.name}` : file.name), file }));
    input.value = "";
    add(files);
  });
}
by("data-set")?.addEventListener("change", ({ target }) => { if (target.value) open(target.value); target.value = ""; });
