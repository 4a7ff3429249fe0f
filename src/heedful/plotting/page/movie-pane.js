// The training of a model: what each validation predicted for dev examples; of a run that goes on, new ones appear.

import { create } from "./dom.js";
import { createAttention, createSample } from "./logged-sample.js";
import { formatValue } from "./numbers.js";
import { StepPlayer } from "./step-player.js";

const INTERVAL = 2000; // milliseconds between questions for new validations

/** Hidden while there are no samples; drawn, and asked for news, while it is open. */
export class MoviePane extends HTMLElement {
  /** @param {import("./types").PaneData} data */
  set data({ model, models }) {
    this.models = models;
    if (this.model === model.id) return;
    this.model = model.id;
    this.validations = /** @type {{ step: number, samples: any[] }[]} */ ([]);
    this.chosen = 0;
    this.hidden = true;
    this.player = null;
    this.body = create("div", "");
    this.details = create("details", "", create("summary", "", "Training"), this.body);
    this.details.addEventListener("toggle", () => this.details.open && this.#draw());
    this.replaceChildren(this.details);
    this.role = "region";
    this.ariaLabel = "training";
    this.#poll();
  }

  connectedCallback() {
    this.timer = setInterval(() => !document.hidden && this.details?.open && this.#poll(), INTERVAL);
  }

  disconnectedCallback() {
    clearInterval(this.timer);
  }

  async #poll() {
    const asked = this.model;
    const after = this.validations.at(-1)?.step ?? -1;
    const samples = await this.models.samples(asked, after).catch(() => []); // the next poll may succeed
    if (asked !== this.model || after !== (this.validations.at(-1)?.step ?? -1) || samples.length === 0) return;
    for (const step of new Set(samples.map((sample) => sample.step))) {
      this.validations.push({ step, samples: samples.filter((sample) => sample.step === step) });
    }
    this.hidden = false;
    if (this.details.open) this.#draw();
  }

  #draw() {
    const max = this.validations.length - 1;
    const wasLast = !this.player || this.player.step === this.player.range.max;
    const step = wasLast ? max : this.player.step;
    const describe = (index) => `step ${formatValue(this.validations[index].step)} \u00b7 ${index + 1} of ${max + 1}`;
    this.player = new StepPlayer();
    this.player.data = { name: "Validation", label: "validation", max, step, describe };
    this.player.addEventListener("step", () => this.#show());
    this.cards = create("div", "cards");
    this.figure = create("div", "figure");
    this.body.replaceChildren(this.player, this.cards, this.figure);
    this.#show();
  }

  #show() {
    const { samples } = this.validations[this.player.step];
    const buttons = samples.map((sample, index) => createSample(sample, index === this.chosen));
    buttons.forEach((button, index) => button.addEventListener("click", () => {
      this.chosen = index;
      this.#show();
      /** @type {HTMLElement} */ (this.cards.children[index]).focus();
    }));
    this.cards.replaceChildren(...buttons);
    const { attention = [], grid, ...sample } = samples[this.chosen] ?? samples[0];
    const shown = attention.length ? [createAttention({ ...sample, weights: attention, grid: grid?.length ? grid : null })] : [];
    this.figure.replaceChildren(...shown);
  }
}

customElements.define("movie-pane", MoviePane);
