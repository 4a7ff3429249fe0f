// Which words of two texts differ.

import { create } from "./dom.js";

/** The words of a text, each with whether it is in the longest common subsequence. @type {(text: string, reference: string) => [string, boolean][]} */
function compareWords(text, reference) {
  const [words, other] = [text, reference].map((line) => line.split(/(?<=\s)/));
  if (words.length * other.length > 250000) return words.map((word) => /** @type {[string, boolean]} */ ([word, true]));
  const bare = (word) => word.trim();
  const common = Array.from({ length: words.length + 1 }, () => new Array(other.length + 1).fill(0));
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
    return /** @type {[string, boolean]} */ ([word, isCommon]);
  });
}

/** A text in which the words that another one does not have are elements. @type {(text: string, other: string, tag: "ins" | "del" | "span") => (string | Node)[]} */
export function markWords(text, other, tag) {
  return compareWords(text, other).map(([word, isCommon]) => (isCommon || !word.trim() ? word : create(tag, "other", word)));
}
