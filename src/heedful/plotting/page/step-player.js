// A slider over steps, and a button that plays them.

import { create } from "./dom.js";
import { clamp } from "./numbers.js";

const MILLISECONDS_PER_STEP = 900;

/** Dispatches "step" when its user, or playing, changes its property `step`. */
export class StepPlayer extends HTMLElement {
  /**
   * `first`: where playing begins; `describe`: the text of a step, shown behind a slider with a label;
   * `hasPageKeys`: arrow keys move it wherever the focus is.
   * @param {{ name: string, label?: string, max: number, first?: number, step?: number,
   *   describe: (step: number) => string, hasPageKeys?: boolean }} data
   */
  set data({ name, label, max, first = 0, step = 0, describe, hasPageKeys = false }) {
    this.range = { first, max };
    this.describe = describe;
    this.hasPageKeys = hasPageKeys;
    this.button = Object.assign(create("button", "play", "Play"), { type: "button", disabled: max <= first });
    this.slider = Object.assign(create("input", ""), { type: "range", min: 0, max, step: 1, disabled: max < 1 });
    this.slider.setAttribute("aria-label", name);
    this.output = create("output", "");
    this.button.addEventListener("click", () => (this.timer ? this.stop() : this.play()));
    this.slider.addEventListener("input", () => this.moveTo(+this.slider.value));
    const labeled = label ? [create("label", "slider", `${label} `, this.slider), this.output] : [this.slider];
    this.replaceChildren(this.button, ...labeled);
    this.step = step;
  }

  connectedCallback() {
    this.onKey = (/** @type {any} */ { key, target }) => {
      const change = { ArrowLeft: -1, ArrowRight: 1 }[key];
      if (this.hasPageKeys && change && !this.contains(target)) this.moveTo(this.step + change);
    };
    document.addEventListener("keydown", this.onKey);
  }

  disconnectedCallback() {
    this.stop();
    document.removeEventListener("keydown", this.onKey);
  }

  get step() {
    return +this.slider.value;
  }

  set step(step) {
    this.slider.value = String(clamp(step, 0, this.range.max));
    this.output.textContent = this.describe(this.step);
    this.slider.setAttribute("aria-valuetext", this.output.textContent);
  }

  /** Stops playing, and goes to a step. @param {number} step */
  moveTo(step) {
    this.stop();
    this.#go(step);
  }

  /** Goes on from the shown step, or begins anew from the last one. */
  play() {
    const { first, max } = this.range;
    if (this.step >= max || this.step < first) this.#go(first);
    this.button.textContent = "Pause";
    this.timer = setInterval(() => {
      this.#go(this.step + 1);
      if (this.step >= max) this.stop();
    }, MILLISECONDS_PER_STEP);
  }

  stop() {
    clearInterval(this.timer);
    this.timer = null;
    if (this.button) this.button.textContent = "Play";
  }

  /** @param {number} step */
  #go(step) {
    this.step = step;
    this.dispatchEvent(new CustomEvent("step", { bubbles: true }));
  }
}

customElements.define("step-player", StepPlayer);
