// Text to token ids and back, as tokenizer.py does it with SentencePiece.
//
// A text becomes tokens in three steps. Normalization makes one spelling of many: "ﬁ"
// becomes "fi", and runs of spaces become one. Spaces become "▁", so that tokens keep
// them. Then, of all the ways to cut the text, the likeliest one wins: each token has a
// log-probability, and the best sum is found from left to right (Viterbi's algorithm;
// Kudo 2018).

import { fromBase64 } from "./matrix.js";

export const PAD_ID = 0; // fills up sources
export const UNK_ID = 1; // stands for what a vocabulary cannot spell
export const START_ID = 2; // begins each target
export const END_ID = 3; // ends each source and each target

const SPACE = "▁"; // U+2581
const NORMAL = 1;
const UNKNOWN = 2;
const CONTROL = 3;
const BYTE = 6;
const UNKNOWN_COST = 10; // below the least likely token

// Lone surrogates, control characters, and white space that NFKC keeps.
const TO_SPACE = /[\p{Cs}\x00-\x1f\x7f-\x9f\u1680\u2028\u2029]/gu;
const INVISIBLE = /[\u200b\u2060\ufeff\u00ad]/g;
const UNPRINTABLE = /[\x00-\x1f\x7f-\x9f\u1680\u2028\u2029]/g;

const utf8 = new TextEncoder();

// Replaces characters by the rules of a SentencePiece model.
//
// The rules are Unicode's NFKC in most models, and the longest one that fits comes
// first. String.normalize("NFKC") would give other results in a few places: it knows
// another version of Unicode in each browser, it sorts accents that are in an unusual
// order, and it never lowers case, as some models do. So the page has the rules of the
// model itself: a tree of bytes ("double array"), then the replacements, each ended by
// a byte 0.
class Normalizer {
  constructor(bytes) {
    const size = new Uint32Array(bytes.slice(0, 4).buffer)[0] ?? 0;
    this.tree = new Uint32Array(bytes.slice(4, 4 + size).buffer);
    this.replacements = bytes.subarray(4 + size);
  }

  // The longest rule for the bytes at a place: how many it replaces, and by what.
  rule(bytes, place) {
    const childrenOf = (node) => (node >>> 10) << ((node & 512) >>> 6);
    let [length, found] = [0, 0];
    let at = this.tree.length ? childrenOf(this.tree[0]) : 0;
    for (let i = place; i < bytes.length && this.tree.length; i++) {
      at ^= bytes[i];
      const node = this.tree[at];
      if ((node & 0x800000ff) >>> 0 !== bytes[i]) break;
      at ^= childrenOf(node);
      if (node & 256) [length, found] = [i + 1 - place, this.tree[at] & 0x7fffffff];
    }
    if (!length) return null;
    const end = this.replacements.indexOf(0, found);
    return { length, replacement: this.replacements.subarray(found, end) };
  }

  normalize(text) {
    const bytes = utf8.encode(text);
    const normal = [];
    for (let i = 0; i < bytes.length; ) {
      const rule = this.rule(bytes, i);
      if (rule) {
        normal.push(...rule.replacement);
        i += rule.length;
      } else {
        do normal.push(bytes[i++]);
        while (bytes[i] >> 6 === 2); // the other bytes of a character
      }
    }
    return decodeUtf8(new Uint8Array(normal));
  }
}

export class Tokenizer {
  // Takes what __init__.py writes: the pieces with their scores and types, the rules of
  // normalization as base64, and how the model treats spaces.
  constructor(model) {
    this.model = { ...model, scores: Float32Array.from(model.scores) };
    this.normalizer = new Normalizer(fromBase64(model.rules));
    this.normalIds = new Map();
    this.byteIds = new Map();
    let least = Infinity;
    model.types.forEach((type, id) => {
      const piece = model.pieces[id];
      if (type === NORMAL) {
        this.normalIds.set(piece, id);
        least = Math.min(least, model.scores[id]);
      } else if (type === BYTE) {
        this.byteIds.set(parseInt(piece.slice(3, 5), 16), id); // "<0x1F>"
      }
    });
    this.unknownScore = Math.fround(least - UNKNOWN_COST);
    this.longest = Math.max(...[...this.normalIds.keys()].map((piece) => [...piece].length));
  }

