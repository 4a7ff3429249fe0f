// Draws the captions of a page, each on a card.

import { readData } from "./dom.js";
import { decodeImage, ImageAttention, meanGrid } from "./image-attention.js";
import { createCard } from "./view-chooser.js";

async function drawCaptions(cards) {
  for (const [index, { title, caption: text, picture, size, views }] of cards.entries()) {
    const image = picture ? await decodeImage(picture) : null;
    const heading = title || (cards.length > 1 ? `Picture ${index + 1}` : "");
    const maps = views.map(({ label, weights }) => ({ caption: label, weights: meanGrid(weights) }));
    document.getElementById("figures").append(createCard(
      { id: `caption-${index + 1}`, title: heading, text, views: maps },
      (chosen) => Object.assign(new ImageAttention(), { data: { image, size, ...views[chosen] } })));
  }
}

drawCaptions(readData("captions").cards);
