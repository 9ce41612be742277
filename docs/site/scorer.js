// The order of search results: pages for somebody on call, pages of other tasks, reference, explanations.
const ON_CALL = /^docs\/(operations|states|status|dead-letters|keys|time-machine|cost|exports)/;
const REFERENCE = /^(docs\/(cli|configuration|events|metrics|limits|types|formats)|README|examples\/)/;
const EXPLANATION = /^(docs\/(proof|comparison|decisions|dependencies|benchmarks|architecture|rules|promises|prove)|CONTRIBUTING|bench\/)/;
var Scorer = {
  score: ([page, , anchor, , score]) =>
    score + (ON_CALL.test(page) ? 2 : 0) - (EXPLANATION.test(page) ? 8 : REFERENCE.test(page) ? 3 : 0) - (anchor ? 1 : 0),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