  // The ids of a text, without start and end tokens.
  encode(text) {
    return this.cut(this.normalize(text));
  }

  // The text in the form that is cut: one spelling, and "▁" for each space.
  normalize(text) {
    text = text.replace(TO_SPACE, " ").replace(INVISIBLE, "");
    text = this.normalizer.normalize(text);
    const neat = this.model.remove_extra_whitespaces;
    if (neat) text = text.replace(/^ +| +$/g, "").replace(/ +/g, " ");
    if (text && this.model.add_dummy_prefix) text = " " + text;
    text = text.replaceAll(" ", SPACE);
    return neat ? text.replace(/▁+$/, "") : text;
  }

  // The likeliest way to cut a normalized text. best[i] is the best way to cut its first
  // i characters; of equal ones, the first that is found stays.
  cut(text) {
    const characters = [...text];
    const best = [{ score: 0, start: 0, id: null }];
    const offer = (end, start, id, score) => {
      // SentencePiece adds in float32; so sums are equal where Python's are.
      const sum = Math.fround(best[start].score + score);
      if (!best[end] || sum > best[end].score) best[end] = { score: sum, start, id };
    };
    for (let start = 0; start < characters.length; start++) {
      let piece = "";
      const last = Math.min(start + this.longest, characters.length);
      for (let end = start + 1; end <= last; end++) {
        piece += characters[end - 1];
        const id = this.normalIds.get(piece);
        if (id !== undefined) offer(end, start, id, this.model.scores[id]);
      }
      const known = this.normalIds.has(characters[start]);
      if (!known) offer(start + 1, start, UNK_ID, this.unknownScore);
    }
    const ids = [];
    for (let end = characters.length; end > 0; end = best[end].start) {
      const { id, start } = best[end];
      if (id !== UNK_ID) ids.unshift(id);
      else if (this.byteIds.size) ids.unshift(...this.spell(characters[start]));
      else if (ids[0] !== UNK_ID) ids.unshift(id); // a run of unknown characters is one
    }
    return ids;
  }

  // A character outside the vocabulary, in bytes.
  spell(character) {
    return Array.from(utf8.encode(character), (byte) => this.byteIds.get(byte));
  }

  // The text of some ids.
  decode(ids) {
    let text = "";
    let bytes = []; // of a character that is spelt in bytes
    let begins = true; // a space at the beginning is left out
    const flush = () => {
      if (bytes.length) begins = false;
      text += decodeUtf8(Uint8Array.from(bytes));
      bytes = [];
    };
    for (const given of ids) {
      const id = given >= 0 && given < this.model.pieces.length ? given : UNK_ID;
      let piece = this.model.pieces[id];
      if (this.model.types[id] === BYTE) {
        bytes.push(parseInt(piece.slice(3, 5), 16));
        continue;
      }
      flush();
      if (this.model.types[id] === CONTROL) continue;
      if (this.model.types[id] === UNKNOWN) piece = this.model.unk_surface;
      else if (begins && piece.startsWith(SPACE)) piece = piece.slice(1);
      text += piece.replaceAll(SPACE, " ");
      begins = this.model.remove_extra_whitespaces && !text;
    }
    flush();
    return text.replace(UNPRINTABLE, "\ufffd");
  }

  // The spelling of each id, as SentencePiece shows it.
  tokens(ids) {
    return ids.map((id) => this.model.pieces[id]);
  }
}

// Bytes to text, with U+FFFD for each byte that is not UTF-8.
function decodeUtf8(bytes) {
  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  try {
    return decoder.decode(bytes);
  } catch {
    for (let length = Math.min(4, bytes.length); length > 0; length--) {
      try {
        return decoder.decode(bytes.subarray(0, length)) + decodeUtf8(bytes.subarray(length));
      } catch {
        // fewer bytes may be a character
      }
    }
    return "\ufffd" + decodeUtf8(bytes.subarray(1));
  }
}
