// What every screen has: errors that are said, a clock, the state of the stream, the theme, questions before something is lost.
import { startClock } from "./clock.js";
import "./select.js";

const body = document.body;

// Messages

export function say(text, { hint = "", bad = false } = {}) {
  const place = document.getElementById("toasts");
  if (!place) return;
  const toast = document.createElement("div");
  toast.className = bad ? "toast bad" : "toast";
  const words = document.createElement("div");
  words.textContent = text;
  if (hint) {
    const small = document.createElement("small");
    small.textContent = hint;
    words.append(document.createElement("br"), small);
  }
  const close = document.createElement("button");
  close.type = "button";
  close.className = "quiet";
  close.textContent = "×";
  close.setAttribute("aria-label", "Close");
  close.addEventListener("click", () => toast.remove());
  toast.append(words, close);
  place.append(toast);
  while (place.children.length > 4) place.firstElementChild.remove();
  if (!bad) setTimeout(() => toast.remove(), 6000);
}

body.addEventListener("toast", (event) => say(event.detail.text, event.detail));

// Answers that refuse: said beside the form that was sent, or as a message. What was typed stays.

async function refused(response, source) {
  if (response.status === 401 && document.getElementById("sign-in")) return askForKey();
  const problem = await readProblem(response);
  const form = source?.closest?.("form[data-problem]");
  const place = form?.querySelector(".error[role=alert]");
  if (place) {
    place.textContent = problem.hint ? `${problem.detail} ${problem.hint}` : problem.detail;
    place.hidden = false;
    return;
  }
  say(problem.detail, { hint: problem.hint, bad: true });
}

export async function readProblem(response) {
  try {
    const found = await response.json();
    return { detail: found.detail || found.title || `The server answered ${response.status}.`, hint: found.hint || "", problems: found.problems || [] };
  } catch {
    return { detail: `The server answered ${response.status}.`, hint: "", problems: [] };
  }
}

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
  if (source?.hasAttribute?.("hx-sse:connect")) return; // the stream tries again by itself
  if (event.detail?.ctx?.response) return; // it was said above
  say("The server does not answer.", { hint: "Nothing was changed; try again when it is back.", bad: true });
});

// A request of our own scripts, with the session's token

export function csrf() {
  return JSON.parse(body.getAttribute("hx-headers:inherited") || "{}")["X-CSRF-Token"] || "";
}

export async function ask(method, url, value) {
  const headers = { "X-CSRF-Token": csrf(), "HX-Request": "true" };
  if (value !== undefined) headers["Content-Type"] = "application/json";
  const response = await fetch(url, { method, headers, body: value === undefined ? undefined : JSON.stringify(value), credentials: "same-origin" });
  if (response.status === 401) {
    await askForKey();
    return ask(method, url, value);
  }
  return response;
}

// Sign in again, while what was typed stays where it is

let asking = null;
export function askForKey() {
  const dialog = document.getElementById("sign-in");
  if (!dialog) return Promise.resolve();
  asking ??= new Promise((resolve) => {
    const form = dialog.querySelector("form");
    const alert = dialog.querySelector("[role=alert]");
    form.onsubmit = async (event) => {
      event.preventDefault();
      const sent = new URLSearchParams({ key: form.elements.key.value, stay: "1" });
      const response = await fetch("/sign-in", { method: "POST", headers: { "X-CSRF-Token": csrf(), "HX-Request": "true" }, body: sent });
      if (!response.ok) {
        alert.textContent = (await readProblem(response)).detail;
        alert.hidden = false;
        return;
      }
      const { csrf: token } = await response.json();
      body.setAttribute("hx-headers:inherited", JSON.stringify({ "X-CSRF-Token": token }));
      form.elements.key.value = "";
      alert.hidden = true;
      dialog.close();
      asking = null;
      say("Signed in. Send it again.");
      resolve();
    };
    dialog.oncancel = (event) => event.preventDefault();
    dialog.showModal();
  });
  return asking;
}

// A question before something is lost

body.addEventListener("htmx:confirm", (event) => {
  const question = event.detail.ctx?.confirm ?? event.detail.question;
  if (!question) return;
  event.preventDefault();
  ask_first(question).then((yes) => (yes ? event.detail.issueRequest() : event.detail.dropRequest?.()));
});

export function ask_first(question) {
  const dialog = document.getElementById("confirm");
  dialog.querySelector("#confirm-text").textContent = question;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true }));
}

// The stream of the screen

const live = document.getElementById("live");
function streaming(state) {
  if (live && live.dataset.state !== state) {
    live.dataset.state = state;
    live.title = { on: "This page is up to date", wait: "The stream is cut; the page tries again" }[state] || "";
  }
}
body.addEventListener("htmx:sse:after:connection", () => streaming("on"));
body.addEventListener("htmx:sse:error", (event) => {
  streaming("wait");
  if (event.detail?.status === 401) askForKey();
});
body.addEventListener("htmx:sse:close", () => streaming("off"));
body.addEventListener("signed-out", () => askForKey());
body.addEventListener("stale", () => reload());
body.addEventListener("gone", () => say("What this page shows was deleted.", { bad: true }));

export function reload() {
  return window.htmx.ajax("GET", location.href, { target: "#screen", swap: "outerMorph", select: "#screen", source: body });
}

// Light and dark

document.querySelector("[data-theme-switch]")?.addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  document.cookie = `gangline_theme=${root.dataset.theme};path=/;max-age=31536000;samesite=lax`;
  window.dispatchEvent(new Event("theme"));
});

startClock();

// Copy what an element says

document.addEventListener("click", async (event) => {
  const button = event.target.closest?.("[data-copy]");
  if (!button) return;
  const text = document.querySelector(button.dataset.copy)?.textContent ?? "";
  try {
    await navigator.clipboard.writeText(text.trim());
    say("Copied.");
  } catch {
    getSelection()?.selectAllChildren(document.querySelector(button.dataset.copy)); // plain http has no clipboard
    say("Press Ctrl+C to copy it.");
  }
});
