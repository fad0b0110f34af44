// Photos that are dropped anywhere on the page, or pasted.
import { by } from "../elements.js";
import { dropped } from "./captions.js";
import { add } from "./photos.js";

const over = by("drop");
const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
let inside = 0;
addEventListener("dragenter", (event) => { if (hasFiles(event)) { inside++; over.hidden = false; } });
addEventListener("dragleave", (event) => { if (hasFiles(event) && --inside <= 0) { inside = 0; over.hidden = true; } });
addEventListener("dragover", (event) => { if (hasFiles(event)) event.preventDefault(); });
addEventListener("drop", async (event) => {
  if (!hasFiles(event)) return;
  event.preventDefault();
  inside = 0;
  over.hidden = true;
  add(await dropped(event.dataTransfer));
});
addEventListener("paste", (event) => {
  const files = [...(event.clipboardData?.files ?? [])];
  if (files.length) { event.preventDefault(); add(files.map((file, at) => ({ path: `pasted-${Date.now()}-${at}-${file.name}`, file }))); }
});
