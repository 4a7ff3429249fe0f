// The tree of a beam search: all hypotheses, those that were pruned among them.

import { create, createButton, createSvg, moveFocus } from "./dom.js";
import { clamp } from "./numbers.js";

const [STEP, LINE, LENGTH] = [104, 26, 12]; // pixels between steps and lines, characters of a label
const ZOOM = 1.25;
const HEIGHT = 480; // pixels; larger trees are dragged
const LEGIBLE = 0.7; // the smallest zoom at which a tree is shown as a whole at first

/** Nodes with depth, children and line, the most probable child on the line of its parent. */
function arrangeNodes(nodes) {
  const placed = nodes.map((node, index) => ({ ...node, index, children: [], depth: 0, line: 0, isBest: false }));
  for (const node of placed.slice(1)) {
    const parent = placed[node.parent];
    parent.children.push(node);
    node.depth = parent.depth + 1;
  }
  let lines = 0;
  const stack = placed.length ? [placed[0]] : [];
  while (stack.length) { // in order of depth: a node that ends a line begins the next one
    const node = stack.pop();
    node.line = lines;
    if (node.children.length === 0) lines += 1;
    stack.push(...node.children.sort((one, two) => one.log_prob - two.log_prob));
  }
  return placed;
}

function describeNode({ token, log_prob, cumulative_log_prob, status }) {
  return token === null ? "beginning" : `${token}: ${log_prob.toFixed(3)}, in all ${cumulative_log_prob.toFixed(3)}, ${status}`;
}

/** Dispatches "node" with the index of a node that is clicked, or chosen by Enter. Dragging, the wheel with Ctrl and + and - move it. */
export class BeamTree extends HTMLElement {
  /** `best`: the node that the output ends with. @param {{ nodes: import("./types").TreeNode[], best?: number }} data */
  set data({ nodes, best }) {
    this.nodes = arrangeNodes(nodes);
    for (let node = this.nodes[best]; node; node = this.nodes[node.parent]) node.isBest = true;
    this.view = { zoom: 1, x: 0, y: 0 };
    const [steps, lines] = ["depth", "line"].map((name) => Math.max(0, ...this.nodes.map((node) => node[name])) + 1);
    const layer = createSvg("g", "", { transform: `translate(4,${LINE / 2 + 4})` });
    this.svg = createSvg("svg", "", { role: "tree", "aria-label": "beam search", width: steps * STEP + 8, height: lines * LINE + 8 });
    layer.append(...this.nodes.slice(1).map((node) => this.#createEdge(node)), ...this.nodes.map((node) => this.#createNode(node)));
    this.svg.append(layer);
    this.drawing = create("div", "", this.svg);
    this.frame = create("div", "tree", this.drawing);
    this.frame.style.height = `${Math.min(HEIGHT, (lines + 0.5) * LINE)}px`;
    this.replaceChildren(this.frame, create("p", "zoom",
      createButton("+", "larger (+)", () => this.zoom(ZOOM)), createButton("\u2212", "smaller (-)", () => this.zoom(1 / ZOOM)),
      createButton("Whole tree", "all nodes", () => this.fit())));
    this.#listen();
    this.#place();
  }

  connectedCallback() {
    if (this.nodes && this.#wholeZoom() >= LEGIBLE) this.fit();
  }

  #createEdge({ depth, line, parent, log_prob, status, isBest }) {
    const from = this.nodes[parent];
    const [x, y, toX, toY] = [from.depth * STEP + 84, from.line * LINE, depth * STEP, line * LINE];
    return createSvg("path", `edge ${status}${isBest ? " best" : ""}`, {
      d: `M${x},${y} C${(x + toX) / 2},${y} ${(x + toX) / 2},${toY} ${toX},${toY}`, "stroke-width": 1 + 3 * Math.exp(log_prob),
    });
  }

  #createNode(node) {
    const { token, index, depth, line, status, isBest, cumulative_log_prob } = node;
    const label = createSvg("text", "", { x: 6, y: 4 });
    const shown = token ?? "\u2022";
    label.textContent = shown.length > LENGTH ? `${shown.slice(0, LENGTH - 1)}\u2026` : shown;
    const title = createSvg("title", "");
    title.textContent = describeNode(node);
    const group = createSvg("g", `node ${status}${isBest ? " best" : ""}`, {
      role: "treeitem", "aria-level": depth + 1, "aria-selected": isBest,
      tabindex: index ? -1 : 0, transform: `translate(${depth * STEP},${line * LINE})`,
    });
    Object.assign(group.dataset, { index, status, logProb: cumulative_log_prob });
    group.append(title, createSvg("rect", "", { x: 0, y: -10, width: 84, height: 20, rx: 6 }), label);
    return group;
  }

  #place() {
    const { zoom, x, y } = this.view;
    // A layer of its own: panning paints nothing. A transform of the SVG itself would lay out all nodes again.
    this.drawing.style.transform = `translate3d(${x}px, ${y}px, 0) scale(${zoom})`;
  }

