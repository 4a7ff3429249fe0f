// Parts of elements. Texts are untrusted: they enter a page as text, never as markup.

const SVG_NAMESPACE = "http://www.w3.org/2000/svg";

/**
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {string} className
 * @param {...(string | Node)} children
 * @returns {HTMLElementTagNameMap[T]}
 */
export function create(tag, className, ...children) {
  const node = document.createElement(tag);
  node.className = className;
  node.append(...children);
  return node;
}

/** @type {(tag: string, className: string, attributes?: Record<string, unknown>) => SVGElement} */
export function createSvg(tag, className, attributes = {}) {
  const node = /** @type {SVGElement} */ (document.createElementNS(SVG_NAMESPACE, tag));
  node.setAttribute("class", className);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, String(value));
  return node;
}

/** A token; the mark of a space before it is faint. @type {(tag: "span" | "th", className: string, token: string) => HTMLElement} */
export function createToken(tag, className, token) {
  if (token.length < 2 || !token.startsWith("\u2581")) return create(tag, className, token);
  return create(tag, className, create("span", "space-mark", token[0]), token.slice(1));
}

/** @type {(selector: string, root?: ParentNode) => any[]} */
export function findAll(selector, root = document) {
  return [...root.querySelectorAll(selector)];
}

/** The data that a page embeds as JSON, if it has them. @type {(id: string) => any} */
export function readData(id) {
  const node = document.getElementById(id);
  return node && JSON.parse(node.textContent ?? "");
}

/** The red, green and blue of a color of the palette. @type {(name: string) => number[]} */
export function paletteColor(name) {
  const hex = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  return [1, 3, 5].map((start) => parseInt(hex.slice(start, start + 2), 16));
}

/** Draws again, as long as the element is shown, when the color scheme changes. @type {(node: Node, draw: () => void) => void} */
export function onSchemeChange(node, draw) {
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  const redraw = () => (node.isConnected ? draw() : scheme.removeEventListener("change", redraw));
  scheme.addEventListener("change", redraw);
}

/**
 * What the pointer is at is shown, until it leaves; what is clicked or focused is kept.
 * @template T
 * @param {HTMLElement | Document} node
 * @param {(event: any) => T | null} valueAt
 * @param {{ show: (value: T | null) => void, keep: (value: T | null) => void, type?: string }} actions
 */
export function followPointer(node, valueAt, { show, keep, type = "pointerover" }) {
  node.addEventListener(type, (event) => show(valueAt(event)));
  node.addEventListener("pointerleave", () => show(null));
  node.addEventListener("click", (event) => keep(valueAt(event)));
}

/** The one of `nodes` that a key leads to from `node`, in the direction of the script. @type {(nodes: any[], node: any, key: string) => any} */
export function neighborAt(nodes, node, key) {
  const forward = getComputedStyle(node.parentElement).direction === "rtl" ? -1 : 1;
  const strides = /** @type {Record<string, number>} */ ({ ArrowRight: forward, ArrowLeft: -forward });
  if (key === "Home" || key === "End") return nodes.at(key === "Home" ? 0 : -1);
  return key in strides ? nodes[nodes.indexOf(node) + strides[key]] : undefined;
}

/** Moves the focus, and with it the one tab stop of a row or a table. @type {(event: any, next: any) => void} */
export function moveFocus(event, next) {
  if (!next) return;
  event.preventDefault();
  event.target.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

/** Puts nodes into a place; those that are there already stay, and with them the focus. @type {(place: Element, nodes: Element[]) => void} */
export function fill(place, nodes) {
  const isFilled = nodes.length === place.children.length && nodes.every((node, index) => place.children[index] === node);
  if (!isFilled) place.replaceChildren(...nodes);
}

/** @type {(text: string, title: string, action: () => void, isEnabled?: unknown) => HTMLButtonElement} */
export function createButton(text, title, action, isEnabled = true) {
  const button = Object.assign(create("button", "", text), { type: "button", title, disabled: !isEnabled });
  button.addEventListener("click", action);
  return button;
}

/** What keys do that work everywhere but in fields for text. @type {(actions: Record<string, () => void>) => void} */
export function onPlainKey(actions) {
  document.addEventListener("keydown", ({ key, target, ctrlKey, metaKey, altKey }) => {
    if (!ctrlKey && !metaKey && !altKey && !isTextField(target)) actions[key]?.();
  });
}

/** Changes what the inspector shows; undo goes back to before it if it is an edit. @type {(pane: Element, changes: object, isEdit?: boolean) => void} */
export function emitChange(pane, changes, isEdit = true) {
  pane.dispatchEvent(new CustomEvent("change", { bubbles: true, detail: { changes, isEdit } }));
}

/** @type {(node: any) => boolean} */
export function isTextField(node) {
  return node instanceof Element && node.matches("input:not([type=radio], [type=range], [type=checkbox]), textarea, select");
}
