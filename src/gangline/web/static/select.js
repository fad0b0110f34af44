// Rows of a list that are selected, with shift for a range, and what can be done with them. What is selected stays while the list is live.
import { by, onNews } from "./elements.js";

export function selection(boxes, bulk) {
  let last = null;
  const all = () => [...document.querySelectorAll(boxes)];

  function show() {
    const count = all().filter((each) => each.checked).length;
    if (!by(bulk)) return;
    by(bulk).hidden = !count;
    by(bulk).querySelector("[data-count]").textContent = count;
  }

  function clear() {
    all().forEach((each) => (each.checked = false));
    show();
  }

  document.addEventListener("click", (event) => {
    if (event.target.closest?.(`#${bulk} [data-clear]`)) return clear();
    const box = event.target.closest?.(boxes);
    if (!box) return;
    const found = all(), [from, to] = [found.indexOf(last), found.indexOf(box)].sort((one, other) => one - other);
    if (event.shiftKey && from >= 0) found.slice(from, to + 1).forEach((each) => (each.checked = box.checked));
    last = box;
    show();
  });
  document.addEventListener("toast", clear);
  onNews(show);
}

selection("#jobs input[name=job]", "bulk");

// Rows have come and gone since the address of what stands below the list was made: it begins at the row that is the last one now. Where a
// text is searched for, that address knows better: more was compared than was found.
document.body.addEventListener("htmx:config:request", (event) => {
  const { ctx } = event.detail;
  if (ctx.sourceElement.id !== "more") return;
  const address = new URL(ctx.request.action, location.href), row = ctx.sourceElement.previousElementSibling;
  if (address.searchParams.has("search")) return;
  address.searchParams.delete("below");
  if (row) address.searchParams.set("below", `${row.dataset.at}.${row.id}`);
  ctx.request.action = address.pathname + address.search;
});
