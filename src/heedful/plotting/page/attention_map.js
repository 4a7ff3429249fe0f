"use strict";
// Draws every attention map of the page, and the weights of the word under the pointer.
//
// The state is a view { row, column }: a row alone is an output word, a column alone a source word,
// both a cell of the map, neither the whole map. `show` draws a view; the rest selects one.
//
// Tokens are untrusted. They enter the page as text (textContent), never as markup.

const { sentences, strong, faint, form } = JSON.parse(document.getElementById("maps").textContent);

const WHOLE_MAP = { row: null, column: null };
const MIN_LINK_WEIGHT = 0.01;
const MAX_LINKED = 64; // more words than these are running text without links
const MAX_THICKNESS = 12; // pixels of a line of weight one, where lines are the figure

// ----- words -----

// The label for screen readers: "girl: puella 93%, videt 3%".
function describeWeights(token, others, weights) {
  const parts = others
    .map((other, index) => ({ other, percentage: Math.round(100 * weights[index]) }))
    .filter(({ percentage }) => percentage > 0)
    .sort((one, two) => two.percentage - one.percentage)
    .map(({ other, percentage }) => `${other} ${percentage}%`);
  return `${token}: ${parts.join(", ") || "nothing"}`;
}

function drawWords(axis, name, tokens, labelOf) {
  const row = create("div", `words ${axis}`);
  row.dir = "auto"; // a right-to-left sentence runs from the right
  row.setAttribute("role", "toolbar");
  row.setAttribute("aria-label", name);
  row.append(...tokens.map((token, index) => {
    const word = create("button", "word");
    word.type = "button";
    word.title = token;
    word.tabIndex = index === 0 ? 0 : -1;
    word.setAttribute("aria-label", labelOf(token, index));
    word.append(createToken("span", "token", token), create("span", "percentage"));
    return word;
  }));
  return row;
}

function setWeight(word, weight) {
  word.style.setProperty("--weight", weight ?? 0);
  word.dataset.weight = weight ?? "";
  word.classList.toggle("strong", weight > strong);
  word.querySelector(".percentage").textContent = percent(weight ?? 0);
}

// ----- links -----

function drawLinks(weights) {
  const svg = createSvg("svg", "links", { "aria-hidden": "true" });
  weights.forEach((weightsOfRow, row) => weightsOfRow.forEach((weight, column) => {
    if (weight < MIN_LINK_WEIGHT) return;
    const link = createSvg("path", "link", form === "lines"
      ? { "stroke-width": MAX_THICKNESS * weight }
      : { "stroke-opacity": weight, "stroke-width": 1 + 4 * weight });
    Object.assign(link.dataset, { row, column });
    svg.append(link);
  }));
  return svg;
}

// ----- running text -----

// Weights over hundreds of words are small: a word is as dark as its weight relative to the largest.
// Of the whole map, the weights of all output words are averaged.
function shadeRunningText({ sources, targets, legend }, weights, row) {
  const values = row === null
    ? weights[0].map((_, column) => weights.reduce((sum, other) => sum + other[column], 0) / weights.length)
    : weights[row];
  const largest = Math.max(...values);
  values.forEach((value, index) => {
    const relative = largest > 0 ? value / largest : 0;
    sources[index].style.setProperty("--weight", relative);
    sources[index].classList.toggle("strong", relative > strong);
  });
  const from = row === null ? "all words, on average" : `\u201c${targets[row].title}\u201d`;
  legend.textContent = `${percent(largest) || 0}% of the attention of ${from}`;
}

function drawLegend() {
  const row = create("p", "legend");
  const legend = create("span", "");
  row.append("0", create("span", "scale"), legend);
  return { row, legend };
}

// Words stand in two rows if each fits on a line, else in two columns, so that no link has to pass
// behind words.
function arrangeWords(alignment, rows) {
  alignment.classList.remove("columns");
  const isTooWide = rows.some((row) => row.scrollWidth > row.clientWidth);
  alignment.classList.toggle("columns", isTooWide);
  return isTooWide;
}

