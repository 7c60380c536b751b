// Text to sentences, and long sentences to parts that fit the model, by the rules of
// sentences.py. Two things differ: lengths count UTF-16 units, so a long sentence with
// emoji may be cut at another place; and of the digits that begin a sentence, rare ones,
// such as "²", are unknown here.

const WIDE = "。！？｡";
const STOPS = ".!?…‽؟۔।" + WIDE;
const CLOSERS = "\"'”’»›)]}」』）】》";
const OPENERS = "\"'`“‘„«‹([{¿¡*_—–-";
const DASHES = "—–-";
const GOING_ON = STOPS + CLOSERS + ",;:%"; // characters that never begin a sentence

// White space and line breaks, as Python knows them.
const SPACE = "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const BREAK = "\\n\\r\\v\\f\\x1c-\\x1e\\x85\\u2028\\u2029";
const LINES = new RegExp(`[^${BREAK}]*(?:\\r\\n|[${BREAK}])|[^${BREAK}]+$`, "gu");

const escape = (characters) => characters.replace(/[\\\]\[^$.*+?(){}|/-]/g, "\\$&");
const LETTER = "[\\p{L}\\p{Nl}\\p{No}]";

// Abbreviations before a name, or before more of the same sentence.
const BEFORE_NAMES =
  /^(?:sra?s?|srta|dra?s?|profa?s?|eng|arq|ex[mc]?[oa]?|ilm[oa]|st[oa]?|gen|cel|sgt|maj|alm|av|pe|fr|mrs?|ms|messrs|mt|rev|hon|gov|sen|rep|capt|lt|col|vs|cf|p\.ex|e\.g|i\.e)$/iu;
// Abbreviations before a number; before a word, they may end a sentence ("no.").
const BEFORE_NUMBERS =
  /^(?:n|nos?|nr|núm|pp?|pg|págs?|fls?|figs?|caps?|arts?|vols?|ed|séc|al|inc|tab|eq|sec|ch|tel|ext|ca?|jan|fe[vb]|mar|a[bp]r|mai|ju[nl]|ago|aug|set|sept?|out|oct|nov|de[zc])$/iu;
