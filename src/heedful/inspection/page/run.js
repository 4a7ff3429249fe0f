
// --- the page of a run ---------------------------------------------------------------------
// What is shown comes from the run's files and from texts of any kind: it enters the page as
// text (textContent), never as markup.

const run = JSON.parse(document.getElementById("run").textContent);

const find = (selector) => document.querySelector(selector);

function sayNothingYet(section, text) {
  find(`#${section}`).replaceChildren(
    create("h2", "", find(`#${section} h2`).textContent), create("p", "nothing", text),
  );
}

// --- a few numbers -------------------------------------------------------------------------

function drawFacts(facts) {
  find("#facts").append(...facts.map(({ name, value, unit, note }) => {
    const tile = create("div", "");
    tile.append(
      create("dt", "", name),
      create("dd", "value", write(value, unit)),
      create("dd", "beside", note),
    );
    return tile;
  }));
}

// --- validations ---------------------------------------------------------------------------

// Numbers of a column with as many decimals as each other, so that they can be compared.
function writerOf(values, unit) {
  const shown = unit === "share" ? 100 : 1;
  const largest = Math.max(...values.map((value) => Math.abs(value ?? 0) * shown));
  const decimals = largest < 10 ? 4 : 2;
  if (largest >= 1e7 || largest < 1e-3) return (value) => write(value, unit);
  return (value) => {
    if (value === null) return write(value);
    return (shown * value).toFixed(decimals) + (unit === "share" ? " %" : "");
  };
}

function drawValidations({ columns, rows, best, left_out: leftOut }) {
  if (!rows.length) {
    sayNothingYet("validations", "Nothing yet: there has been no validation.");
    return;
  }
  const table = create("table", "plain");
  const head = table.createTHead().insertRow();
  head.append(...["Step", "Time", ...columns.map(({ name }) => name)].map((name) => {
    const header = create("th", "", name);
    header.scope = "col";
    return header;
  }));
  const writers = columns.map(({ unit }, column) =>
    writerOf(rows.map((row) => row[column + 2]), unit));
  const body = table.createTBody();
  rows.map((row, index) => [row, index]).reverse().forEach(([[step, seconds, ...scores], index]) => {
    const line = body.insertRow();
    line.append(create("td", "", write(step)), create("td", "", write(seconds, "seconds")));
    line.append(...scores.map((score, column) =>
      create("td", best[column] === index ? "best" : "", writers[column](score))));
  });
  find("#validations .scroll").append(table);
  if (leftOut) {
    const text = `The newest ${rows.length} are shown, and ${leftOut} older ones are not.`;
    find("#validations").append(create("p", "note", text));
  }
}

// --- samples -------------------------------------------------------------------------------

// The words of a text, each with whether it is in the longest row of words common to both.
function compare(text, reference) {
  const [own, other] = [text, reference].map((each) => each.split(/(?<=\s)/));
  if (own.length * other.length > 250000) return own.map((word) => [word, true]);
  const bare = (word) => word.trim();
  const common = own.map(() => new Array(other.length + 1).fill(0));
  common.push(new Array(other.length + 1).fill(0));
  for (let i = own.length - 1; i >= 0; i -= 1) {
    for (let j = other.length - 1; j >= 0; j -= 1) {
      common[i][j] = bare(own[i]) === bare(other[j])
        ? common[i + 1][j + 1] + 1
        : Math.max(common[i + 1][j], common[i][j + 1]);
    }
  }
  let j = 0;
  return own.map((word, i) => {
    while (j < other.length && bare(word) !== bare(other[j]) && common[i][j + 1] >= common[i + 1][j]) j += 1;
    const isCommon = j < other.length && bare(word) === bare(other[j]);
    if (isCommon) j += 1;
    return [word, isCommon];
  });
}

// Tokens as a line of text: letters stand side by side, anything longer apart.
function inOneLine(tokens) {
  const areLetters = tokens.every((token) => [...token].length === 1);
  return areLetters ? tokens.join("").replaceAll("\u2423", " ") : tokens.join(" ");
}

