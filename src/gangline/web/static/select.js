// Rows of a list that are selected, with shift for a range, and what can be done with them. What is selected stays while the list is live.
import { by, onNews } from "./elements.js";

// Return the boxes of the selected rows with which a button may do what it says: a row may name that.
export function fitting(button) {
  return [...button.form.elements].filter((each) => each.checked && (each.closest("[data-may]")?.dataset.may.split(" ").includes(button.value) ?? true));
}

function offered(form, count) {
  for (const each of form.querySelectorAll("[name=action]")) {
    const fit = fitting(each).length;
    each.hidden = "all" in each.dataset ? fit < count : !fit;
  }
}

document.body.addEventListener("htmx:config:request", ({ detail: { ctx: { request } } }) => { // of what is selected, what fits is sent
  const button = request.submitter;
  if (!button?.closest?.(".bulk")) return;
  const boxes = fitting(button);
  for (const { name } of boxes) request.body.delete(name);
  for (const { name, value } of boxes) request.body.append(name, value);
});

export function selection(boxes, bulk) {
  let last = null;
  const all = () => [...document.querySelectorAll(boxes)];

  function show() {
    const count = all().filter((each) => each.checked).length;
    if (!by(bulk)) return;
    by(bulk).hidden = !count;
    if (count) offered(by(bulk), count);
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
