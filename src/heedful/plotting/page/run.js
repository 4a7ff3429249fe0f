
// ----- the report of a run ---------------------------------------------------------------------
// Everything shown comes from the run's files: it enters the page as text, never as markup.

const run = JSON.parse(document.getElementById("run").textContent);

const find = (selector) => document.querySelector(selector);

function showNothing(section, text) {
  find(`#${section}`).replaceChildren(
    create("h2", "", find(`#${section} h2`).textContent), create("p", "nothing", text),
  );
}

// ----- samples -----

// The words of a text, each with whether it is in the longest common subsequence.
function compareWords(text, reference) {
  const [words, other] = [text, reference].map((line) => line.split(/(?<=\s)/));
  if (words.length * other.length > 250000) return words.map((word) => [word, true]);
  const bare = (word) => word.trim();
  const common = words.map(() => new Array(other.length + 1).fill(0));
  common.push(new Array(other.length + 1).fill(0));
  for (let i = words.length - 1; i >= 0; i -= 1) {
    for (let j = other.length - 1; j >= 0; j -= 1) {
      common[i][j] = bare(words[i]) === bare(other[j])
        ? common[i + 1][j + 1] + 1
        : Math.max(common[i + 1][j], common[i][j + 1]);
    }
  }
  let j = 0;
  return words.map((word, i) => {
    while (j < other.length && bare(word) !== bare(other[j]) && common[i][j + 1] >= common[i + 1][j]) j += 1;
    const isCommon = j < other.length && bare(word) === bare(other[j]);
    if (isCommon) j += 1;
    return [word, isCommon];
  });
}

// Tokens as a line of text: characters are joined, anything longer is separated by spaces.
function joinTokens(tokens) {
  const areLetters = tokens.every((token) => [...token].length === 1);
  return areLetters ? tokens.join("").replaceAll("\u2423", " ") : tokens.join(" ");
}

function drawCard(item, isChosen) {
  const card = create("button", "card");
  card.type = "button";
  card.ariaPressed = isChosen;
  const output = create("i", "output");
  output.append(...compareWords(item.text, item.reference).map(([word, isCommon]) =>
    create("span", isCommon || !word.trim() ? "" : "other", word)));
  const isSame = item.text === item.reference;
  const rows = [
    ["source", create("i", "", joinTokens(item.source))],
    ["reference", create("i", "", item.reference)],
    [isSame ? "output \u2713" : "output", output],
  ];
  card.append(...rows.map(([name, text]) => {
    const row = create("span", "");
    text.dir = "auto";
    row.append(create("b", "", name), text);
    return row;
  }));
  return card;
}

// attention_map.js draws a sentence at the end of <main>; it is moved below the cards.
function drawAttention(item) {
  const holder = find("#samples .attention");
  holder.replaceChildren();
  if (!item) return;
  if (!item.weights) {
    holder.append(create("p", "nothing", "No attention weights over a source."));
    return;
  }
  if (item.grid) {
    drawGrids(item, holder);
    return;
  }
  const { source, output: target, weights, notes } = item;
  const view = { caption: "", source, target, weights, notes };
  drawSentence({ title: "", output: "", views: [view] }, 0);
  holder.append(find("main").lastElementChild);
  if (item.is_cut) {
    holder.append(create("p", "nothing", `Only the first ${item.output.length} output `
      + `and ${item.source.length} source tokens are drawn.`));
  }
}

// Of an image, caption.js draws the grid of each word.
async function drawGrids({ output: words, weights, grid }, holder) {
  const [rows, columns] = grid;
  const grids = weights.map((cells) => Array.from({ length: rows }, (_, row) =>
    cells.slice(row * columns, (row + 1) * columns)));
  const view = { label: "", words, gates: null, weights: grids };
  const card = { title: "", caption: "", picture: "", size: grid, views: [view] };
  holder.replaceChildren(await drawCaption(card, 0));
}

