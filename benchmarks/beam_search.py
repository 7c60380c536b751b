"""Compares beam search with greedy: the seconds, and how often it scores lower.

    python benchmarks/beam_search.py --data ted/test.tsv --beam 4 --n-best 4

To compare two versions of the code, run this from a checkout of each, in turn.
"""

import argparse
import statistics
import time

import numpy as np
import tensorflow as tf

from tfxformer import DecodingOptions, corpora
from tfxformer.decoding import decode
from tfxformer.repository import read_export, shipped_model
from tfxformer.tokenizer import encode_source


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="test pairs, as for evaluate")
    parser.add_argument("--sentences", type=int, default=600)
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--n-best", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    tokenizer, model = read_export(shipped_model())
    pairs = corpora.load(args.data, "test", cleaned=False)[0][: args.sentences]
    texts = sorted((pair.source for pair in pairs), key=len)
    batches = [
        encode_source(tokenizer, texts[i : i + 32], longest=model.max_length - 1)
        for i in range(0, len(texts), 32)
    ]
    ways = {
        "greedy": DecodingOptions(),
        "beam": DecodingOptions(beam_size=args.beam, n_best=args.n_best),
    }
    ways = {name: compiled(model, options) for name, options in ways.items()}
    seconds, scores = {name: [] for name in ways}, {}
    for search in ways.values():
        search(batches[0])  # traces
    for _ in range(args.rounds):
        for name, search in ways.items():
            started = time.perf_counter()
            found = [search(batch)[:, 0].numpy() for batch in batches]
            seconds[name].append(time.perf_counter() - started)
            scores[name] = np.concatenate(found)
    for name, each in seconds.items():
        spread = f"{min(each):.2f} to {max(each):.2f}"
        print(f"{name:7}{statistics.median(each):6.2f} s ({spread})", end="  ")
        print(f"mean score {scores[name].mean():.4f}")
    below = np.sum(scores["beam"] < scores["greedy"] - 1e-4)
    print(f"the beam scores below greedy in {below} of {len(texts):,}")


def compiled(model, options):
    @tf.function(
        autograph=False, input_signature=[tf.TensorSpec([None, None], tf.int32)]
    )
    def search(source):
        return decode(model, source, options).score

    return search


if __name__ == "__main__":
    main()
