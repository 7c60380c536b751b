"""Where the time of decoding goes: op by op, in the exported model.

    python benchmarks/decoding_profile.py --model export/pt_en/1 --data TSV

Runs `serving_default` in a session, as TensorFlow Serving does, with TensorFlow's own
trace of every op, and sums the time by kind of op. Tracing slows small ops, so shares
are to be read beside the time without it; both go to decoding_profile.json. With two
threads the ops' times add up to up to twice the time that passes.
"""

import argparse
import collections
import json
import statistics
import time
from pathlib import Path

from tfxformer.quiet import start_tensorflow

start_tensorflow()

import tensorflow as tf  # noqa: E402
import tensorflow_text  # noqa: E402, F401

from tfxformer import corpora  # noqa: E402

v1 = tf.compat.v1
# What the kinds of ops are for. In the loop, but for the few that read the source.
PARTS = {
    "matrix products": [
        "MatMul",
        "_FusedMatMul",
        "_MklNativeFusedMatMul",
        "_MklMatMul",
    ],
    "attention's products": ["BatchMatMulV3", "BatchMatMulV2", "_MklBatchMatMulV2"],
    "the cache": ["ConcatV2", "Concat", "GatherV2", "Split", "SplitV"],
    "loop control": [
        *("Switch", "Merge", "Enter", "Exit", "NextIteration", "LoopCond"),
        *("While", "StatelessWhile", "Identity", "_SwitchN"),
    ],
    "tokens and text": ["SentencepieceTokenizeOp", "SentencepieceDetokenizeOp"],
}
PART_OF = {op: part for part, ops in PARTS.items() for op in ops}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="an exported version")
    parser.add_argument("--data", required=True)
    parser.add_argument("--batches", default="1,64")
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent / "decoding_profile.json"
    )
    args = parser.parse_args()
    pairs, _ = corpora.load(args.data, cleaned=False)
    texts = sorted((pair.source for pair in pairs[:256]), key=len)
    results = {}
    with v1.Session(graph=tf.Graph()) as session:
        meta = v1.saved_model.load(session, ["serve"], args.model)
        signature = meta.signature_def["translate"]
        feed = signature.inputs["text"].name
        fetches = [output.name for output in signature.outputs.values()]
        for size in map(int, args.batches.split(",")):
            middle = (len(texts) - size) // 2
            batch = texts[middle : middle + size]

            def run(batch=batch, **trace):
                return session.run(fetches, {feed: batch}, **trace)

            results[size] = profile(run)
            tell(size, results[size])
    args.out.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


def profile(run):
    for _ in range(3):
        run()
    seconds = []
    for _ in range(15):
        begun = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - begun)
    traced = v1.RunMetadata()
    run(
        options=v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE),
        run_metadata=traced,
    )
    count, micros = collections.Counter(), collections.Counter()
    for device in traced.step_stats.dev_stats:
        for node in device.node_stats:
            # "name = Kind(inputs)"
            kind = node.timeline_label.partition(" = ")[2].partition("(")[0]
            count[kind] += 1
            micros[kind] += node.op_end_rel_micros - node.op_start_rel_micros
    parts = collections.Counter()
    for kind, spent in micros.items():
        parts[PART_OF.get(kind, "all other ops")] += spent
    whole = sum(micros.values())
    return {
        "ms": round(1000 * statistics.median(seconds), 2),
        "ms_least_to_most": [round(1000 * f(seconds), 2) for f in (min, max)],
        "ops_run": sum(count.values()),
        "parts": {part: round(spent / whole, 3) for part, spent in parts.most_common()},
        "ops": {
            kind: {"share": round(spent / whole, 3), "runs": count[kind]}
            for kind, spent in micros.most_common(15)
        },
    }


def tell(size, found):
    print(f"\nbatch {size}: {found['ms']} ms, {found['ops_run']:,} ops")
    for part, share in found["parts"].items():
        print(f"  {share:6.1%}  {part}")
    for kind, row in found["ops"].items():
        print(f"    {row['share']:6.1%}  {kind} ({row['runs']:,} times)")


if __name__ == "__main__":
    main()