function drawSamples({ validations, total }) {
  if (!validations.length) {
    showNothing("samples", "Nothing yet: no samples were logged.");
    return;
  }
  let chosen = 0;
  const slider = find("#validation");
  slider.max = validations.length - 1;
  slider.value = slider.max;
  slider.disabled = validations.length < 2;
  const draw = () => {
    const { step, items } = validations[+slider.value];
    const count = `${+slider.value + 1} of ${validations.length}`;
    const label = `step ${formatValue(step)} \u00b7 ${count}`;
    find("#sample-step").textContent = label;
    slider.setAttribute("aria-valuetext", label);
    find("#samples .cards").replaceChildren(...items.map((item, index) => {
      const card = drawCard(item, index === chosen);
      card.addEventListener("click", () => {
        chosen = index;
        draw();
        find("#samples .cards").children[index].focus();
      });
      return card;
    }));
    drawAttention(items[chosen] ?? items[0]);
  };
  slider.addEventListener("input", draw);
  if (total > validations.length) {
    find("#samples .note").textContent =
      `${validations.length} of ${total} validations are shown, evenly spaced.`;
  }
  draw();
}

// ----- configuration -----

// A line belongs to the last line before it with less indentation. A dash counts as indentation.
function parseTree(text) {
  const root = { depth: -1, children: [], path: "" };
  const open = [root];
  for (const line of text.split("\n").filter((part) => part.trim())) {
    const [, indent, dash] = line.match(/^( *)(- )?/);
    const depth = indent.length + (dash ? 1 : 0);
    while (open.at(-1).depth >= depth) open.pop();
    const parent = open.at(-1);
    const key = line.trim().split(":")[0];
    const node = { depth, line: line.trim(), children: [], path: `${parent.path}.${key}` };
    parent.children.push(node);
    open.push(node);
  }
  return root;
}

function drawSetting(node) {
  const line = create(node.children.length ? "summary" : "div", "setting");
  node.label = line;
  showSetting(node, "");
  if (!node.children.length) {
    node.element = line;
    return line;
  }
  node.element = create("details", "");
  node.element.append(line, ...node.children.map(drawSetting));
  return node.element;
}

function showSetting({ label: holder, line }, query) {
  const start = query ? line.toLowerCase().indexOf(query) : -1;
  if (start < 0) {
    const colon = line.indexOf(":") + 1;
    holder.replaceChildren(line.slice(0, colon), create("span", "value", line.slice(colon)));
    return;
  }
  const end = start + query.length;
  holder.replaceChildren(line.slice(0, start), create("mark", "", line.slice(start, end)), line.slice(end));
}

// Shows the settings whose line or dotted path contains the query, with their parents.
function search(node, query, isInside) {
  const isMatch = !query || node.line.toLowerCase().includes(query)
    || node.path.toLowerCase().slice(1).includes(query);
  showSetting(node, query);
  const counts = node.children.map((child) => search(child, query, isInside || isMatch));
  const count = counts.reduce((sum, value) => sum + value, 0);
  node.element.classList.toggle("hidden", !isMatch && !isInside && count === 0);
  if (node.children.length) node.element.open = Boolean(query) && count > 0;
  return count + (isMatch ? 1 : 0);
}

function drawConfiguration(text) {
  const { children } = parseTree(text);
  if (!children.length) {
    showNothing("configuration", "Nothing yet.");
    return;
  }
  find(".settings").append(...children.map(drawSetting));
  find("#find").addEventListener("input", ({ target }) => {
    const query = target.value.trim().toLowerCase();
    const counts = children.map((node) => search(node, query, false));
    const count = counts.reduce((sum, value) => sum + value, 0);
    find("#matches").textContent = query ? `${count} ${count === 1 ? "line" : "lines"}` : "";
  });
}

// ----- all of it -----

const charts = JSON.parse(document.getElementById("charts").textContent);
if (charts.length) readCharts(charts, find("#read-out"));
drawSamples(run.samples);
drawConfiguration(run.configuration);
