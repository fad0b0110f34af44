// What every screen has: errors that are said, a clock, the state of the stream, the theme, questions before something is lost.
import { startClock } from "./clock.js";
import { takeTurns } from "./turns.js";
import { AGAIN_MS, by, make, marked, onServer, sentHeaders, sentences } from "./elements.js";
import "./focus.js";
import { fitting } from "./select.js";

const body = document.body;

// Messages

export function say(text, { hint = "", bad = false, goesOn = false } = {}) {
  const place = by("toasts");
  if (!place) return;
  by("toast-goes-on")?.remove();
  const words = make("div", {}, ...marked(bad || hint ? sentences(text) : text), ...(hint ? [make("br"), make("small", {}, ...marked(sentences(hint)))] : []));
  const close = make("button", { type: "button", className: "quiet", ariaLabel: "Close", onclick: () => toast.remove() }, "×");
  const toast = make("div", { className: bad ? "toast bad" : "toast" }, words, close);
  if (goesOn) toast.id = "toast-goes-on"; // the next message is in its place
  place.append(toast);
  while (place.children.length > 4) place.firstElementChild.remove();
  if (!bad && !goesOn) setTimeout(() => toast.remove(), 6000);
}

// An event of an answer arrives at the document alone where the element that asked is gone.
document.addEventListener("toast", (event) => say(event.detail.text, event.detail));
body.addEventListener("htmx:before:response", ({ detail: { ctx } }) => { // what was added stands in the list now
  if (ctx.response.raw.ok && ctx.sourceElement.matches?.("form[data-empties]")) ctx.sourceElement.reset();
});

const TOLD = "gangline.told"; // what was done on the screen before
document.addEventListener("told-there", ({ detail }) => sessionStorage.setItem(TOLD, detail.text));
if (sessionStorage.getItem(TOLD)) {
  say(sessionStorage.getItem(TOLD));
  sessionStorage.removeItem(TOLD);
}
document.addEventListener("unfinished", ({ detail: { text, address, fields, form } }) => { // what takes long is done in parts
  say(text, { goesOn: true });
  window.htmx.ajax("POST", onServer(address), { values: fields, source: by(form) ?? body, swap: "none" });
});

// Answers that refuse: said beside the form that was sent, or as a message. What was typed stays.

async function refused(response, source) {
  if (isStream(source)) return streamRefused(response.status);
  lacksMore(source);
  if (response.status === 401 && by("sign-in")) return askForKey();
  if (response.status === 404 && source === body && response.url === location.href.split("#")[0]) return body.dispatchEvent(new Event("gone"));
  const problem = await readProblem(response);
  if (source?.matches?.("[data-preview]")) document.querySelector(source.getAttribute("hx-target"))?.replaceChildren(); // it is not so any more
  const form = source?.closest?.("form[data-problem]");
  const place = form?.querySelector(".error[role=alert]");
  if (place) {
    place.replaceChildren(...marked(sentences(problem.detail, problem.hint)));
    place.hidden = false;
    return;
  }
  say(problem.detail, { hint: problem.hint, bad: true });
}

export async function readProblem(response) {
  const found = await response.json().catch(() => ({}));
  return { detail: found.detail || found.title || `The server answered ${response.status}.`, hint: found.hint || "", problems: found.problems || [] };
}

// While something is done its button says so, keeps the focus, and does not do it twice.

function underWay({ sourceElement, request }, on) {
  const button = sourceElement?.matches?.("form") ? request?.submitter ?? sourceElement.querySelector("button:not([type=button])") : sourceElement;
  if (!button?.matches?.("button")) return;
  button.toggleAttribute("data-busy", on);
  on ? button.setAttribute("aria-disabled", "true") : button.removeAttribute("aria-disabled");
}
body.addEventListener("htmx:before:request", ({ detail: { ctx } }) => underWay(ctx, true));
body.addEventListener("htmx:finally:request", ({ detail: { ctx } }) => ctx.keepIndicators || underWay(ctx, false)); // kept while the next page comes
addEventListener("pageshow", ({ persisted }) => persisted && document.querySelectorAll("[data-busy]").forEach((each) => { each.removeAttribute("data-busy"); each.removeAttribute("aria-disabled"); }));
document.addEventListener("click", (event) => {
  if (!event.target.closest?.("[data-busy]")) return;
  event.preventDefault();
  event.stopImmediatePropagation();
}, true);

body.addEventListener("htmx:before:request", (event) => {
  event.detail.ctx?.sourceElement?.closest?.("form")?.querySelectorAll(".error[role=alert]").forEach((each) => (each.hidden = true));
});
body.addEventListener("htmx:before:response", (event) => {
  const { ctx } = event.detail;
  const raw = ctx.response.raw;
  if (raw.ok || raw.status === 304) return;
  refused(raw.clone(), ctx.sourceElement);
});
body.addEventListener("htmx:error", (event) => {
  const source = event.detail?.ctx?.sourceElement;
  if (event.detail?.ctx?.response) return; // it was said above
  if (isStream(source)) return streamRefused(0);
  lacksMore(source);
  say("The server does not answer.", { hint: "Nothing was changed; try again when it is back.", bad: true });
});

