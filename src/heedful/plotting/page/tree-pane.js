// The search tree; a node that is chosen begins the next output.

import { BeamTree } from "./beam-tree.js";
import { create, emitChange } from "./dom.js";

/** The nodes from the root to one of them, without the root. */
function pathTo(nodes, index) {
  const path = [];
  for (let node = nodes[index]; node?.parent !== null && node; node = nodes[node.parent]) path.unshift(node);
  return path;
}

/** The finished node of the output. */
function bestNode(nodes, log_prob) {
  const finished = nodes.map((node, index) => ({ ...node, index })).filter(({ status }) => status === "finished");
  const distance = ({ cumulative_log_prob }) => Math.abs(cumulative_log_prob - log_prob);
  return finished.sort((one, two) => distance(one) - distance(two))[0]?.index;
}

/** Keeps the tokens up to a chosen node as the prefix. */
export class TreePane extends HTMLElement {
  /** @param {import("./types").PaneData} data */
  set data({ explanation: { result } }) {
    const nodes = result.tree;
    const tree = Object.assign(new BeamTree(), { data: { nodes, best: bestNode(nodes, result.log_prob) } });
    tree.addEventListener("node", (/** @type {any} */ { detail }) => {
      const path = pathTo(nodes, detail);
      const open = path.filter(({ status }) => status !== "finished");
      emitChange(this, { prefix: open.map(({ token_id }) => token_id) });
    });
    this.role = "region";
    this.ariaLabel = "search tree";
    const note = create("p", "caption", "Every hypothesis of the beam; grey ones were pruned. A click continues from a node.");
    this.replaceChildren(create("h2", "", "Beam search"), tree, note);
  }
}

customElements.define("tree-pane", TreePane);
