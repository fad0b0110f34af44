// The list of nodes: small curves of the last hour, and what is selected.
import { by } from "../elements.js";
import { selection } from "../select.js";
import { draw, follow } from "../sparks.js";

function show(node, shares) {
  const mean = shares.reduce((sum, share) => sum + share, 0) / shares.length;
  draw(by(`spark-${node}`), 60, shares, `Busy in the last hour: ${Math.round(100 * mean)} % on average`);
}

follow({ rows: "#nodes .node", name: "node", address: "/fleet/sparks", againMs: 60000, due: (row) => row.querySelector(".sparks")?.offsetParent, show });
selection("#nodes input[name=node]", "bulk-nodes");
