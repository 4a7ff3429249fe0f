// The page of glimpses: one player for the trails of all images.

import { readData } from "./dom.js";
import { GlimpseTrail } from "./glimpse-trail.js";
import { StepPlayer } from "./step-player.js";

const { images, colors } = readData("predictions");
const trails = images.map((image) => Object.assign(new GlimpseTrail(), { data: { ...image, colors } }));
const player = new StepPlayer();
player.data = {
  name: "Glimpse", label: "Glimpse", max: colors.length, step: colors.length, hasPageKeys: true,
  describe: (step) => (step === 0 ? "the image" : `${step} of ${colors.length}`),
};
player.className = "controls";
player.addEventListener("step", () => trails.forEach((trail) => { trail.step = player.step; }));
document.getElementById("trails").before(player);
document.getElementById("trails").append(...trails);
