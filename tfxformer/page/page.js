// What the reader sees. This is a placeholder: it shows that the parts work together.

import { tfxformer } from "./client.js";

const [text, output, status] = document.querySelectorAll("#text, #translation, #status");
let stop = new AbortController();
async function show() {
  stop.abort();
  stop = new AbortController();
  const { signal } = stop;
  try {
    const onEvent = ({ translation }) => (output.value = translation);
    const found = await tfxformer.translate(text.value, { onEvent, signal });
    output.value = found.translation;
    status.textContent = found.tokens.join(" ");
  } catch (error) {
    if (!signal.aborted) status.textContent = error.message;
  }
}
text.addEventListener("input", show);
show();
