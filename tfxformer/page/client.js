// The model for the page's views, and for the reader's console:
//
//   await tfxformer.translate("Bom dia!")  // { translation, ids, tokens, scores, parts }
//
// `ready` resolves once the model is loaded. Each function takes a request of worker.js
// and gives a promise of its result; `translate` also calls `onEvent` for each token that
// it writes, and stops when its AbortSignal says so.

const waiting = new Map(); // id -> { resolve, reject, onEvent }
let last = 0;

const { textContent } = document.getElementById("worker");
const script = new Blob([textContent], { type: "text/javascript" });
const worker = new Worker(URL.createObjectURL(script));

worker.onmessage = ({ data: { id, event, error, result } }) => {
  const request = waiting.get(id);
  if (event) return request?.onEvent?.(event);
  waiting.delete(id);
  if (error === undefined) request.resolve(result);
  else request.reject(Error(error));
};

// The worker's script itself failed: the browser lacks something.
worker.onerror = (event) => {
  const error = Error(`This browser cannot run the model: ${event.message}`);
  for (const { reject } of waiting.values()) reject(error);
  waiting.clear();
};

function ask(type, request, { onEvent, signal } = {}) {
  const id = ++last;
  return new Promise((resolve, reject) => {
    waiting.set(id, { resolve, reject, onEvent });
    worker.postMessage({ id, type, ...request });
    signal?.addEventListener("abort", () => worker.postMessage({ type: "cancel", request: id }));
  });
}

const read = (id) => document.getElementById(id)?.textContent ?? "";

export const tfxformer = {
  ready: ask("load", { model: JSON.parse(read("model")), weights: read("weights").trim() }),
  async translate(text, { switches, forced, source, onEvent, signal } = {}) {
    await this.ready;
    signal?.throwIfAborted();
    return ask("translate", { text, switches, forced, source }, { onEvent, signal });
  },
};
for (const type of ["tokenize", "inspect", "weights", "beam"]) {
  tfxformer[type] = async (request) => {
    await tfxformer.ready;
    return ask(type, request);
  };
}
globalThis.tfxformer = tfxformer;

// A function of `tfxformer` for a slider: one request at a time. Of those that come
// meanwhile, only the newest is asked; the others give null.
export function latest(request) {
  let [running, newest] = [Promise.resolve(), 0];
  return async (...asked) => {
    const mine = ++newest;
    await running;
    if (mine !== newest) return null;
    const answer = request(...asked);
    running = answer.catch(() => {});
    return answer;
  };
}
