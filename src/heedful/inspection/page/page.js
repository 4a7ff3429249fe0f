"use strict";
// Draws every attention_map of the page, and shows where the word under the pointer looked.
//
// One state says all: a view { row, column }. A row alone is a word of the output, a column
// alone a word of the source, both together a cell of the map, neither is rest. `show` draws
// a view; everything else only decides which view is shown.
//
// Tokens come from anywhere. They enter the page as text (textContent), never as markup.

const { sentences, strong, faint } = JSON.parse(document.getElementById("maps").textContent);

const REST = { row: null, column: null };
const THINNEST = 0.01; // shares below one percent get no thread
const SVG = "http://www.w3.org/2000/svg";

function create(tag, className, text = "") {
  const node = document.createElement(tag);
  node.className = className;
  node.textContent = text;
  return node;
}

function percent(weight) {
  if (weight === 0) return "";
  return Math.floor(100 * weight + 0.5) || "\u00b7";
}

// --- words ---------------------------------------------------------------------------------

// Says in words what the colours say: "girl: puella 93%, videt 3%".
function spoken(token, others, shares) {
  const said = others
    .map((other, index) => ({ other, share: Math.round(100 * shares[index]) }))
    .filter(({ share }) => share > 0)
    .sort((one, two) => two.share - one.share)
    .map(({ other, share }) => `${other} ${share}%`);
  return `${token}: ${said.join(", ") || "nothing"}`;
}

function drawWords(side, tokens, labelOf) {
  const row = create("div", `words ${side}`);
  row.dir = "auto"; // a right-to-left sentence runs from the right
  row.setAttribute("role", "toolbar");
  row.setAttribute("aria-label", side);
  row.append(...tokens.map((token, index) => {
    const word = create("button", "word");
    word.type = "button";
    word.title = token;
    word.tabIndex = index === 0 ? 0 : -1;
    word.setAttribute("aria-label", labelOf(token, index));
    word.append(create("span", "token", token), create("span", "share"));
    return word;
  }));
  return row;
}

function setShare(word, share) {
  word.style.setProperty("--weight", share ?? 0);
  word.dataset.weight = share ?? "";
  word.classList.toggle("strong", share > strong);
  word.querySelector(".share").textContent = percent(share ?? 0);
}

// --- threads -------------------------------------------------------------------------------

function drawThreads(weights) {
  const canvas = document.createElementNS(SVG, "svg");
  canvas.classList.add("threads");
  canvas.setAttribute("aria-hidden", "true");
  weights.forEach((shares, row) => shares.forEach((weight, column) => {
    if (weight < THINNEST) return;
    const thread = document.createElementNS(SVG, "path");
    thread.classList.add("thread");
    thread.setAttribute("stroke-opacity", weight);
    thread.setAttribute("stroke-width", 1 + 4 * weight);
    Object.assign(thread.dataset, { row, column });
    canvas.append(thread);
  }));
  return canvas;
}

function hang(threads, targets, sources) {
  const origin = threads.getBoundingClientRect();
  for (const thread of threads.children) {
    const lower = targets[thread.dataset.row].getBoundingClientRect();
    const upper = sources[thread.dataset.column].getBoundingClientRect();
    const from = [lower.left + lower.width / 2 - origin.left, lower.top - origin.top];
    const to = [upper.left + upper.width / 2 - origin.left, upper.bottom - origin.top];
    const middle = (from[1] + to[1]) / 2;
    thread.setAttribute("d", `M${from} C${from[0]},${middle} ${to[0]},${middle} ${to}`);
  }
}

// --- heat map ------------------------------------------------------------------------------

function drawMap({ source, target, weights }) {
  const table = create("table", "");
  table.setAttribute("role", "grid"); // a table whose cells the arrow keys reach
  table.append(create("caption", "", "Rows: words of the output. Columns: words of the source."));
  const head = table.createTHead().insertRow();
  head.append(create("td", ""), ...source.map((token) => {
    const header = create("th", "");
    header.scope = "col";
    header.append(create("span", "", token));
    return header;
  }), create("td", ""));
  const body = table.createTBody();
  target.forEach((token, row) => {
    const header = create("th", "", token);
    header.scope = "row";
    body.insertRow().append(header, ...weights[row].map((weight, column) =>
      drawCell(weight, row, column, `${token} \u2192 ${source[column]}: ${weight.toFixed(2)}`)));
  });
  return table;
}

function drawCell(weight, row, column, name) {
  const cell = create("td", "cell", percent(weight));
  cell.title = name;
  cell.tabIndex = row === 0 && column === 0 ? 0 : -1;
  cell.style.setProperty("--weight", weight);
  cell.classList.toggle("strong", weight > strong);
  cell.classList.toggle("faint", weight < faint);
  Object.assign(cell.dataset, { row, column, weight });
  return cell;
}