function drawCard(item, isChosen) {
  const card = create("button", "card");
  card.type = "button";
  card.ariaPressed = isChosen;
  const output = create("i", "output");
  output.append(...compare(item.text, item.reference).map(([word, isCommon]) =>
    create("span", isCommon || !word.trim() ? "" : "other", word)));
  const isSame = item.text === item.reference;
  const rows = [
    ["source", create("i", "", inOneLine(item.source))],
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

// page.js draws a sentence at the end of <main>; here its place is below the cards.
function drawWhereItLooked(item) {
  const holder = find("#samples .looked");
  holder.replaceChildren();
  if (!item) return;
  if (!item.weights) {
    holder.append(create("p", "nothing", "There is no attention over a source to show."));
    return;
  }
  drawSentence({ title: "", source: item.source, target: item.output, weights: item.weights }, 0);
  holder.append(find("main").lastElementChild);
  if (item.is_cut) {
    holder.append(create("p", "nothing", `The first ${item.output.length} tokens of the output `
      + `and ${item.source.length} of the source are drawn; there are more.`));
  }
}

function drawSamples({ validations, total }) {
  if (!validations.length) {
    sayNothingYet("samples", "Nothing yet: no samples were taken at a validation.");
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
    const said = `step ${write(step)} \u00b7 ${count}`;
    find("#sample-step").textContent = said;
    slider.setAttribute("aria-valuetext", said);
    find("#samples .cards").replaceChildren(...items.map((item, index) => {
      const card = drawCard(item, index === chosen);
      card.addEventListener("click", () => {
        chosen = index;
        draw();
        find("#samples .cards").children[index].focus();
      });
      return card;
    }));
    drawWhereItLooked(items[chosen] ?? items[0]);
  };
  slider.addEventListener("input", draw);
  if (total > validations.length) {
    find("#samples .note").textContent =
      `${validations.length} of ${total} validations are kept on this page, spread evenly.`;
  }
  draw();
}

// --- configuration -------------------------------------------------------------------------

// Lines that stand further in than the line before them belong to it. A dash counts as room.
function treeOf(text) {
  const root = { depth: -1, children: [], path: "" };
  const open = [root];
  for (const line of text.split("\n").filter((each) => each.trim())) {
    const [, room, dash] = line.match(/^( *)(- )?/);
    const depth = room.length + (dash ? 1 : 0);
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
  writeSetting(node, "");
  if (!node.children.length) {
    node.element = line;
    return line;
  }
  node.element = create("details", "");
  node.element.append(line, ...node.children.map(drawSetting));
  return node.element;
}

function writeSetting({ label: holder, line }, wanted) {
  const at = wanted ? line.toLowerCase().indexOf(wanted) : -1;
  if (at < 0) {
    const colon = line.indexOf(":") + 1;
    holder.replaceChildren(line.slice(0, colon), create("span", "value", line.slice(colon)));
    return;
  }
  const end = at + wanted.length;
  holder.replaceChildren(line.slice(0, at), create("mark", "", line.slice(at, end)), line.slice(end));
}

// Shows the settings whose line or dotted path holds what is wanted, with what they stand in.
function search(node, wanted, isInside) {
  const isHit = !wanted || node.line.toLowerCase().includes(wanted)
    || node.path.toLowerCase().slice(1).includes(wanted);
  writeSetting(node, wanted);
  const hits = node.children.map((child) => search(child, wanted, isInside || isHit));
  const count = hits.reduce((sum, each) => sum + each, 0);
  node.element.classList.toggle("hidden", !isHit && !isInside && count === 0);
  if (node.children.length) node.element.open = Boolean(wanted) && count > 0;
  return count + (isHit ? 1 : 0);
}

function drawConfiguration(text) {
  const { children } = treeOf(text);
  if (!children.length) {
    sayNothingYet("configuration", "Nothing yet.");
    return;
  }
  find(".settings").append(...children.map(drawSetting));
  find("#find").addEventListener("input", ({ target }) => {
    const wanted = target.value.trim().toLowerCase();
    const counts = children.map((node) => search(node, wanted, false));
    const count = counts.reduce((sum, each) => sum + each, 0);
    find("#found").textContent = wanted ? `${count} ${count === 1 ? "line" : "lines"}` : "";
  });
}

// --- environment ---------------------------------------------------------------------------

function drawEnvironments(environments) {
  if (!environments.length) {
    sayNothingYet("environment", "Nothing was noted.");
    return;
  }
  find(".environments").append(...environments.flatMap(({ step, facts }, index) => {
    const begun = index === 0 ? "Begun" : `Gone on at step ${write(step)}`;
    const list = create("dl", "");
    list.append(...facts.flatMap(([name, value]) =>
      [create("dt", "", name), create("dd", "", value)]));
    const title = create("h3", "", index && facts.length ? `${begun}, with these changes` : begun);
    return [title, list];
  }));
}

// --- all of it -----------------------------------------------------------------------------

drawFacts(run.facts);
if (run.charts.length) {
  drawCharts(run, find(".charts"), find("#axis"), find("#read-out"));
} else {
  sayNothingYet("curves", "Nothing yet: training has written no line of metrics.");
}
drawSamples(run.samples);
drawValidations(run.validations);
drawConfiguration(run.configuration);
drawEnvironments(run.environments);
