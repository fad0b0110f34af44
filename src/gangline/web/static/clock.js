// The browser keeps the clock: durations count on, times are in the reader's zone. The server's clock counts, whatever this machine's says.
import { onNews, write } from "./elements.js";

let ahead = (Number(document.body.dataset.now) || Date.now()) - performance.now();
const still = "still" in document.body.dataset; // a replay: its clock is the moment that is shown

export function now() {
  if (still) return Number(document.body.dataset.now);
  return ahead + performance.now();
}

export function span(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  const days = Math.floor(whole / 86400), hours = Math.floor(whole / 3600) % 24, minutes = Math.floor(whole / 60) % 60, rest = whole % 60;
  if (days) return `${days} d ${hours} h`;
  if (hours) return `${hours} h ${String(minutes).padStart(2, "0")} min`;
  return minutes ? `${minutes} min ${String(rest).padStart(2, "0")} s` : `${rest} s`;
}

const today = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const other = new Intl.DateTimeFormat(undefined, { year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit" });
const whole = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" });

let day = "";
function showTimes() {
  const before = day;
  day = new Date(now()).toDateString();
  for (const element of document.querySelectorAll(`time[datetime]${day === before ? ":not([data-shown])" : ""}`)) {
    const at = new Date(element.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    const same = at.toDateString() === day;
    write(element, (same ? today : other).format(at));
    element.title = whole.format(at);
    element.dataset.shown = "";
  }
}

function tick() {
  showTimes();
  const at = now();
  for (const element of document.querySelectorAll("[data-since]")) write(element, span((at - Number(element.dataset.since)) / 1000));
  for (const element of document.querySelectorAll("[data-left]")) {
    if (still || element.seenLeft !== element.dataset.left) {
      element.seenLeft = element.dataset.left; // a new estimate: count down from here
      element.endsAt = at + Number(element.dataset.left) * 1000;
    }
    write(element, span((element.endsAt - at) / 1000));
  }
}

export function startClock() {
  tick();
  setInterval(() => { if (!document.hidden) tick(); }, 1000);
  document.body.addEventListener("alive", ({ detail }) => { // each stream begins with the server's time: ours stood still while this machine slept
    if (detail.data > 0) ahead = Number(detail.data) - performance.now();
  });
  onNews(tick);
}
