// The list of jobs: what stands below it, and jobs that are selected, with shift for a range. What is selected stays while the list is live.

// Rows have come and gone since the address of what stands below was made: it begins at the row that is the last one now. Where a text is
// searched for, that address knows better: more was compared than was found.
document.body.addEventListener("htmx:config:request", (event) => {
  const { ctx } = event.detail;
  if (ctx.sourceElement.id !== "more") return;
  const address = new URL(ctx.request.action, location.href), row = ctx.sourceElement.previousElementSibling;
  if (address.searchParams.has("search")) return;
  address.searchParams.delete("below");
  if (row) address.searchParams.set("below", `${row.dataset.at}.${row.id}`);
  ctx.request.action = address.pathname + address.search;
});

let last = null;

function boxes() {
  return [...document.querySelectorAll("#jobs input[name=job]")];
}

function show() {
  const bulk = document.getElementById("bulk");
  if (!bulk) return;
  const count = boxes().filter((each) => each.checked).length;
  bulk.hidden = !count;
  bulk.querySelector("[data-count]").textContent = count;
}

document.addEventListener("click", (event) => {
  if (event.target.closest?.("[data-clear]")) {
    boxes().forEach((each) => (each.checked = false));
    return show();
  }
  const box = event.target.closest?.("#jobs input[name=job]");
  if (!box) return;
  if (event.shiftKey && last && last !== box) {
    const all = boxes(), from = all.indexOf(last), to = all.indexOf(box);
    if (from >= 0) all.slice(Math.min(from, to), Math.max(from, to) + 1).forEach((each) => (each.checked = box.checked));
  }
  last = box;
  show();
});
document.body.addEventListener("toast", () => {
  boxes().forEach((each) => (each.checked = false));
  show();
});
document.body.addEventListener("htmx:after:swap", show);
