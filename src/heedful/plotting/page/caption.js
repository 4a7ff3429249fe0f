"use strict";
// Draws every caption of the page: the picture, its words, and a scrubber from word to word.
//
// The state is { word, cell }: the word whose attention is blended into the picture, and the cell
// whose weights the words show; each may be null. `show` draws a state; the rest selects one.
//
// Words are untrusted. They enter the page as text (textContent), never as markup.

const drawCaption = (() => { // a page may have other scripts, with names of their own

const { cards, strong, faded, tint } = JSON.parse(document.getElementById("captions").textContent);

const NOTHING = { word: null, cell: null };
const PIXELATED_BELOW = 100; // sides of a picture that is enlarged without smoothing
const CANVAS_SIDE = 480;
const SMALL_SIDE = 320; // shown side of a picture that is enlarged
const [THUMB_HEIGHT, THUMB_WIDTH] = [96, 192];
const MAX_THUMBNAILS = 40; // of more words the page shows the text alone
const WIDE = 2.5; // width per height of a picture that gets a line of its own
const MILLISECONDS_PER_WORD = 900;
const LUMA = [0.299, 0.587, 0.114];

// In a sentence: with its sign, and a bound for what would be rounded to 0.
function percentage(weight) {
  const rounded = Math.floor(100 * weight + 0.5);
  return rounded || !weight ? `${rounded}%` : "<1%";
}

function color(name) {
  const hex = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  return [1, 3, 5].map((start) => parseInt(hex.slice(start, start + 2), 16));
}

// ----- grids -----

// The weights relative to the largest one, and where that is.
function summarize(grid) {
  let peak = { row: 0, column: 0, weight: 0 };
  grid.forEach((weights, row) => weights.forEach((weight, column) => {
    if (weight > peak.weight) peak = { row, column, weight };
  }));
  return { peak, strength: grid.map((weights) => weights.map((weight) => weight / (peak.weight || 1))) };
}

// The mean over the words, for a card that shows no word.
function meanGrid(grids) {
  return grids[0].map((weights, row) => weights.map((_, column) =>
    grids.reduce((sum, grid) => sum + grid[row][column], 0) / grids.length));
}

// For each of `size` pixels the two cells between whose centers it lies, and its part of the second.
function neighbors(size, cells, isSmooth) {
  return Array.from({ length: size }, (_, pixel) => {
    const position = (pixel + 0.5) * cells / size;
    if (!isSmooth) return [Math.floor(position), Math.floor(position), 0];
    const first = Math.floor(position - 0.5);
    const inside = (cell) => Math.min(Math.max(cell, 0), cells - 1);
    return [inside(first), inside(first + 1), position - 0.5 - first];
  });
}

// ----- picture -----

// Blends attention into pixels as `blend_attention` of pictures.py does.
function blend(pixels, strength, isSmooth) {
  const [background, full] = [color("--background"), color("--full-cell")];
  const { width, height, data } = pixels;
  const result = new ImageData(width, height);
  const rows = neighbors(height, strength.length, isSmooth);
  const columns = neighbors(width, strength[0].length, isSmooth);
  for (let y = 0; y < height; y += 1) {
    const [above, below, down] = rows[y];
    for (let x = 0; x < width; x += 1) {
      const [left, right, across] = columns[x];
      const share =
        (strength[above][left] * (1 - across) + strength[above][right] * across) * (1 - down) +
        (strength[below][left] * (1 - across) + strength[below][right] * across) * down;
      const start = 4 * (y * width + x);
      const gray = LUMA.reduce((sum, factor, index) => sum + factor * data[start + index], 0);
      for (let index = 0; index < 3; index += 1) {
        const unattended = background[index] + faded * (gray - background[index]);
        const attended = data[start + index] + tint * (full[index] - data[start + index]);
        result.data[start + index] = unattended + share * (attended - unattended);
      }
      result.data[start + 3] = 255;
    }
  }
  return result;
}

function drawCells(context, strength) {
  const [empty, full] = [color("--empty-cell"), color("--full-cell")];
  const { width, height } = context.canvas;
  const [cellWidth, cellHeight] = [width / strength[0].length, height / strength.length];
  const gap = Math.min(3, cellWidth / 4, cellHeight / 4);
  context.clearRect(0, 0, width, height);
  strength.forEach((values, row) => values.forEach((value, column) => {
    const mixed = empty.map((low, index) => Math.round(low + (full[index] - low) * value));
    context.fillStyle = `rgb(${mixed})`;
    context.fillRect(column * cellWidth + gap / 2, row * cellHeight + gap / 2, cellWidth - gap, cellHeight - gap);
  }));
}

function outlineCell(context, { row, column }, [rows, columns]) {
  const { width, height } = context.canvas;
  const line = Math.max(1.5, Math.max(width, height) / 240);
  context.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--accent");
  context.lineWidth = line;
  context.strokeRect(
    column * width / columns + line / 2, row * height / rows + line / 2,
    width / columns - line, height / rows - line);
}

function drawStrength(context, pixels, strength, isSmooth) {
  if (pixels === null) drawCells(context, strength);
  else context.putImageData(blend(pixels, strength, isSmooth), 0, 0);
}

// A canvas with a picture, if there is one, and its pixels.
function drawPicture(image, [height, width], className) {
  const canvas = create("canvas", className);
  [canvas.width, canvas.height] = [width, height];
  const context = canvas.getContext("2d", { willReadFrequently: true });
  if (image === null) return { canvas, context, pixels: null };
  context.imageSmoothingEnabled = Math.max(image.width, image.height) >= PIXELATED_BELOW;
  context.imageSmoothingQuality = "high";
  context.drawImage(image, 0, 0, width, height);
  return { canvas, context, pixels: context.getImageData(0, 0, width, height) };
}

// A picture is shown in its own pixels; a small one, and a grid without a picture, is enlarged.
async function loadPicture({ picture, size: [height, width] }) {
  const isSmall = !picture || Math.max(height, width) < PIXELATED_BELOW;
  const scale = isSmall ? Math.max(1, Math.floor(CANVAS_SIDE / Math.max(height, width))) : 1;
  let image = null;
  if (picture) {
    image = new Image();
    image.src = picture;
    await image.decode();
  }
  const loaded = drawPicture(image, [height * scale, width * scale], "picture");
  const side = picture && isSmall ? SMALL_SIDE : Math.max(width * scale, CANVAS_SIDE);
  const maxWidth = width > WIDE * height ? 2 * CANVAS_SIDE : side;
  loaded.canvas.style.maxWidth = `${maxWidth}px`;
  loaded.canvas.classList.toggle("pixelated", isSmall);
  const thumbScale = Math.min(THUMB_HEIGHT / height, THUMB_WIDTH / width);
  const thumbSize = [height, width].map((side) => Math.max(1, Math.round(side * thumbScale)));
  return { ...loaded, drawThumbnail: () => drawPicture(image, thumbSize, "thumbnail") };
}

// ----- words -----

function describeWord(word, { peak }, gate) {
  const cell = `row ${peak.row + 1}, column ${peak.column + 1}`;
  const parts = [`${word}: max ${percentage(peak.weight)} at ${cell}`];
  if (gate !== null) parts.push(`gate ${percentage(gate)}`);
  return parts.join(", ");
}

function drawWords({ words, gates }, summaries, thumbnails) {
  const row = create("div", "words caption-words");
  row.dir = "auto";
  row.setAttribute("role", "toolbar");
  row.setAttribute("aria-label", "words");
  row.append(...words.map((text, index) => {
    const word = create("button", "word");
    const gate = gates ? gates[index] : null;
    word.type = "button";
    word.tabIndex = index === 0 ? 0 : -1;
    word.title = describeWord(text, summaries[index], gate);
    word.setAttribute("aria-label", word.title);
    if (thumbnails.length) word.append(thumbnails[index].canvas);
    word.append(create("span", "token", text), create("span", "percentage"));
    if (gate !== null) {
      const bar = create("span", "gate");
      bar.style.setProperty("--gate", gate);
      bar.dataset.gate = gate;
      word.append(bar);
    }
    return word;
  }));
  return row;
}

// At a cell, a word is as dark as its weight relative to the largest of all words.
function shadeWords(buttons, weights) {
  const largest = Math.max(...weights.map((weight) => weight ?? 0));
  buttons.forEach((word, index) => {
    const weight = weights[index];
    const shade = weight !== null && largest > 0 ? weight / largest : 0;
    word.style.setProperty("--weight", shade);
    word.dataset.weight = weight ?? "";
    word.classList.toggle("strong", shade > strong);
    word.querySelector(".percentage").textContent = percent(weight ?? 0);
  });
}

function drawNumbers([rows, columns]) {
  const details = create("details", "numbers");
  details.append(create("summary", "", "Weights as numbers"));
  const table = create("table", "");
  const head = table.createTHead().insertRow();
  head.append(create("td", ""), ...Array.from({ length: columns }, (_, column) => {
    const header = create("th", "", String(column + 1));
    header.scope = "col";
    return header;
  }));
  const body = table.createTBody();
  for (let row = 0; row < rows; row += 1) {
    const header = create("th", "", String(row + 1));
    header.scope = "row";
    body.insertRow().append(header, ...Array.from({ length: columns }, () => create("td", "cell")));
  }
  const region = create("div", "");
  region.append(table);
  details.append(region);
  const fill = (grid, strength) => [...body.rows].forEach((line, row) =>
    [...line.querySelectorAll(".cell")].forEach((cell, column) => {
      cell.textContent = percent(grid[row][column]);
      cell.style.setProperty("--weight", strength[row][column]);
      cell.classList.toggle("strong", strength[row][column] > strong);
    }));
  return { details, fill };
}

// ----- a card -----

async function drawCard(card, index) {
  const section = create("section", "");
  section.id = `caption-${index + 1}`;
  const heading = card.title || (cards.length > 1 ? `Picture ${index + 1}` : "");
  if (heading) section.append(create("h2", "", heading));
  if (card.caption) section.append(create("p", "output", card.caption));
  section.querySelectorAll("h2, .output").forEach((line) => { line.dir = "auto"; });
  document.querySelector("main").append(section);
  const figure = create("div", "figure");
  const { views } = card;
  const loaded = await loadPicture(card);
  let stop = () => {};
  const draw = (view) => {
    stop();
    stop = drawView(figure, loaded, view, card);
  };
  const summaries = views.map(({ label, weights }) =>
    ({ caption: label, weights: weights.length ? meanGrid(weights) : [] }));
  if (views.length > 1) section.append(drawChooser(summaries, (chosen) => draw(views[chosen])));
  else if (views[0].label) section.append(create("p", "caption", views[0].label));
  section.append(figure);
  draw(views[0]);
  return section;
}

function drawScrubber(words) {
  const row = create("div", "scrubber");
  const play = create("button", "play", "Play");
  play.type = "button";
  const slider = create("input", "");
  Object.assign(slider, { type: "range", min: 0, max: words.length, step: 1, value: 0 });
  slider.setAttribute("aria-label", "word");
  row.append(play, slider);
  return { row, play, slider };
}

function drawSmoothing(isShown) {
  const label = create("label", "smoothing");
  const box = create("input", "");
  Object.assign(box, { type: "checkbox", checked: isShown });
  label.append(box, " interpolate between cells");
  label.hidden = !isShown;
  return { label, box };
}

// Draws one view of a card; returns a function that stops what it started.
function drawView(figure, { canvas, context, pixels, drawThumbnail }, view, { size: [height, width] }) {
  figure.replaceChildren();
  const { words, gates, weights } = view;
  if (words.length === 0) {
    figure.append(create("p", "empty", "nothing to draw"));
    return () => {};
  }
  const grid = [weights[0].length, weights[0][0].length];
  const summaries = weights.map(summarize);
  const whole = meanGrid(weights);
  const thumbnails = words.length > MAX_THUMBNAILS ? [] : words.map(drawThumbnail);
  const wordRow = drawWords(view, summaries, thumbnails);
  const buttons = [...wordRow.children];
  const { row: scrubber, play, slider } = drawScrubber(words);
  const { label: smoothing, box } = drawSmoothing(pixels !== null);
  const { details, fill } = drawNumbers(grid);
  const reading = create("p", "reading");
  reading.setAttribute("aria-live", "polite");
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "img");

  const picturePanel = create("div", width > WIDE * height ? "picture-panel wide-picture" : "picture-panel");
  if (width <= WIDE * height) picturePanel.style.maxWidth = canvas.style.maxWidth;
  picturePanel.append(canvas, scrubber, reading, smoothing);
  const wordPanel = create("div", "word-panel");
  wordPanel.append(wordRow, details);
  const panels = create("div", "caption-views");
  panels.append(picturePanel, wordPanel);
  figure.append(panels);

  const show = ({ word, cell }) => {
    const summary = word === null ? summarize(whole) : summaries[word];
    if (word === null && pixels !== null) context.putImageData(pixels, 0, 0);
    else drawStrength(context, pixels, summary.strength, box.checked);
    if (cell !== null) outlineCell(context, cell, grid);
    buttons.forEach((button, index) => button.classList.toggle("chosen", index === word));
    shadeWords(buttons, weights.map((one) => (cell === null ? null : one[cell.row][cell.column])));
    fill(word === null ? whole : weights[word], summary.strength);
    slider.value = word === null ? 0 : word + 1;
    slider.setAttribute("aria-valuetext", word === null ? "all words" : `${words[word]}, ${word + 1} of ${words.length}`);
    reading.textContent = describe(word, cell);
    canvas.setAttribute("aria-label", word === null ? "the picture" : describe(word, null));
    figure.dataset.word = word ?? "";
  };
  const describe = (word, cell) => {
    if (cell !== null) {
      const position = `row ${cell.row + 1}, column ${cell.column + 1}`;
      const grids = word === null ? whole : weights[word];
      const owner = word === null ? "of all words' attention" : `of ${words[word]}`;
      return `${position}: ${percentage(grids[cell.row][cell.column])} ${owner}`;
    }
    return word === null ? `${words.length} words` : describeWord(words[word], summaries[word], gates ? gates[word] : null);
  };
  const drawThumbnails = () => thumbnails.forEach((thumbnail, index) =>
    drawStrength(thumbnail.context, thumbnail.pixels, summaries[index].strength, box.checked));
  return listen({ drawThumbnails, canvas, buttons, wordRow, slider, play, box, panels, grid, numWords: words.length }, show);
}

// ----- pointer, touch and keyboard -----

function listen({ drawThumbnails, canvas, buttons, wordRow, slider, play, box, panels, grid, numWords }, show) {
  const controller = new AbortController();
  const on = (node, type, handler) => node.addEventListener(type, handler, { signal: controller.signal });
  let kept = NOTHING; // chosen by a click, the slider or the keyboard
  let timer = null;
  const keep = (state) => { kept = state; show(state); };
  const keepWord = (word) => keep({ ...kept, word });
  const wordOf = (node) => {
    const word = node.closest(".word");
    return word === null ? null : buttons.indexOf(word);
  };
  const cellAt = (event) => {
    const frame = canvas.getBoundingClientRect();
    const inside = (position, length, count) => Math.min(Math.max(Math.floor(position / length * count), 0), count - 1);
    return {
      row: inside(event.clientY - frame.top, frame.height, grid[0]),
      column: inside(event.clientX - frame.left, frame.width, grid[1]),
    };
  };
  const pause = () => {
    clearInterval(timer);
    timer = null;
    play.textContent = "Play";
  };
  on(play, "click", () => {
    if (timer !== null) return pause();
    const next = () => {
      if (kept.word === numWords - 1) return pause();
      return keepWord((kept.word ?? -1) + 1);
    };
    keep({ word: kept.word === numWords - 1 ? null : kept.word, cell: null });
    next();
    timer = setInterval(next, MILLISECONDS_PER_WORD);
    play.textContent = "Pause";
    return undefined;
  });
  on(slider, "input", () => { pause(); keepWord(+slider.value === 0 ? null : +slider.value - 1); });
  const redraw = () => { drawThumbnails(); show(kept); };
  on(box, "change", redraw);
  on(wordRow, "pointerover", (event) => {
    const word = wordOf(event.target);
    show(word === null ? kept : { word, cell: null });
  });
  on(wordRow, "pointerleave", () => show(kept));
  on(wordRow, "click", (event) => { pause(); keep({ word: wordOf(event.target), cell: null }); });
  on(wordRow, "focusin", (event) => { pause(); keep({ word: wordOf(event.target), cell: null }); });
  on(canvas, "pointermove", (event) => show({ ...kept, cell: cellAt(event) }));
  on(canvas, "pointerleave", () => show(kept));
  on(canvas, "click", (event) => keep({ ...kept, cell: cellAt(event) }));
  on(panels, "keydown", (event) => {
    if (event.key === "Escape") { pause(); keep(NOTHING); }
    if (event.target === canvas) moveCell(event, kept, grid, keep);
    if (event.target.matches(".word")) moveFocus(event);
  });
  on(matchMedia("(prefers-color-scheme: dark)"), "change", redraw);
  redraw();
  return () => { pause(); controller.abort(); };
}

function moveCell(event, state, [rows, columns], keep) {
  const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
  if (!step) return;
  event.preventDefault();
  const { row, column } = state.cell ?? { row: -step[0], column: -step[1] };
  const cell = {
    row: Math.min(Math.max(row + step[0], 0), rows - 1),
    column: Math.min(Math.max(column + step[1], 0), columns - 1),
  };
  keep({ ...state, cell });
}

// The words are one tab stop; arrow keys follow the direction of the script.
function moveFocus(event) {
  const node = event.target;
  const isReversed = getComputedStyle(node.parentElement).direction === "rtl";
  const next = {
    Home: node.parentElement.firstElementChild,
    End: node.parentElement.lastElementChild,
    ArrowDown: node.nextElementSibling,
    ArrowUp: node.previousElementSibling,
    ArrowRight: isReversed ? node.previousElementSibling : node.nextElementSibling,
    ArrowLeft: isReversed ? node.nextElementSibling : node.previousElementSibling,
  }[event.key];
  if (!next) return;
  event.preventDefault();
  node.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

cards.reduce((before, card, index) => before.then(() => drawCard(card, index)), Promise.resolve());

return drawCard;
})();
