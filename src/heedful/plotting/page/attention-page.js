// Draws the attention maps of a page: a card for each sentence.

import { AttentionView } from "./attention-view.js";
import { readData } from "./dom.js";
import { createCard } from "./view-chooser.js";

const { sentences, form } = readData("maps");

sentences.forEach(({ title, output, views }, index) => {
  const heading = title || (sentences.length > 1 ? `Sentence ${index + 1}` : "");
  const card = { id: `sentence-${index + 1}`, title: heading, text: output, views };
  document.getElementById("figures").append(createCard(card, (chosen) =>
    Object.assign(new AttentionView(), { data: { ...views[chosen], form } })));
});
