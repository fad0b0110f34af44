// Select jobs of the list, with shift for a range; what is selected stays while the list is live.
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
