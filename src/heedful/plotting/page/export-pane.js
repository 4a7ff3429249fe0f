// Files of what is shown.

import { chosenView, listViews } from "./attention-views.js";
import { create, createButton } from "./dom.js";

const PNG_SCALE = 2; // pixels of a PNG for each of an SVG
const FORMATS = { svg: "SVG", png: "PNG", html: "page", json: "JSON" };
const TITLES = {
  svg: "the map, with its weights as data", png: "the map, as pixels",
  html: "all maps, in a page that needs no server", json: "the whole explanation",
};

/** @type {(content: Blob, name: string) => void} */
export function download(content, name) {
  const link = Object.assign(create("a", ""), { href: URL.createObjectURL(content), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** @type {(svg: string) => Promise<Blob>} */
export async function svgToPng(svg) {
  const image = new Image();
  image.src = `data:image/svg+xml,${encodeURIComponent(svg)}`;
  await image.decode();
  const canvas = Object.assign(create("canvas", ""), { width: PNG_SCALE * image.width, height: PNG_SCALE * image.height });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve) => { canvas.toBlob(resolve, "image/png"); });
}

/** Dispatches "export" with `format` and the number of the chosen map. */
export class ExportPane extends HTMLElement {
  /** @param {import("./types").PaneData} data */
  set data({ explanation, state }) {
    this.views = listViews(explanation);
    this.role = "region";
    this.ariaLabel = "export";
    this.explanation = explanation;
    this.select(state);
    const formats = Object.keys(FORMATS).filter((format) => format === "json" || this.views.length > 0);
    this.replaceChildren(create("h2", "", "Export"), create("p", "actions",
      ...formats.map((format) => createButton(FORMATS[format], TITLES[format], () => this.#export(format)))));
  }

  /** @param {import("./types").InspectorState} state */
  select(state) {
    this.state = state;
  }

  #export(format) {
    const { layer, head = 0 } = chosenView(this.views, this.state) ?? {};
    const alike = this.explanation.layers.filter(({ type }) => type === layer?.type);
    const figure = { kind: layer?.type, layer: alike.indexOf(layer) + 1, head: head + 1 };
    this.dispatchEvent(new CustomEvent("export", { bubbles: true, detail: { format, figure } }));
  }
}

customElements.define("export-pane", ExportPane);