function placeLinks(links, targets, sources, inColumns) {
  const origin = links.getBoundingClientRect();
  for (const link of links.children) {
    const target = targets[link.dataset.row].getBoundingClientRect();
    const source = sources[link.dataset.column].getBoundingClientRect();
    const [fromX, fromY, toX, toY] = (inColumns
      ? [target.left, target.top + target.height / 2, source.right, source.top + source.height / 2]
      : [target.left + target.width / 2, target.top, source.left + source.width / 2, source.bottom]
    ).map((value, index) => value - (index % 2 ? origin.top : origin.left));
    const [middleX, middleY] = [(fromX + toX) / 2, (fromY + toY) / 2];
    const bends = inColumns ? [middleX, fromY, middleX, toY] : [fromX, middleY, toX, middleY];
    link.setAttribute("d", `M${fromX},${fromY} C${bends} ${toX},${toY}`);
  }
}

// ----- heat map -----

function drawMap({ source, target, weights, note, texts, notes = [] }) {
  const table = create("table", "");
  table.setAttribute("role", "grid"); // arrow keys reach its cells
  table.append(create("caption", "", note ?? "A row shows what its word attends to."));
  const head = table.createTHead().insertRow();
  head.append(create("td", ""), ...source.map((token) => {
    const header = create("th", "");
    header.scope = "col";
    header.append(createToken("span", "", token));
    return header;
  }), create("td", ""));
  const body = table.createTBody();
  target.forEach((token, row) => {
    const header = createToken("th", "", token);
    header.scope = "row";
    body.insertRow().append(header, ...weights[row].map((weight, column) =>
      drawCell(weight, row, column, `${token} \u2192 ${source[column]}: ${weight.toFixed(2)}`,
        texts?.[row][column])),
      ...(notes[row] ? [create("td", "copied", notes[row])] : []));
  });
  return table;
}

function drawCell(weight, row, column, name, text = percent(weight)) {
  const cell = create("td", "cell", text);
  cell.title = name;
  cell.tabIndex = row === 0 && column === 0 ? 0 : -1;
  cell.style.setProperty("--weight", weight);
  cell.classList.toggle("strong", weight > strong);
  cell.classList.toggle("faint", weight < faint);
  Object.assign(cell.dataset, { row, column, weight });
  return cell;
}

// The header is as high as its longest slanted word.
function fitHeader(table) {
  const words = [...table.tHead.querySelectorAll("th > span")];
  const longest = Math.max(...words.map((word) => word.offsetWidth));
  table.style.setProperty("--label-height", `${Math.ceil(longest * Math.SQRT1_2) + 18}px`);
}

// ----- a sentence -----

// A card: the source and the output sentence, and one of the views (layers, heads) of the attention.
function drawSentence({ title, output, views }, index) {
  const section = create("section", "");
  section.id = `sentence-${index + 1}`;
  const heading = title || (sentences.length > 1 ? `Sentence ${index + 1}` : "");
  if (heading) section.append(create("h2", "", heading));
  if (output) section.append(create("p", "output", output));
  section.querySelectorAll("h2, .output").forEach((line) => { line.dir = "auto"; });
  document.querySelector("main").append(section);
  const figure = create("div", "figure");
  if (views.length > 1) section.append(drawChooser(views, (chosen) => drawView(figure, views[chosen])));
  else if (views[0].caption) section.append(create("p", "caption", views[0].caption));
  section.append(figure);
  drawView(figure, views[0]);
}

function drawView(figure, attentionMap) {
  figure.replaceChildren();
  if (attentionMap.source.length === 0 || attentionMap.target.length === 0) {
    figure.append(create("p", "empty", "nothing to draw"));
    return;
  }
  const { source, target, weights, names = ["output", "source"], notes = [] } = attentionMap;
  const columns = source.map((_, column) => weights.map((row) => row[column]));
  const sourceRow = drawWords("source", names[1], source, (word, i) =>
    describeWeights(word, target, columns[i]));
  const targetRow = drawWords("target", names[0], target, (word, i) =>
    [describeWeights(word, source, weights[i]), notes[i]].filter(Boolean).join("; "));
  const isLong = Math.max(source.length, target.length) > MAX_LINKED;
  const links = drawLinks(isLong ? [] : weights);
  const table = drawMap(attentionMap);

  const alignment = create("div", isLong ? "alignment running" : "alignment");
  const { row: legendRow, legend } = drawLegend();
  alignment.append(links, sourceRow, ...(isLong ? [legendRow] : []), targetRow);
  const map = create("div", "map");
  map.append(table);
  const views = create("div", form === "lines" ? "views lines" : "views");
  views.append(alignment, map);
  figure.append(views);

  const [sources, targets] = [[...sourceRow.children], [...targetRow.children]];
  const parts = { sources, targets, links, table, isLong, legend };
  const arrange = () => {
    fitHeader(table);
    if (!isLong) placeLinks(links, targets, sources, arrangeWords(alignment, [sourceRow, targetRow]));
  };
  arrange();
  new ResizeObserver(() => requestAnimationFrame(arrange)).observe(alignment);
  listen(views, parts, (view) => show(view, parts, weights));
  show(WHOLE_MAP, parts, weights);
}