// The rest of a list that could not be loaded is asked for again when it comes into view again, or the server is back.

let lacking = null;
const lacksMore = (source) => source?.id === "more" && (lacking = source);
body.addEventListener("htmx:sse:after:connection", () => {
  if (lacking?.isConnected) window.htmx.trigger(lacking, "intersect");
  lacking = null;
});

// A request of our own scripts

export async function ask(method, url, value) {
  const headers = sentHeaders();
  if (value !== undefined) headers["Content-Type"] = "application/json";
  const response = await fetch(onServer(url), { method, headers, body: value === undefined ? undefined : JSON.stringify(value), credentials: "same-origin" });
  if (response.status === 401) {
    await askForKey();
    return ask(method, url, value);
  }
  return response;
}

// Sign in again, while what was typed stays where it is

let asking = null;
export function askForKey() {
  const dialog = by("sign-in");
  if (!dialog) return Promise.resolve();
  asking ??= new Promise((resolve) => {
    const form = dialog.querySelector("form");
    const alert = dialog.querySelector("[role=alert]");
    form.onsubmit = async (event) => {
      event.preventDefault();
      const sent = new URLSearchParams({ key: form.elements.key.value, stay: "1" });
      const response = await fetch(onServer("/sign-in"), { method: "POST", headers: sentHeaders(), body: sent }).catch(() => null);
      if (!response?.ok) {
        alert.textContent = response ? sentences((await readProblem(response)).detail) : "The server does not answer. Try again when it is back.";
        alert.hidden = false;
        return;
      }
      const { csrf: token } = await response.json();
      body.setAttribute("hx-headers:inherited", JSON.stringify({ ...sentHeaders(), "X-CSRF-Token": token }));
      form.elements.key.value = "";
      alert.hidden = true;
      asking = null;
      dialog.close();
      say("Signed in.", { hint: "What was refused can be sent again." });
      connect();
      resolve();
    };
    dialog.oncancel = (event) => event.preventDefault();
    dialog.onclose = () => asking && dialog.showModal(); // a browser lets a second Escape close it all the same
    dialog.showModal();
  });
  return asking;
}

// A question before something is lost. A button that sends a form may ask one of its own, which htmx looks for at the form alone.

body.addEventListener("htmx:config:request", (event) => {
  const { ctx } = event.detail;
  ctx.confirm ??= ctx.request.submitter?.getAttribute?.("hx-confirm");
  if (ctx.request.form?.method !== "get") return;
  for (const [name, value] of [...ctx.request.body]) if (!value) ctx.request.body.delete(name); // an address has what is set alone
});
body.addEventListener("htmx:confirm", (event) => {
  const { ctx } = event.detail, question = ctx?.confirm ?? event.detail.question;
  if (!question) return;
  event.preventDefault();
  const asks = ctx?.request?.submitter ?? ctx?.sourceElement, { yes, no } = asks?.dataset ?? {};
  const [text, sure, back] = [question, yes, no].map((each) => ofSelected(each, asks));
  ask_first(text, { yes: sure, no: back }).then((yes) => (yes ? event.detail.issueRequest() : event.detail.dropRequest?.()));
});

// A question about what is selected in a list: {n} is how many, {them} stands for them, and {names} begins to name them.
function ofSelected(text, button) {
  const bulk = button?.closest?.(".bulk");
  if (!text || !bulk) return text;
  const boxes = fitting(button), names = boxes.slice(0, 3).map((each) => each.closest("li").querySelector(".name b").textContent);
  const rest = boxes.length - names.length, noun = bulk.dataset.noun;
  return text.replaceAll("{n}", `${boxes.length} ${noun}${boxes.length === 1 ? "" : "s"}`).replaceAll("{them}", boxes.length === 1 ? "it" : "them")
    .replaceAll("{names}", () => names.join(", ") + (rest ? ` and ${rest} more` : ""));
}

export function ask_first(question, { yes, no } = {}) {
  const dialog = by("confirm");
  dialog.querySelector("#confirm-text").textContent = question;
  dialog.querySelector("[value=yes]").textContent = yes || "Yes";
  dialog.querySelector("[value=no]").textContent = no || "No";
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true }));
}

// The stream of the screen. It says something at least every 15 seconds: one that is silent for longer is cut, whatever the browser believes.

const SILENT_MS = 40000;
let connection = null, heard = 0, gone = false, aside = false, asLoaded = true, unseen = false;

// By this machine's clock, which goes on while it sleeps.
const isSilent = () => Math.abs(Date.now() - heard) >= SILENT_MS;

