// A browser opens six connections to a server, and each window that is seen keeps one for its stream: with six of them open, nothing else
// would get through. Of more windows than FOLLOWING, those that were used longest ago stand still until they are used again.
const FOLLOWING = 4;

// Call `changed` with whether this window may follow, each time that this changes. Windows that nobody sees follow nothing and do not count.
export function takeTurns(changed) {
  const { nextHopProtocol } = performance.getEntriesByType("navigation")[0] ?? {};
  if (!/^http\/1/.test(nextHopProtocol ?? "http/1.1")) return; // newer ones share one connection
  const channel = new BroadcastChannel("gangline-streams"), me = Math.random(), others = new Map();
  let used = 0, may = true;

  function tell(now) {
    used = now;
    channel.postMessage([me, used]);
    judge();
  }
  function judge() {
    const before = may;
    may = [...others.values()].filter((their) => their > used).length < FOLLOWING;
    if (may !== before) changed(may);
  }
  const use = () => !document.hidden && tell(Date.now());

  channel.onmessage = ({ data: [other, their] }) => {
    their ? others.set(other, their) : others.delete(other);
    if (used) judge();
  };
  addEventListener("focus", use);
  for (const name of ["pointerdown", "keydown"]) addEventListener(name, () => may || use(), true);
  document.addEventListener("visibilitychange", () => (document.hidden ? tell(0) : use()));
  addEventListener("pagehide", () => tell(0));
  addEventListener("pageshow", ({ persisted }) => persisted && use());
  use();
}