const NUMBERING = /^[(\[]?(?:\p{Nd}+(?:\.\p{Nd}+)*|[a-zA-Z]|[IVXLC]+)$/u;
const INITIALS = new RegExp(`^(?:${LETTER}\\.)*${LETTER}$`, "u");

// Words end at white space, or after a wide stop.
const WORD = new RegExp(
  `[^${SPACE}${WIDE}]*[${WIDE}]+[${escape(CLOSERS)}]*|[^${SPACE}${WIDE}]+`,
  "gu",
);
const OPENING = new RegExp(`([${SPACE}${escape(OPENERS)}]*)([^${SPACE}]?)`, "uy");

// Where to cut a long sentence, the best places first; a match begins at the cut.
const CONJUNCTIONS =
  "e|ou|mas|nem|que|porque|pois|quando|enquanto|embora|onde|como|se|" +
  "and|or|but|nor|that|which|who|because|when|while|although|where|as|if|so";
const CUTS = [
  new RegExp(`(?<=[;:—–…])[${SPACE}]|(?<=[；：])`, "gu"),
  new RegExp(`(?<=,)[${SPACE}]|(?<=[，、])`, "gu"),
  new RegExp(`[${SPACE}](?=(?:${CONJUNCTIONS})[${SPACE}])`, "giu"),
  new RegExp(`[${SPACE}]`, "gu"),
];

// Without some characters at its ends.
const stripStart = (text, class_) => text.replace(new RegExp(`^[${class_}]+`, "u"), "");
const stripEnd = (text, class_) => text.replace(new RegExp(`[${class_}]+$`, "u"), "");
const strip = (text, class_) => stripEnd(stripStart(text, class_), class_);

// Cuts a text into sentences and the white space around them: joined they are the text,
// white space at even places, sentences at odd ones.
export function splitSentences(text) {
  const pieces = [];
  let end = 0;
  for (const line of text.match(LINES) ?? []) {
    const starts = sentenceStarts(line);
    starts.forEach((start, i) => {
      const sentence = strip(line.slice(start, starts[i + 1]), SPACE);
      if (!sentence) return;
      const begin = text.indexOf(sentence, end);
      pieces.push(text.slice(end, begin), sentence);
      end = begin + sentence.length;
    });
  }
  return [...pieces, text.slice(end)];
}

// Cuts a text with too many tokens in halves until its parts fit: parts at even places,
// white space at odd ones. `count` counts tokens.
export function splitToFit(text, count, limit) {
  if ([...text].length < 2 || count(text) <= limit) return [text];
  const [left, space, right] = halve(text);
  return [...splitToFit(left, count, limit), space, ...splitToFit(right, count, limit)];
}

// The parts that the model translates, at odd places, and the white space around them.
export function partsOf(text, count, limit) {
  const pieces = splitSentences(text);
  const parts = [pieces[0]];
  for (let i = 1; i < pieces.length; i += 2) {
    parts.push(...splitToFit(pieces[i], count, limit), pieces[i + 1]);
  }
  // Sentences without white space between them, as in Chinese, get a space.
  return parts.map((part, i) => (i % 2 || i === 0 || i === parts.length - 1 ? part : part || " "));
}

// Where the sentences of a line start; the first at 0.
function sentenceStarts(line) {
  const starts = [0];
  const lowerCased = line === line.toLowerCase();
  const [closing, stopping] = [escape(CLOSERS), escape(STOPS)];
  let fresh = true; // the sentence has no word yet
  let quotes = 0;
  let [stem, stop, closers] = ["", "", ""];
  for (const { 0: word, index } of line.matchAll(WORD)) {
    const openQuote = quotes % 2 === 1; // a separate quote closes if one is open
    quotes += word.split('"').length - 1;
    if (stop && !strip(word, closing) && (openQuote || strip(word, '"'))) {
      closers += word;
      continue;
    }
    if (stop && !strip(word, stopping)) {
      stop += word; // ". . ."
      continue;
    }
    if (stop) {
      OPENING.lastIndex = index;
      const [, opening, first] = OPENING.exec(line);
      if (endsSentence({ stem, stop, closers, opening, first, lowerCased })) {
        starts.push(index);
        fresh = true;
      }
    }
    const core = stripEnd(word, closing);
    stem = stripEnd(core, stopping);
    stop = core.slice(stem.length);
    closers = word.slice(core.length);
    if (fresh && stop === "." && NUMBERING.test(stem)) stop = ""; // "1. Introduction"
    fresh = false;
  }
  return starts;
}

// Whether a stop ends a sentence: "stem" "?!" ")" " — " "F", in this order.
function endsSentence({ stem, stop, closers, opening, first, lowerCased }) {
  if (!first || GOING_ON.includes(first)) return false;
  if (stop === "." && stem && !closers) {
    const word = stripStart(stem, escape(OPENERS));
    if (BEFORE_NAMES.test(word)) return false;
    if (BEFORE_NUMBERS.test(word) && /^\p{Nd}$/u.test(first)) return false;
    const upper = /\p{Uppercase}/u.test(word) && !/[\p{Lowercase}\p{Lt}]/u.test(word);
    if (upper && INITIALS.test(word)) return false; // J. K., U.S.
  }
  if (!/^\p{Lowercase}$/u.test(first)) return true;
  const plain = stop === "." || strip(stop, ".…"); // not "..."
  // '"Vens?" perguntou ela.', "— Vens? — perguntou ela."
  const spoken = closers || [...DASHES].some((dash) => opening.includes(dash));
  const alone = !stem || (lowerCased && stop !== ".");
  return Boolean(plain && alone && !spoken);
}

// The left half, the white space after it, and the right half.
function halve(text) {
  const middle = Math.floor(text.length / 2);
  const begin = Math.max(Math.floor(text.length / 4), 1);
  const end = text.length - Math.floor(text.length / 4);
  let places = sentenceStarts(text).filter((start) => begin <= start && start < end);
  for (const cut of CUTS) {
    if (places.length) break;
    const matches = [...text.slice(0, end).matchAll(cut)].map((match) => match.index);
    places = matches.filter((place) => begin <= place);
  }
  // Not between the two halves of a character.
  if (!places.length) places = [/[\udc00-\udfff]/.test(text[middle]) ? middle + 1 : middle];
  const distance = (place) => Math.abs(place - middle);
  const cut = places.reduce((best, place) => (distance(place) < distance(best) ? place : best));
  const left = stripEnd(text.slice(0, cut), SPACE);
  const right = stripStart(text.slice(cut), SPACE);
  return [left, text.slice(left.length, text.length - right.length), right];
}
