"use strict";
// Plays the glimpses of each image. The state is a step: so many glimpses have been taken; at 0 the
// image is shown alone. `show` draws a step; the rest selects one.

const { images, colors } = JSON.parse(document.getElementById("predictions").textContent);
const SCALE = 8; // pixels of a canvas for each of the image
const MILLISECONDS = 900; // a glimpse is shown so long
const slider = document.getElementById("step");
const play = document.getElementById("play");
const shown = document.getElementById("shown");

// The image as a canvas with one pixel for each of its own.
function rasterize({ size, pixels }) {
  const canvas = create("canvas", "");
  canvas.width = canvas.height = size;
  const context = canvas.getContext("2d");
  const data = context.createImageData(size, size);
  pixels.forEach((value, index) => data.data.set([value, value, value, 255], 4 * index));
  context.putImageData(data, 0, 0);
  return canvas;
}

function center([top, left, height, width]) {
  return [SCALE * (left + width / 2), SCALE * (top + height / 2)];
}

function drawTrail(context, source, { size, glimpses }, step) {
  context.imageSmoothingEnabled = false;
  context.globalAlpha = 1;
  context.drawImage(source, 0, 0, SCALE * size, SCALE * size);
  glimpses.slice(0, step).forEach(({ boxes }, index) => {
    const isLast = index === Math.min(step, glimpses.length) - 1;
    context.strokeStyle = colors[index];
    (isLast ? boxes : boxes.slice(0, 1)).forEach(([top, left, height, width], scale) => {
      context.lineWidth = isLast && scale === 0 ? 4 : 2;
      context.globalAlpha = isLast ? 1 : 0.55;
      context.strokeRect(SCALE * left, SCALE * top, SCALE * width, SCALE * height);
    });
    if (index === 0) return;
    context.beginPath();
    context.moveTo(...center(glimpses[index - 1].boxes[0]));
    context.lineTo(...center(boxes[0]));
    context.stroke();
  });
}

// What a glimpse sees at its first scale; outside of the image it is black.
function drawPatch(source, [top, left, height, width], color) {
  const canvas = create("canvas", "");
  canvas.width = canvas.height = Math.max(1, Math.round(width));
  const context = canvas.getContext("2d");
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(source, left, top, width, height, 0, 0, canvas.width, canvas.height);
  canvas.style.borderColor = color;
  return canvas;
}

function drawBars(probabilities) {
  const bars = create("div", "bars");
  bars.style.setProperty("--classes", probabilities.length);
  bars.append(...probabilities.map((_, label) => {
    const bar = create("div", "bar");
    bar.append(create("div", "filled"), create("span", "", label));
    return bar;
  }));
  return bars;
}

function setBars(bars, probabilities) {
  const best = probabilities ? probabilities.indexOf(Math.max(...probabilities)) : -1;
  [...bars.children].forEach((bar, label) => {
    bar.firstChild.style.height = `${70 * (probabilities?.[label] ?? 0)}%`;
    bar.classList.toggle("best", label === best);
  });
}

const trails = images.map((image) => {
  const figure = create("figure", "trail");
  const source = rasterize(image);
  const canvas = create("canvas", "");
  canvas.width = canvas.height = SCALE * image.size;
  canvas.setAttribute("role", "img");
  const patches = create("div", "patches");
  patches.append(...image.glimpses.map(({ boxes }, index) => drawPatch(source, boxes[0], colors[index])));
  const bars = drawBars(image.probabilities);
  figure.append(create("figcaption", image.wrong ? "wrong" : "", image.answer), canvas, patches, bars);
  document.getElementById("trails").append(figure);
  return { image, source, canvas, patches, bars };
});

function show(step) {
  slider.value = step;
  shown.textContent = step === 0 ? "the image" : `${step} of ${slider.max}`;
  trails.forEach(({ image, source, canvas, patches, bars }) => {
    drawTrail(canvas.getContext("2d"), source, image, step);
    [...patches.children].forEach((patch, index) => patch.classList.toggle("later", index >= step));
    const taken = Math.min(step, image.glimpses.length);
    const probabilities = taken ? image.glimpses[taken - 1].probabilities : null;
    setBars(bars, probabilities);
    canvas.setAttribute("aria-label", `${image.answer}; ${taken} of ${image.glimpses.length} glimpses`);
  });
}

let timer = null;

function stop() {
  clearInterval(timer);
  timer = null;
  play.textContent = "Play";
}

function start() {
  if (Number(slider.value) >= Number(slider.max)) show(0);
  play.textContent = "Pause";
  timer = setInterval(() => {
    show(Number(slider.value) + 1);
    if (Number(slider.value) >= Number(slider.max)) stop();
  }, MILLISECONDS);
}

play.addEventListener("click", () => (timer === null ? start() : stop()));
slider.addEventListener("input", () => {
  stop();
  show(Number(slider.value));
});
document.addEventListener("keydown", (event) => {
  if (event.target === slider || event.target === play) return;
  const change = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (change === undefined) return;
  stop();
  show(Math.max(0, Math.min(Number(slider.max), Number(slider.value) + change)));
});
show(Number(slider.max));
