// The section that one reads stays where it is while those above it grow: a result that comes, an attempt more.
const INPUT_MS = 700; // what somebody opens may move what is below
const sections = [...document.querySelectorAll("#job section")];
let section = null, top = 0, input = -INPUT_MS;

function look() {
  const middle = innerHeight / 2;
  section = scrollY ? sections.find((each) => {
    const box = each.getBoundingClientRect();
    return box.top <= middle && box.bottom > middle;
  }) : null;
  top = section?.getBoundingClientRect().top;
}

const growth = new ResizeObserver(() => {
  const moved = section ? section.getBoundingClientRect().top - top : 0;
  if (moved && performance.now() - input > INPUT_MS) scrollBy({ top: moved, behavior: "instant" });
  look();
});
document.documentElement.style.overflowAnchor = "none"; // what the browser does itself does not know what is read
for (const each of document.querySelectorAll("#job section, #job-head, #job-progress")) growth.observe(each);
for (const kind of ["pointerdown", "keydown"]) addEventListener(kind, () => (input = performance.now()), true);
addEventListener("scroll", look, { passive: true });
addEventListener("resize", look);