  /** Zooms about a point of the drawing. @param {number} factor */
  zoom(factor, [x, y] = [0, 0]) {
    const zoom = clamp(this.view.zoom * factor, 0.1, 8);
    const scale = zoom / this.view.zoom;
    this.view = { zoom, x: x - scale * (x - this.view.x), y: y - scale * (y - this.view.y) };
    this.#place();
  }

  #wholeZoom() {
    const { width, height } = this.frame.getBoundingClientRect();
    const [depth, line] = ["depth", "line"].map((name) => Math.max(...this.nodes.map((node) => node[name])));
    return Math.min(1, width / ((depth + 1) * STEP), height / ((line + 1.5) * LINE));
  }

  /** Shows all nodes. */
  fit() {
    this.view = { zoom: this.#wholeZoom(), x: 0, y: 0 };
    this.#place();
  }

  #neighbor({ parent, depth, line, children }, key) {
    if (key === "ArrowLeft") return this.nodes[parent];
    if (key === "ArrowRight") return children.at(-1);
    const isNext = { ArrowDown: (other) => other.line - line, ArrowUp: (other) => line - other.line }[key];
    const others = isNext ? this.nodes.filter((other) => other.depth === depth && isNext(other) > 0) : [];
    return others.sort((one, two) => isNext(one) - isNext(two))[0];
  }

  #show({ depth, line }) { // scrolls a node that has the focus into view
    const { width, height } = this.frame.getBoundingClientRect();
    const { zoom } = this.view;
    const [left, top] = [depth * STEP * zoom, line * LINE * zoom];
    this.view.x = clamp(this.view.x, -left, Math.max(-left, width - left - STEP * zoom));
    this.view.y = clamp(this.view.y, -top, Math.max(-top, height - top - LINE * zoom));
    this.#place();
  }

  #listen() {
    const nodeAt = ({ target }) => this.nodes[target.closest?.(".node")?.dataset.index];
    const choose = (node) => node && this.dispatchEvent(new CustomEvent("node", { detail: node.index }));
    let drag = /** @type {any} */ (null);
    this.frame.addEventListener("pointerdown", ({ clientX, clientY }) => {
      drag = { fromX: clientX - this.view.x, fromY: clientY - this.view.y, startX: clientX, startY: clientY, isMoved: false };
    });
    this.frame.addEventListener("pointermove", ({ clientX, clientY, buttons }) => {
      if (!drag || !buttons) return;
      drag.isMoved ||= Math.hypot(clientX - drag.startX, clientY - drag.startY) > 4;
      Object.assign(this.view, { x: clientX - drag.fromX, y: clientY - drag.fromY });
      this.#place();
    });
    this.svg.addEventListener("click", (event) => !drag?.isMoved && choose(nodeAt(event)));
    this.frame.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      const { left, top } = this.frame.getBoundingClientRect();
      this.zoom(2 ** (-event.deltaY / 200), [event.clientX - left, event.clientY - top]);
    }, { passive: false });
    this.svg.addEventListener("keydown", (event) => {
      const node = nodeAt(event);
      const next = node && this.#neighbor(node, event.key);
      if (next) moveFocus(event, this.svg.querySelector(`.node[data-index="${next.index}"]`));
      else if (event.key === "Enter") choose(node);
      else if (event.key === "+" || event.key === "-") this.zoom(event.key === "+" ? ZOOM : 1 / ZOOM);
    });
    this.svg.addEventListener("focusin", (event) => nodeAt(event) && this.#show(nodeAt(event)));
  }
}

customElements.define("beam-tree", BeamTree);
