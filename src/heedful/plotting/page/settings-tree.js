// Settings as a tree that is folded and searched.

import { create } from "./dom.js";

/** A line belongs to the last line before it with less indentation. A dash counts as indentation. */
function parseTree(text) {
  const root = { depth: -1, children: [], path: "" };
  const open = [root];
  for (const line of text.split("\n").filter((part) => part.trim())) {
    const [, indent, dash] = line.match(/^( *)(- )?/);
    const depth = indent.length + (dash ? 1 : 0);
    while (open.at(-1).depth >= depth) open.pop();
    const parent = open.at(-1);
    const key = line.trim().split(":")[0];
    const node = { depth, line: line.trim(), children: [], path: `${parent.path}.${key}` };
    parent.children.push(node);
    open.push(node);
  }
  return root;
}

function showSetting({ label, line }, query) {
  const start = query ? line.toLowerCase().indexOf(query) : -1;
  const end = start < 0 ? line.indexOf(":") + 1 : start + query.length;
  label.replaceChildren(...(start < 0
    ? [line.slice(0, end), create("span", "value", line.slice(end))]
    : [line.slice(0, start), create("mark", "", line.slice(start, end)), line.slice(end)]));
}

function createSetting(node) {
  node.label = create(node.children.length ? "summary" : "div", "setting");
  showSetting(node, "");
  node.element = node.label;
  if (node.children.length) node.element = create("details", "", node.label, ...node.children.map(createSetting));
  return node.element;
}

/** Shows a setting if its line or dotted path contains the query, or one of its parents or children does. */
function searchSetting(node, query, isInside) {
  const isMatch = !query || node.line.toLowerCase().includes(query)
    || node.path.toLowerCase().slice(1).includes(query);
  showSetting(node, query);
  const counts = node.children.map((child) => searchSetting(child, query, isInside || isMatch));
  const count = counts.reduce((sum, value) => sum + value, 0);
  node.element.classList.toggle("hidden", !isMatch && !isInside && count === 0);
  if (node.children.length) node.element.open = Boolean(query) && count > 0;
  return count + (isMatch ? 1 : 0);
}

/** A tree of the lines of a YAML text. */
export class SettingsTree extends HTMLElement {
  /** @param {string} text */
  set data(text) {
    this.settings = parseTree(text).children;
    this.replaceChildren(...this.settings.map(createSetting));
  }

  /** Shows the settings that match, with their parents; returns their number. @param {string} query */
  search(query) {
    return this.settings.reduce((sum, node) => sum + searchSetting(node, query.trim().toLowerCase(), false), 0);
  }
}

customElements.define("settings-tree", SettingsTree);
