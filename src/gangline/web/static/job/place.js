// The section that one reads stays where it is while the screen grows above it.
const sections = [...document.querySelectorAll("#job section")];
let section = null, top = 0, input = -700;

function look() {
  section = scrollY ? sections.findLast((each) => each.getBoundingClientRect().top <= innerHeight / 2) : null;
  top = section?.getBoundingClientRect().top;
}

new ResizeObserver(() => {
  const moved = section ? section.getBoundingClientRect().top - top : 0;
  if (moved && performance.now() - input > 700) scrollBy({ top: moved, behavior: "instant" }); // what somebody opens may move the rest
  look();
}).observe(document.getElementById("job"));
document.documentElement.style.overflowAnchor = "none";
for (const kind of ["pointerdown", "keydown"]) addEventListener(kind, () => (input = performance.now()), true);
addEventListener("scroll", look, { passive: true });
