/** Long names in little room: shortened where they don't differ, so that no two of them look alike. */

const ELLIPSIS = "…";
const MOST_AROUND = 5; // letters of a word

/** Where each name differs from the one that is most like it: `[begin, end]`; the rest is common to both. */
export function differences(names) {
  const ordered = [...new Set(names)].sort();
  const found = new Map(ordered.map((name) => [name, [0, 0]]));
  for (let at = 1; at < ordered.length; at += 1) {
    const [first, second] = [ordered[at - 1], ordered[at]];
    const begin = common(first, second);
    const end = common(reversed(first.slice(begin)), reversed(second.slice(begin)));
    for (const name of [first, second]) {
      if (begin >= found.get(name)[0]) found.set(name, [begin, name.length - end]);
    }
  }
  return new Map(ordered.map((name) => [name, word(name, ...found.get(name))]));
}

/** With the letters and digits around it: of 01 and 11 the same digit differs from their neighbours. */
function word(name, begin, end) {
  const isOfWord = (at) => /[\p{L}\p{N}]/u.test(name[at]);
  const [least, most] = [Math.max(0, begin - MOST_AROUND), Math.min(name.length, end + MOST_AROUND)];
  let [first, behind] = [begin, end];
  while (first > least && isOfWord(first - 1)) first -= 1;
  while (behind < most && isOfWord(behind)) behind += 1;
  return [first, behind];
}

const reversed = (words) => [...words].reverse().join("");

/** How long the beginning is that both have. */
function common(first, second) {
  let at = 0;
  while (at < first.length && at < second.length && first[at] === second[at]) at += 1;
  return at;
}

/** Without a piece that is none of where it differs; most of what is left is the end, as names differ there. */
export function shortened(name, letters, [begin, end] = [0, 0]) {
  if (name.length <= letters) return name;
  const kept = Math.max(0, letters - 1);
  const third = Math.floor(kept / 3);
  for (const head of [third, kept - third, kept - (name.length - begin), end]) {
    const behind = head + name.length - kept;
    if (head >= 0 && head <= kept && (behind <= begin || head >= end)) return name.slice(0, head) + ELLIPSIS + name.slice(behind);
  }
  const room = Math.max(0, kept - 1);
  const first = Math.max(0, Math.min(begin, name.length - room) - Math.floor((room - Math.min(room, end - begin)) / 2));
  return ELLIPSIS + name.slice(first, first + room) + ELLIPSIS;
}

/** In lines of so many letters, broken behind a sign where there is one, and shortened to `most` lines. */
export function lined(name, letters, most, differs) {
  const lines = [];
  let rest = shortened(name, letters * most, differs);
  while (rest.length > letters) {
    const least = Math.max(1, rest.length - letters * (most - lines.length - 1)); // or the lines that are left are too short
    const sign = rest.slice(0, letters).search(/[^\p{L}\p{N}…][\p{L}\p{N}…]*$/u) + 1;
    const cut = sign >= Math.max(least, letters / 3) ? sign : letters;
    lines.push(rest.slice(0, cut));
    rest = rest.slice(cut);
  }
  return [...lines, rest];
}
