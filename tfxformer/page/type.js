// Section 1: a text, its tokens, and its translation as it grows.

import { chips, element, percent, refill } from "./drawing.js";

export const EXAMPLES = [
  "O gato preto bebeu o leite.",
  "A casa amarela fica perto do rio.",
  "Bom dia! Onde fica a estação? O comboio parte às dez.",
  "Sentei-me no banco do jardim.",
  "A manga da camisa está rota.",
  "Ela partiu o copo e partiu para Lisboa.",
];

const BYTES =
  "A token such as <0xC3> is one byte of a character that is not in the model’s list.";

// Whether the reader has chosen a step's token, against the model.
export const isChosen = ({ id, candidates }) => id !== candidates[0].id;

// Tells that she has, and undoes it. It keeps its place without a choice: what is below
// never moves under the pointer.
export function choiceNote({ steps }, page) {
  const undo = element("button", { onclick: () => page.update({ forced: [] }) }, "Undo");
  const style = !steps?.some(isChosen) && "visibility: hidden";
  return element("p", { class: "note", style }, "You chose the dashed token. ", undo);
}

export function mountType(section, page) {
  const text = document.getElementById("text");
  const output = document.getElementById("translation");
  text.addEventListener("input", () => page.update({ text: text.value }));
  const sentences = element("div", { class: "sentences" });
  section.append(examples(page), sentences);
  let [parts, space, nodes] = [[], "", []];

  function grow(place) {
    const texts = parts.map((part) => part.space + (part.translation ?? ""));
    output.value = texts.join("") + space;
    refill(nodes[place], tokensOf(parts[place], place, page));
  }
  return {
    uses: ["text", "part"],
    // Shows the sentences of a text, before their translations.
    begin(found, after, state) {
      [parts, space] = [found, after];
      nodes = parts.map(() => element("div"));
      sentences.replaceChildren(...parts.map((_, place) => sentence(nodes[place], place, page)));
      sentences.classList.toggle("several", parts.length > 1);
      output.value = "";
      parts.forEach((_, place) => grow(place));
      this.show(state);
    },
    grow,
    show(state) {
      if (text.value !== state.text) text.value = state.text;
      const buttons = sentences.querySelectorAll("input");
      buttons.forEach((button, place) => (button.checked = place === state.part));
    },
  };
}

function examples(page) {
  const choose = (text) => () => page.update({ text });
  const button = (text) => element("button", { onclick: choose(text), lang: "pt" }, text);
  const items = EXAMPLES.map((text) => element("li", {}, button(text)));
  const note =
    "Or take one of these. The last two have a word with two meanings: “rota” is torn or a route, " +
    "“partiu” is broke or left.";
  const list = element("ul", { class: "examples" }, items);
  return element("div", {}, element("p", { class: "note" }, note), list);
}

// A sentence, and the button that chooses it for the walk.
function sentence(node, place, page) {
  const onchange = () => page.update({ part: place });
  const input = element("input", { type: "radio", name: "sentence", onchange });
  const text = ` Walk through sentence ${place + 1}`;
  const label = element("label", { class: "control" }, input, text);
  return element("div", { class: "sentence" }, label, node);
}

// Its tokens, each with its id; and those that are written, each with its probability.
// A click leads to the section that shows more.
function tokensOf(part, place, page) {
  const lead = (changes) => page.update({ part: place, ...changes });
  const read = chips(part.sourceTokens, {
    notes: part.source,
    onPick: (token) => lead({ token, column: -1, position: token, section: "embedding" }),
    pickLabel: () => "See how this token becomes numbers",
  });
  const steps = part.steps ?? [];
  const written = chips(
    steps.map(({ token }) => token),
    {
      notes: steps.map(({ probability }) => percent(probability)),
      shades: steps.map(({ probability }) => probability),
      classes: steps.map((step) => (isChosen(step) ? "forced" : "")),
      onPick: (step) => lead({ step, section: "decoder" }),
      pickLabel: () => "See how the model chose this token",
    },
  );
  const tokens = [...part.sourceTokens, ...steps.map(({ token }) => token)];
  const bytes = tokens.some((token) => token.startsWith("<0x"));
  return [
    element("h3", {}, "The model reads these tokens. Under each is its id."),
    read,
    element("h3", {}, "It writes these tokens. Under each is its probability."),
    written,
    choiceNote(part, page),
    element("p", { class: "note" }, bytes ? BYTES : ""),
  ];
}
