"use strict";
// Parts that several pages have. Texts are untrusted: they enter a page as text, never as markup.

const SVG_NAMESPACE = "http://www.w3.org/2000/svg";

function create(tag, className, text = "") {
  const node = document.createElement(tag);
  node.className = className;
  node.textContent = text;
  return node;
}

function createSvg(tag, className, attributes = {}) {
  const node = document.createElementNS(SVG_NAMESPACE, tag);
  node.setAttribute("class", className);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

function percent(weight) {
  if (weight === 0) return "";
  return Math.floor(100 * weight + 0.5) || "\u00b7";
}

// A token; the mark of a space before it is faint.
function createToken(tag, className, token) {
  const node = create(tag, className, token);
  if (token.length > 1 && token.startsWith("\u2581")) {
    node.replaceChildren(create("span", "space-mark", token[0]), token.slice(1));
  }
  return node;
}

// ----- one of several views -----

// A small map, as dark as its weights relative to the largest of them.
function drawThumbnail(weights) {
  const canvas = create("canvas", "");
  const context = canvas.getContext("2d");
  [canvas.height, canvas.width] = [weights.length, weights[0].length];
  const largest = Math.max(...weights.flat()) || 1;
  const draw = () => {
    context.clearRect(0, 0, canvas.width, canvas.height);
    context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--full-cell");
    weights.forEach((values, row) => values.forEach((weight, column) => {
      context.globalAlpha = weight / largest;
      context.fillRect(column, row, 1, 1);
    }));
  };
  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  return canvas;
}

// A grid of thumbnails, one of which is chosen; a view is { caption, weights }.
function drawChooser(views, choose) {
  const grid = create("fieldset", "thumbnails");
  const chosen = create("p", "caption", views[0].caption);
  const name = `views-${document.querySelectorAll(".thumbnails").length}`;
  const parts = views.map(({ caption }) => caption.split(", "));
  const isCommon = (part) => parts.every((others) => others.includes(part));
  grid.append(create("legend", "caption", `${views.length} maps; choose one:`));
  views.forEach(({ caption, weights }, index) => {
    const label = create("label", "");
    label.title = caption;
    const button = create("input", "");
    Object.assign(button, { type: "radio", name, checked: index === 0, ariaLabel: caption });
    button.addEventListener("change", () => {
      chosen.textContent = caption;
      choose(index);
    });
    const short = parts[index].filter((part) => !isCommon(part)).join(", ").replace(/ of \d+/g, "");
    const isDrawn = weights.length > 0 && weights[0].length > 0;
    label.append(button, ...(isDrawn ? [drawThumbnail(weights)] : []), create("span", "", short));
    grid.append(label);
  });
  const node = create("div", "");
  node.append(grid, chosen);
  return node;
}
