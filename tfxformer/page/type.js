// Section 1: a text, its tokens, and its translation as it grows.

import { chips, element, percent } from "./drawing.js";

export const EXAMPLES = ["O gato preto bebeu o leite."];

export function mountType(section, page) {
  const text = document.getElementById("text");
  const output = document.getElementById("translation");
  text.addEventListener("input", () => page.update({ text: text.value }));
  let shown = { parts: [], space: "" };
  return {
    uses: ["text"],
    begin(parts, space, state) {
      shown = { parts, space };
      if (text.value !== state.text) text.value = state.text;
    },
    grow() {
      const texts = shown.parts.map((part) => part.space + (part.translation ?? ""));
      output.value = texts.join("") + shown.space;
    },
  };
}
