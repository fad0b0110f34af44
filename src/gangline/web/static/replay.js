// The moment of a replay. The slider has the recorded moments; the one that is chosen is in a cookie, which every request has.
import { reload } from "./page.js";
import { span } from "./clock.js";

const WAIT_MS = 60; // while the slider is dragged
const dates = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const { body } = document;
const moments = (await (await fetch("/replay")).json()).moments_ms;
let shown = last(Number(body.dataset.now)), wanted = shown, loading = false, due = 0, playing = 0;

function part(selector) { // the bar is made again where the browser goes back
  return document.querySelector(`#replay ${selector}`);
}

function last(ms) {
  return Math.max(0, moments.findLastIndex((each) => each <= ms));
}

function kept() {
  return Number(document.cookie.match(/(?:^|; )gangline-at=(\d+)/)?.[1]);
}

function tell() {
  const slider = part("input"), after = span((moments[wanted] - moments[0]) / 1000);
  slider.max = moments.length - 1;
  slider.disabled = false;
  slider.value = wanted;
  slider.setAttribute("aria-valuetext", `${after} after the start`);
  part("[data-after]").textContent = `+${after}`;
  part("[data-date]").textContent = dates.format(moments[wanted]);
  const button = part("[data-play]");
  button.textContent = playing ? "❚❚" : "▶";
  button.setAttribute("aria-label", playing ? "Stop" : "Play");
}

function move(to) {
  wanted = Math.min(moments.length - 1, Math.max(0, to));
  tell();
  clearTimeout(due);
  due = setTimeout(load, WAIT_MS);
}

async function load() { // one moment at a time: those that a fast hand passes over are never asked for
  if (loading) return;
  loading = true;
  while (shown !== wanted) {
    shown = wanted;
    const ms = moments[shown], address = new URL(location.href);
    document.cookie = `gangline-at=${ms};path=/;samesite=lax`;
    if (address.searchParams.has("at")) {
      address.searchParams.set("at", ms);
      history.replaceState(history.state, "", address);
    }
    body.dataset.now = ms;
    if (body.classList.contains("alone")) return location.reload(); // it says what was not there; now it may be
    await reload();
    if (part(".absent").hidden) body.dispatchEvent(new Event("moment")); // for what a script has drawn
  }
  loading = false;
}

// What is not there at a moment, such as a job before it was submitted, is no error: the bar says so, and the screen waits.

document.addEventListener("htmx:before:response", (event) => {
  const { sourceElement, response } = event.detail.ctx;
  if (sourceElement !== body) return;
  absent("");
  if (response.raw.ok) return;
  event.stopPropagation();
  event.preventDefault();
  absent("Not at this moment.");
  response.raw.json().then((problem) => absent(`Not at this moment: ${problem.detail}.`), () => {});
}, true);

function absent(why) {
  document.getElementById("screen").classList.toggle("absent", Boolean(why));
  part(".absent").hidden = !why;
  part(".absent").textContent = why;
}

// Play

function play(on) {
  clearTimeout(playing);
  playing = 0;
  if (on) {
    if (wanted === moments.length - 1) move(0);
    playing = setTimeout(forward, 0);
  }
  tell();
}

function forward() {
  if (wanted === moments.length - 1) return play(false);
  if (!loading && shown === wanted) move(wanted + 1); // no faster than the page follows
  playing = setTimeout(forward, 1000 / Number(part("select").value));
}

document.addEventListener("input", (event) => {
  if (event.target === part("input")) move(Number(event.target.value));
});
document.addEventListener("click", (event) => {
  const step = event.target.closest?.("#replay [data-step]");
  if (step) {
    play(false);
    move(wanted + Number(step.dataset.step));
  }
  if (event.target.closest?.("#replay [data-play]")) play(!playing);
});
document.addEventListener("keydown", (event) => {
  if (event.target !== part("input") || event.key !== " ") return;
  event.preventDefault();
  play(!playing);
});

// Other tabs of this browser have the same cookie, and the project is in one, too

document.addEventListener("visibilitychange", () => {
  if (!document.hidden && kept()) move(last(kept()));
});
document.addEventListener("change", (event) => {
  if (event.target.id !== "project") return;
  document.cookie = `gangline-project=${encodeURIComponent(event.target.value)};path=/;samesite=lax`;
  location.reload();
});
document.addEventListener("htmx:after:swap", tell);
tell();