function isStream(element) {
  return Boolean(element?.hasAttribute?.("hx-sse:connect"));
}
function streaming(state) {
  const live = by("live");
  if (!live || live.dataset.state === state) return;
  live.dataset.state = state;
  live.title = { on: "This page is up to date", wait: "The stream is cut; the page tries again", aside: "Other windows of this browser follow the server; this one does again when you use it" }[state] || "";
}
function connect() {
  const source = document.querySelector("[hx-sse\\:connect]");
  if (source && !connection && !asking && !gone && !aside) window.htmx.ajax("GET", source.getAttribute("hx-sse:connect"), { source });
}
function streamRefused(status) {
  if (status === 401) return askForKey();
  if (status === 403 || status === 404) return body.dispatchEvent(new Event("gone"));
  streaming("wait");
  if (!connection) setTimeout(connect, AGAIN_MS); // one that was open tries again by itself
}
function wasDeleted() {
  if (gone) return;
  gone = true;
  streaming("off");
  say("What this page shows was deleted.", { bad: true });
}
// A page that is as it was loaded says so with its first request for the stream, which then does not send the same again.
const SHOWN = "Gangline-Shown";
let sent = {};
body.addEventListener("htmx:config:request", (event) => {
  const { ctx } = event.detail;
  if (!isStream(ctx.sourceElement)) return;
  if (isUnseen()) return event.preventDefault();
  sent = ctx.request.headers;
  if (asLoaded && ctx.sourceElement.dataset.shown) sent[SHOWN] = ctx.sourceElement.dataset.shown;
});
body.addEventListener("htmx:after:swap", () => (asLoaded = false));
body.addEventListener("htmx:sse:after:connection", () => { asLoaded = false; delete sent[SHOWN]; }); // to reconnect takes the same headers
body.addEventListener("htmx:sse:before:connection", (event) => {
  if (asking || gone || aside || isUnseen()) event.preventDefault();
});
// A page that was opened in the background, and that nobody has seen yet, takes no connection.
const isUnseen = () => (unseen = document.hidden);
document.addEventListener("visibilitychange", () => unseen && connect());
body.addEventListener("htmx:sse:after:connection", (event) => {
  ({ connection } = event.detail);
  heard = Date.now();
  streaming("on");
});
body.addEventListener("htmx:sse:after:message", () => isSilent() || (heard = Date.now()));
body.addEventListener("htmx:sse:error", (event) => streamRefused(event.detail?.status || 0));
body.addEventListener("htmx:sse:close", (event) => {
  if (event.detail.connection === connection) connection = null;
  if (!connection) streaming(aside ? "aside" : "off");
});
if (document.querySelector("[hx-sse\\:connect]")) takeTurns((may) => {
  aside = !may;
  may ? connect() : connection?.reader?.cancel();
});
setInterval(() => {
  if (document.hidden || !connection?.reader || !isSilent()) return;
  heard = Date.now();
  streaming("wait");
  connection.reader.cancel();
}, 5000);
body.addEventListener("signed-out", () => askForKey());
body.addEventListener("stale", () => reload());
body.addEventListener("gone", wasDeleted);

// What a page has already is not inserted again: it was loaded after the change that inserts it. What comes above that goes above it.
body.addEventListener("htmx:before:swap", (event) => {
  for (const { swapSpec, fragment } of event.detail.tasks || []) {
    if (swapSpec?.style !== "beforebegin") continue;
    let above = [];
    for (const each of [...(fragment.firstElementChild?.children || [])]) {
      const there = each.id && by(each.id);
      if (!there) { above.push(each); continue; }
      there.before(...above);
      above.forEach((each) => window.htmx.process(each));
      each.remove();
      above = [];
    }
  }
});

// What is open stays open when the whole screen comes again. A form that was sent is closed by its answer.
body.addEventListener("htmx:before:swap", ({ detail: { ctx } }) => {
  window.htmx.config.morphIgnore = ["data-htmx-powered", ...(ctx?.select === "#screen" ? ["open"] : [])];
});
export function reload() {
  return window.htmx.ajax("GET", location.href, { target: "#screen", swap: "outerMorph", select: "#screen", source: body });
}

// Light and dark

document.addEventListener("click", (event) => {
  if (!event.target.closest?.("[data-theme-switch]")) return;
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  document.cookie = `gangline_theme=${root.dataset.theme};path=${onServer("/")};max-age=31536000;samesite=lax`;
  window.dispatchEvent(new Event("theme"));
});

startClock();

document.querySelector(".tabs [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" }); // where not all have room

// Copy what an element says

document.addEventListener("click", async (event) => {
  const button = event.target.closest?.("[data-copy]");
  if (!button) return;
  const place = document.querySelector(button.dataset.copy);
  try {
    await navigator.clipboard.writeText(place.textContent.trim());
    say("Copied.");
  } catch {
    getSelection().selectAllChildren(place); // plain http has no clipboard
    say("Press Ctrl+C to copy it.");
  }
});
