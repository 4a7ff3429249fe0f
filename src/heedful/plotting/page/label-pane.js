// Labels with their probabilities, and what they were before the last edit: of a text, or of each of its words.

import { create } from "./dom.js";
import { percentage } from "./numbers.js";

const MAX_LABELS = 12;

/** A bar as long as a probability, over the outline of the former one. @type {(probability: number, former: number | undefined) => HTMLElement} */
function createBar(probability, former) {
  const bar = create("span", "bar");
  bar.style.setProperty("--weight", String(probability));
  if (former === undefined) return bar;
  const ghost = create("span", "ghost");
  ghost.style.setProperty("--weight", String(former));
  ghost.dataset.former = String(former);
  bar.append(ghost);
  return bar;
}

/** In percentage points. */
function describeChange(now, before) {
  const points = Math.round(100 * (now - before));
  return points === 0 ? "" : `${points > 0 ? "+" : "\u2212"}${Math.abs(points)}`;
}

/** The probabilities of the labels of a text, largest first. */
export class LabelPane extends HTMLElement {
  /** @param {import("./types").PaneData} data */
  set data({ explanation: { result: { probabilities } }, former }) {
    this.role = "region";
    this.ariaLabel = "labels";
    const before = former?.result.probabilities ?? {};
    const best = Object.entries(probabilities).sort(([, one], [, two]) => two - one).slice(0, MAX_LABELS);
    const rows = best.map(([label, probability]) => create("tr", "",
      Object.assign(create("th", "", label), { scope: "row" }), create("td", "", createBar(probability, before[label])),
      create("td", "number", percentage(probability)),
      create("td", "change", label in before ? describeChange(probability, before[label]) : "")));
    const head = create("thead", "", create("tr", "", ...["label", "", "probability", "change"].map((text) => create(text ? "th" : "td", "", text))));
    this.replaceChildren(create("table", "labels", head, create("tbody", "", ...rows)));
  }
}

/** The tag of each word, the next best, and the former tag where it was another. */
export class TagPane extends HTMLElement {
  /** @param {import("./types").PaneData} data */
  set data({ explanation: { result: { words, tags, probabilities } }, former }) {
    this.role = "region";
    this.ariaLabel = "tags";
    const isAlike = former?.result.words.length === words.length;
    const cards = words.map((word, index) => {
      const ranked = Object.entries(probabilities[index]).sort(([, one], [, two]) => two - one);
      const second = ranked.find(([tag]) => tag !== tags[index]);
      const before = isAlike ? former.result.tags[index] : tags[index];
      const old = before === tags[index] ? [] : [create("del", "former", before)];
      const card = create("li", "tagged", create("span", "token", word), create("span", "tag", ...old, tags[index]),
        createBar(probabilities[index][tags[index]], isAlike ? former.result.probabilities[index][tags[index]] : undefined),
        create("span", "second", second ? `${second[0]} ${percentage(second[1])}` : ""));
      card.classList.toggle("changed", old.length > 0);
      return card;
    });
    this.replaceChildren(Object.assign(create("ol", "tags", ...cards), { dir: "auto" }));
  }
}

customElements.define("label-pane", LabelPane);
customElements.define("tag-pane", TagPane);
