// As Sphinx ranks; pages with words of the question in their titles and pages for newcomers come first,
// decisions and source last.
const FOLDERS = [[/^start\//, 4], [/^(decisions|project|_modules|notebooks)\//, -12], [/^(lab|lectures|course\/(session|exercises))/, -4], [/^course\/lab/, -12], [/^api\//, -14]];
const QUESTION = (new URLSearchParams(window.location.search).get("q") ?? "").toLowerCase();
const STEMS = (QUESTION.match(/[a-z]{4,}/g) ?? []).map((word) => word.replace(/(e|ed|ing|s)$/, "").slice(0, 6));

var Scorer = {
  score: ([docname, title, , , score]) => {
    const name = `${docname} ${title}`.toLowerCase();
    const bonus = FOLDERS.reduce((sum, [pattern, value]) => sum + (pattern.test(docname) ? value : 0), 0);
    return score + bonus + 6 * STEMS.filter((stem) => name.includes(stem)).length;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
