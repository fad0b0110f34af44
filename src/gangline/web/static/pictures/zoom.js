// Zoom to the pointer with the wheel or two fingers, drag what is larger than its frame; both pictures of a comparison move together.
const MOST = 16, SWIPE = 48;

export function zoomable(stage, { swiped, zoomed }) {
  let scale = 1, x = 0, y = 0, moved = null;
  const touching = new Map();

  const frame = () => [...stage.querySelectorAll(".pane")].filter((each) => !each.hidden).at(-1).getBoundingClientRect();

  function apply() {
    const { width, height } = frame();
    x = Math.min(0, Math.max(width * (1 - scale), x));
    y = Math.min(0, Math.max(height * (1 - scale), y));
    for (const image of stage.querySelectorAll("img")) {
      image.style.transform = scale === 1 ? "" : `translate(${x}px, ${y}px) scale(${scale})`;
      image.style.imageRendering = scale > 4 ? "pixelated" : "";
    }
    stage.classList.toggle("zoomed", scale > 1);
    zoomed(scale);
  }

  function inFrame(event) {
    const pane = document.elementsFromPoint(event.clientX, event.clientY).find((each) => each.classList.contains("pane"));
    const { left, top } = pane ? pane.getBoundingClientRect() : frame();
    return [event.clientX - left, event.clientY - top];
  }

  function zoomTo(wanted, at) {
    const to = Math.min(MOST, Math.max(1, wanted)), { width, height } = frame(), [px, py] = at ?? [width / 2, height / 2];
    x = px - ((px - x) * to) / scale;
    y = py - ((py - y) * to) / scale;
    scale = to;
    apply();
  }

  stage.addEventListener("wheel", (event) => {
    event.preventDefault();
    const lines = event.deltaMode === 1 ? 16 : 1;
    zoomTo(scale * 2 ** (-(event.deltaY * lines) / (event.ctrlKey ? 60 : 300)), inFrame(event));
  }, { passive: false });
  stage.addEventListener("dblclick", (event) => (scale > 1 ? zoomTo(1) : zoomTo(3, inFrame(event))));

  stage.addEventListener("pointerdown", (event) => {
    if (event.button || event.target.closest("[role=slider]")) return;
    touching.set(event.pointerId, event);
    moved = { x: event.clientX, y: event.clientY, alone: touching.size === 1 };
    if (event.pointerType !== "mouse" || scale > 1) stage.setPointerCapture(event.pointerId);
  });
  stage.addEventListener("pointermove", (event) => {
    const before = touching.get(event.pointerId);
    if (!before) return;
    if (touching.size === 2) {
      const other = [...touching.values()].find((each) => each.pointerId !== event.pointerId);
      const apart = (one) => Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY);
      moved.alone = false;
      zoomTo((scale * apart(event)) / Math.max(1, apart(before)), inFrame({ clientX: (event.clientX + other.clientX) / 2, clientY: (event.clientY + other.clientY) / 2 }));
    } else if (scale > 1) {
      x += event.clientX - before.clientX;
      y += event.clientY - before.clientY;
      apply();
    }
    touching.set(event.pointerId, event);
  });
  for (const name of ["pointerup", "pointercancel"]) {
    stage.addEventListener(name, (event) => {
      if (!touching.delete(event.pointerId) || touching.size || name === "pointercancel") return;
      const across = event.clientX - moved.x, along = event.clientY - moved.y;
      if (!moved.alone || scale > 1 || event.pointerType === "mouse" || Math.max(Math.abs(across), Math.abs(along)) < SWIPE) return;
      swiped(Math.abs(across) > Math.abs(along) ? "across" : "along", Math.abs(across) > Math.abs(along) ? -Math.sign(across) : -Math.sign(along));
    });
  }
  new ResizeObserver(apply).observe(stage);
  return { by: (factor) => zoomTo(scale * factor), fit: () => zoomTo(1) };
}
