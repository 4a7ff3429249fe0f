// The glimpses of an image, what each of them sees, and the probabilities of the classes after it.

import { create, findAll } from "./dom.js";

const SCALE = 8; // pixels of a canvas for each of the image

/** The image as a canvas with one pixel for each of its own. */
function rasterize({ size, pixels }) {
  const canvas = Object.assign(create("canvas", ""), { width: size, height: size });
  const context = canvas.getContext("2d");
  const data = context.createImageData(size, size);
  pixels.forEach((value, index) => data.data.set([value, value, value, 255], 4 * index));
  context.putImageData(data, 0, 0);
  return canvas;
}

// What a glimpse sees at its first scale; outside of the image it is black.
/** @type {(source: HTMLCanvasElement, box: number[], color: string) => HTMLCanvasElement} */
function createPatch(source, [top, left, height, width], color) {
  const side = Math.max(1, Math.round(width));
  const canvas = Object.assign(create("canvas", ""), { width: side, height: side });
  const context = canvas.getContext("2d");
  context.fillRect(0, 0, side, side);
  context.drawImage(source, left, top, width, height, 0, 0, side, side);
  canvas.style.borderColor = color;
  return canvas;
}

/** @type {(box: number[]) => [number, number]} */
function centerOf([top, left, height, width]) {
  return [SCALE * (left + width / 2), SCALE * (top + height / 2)];
}

/** Shows an image after its first `step` glimpses, none of them at 0. */
export class GlimpseTrail extends HTMLElement {
  /** @param {import("./types").GlimpseImage} image */
  set data(image) {
    const { size, glimpses, colors, probabilities, answer, wrong } = image;
    this.image = image;
    this.source = rasterize(image);
    this.canvas = Object.assign(create("canvas", ""), { width: SCALE * size, height: SCALE * size, role: "img" });
    this.patches = glimpses.map(({ boxes }, index) => createPatch(this.source, boxes[0], colors[index]));
    this.bars = probabilities.map((_, label) =>
      create("div", "bar", create("div", "filled"), create("span", "", String(label))));
    const bars = create("div", "bars", ...this.bars);
    bars.style.setProperty("--classes", String(probabilities.length));
    const caption = create("figcaption", wrong ? "wrong" : "", answer);
    const patches = create("div", "patches", ...this.patches);
    this.replaceChildren(create("figure", "trail", caption, this.canvas, patches, bars));
    this.step = glimpses.length;
  }

  /** @param {number} step */
  set step(step) {
    const { glimpses, answer } = this.image;
    const taken = Math.min(step, glimpses.length);
    this.#drawBoxes(glimpses.slice(0, taken));
    this.patches.forEach((patch, index) => patch.classList.toggle("later", index >= step));
    const probabilities = glimpses[taken - 1]?.probabilities ?? [];
    const best = probabilities.indexOf(Math.max(...probabilities));
    this.bars.forEach((bar, label) => {
      findAll(".filled", bar)[0].style.height = `${70 * (probabilities[label] ?? 0)}%`;
      bar.classList.toggle("best", label === best);
    });
    this.canvas.ariaLabel = `${answer}; ${taken} of ${glimpses.length} glimpses`;
  }

  #drawBoxes(glimpses) {
    const context = this.canvas.getContext("2d");
    context.imageSmoothingEnabled = false;
    context.globalAlpha = 1;
    context.drawImage(this.source, 0, 0, this.canvas.width, this.canvas.height);
    glimpses.forEach(({ boxes }, index) => {
      const isLast = index === glimpses.length - 1;
      context.strokeStyle = this.image.colors[index];
      (isLast ? boxes : boxes.slice(0, 1)).forEach((box, scale) => {
        const [top, left, height, width] = box.map((side) => SCALE * side);
        context.lineWidth = isLast && scale === 0 ? 4 : 2;
        context.globalAlpha = isLast ? 1 : 0.55;
        context.strokeRect(left, top, width, height);
      });
      if (index === 0) return;
      context.beginPath();
      context.moveTo(...centerOf(glimpses[index - 1].boxes[0]));
      context.lineTo(...centerOf(boxes[0]));
      context.stroke();
    });
  }
}

customElements.define("glimpse-trail", GlimpseTrail);
