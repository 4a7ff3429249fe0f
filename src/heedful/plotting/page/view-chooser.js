// A card, and one of several views on it, such as layers and heads.

import { create, onSchemeChange } from "./dom.js";

/** A small map, as dark as its weights relative to the largest of them. */
function createThumbnail(weights) {
  const canvas = create("canvas", "");
  const context = canvas.getContext("2d");
  [canvas.height, canvas.width] = [weights.length, weights[0].length];
  const largest = weights.flat().reduce((one, two) => Math.max(one, two), 0) || 1;
  const draw = () => {
    context.clearRect(0, 0, canvas.width, canvas.height);
    context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--full-cell");
    weights.forEach((values, row) => values.forEach((weight, column) => {
      context.globalAlpha = weight / largest;
      context.fillRect(column, row, 1, 1);
    }));
  };
  draw();
  onSchemeChange(canvas, draw);
  return canvas;
}

/** A grid of thumbnails; dispatches "choose" with the index of the chosen one. */
export class ViewChooser extends HTMLElement {
  /** @param {{ caption: string, weights: number[][] }[]} views */
  set data(views) {
    const chosen = create("p", "caption", views[0].caption);
    const name = `views-${document.querySelectorAll(".thumbnails").length}`;
    const parts = views.map(({ caption }) => caption.split(", "));
    const isCommon = (part) => parts.every((others) => others.includes(part));
    const labels = views.map(({ caption, weights }, index) => {
      const button = create("input", "");
      Object.assign(button, { type: "radio", name, checked: index === 0, ariaLabel: caption });
      button.addEventListener("change", () => {
        chosen.textContent = caption;
        this.dispatchEvent(new CustomEvent("choose", { detail: index }));
      });
      const short = parts[index].filter((part) => !isCommon(part)).join(", ").replace(/ of \d+/g, "");
      const thumbnails = weights?.length && weights[0].length > 0 ? [createThumbnail(weights)] : [];
      return Object.assign(create("label", "", button, ...thumbnails, create("span", "", short)), { title: caption });
    });
    const legend = create("legend", "caption", `${views.length} maps; choose one:`);
    this.replaceChildren(create("fieldset", "thumbnails", legend, ...labels), chosen);
    this.captions = views.map(({ caption }) => caption);
  }

  /** Marks a view as chosen. @param {number} index */
  choose(index) {
    this.querySelectorAll("input")[index].checked = true;
    this.querySelector("p").textContent = this.captions[index];
  }
}

customElements.define("view-chooser", ViewChooser);

/**
 * A card with a title, a text, and one of its views, of which `draw` makes the figure.
 * @param {{ id: string, title: string, text: string, views: { caption: string, weights: number[][] }[] }} card
 * @param {(index: number) => HTMLElement} draw
 */
export function createCard({ id, title, text, views }, draw) {
  const lines = [...(title ? [create("h2", "", title)] : []), ...(text ? [create("p", "output", text)] : [])];
  lines.forEach((line) => { line.dir = "auto"; });
  const section = Object.assign(create("section", "", ...lines), { id });
  const figure = create("div", "figure", draw(0));
  if (views.length > 1) {
    const chooser = Object.assign(new ViewChooser(), { data: views });
    chooser.addEventListener("choose", (/** @type {any} */ { detail }) => figure.replaceChildren(draw(detail)));
    section.append(chooser);
  } else if (views[0].caption) {
    section.append(create("p", "caption", views[0].caption));
  }
  section.append(figure);
  return section;
}