// The slanted words over the columns stand as high as the longest of them.
function raise(table) {
  const words = [...table.tHead.querySelectorAll("span")];
  const longest = Math.max(...words.map((word) => word.offsetWidth));
  table.style.setProperty("--rise", `${Math.ceil(longest * Math.SQRT1_2) + 18}px`);
}

// --- a sentence ----------------------------------------------------------------------------

function drawSentence(attention_map, number) {
  const section = create("section", "");
  section.id = `sentence-${number + 1}`;
  const title = attention_map.title || (sentences.length > 1 ? `Sentence ${number + 1}` : "");
  if (title) section.append(create("h2", "", title));
  document.querySelector("main").append(section);
  if (attention_map.source.length === 0 || attention_map.target.length === 0) {
    section.append(create("p", "empty", "nothing to draw"));
    return;
  }
  const { source, target, weights } = attention_map;
  const columns = source.map((_, column) => weights.map((shares) => shares[column]));
  const sourceRow = drawWords("source", source, (word, at) => spoken(word, target, columns[at]));
  const targetRow = drawWords("target", target, (word, at) => spoken(word, source, weights[at]));
  const threads = drawThreads(weights);
  const table = drawMap(attention_map);

  const ribbon = create("div", "ribbon");
  ribbon.append(threads, sourceRow, targetRow);
  const map = create("div", "map");
  map.append(table);
  const views = create("div", "views");
  views.append(ribbon, map);
  section.append(views);

  const [sources, targets] = [[...sourceRow.children], [...targetRow.children]];
  const parts = { sources, targets, threads, table };
  new ResizeObserver(() => {
    raise(table);
    hang(threads, targets, sources);
  }).observe(ribbon);
  listen(section, parts, (view) => show(view, parts, weights));
  show(REST, parts, weights);
}

function choose(nodes, isChosen) {
  nodes.forEach((node, index) => node.classList.toggle("chosen", isChosen(node, index)));
}

function show({ row, column }, { sources, targets, threads, table }, weights) {
  const isShown = (node) =>
    (row ?? +node.dataset.row) === +node.dataset.row &&
    (column ?? +node.dataset.column) === +node.dataset.column;
  sources.forEach((word, index) => {
    const isMet = row !== null && (column ?? index) === index;
    setShare(word, isMet ? weights[row][index] : null);
  });
  targets.forEach((word, index) => {
    const isMet = column !== null && (row ?? index) === index;
    setShare(word, isMet ? weights[index][column] : null);
  });
  choose(sources, (_, index) => index === column);
  choose(targets, (_, index) => index === row);
  const isResting = row === null && column === null;
  threads.classList.toggle("resting", isResting);
  for (const thread of threads.children) thread.classList.toggle("hidden", !isShown(thread));
  table.classList.toggle("aside", !isResting);
  choose(table.querySelectorAll(".cell"), isShown);
  choose(table.tHead.querySelectorAll("th"), (_, index) => index === column);
  choose(table.tBodies[0].querySelectorAll("th"), (_, index) => index === row);
}

// --- pointing, touching and typing ---------------------------------------------------------

function listen(section, parts, look) {
  let held = REST; // what a click or the keyboard holds on to
  const viewOf = (node) => {
    const part = node.closest(".word, .cell");
    if (part === null) return null;
    if (part.matches(".cell")) return { row: +part.dataset.row, column: +part.dataset.column };
    const column = parts.sources.indexOf(part);
    return column < 0 ? { row: parts.targets.indexOf(part), column: null } : { row: null, column };
  };
  const hold = (view) => { held = view; look(view); };
  section.addEventListener("pointerover", (event) => look(viewOf(event.target) ?? held));
  section.addEventListener("pointerleave", () => look(held));
  section.addEventListener("click", (event) => hold(viewOf(event.target) ?? REST));
  section.addEventListener("focusin", (event) => hold(viewOf(event.target) ?? REST));
  section.addEventListener("focusout", () => hold(REST));
  section.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hold(REST);
    const next = neighbour(event.target, event.key);
    if (!next) return;
    event.preventDefault();
    event.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
}

// The word or cell that an arrow key leads to. Each row of words, and the map, is one tab stop.
function neighbour(node, key) {
  const isReversed = getComputedStyle(node.parentElement).direction === "rtl";
  const forward = isReversed ? "ArrowLeft" : "ArrowRight";
  const back = isReversed ? "ArrowRight" : "ArrowLeft";
  const siblings = [...node.parentElement.children].filter((each) => each.matches(".word, .cell"));
  if (key === "Home") return siblings[0];
  if (key === "End") return siblings.at(-1);
  if (key === forward) return siblings[siblings.indexOf(node) + 1];
  if (key === back) return siblings[siblings.indexOf(node) - 1];
  if (!node.matches(".cell")) return null;
  const line = node.parentElement;
  if (key === "ArrowDown") return line.nextElementSibling?.children[node.cellIndex];
  if (key === "ArrowUp") return line.previousElementSibling?.children[node.cellIndex];
  return null;
}

sentences.forEach(drawSentence);
