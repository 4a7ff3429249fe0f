// The glimpses of an image: one is dragged, or moved by arrow keys, and those after it are taken again.

import { create, createButton, emitChange } from "./dom.js";
import { GlimpseTrail } from "./glimpse-trail.js";
import { ARROWS, decodeImage } from "./image-attention.js";
import { clamp } from "./numbers.js";
import { StepPlayer } from "./step-player.js";

const HUES = [48, 18]; // of the first and the last glimpse

/** The gray pixels of an image in the middle of a canvas, as the model sees it. */
async function readPixels(input, example) {
  const [image, canvasImage] = await Promise.all([input, example].map((text) => decodeImage(`data:image/png;base64,${text}`)));
  const size = canvasImage.naturalWidth;
  const canvas = Object.assign(create("canvas", ""), { width: size, height: size });
  const context = canvas.getContext("2d");
  const margins = [size - image.naturalWidth, size - image.naturalHeight].map((margin) => Math.floor(Math.max(0, margin) / 2));
  context.fillRect(0, 0, size, size);
  context.drawImage(image, margins[0], margins[1]);
  const { data } = context.getImageData(0, 0, size, size);
  return { size, pixels: Array.from({ length: size * size }, (_, index) => data[4 * index]) };
}

/** Changes the option `locations`: where the model looks, by index of the glimpse. */
export class GlimpsePane extends HTMLElement {
  /** @param {import("./types").PaneData} data */
  set data(data) {
    this.role = "region";
    this.ariaLabel = "glimpses";
    this.shown = data;
    this.#draw(data);
  }

  async #draw(data) {
    const { explanation: { result }, state, model } = data;
    const { size, pixels } = await readPixels(state.input, model.example);
    if (this.shown !== data) return; // a later answer is drawn
    const hadFocus = this.contains(document.activeElement);
    const count = result.glimpses.length;
    const colors = result.glimpses.map((_, index) => `hsl(${HUES[0] + ((HUES[1] - HUES[0]) * index) / Math.max(count - 1, 1)} 95% 55%)`);
    const chosen = clamp((state.row ?? count - 1) + 1, 1, count);
    this.size = size;
    this.trail = new GlimpseTrail();
    this.trail.data = { size, pixels, colors, answer: String(result.label), wrong: false, ...result };
    this.player = new StepPlayer();
    this.player.data = {
      name: "Glimpse", label: "Glimpse", max: count, first: 1, step: chosen,
      describe: (step) => (step === 0 ? "the image" : `${step} of ${count}`),
    };
    this.player.className = "controls";
    this.player.addEventListener("step", () => { this.trail.step = this.player.step; });
    this.trail.step = chosen;
    this.#listen(this.trail.canvas);
    const reset = () => emitChange(this, { options: { ...state.options, locations: {} } });
    this.replaceChildren(this.player, this.trail, create("p", "actions",
      createButton("as the model looks", "no glimpse is moved", reset, Object.keys(state.options.locations ?? {}).length)),
      create("p", "reading", "Drag a box, or choose a glimpse and move it with the arrow keys: those after it are taken again."));
    if (hadFocus) this.trail.canvas.focus();
  }

  #listen(canvas) {
    canvas.tabIndex = 0;
    let grabbed = /** @type {number | null} */ (null);
    canvas.addEventListener("pointerdown", (event) => {
      grabbed = this.#glimpseAt(this.#pixelAt(event));
      if (grabbed !== null) canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointerup", (event) => {
      if (grabbed !== null) this.#move(grabbed, this.#pixelAt(event));
      grabbed = null;
    });
    canvas.addEventListener("keydown", (event) => {
      const step = ARROWS[event.key];
      if (!step || this.player.step === 0) return;
      event.preventDefault();
      const index = this.player.step - 1;
      this.#move(index, this.#centerOf(index).map((side, axis) => side + step[axis]));
    });
  }

  /** Row and column of the middle of a glimpse. */
  #centerOf(index) {
    const [top, left, height, width] = this.shown.explanation.result.glimpses[index].boxes[0];
    return [top + height / 2, left + width / 2];
  }

  #pixelAt({ clientX, clientY }) {
    const { left, top, width, height } = this.trail.canvas.getBoundingClientRect();
    return [((clientY - top) / height) * this.size, ((clientX - left) / width) * this.size];
  }

  /** The last glimpse whose box has a pixel. @type {(pixel: number[]) => number | null} */
  #glimpseAt([row, column]) {
    const { glimpses } = this.shown.explanation.result;
    const index = glimpses.findLastIndex(({ boxes: [[top, left, height, width]] }) =>
      row >= top && row < top + height && column >= left && column < left + width);
    return index < 0 ? null : index;
  }

  #move(index, center) {
    const { options } = this.shown.state;
    const location = center.map((side) => +clamp((2 * side) / this.size - 1, -1, 1).toFixed(4));
    const kept = Object.entries(options.locations ?? {}).filter(([other]) => +other < index);
    emitChange(this, { row: index, options: { ...options, locations: { ...Object.fromEntries(kept), [index]: location } } });
  }
}

customElements.define("glimpse-pane", GlimpsePane);
