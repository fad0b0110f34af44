// What several screens do with elements.
export const by = (id) => document.getElementById(id);

export function make(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

// What the server says, and what to do about it, as sentences. A name, a setting or a command at the beginning stays as it is written.
export function sentences(...texts) {
  const ended = (text) => (/[.!?…:]$/.test(text) ? text : `${text}.`);
  const begun = (text) => (/^\p{Ll}+[\s,;]/u.test(text) ? text[0].toUpperCase() + text.slice(1) : text);
  return texts.map((text) => (text ?? "").trim()).filter(Boolean).map((text) => ended(begun(text))).join(" ");
}

export function marked(text) { // what is typed stands in backticks
  return text.split(/(`[^`]+`)/).map((part) => (part.length > 2 && part[0] === "`" ? make("code", {}, part.slice(1, -1)) : part));
}

export function write(element, text) { // an equal text is not written again: a selection in it stays
  if (element.textContent !== text) element.textContent = text;
}

export function colour(text, place) { // resolves custom properties and light-dark()
  const probe = make("span");
  probe.style.color = text;
  place.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

export function onNews(does) {
  for (const news of ["htmx:after:swap", "htmx:sse:after:message"]) document.body.addEventListener(news, does);
}

export function onTheme(does) {
  addEventListener("theme", does);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", does);
}

// What whatever a page asks has: the session's token, and the project that the page names, as the session may look at another one by now.
export const sentHeaders = () => ({ ...JSON.parse(document.body.getAttribute("hx-headers:inherited") || "{}"), "HX-Request": "true" });

// What failed for a reason that may pass is asked for again after a while.
export const AGAIN_MS = 3000;
export const mayPass = (status) => !status || status === 429 || status >= 500;

// Addresses begin with / wherever the server is, be it below a path of its host (https://host/gangline/): this script's own says which.
export const ROOT = new URL("../..", import.meta.url).pathname.slice(0, -1);
export const onServer = (address) => (address.startsWith("/") ? ROOT + address : address);
export const part = (address) => fetch(onServer(address), { headers: sentHeaders() });
export const listed = (name, values) => values.map((value) => `${name}=${encodeURIComponent(value)}`).join("&");
