// The focus is not lost. When what has it goes away (a button that has done its work, a bar that closes, a row that leaves), it moves to what
// took its place: the element with its id, the button beside it, the same button of the next row, what had the focus before, or the heading.
import { by } from "./elements.js";

const CAN = "a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex]";
const ROOM = "section, article, dialog, main", SMALL = ".actions, .row-actions, p, td, tr, li, details";
const KEPT = 10; // of those that had it before

const usable = (each) => each?.isConnected && each.matches(CAN) && !each.disabled && each.checkVisibility({ visibilityProperty: true });
const inside = (root) => [...(root.matches(CAN) ? [root] : []), ...root.querySelectorAll(CAN)].filter((each) => each.tabIndex >= 0 && usable(each));
const named = (each) => (each.ariaLabel || each.textContent).trim();

let now = null, past = [], due = false;

function seen(element) { // with the way down to it, which is not known any more once it has gone
  const way = [];
  for (let at = element; at && at !== document.body; at = at.parentElement) way.push({ at, id: at.id, previous: at.previousElementSibling, next: at.nextElementSibling });
  return { element, name: named(element), way };
}

function near({ element, name, way }) {
  const alike = (root) => inside(root).find((each) => each.tagName === element.tagName && named(each) === name);
  for (const [depth, { at, id, previous, next }] of way.entries()) {
    const there = at.isConnected ? at : by(id || null);
    const beside = [previous, next].filter((each) => each?.isConnected);
    const found = depth
      ? [next, previous].filter((each) => each?.isConnected).map(alike).find(Boolean) ?? (there && (alike(there) ?? (there.matches(SMALL) && inside(there)[0])))
      : (usable(there) && there) || beside.find(usable);
    if (found) return found;
    if (there?.matches(ROOM)) return null;
  }
  return null;
}

function heading() {
  const found = document.querySelector("#screen h1, #screen h2");
  if (found) found.tabIndex = -1;
  return found;
}

function look() {
  due = false;
  const active = document.activeElement;
  if (!now || (active && active !== document.body && active !== now.element)) return;
  if (usable(now.element)) return void (now = seen(now.element));
  const modal = document.querySelector("dialog:modal");
  if (!document.hasFocus() || (modal && !modal.contains(now.element))) return;
  const [gone, before] = [now, past];
  (near(gone) ?? before.map((each) => (usable(each.element) ? each.element : null)).find(Boolean) ?? before.map(near).find(Boolean) ?? heading())?.focus();
}

document.addEventListener("focusin", ({ target }) => {
  if (!(target instanceof Element)) return;
  if (now && now.element !== target) past = [now, ...past.filter((each) => each.element !== target)].slice(0, KEPT);
  now = seen(target);
});
document.addEventListener("pointerdown", ({ target }) => {
  if (!target.closest?.(`${CAN}, label`)) now = null; // who clicks beside everything wants none
}, true);
new MutationObserver(() => {
  if (!now || due) return;
  due = true;
  requestAnimationFrame(look);
}).observe(document.body, { childList: true, subtree: true, attributes: true, attributeFilter: ["hidden", "disabled", "open"] });
