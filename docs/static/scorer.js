// First the pages for newcomers, last decisions and source; else as Sphinx ranks.
const FOLDERS = [[/^start\//, 12], [/^(decisions|project|_modules)\//, -12], [/^lab\//, -4], [/^api\//, -8]];

var Scorer = {
  score: ([docname, , , , score]) =>
    FOLDERS.reduce((sum, [pattern, bonus]) => sum + (pattern.test(docname) ? bonus : 0), score),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
