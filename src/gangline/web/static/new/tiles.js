// A photo on the screen: its picture, how far it is sent, what was found of it, and its caption.
import { onServer } from "../elements.js";

function words(photo, version) {
  const found = version?.findings, said = [];
  if (!found) return version?.state === "refused" && version.because.startsWith(photo.path) ? version.because.slice(photo.path.length + 1) : "";
  for (const { path, value } of found.tiny) if (path === photo.path) said.push(`small: ${value} px`);
  for (const { path } of found.blurred) if (path === photo.path) said.push("blurred");
  for (const { first, second } of found.duplicates) if (first === photo.path || second === photo.path) said.push(`looks like ${first === photo.path ? second : first}`);
  return said.join(", ");
}

export function show(photo, version) {
  const row = photo.row;
  if (!row) return;
  photo.version = version;
  const bar = row.querySelector("progress"), says = row.querySelector(".says"), text = words(photo, version) || (photo.lost ? "no preview" : "");
  bar.hidden = photo.here || !photo.sent;
  bar.value = photo.bytes ? photo.sent / photo.bytes : 0;
  if (says.textContent !== text) says.textContent = says.title = text;
  const image = row.querySelector("img");
  if (!image.src && photo.file) image.src = URL.createObjectURL(photo.file);
  else if (!image.src && version?.state === "ready") image.src = onServer(`/v1/datasets/${version.name}/${version.number}/thumbnails/${photo.sha256}`);
}

export function tile(photo, template, held) {
  const row = template.content.firstElementChild.cloneNode(true), box = row.querySelector("textarea"), hold = row.querySelector("[data-hold]");
  row.photo = photo;
  row.title = photo.path;
  row.querySelector("img").onerror = () => { photo.lost = true; show(photo, photo.version); };
  box.setAttribute("aria-label", `Caption of ${photo.path}`);
  row.querySelector("[data-remove]").setAttribute("aria-label", `Remove ${photo.path}`);
  hold.setAttribute("aria-label", `Hold out ${photo.path}`);
  hold.checked = held;
  if (photo.text?.unread) { box.placeholder = "reading its caption…"; box.readOnly = true; unread.observe(row); }
  return row;
}

const unread = new IntersectionObserver((seen) => {
  for (const { target, isIntersecting } of seen) if (isIntersecting) { unread.unobserve(target); readCaption(target); }
}, { rootMargin: "300px" });

async function readCaption(row) {
  const { photo } = row, box = row.querySelector("textarea");
  try {
    const response = await fetch(onServer(photo.text.url));
    if (!response.ok) throw new Error(String(response.status));
    photo.caption = (await response.text()).trim();
    Object.assign(photo.text, { unread: false, of: photo.caption });
    box.value = photo.caption;
    box.readOnly = false;
    box.placeholder = "caption (default: the prompt)";
  } catch {
    box.placeholder = "its caption cannot be shown here";
  }
}