function choose(nodes, isChosen) {
  nodes.forEach((node, index) => node.classList.toggle("chosen", isChosen(node, index)));
}

function show({ row, column }, parts, weights) {
  const { sources, targets, links, table, isLong } = parts;
  const isShown = (node) =>
    (row ?? +node.dataset.row) === +node.dataset.row &&
    (column ?? +node.dataset.column) === +node.dataset.column;
  sources.forEach((word, index) => {
    const isShownWord = row !== null && (column ?? index) === index;
    setWeight(word, isShownWord ? weights[row][index] : null);
  });
  if (isLong && column === null) shadeRunningText(parts, weights, row);
  targets.forEach((word, index) => {
    const isShownWord = column !== null && (row ?? index) === index;
    setWeight(word, isShownWord ? weights[index][column] : null);
  });
  choose(sources, (_, index) => index === column);
  choose(targets, (_, index) => index === row);
  const isWhole = row === null && column === null;
  links.classList.toggle("whole", isWhole);
  for (const link of links.children) link.classList.toggle("hidden", !isShown(link));
  table.classList.toggle("aside", !isWhole);
  choose(table.querySelectorAll(".cell"), isShown);
  choose(table.tHead.querySelectorAll("th"), (_, index) => index === column);
  choose(table.tBodies[0].querySelectorAll("th"), (_, index) => index === row);
}

// ----- pointer, touch and keyboard -----

function listen(figure, parts, showView) {
  let kept = WHOLE_MAP; // chosen by a click or the keyboard
  const viewOf = (node) => {
    const target = node.closest(".word, .cell");
    if (target === null) return null;
    if (target.matches(".cell")) return { row: +target.dataset.row, column: +target.dataset.column };
    const column = parts.sources.indexOf(target);
    return column < 0 ? { row: parts.targets.indexOf(target), column: null } : { row: null, column };
  };
  const keep = (view) => { kept = view; showView(view); };
  figure.addEventListener("pointerover", (event) => showView(viewOf(event.target) ?? kept));
  figure.addEventListener("pointerleave", () => showView(kept));
  figure.addEventListener("click", (event) => keep(viewOf(event.target) ?? WHOLE_MAP));
  figure.addEventListener("focusin", (event) => keep(viewOf(event.target) ?? WHOLE_MAP));
  figure.addEventListener("focusout", () => keep(WHOLE_MAP));
  figure.addEventListener("keydown", (event) => {
    if (event.key === "Escape") keep(WHOLE_MAP);
    const next = neighbor(event.target, event.key);
    if (!next) return;
    event.preventDefault();
    event.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
}

// The word or cell that an arrow key leads to. Each row of words and the map are one tab stop.
function neighbor(node, key) {
  const isReversed = getComputedStyle(node.parentElement).direction === "rtl";
  const forward = isReversed ? "ArrowLeft" : "ArrowRight";
  const back = isReversed ? "ArrowRight" : "ArrowLeft";
  const siblings = [...node.parentElement.children].filter((child) => child.matches(".word, .cell"));
  if (key === "Home") return siblings[0];
  if (key === "End") return siblings.at(-1);
  if (key === forward) return siblings[siblings.indexOf(node) + 1];
  if (key === back) return siblings[siblings.indexOf(node) - 1];
  if (key === "ArrowDown" && node.matches(".word")) return node.nextElementSibling;
  if (key === "ArrowUp" && node.matches(".word")) return node.previousElementSibling;
  if (!node.matches(".cell")) return null;
  const line = node.parentElement;
  if (key === "ArrowDown") return line.nextElementSibling?.children[node.cellIndex];
  if (key === "ArrowUp") return line.previousElementSibling?.children[node.cellIndex];
  return null;
}

sentences.forEach(drawSentence);
