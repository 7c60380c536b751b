"""Compares imports of small Marian models with `transformers`.

    python benchmarks/marian.py --transformers VENV/bin/python [--models NAME ...]

VENV has the packages of `requirements-transformers.txt`, and `h5py`. `transformers`
makes each model of `MODELS` with random weights and answers; then each is imported,
exported, and loaded in a TensorFlow session. A column counts what is equal.
"""

import argparse
import gzip
import json
import os
import random
import subprocess
import tempfile
import time
import unicodedata
from collections import Counter
from pathlib import Path

import numpy as np
from turns import HERE

os.environ["CUDA_VISIBLE_DEVICES"] = ""

from tfxformer.console import start_tensorflow

start_tensorflow()

import tensorflow as tf  # noqa: E402

from tfxformer import DecodingOptions  # noqa: E402
from tfxformer.decoding import decode  # noqa: E402
from tfxformer.decoding.beam import BeamSearch  # noqa: E402
from tfxformer.exporting.marian import import_marian  # noqa: E402
from tfxformer.exporting.saved_model import export  # noqa: E402
from tfxformer.special_tokens import END_ID, START_ID  # noqa: E402
from tfxformer.tokenizer import SPELT, encode_source  # noqa: E402

PHRASEBOOK = HERE.parent / "tfxformer/corpora/data/phrasebook.tsv.gz"
SIZES = {"small": (16, 1, 16), "heads": (48, 8, 96), "wide": (64, 2, 32)}
HARMLESS = {
    "early_stopping": True,
    "output_past": True,
    "task_specific_params": {"translation": {"num_beams": 3}},
    "min_length": 0,
    "unk_token_id": 1,
    "author": "someone",
    "transformers.js_config": {"dtype": "q8"},
    "forced_bos_token_id": None,
    "renormalize_logits": True,
}
SYMBOLS = [f">>l{number:02}<<" for number in range(229)]
MODELS = {
    "plain": {},
    **{
        name: {
            "config": {
                "d_model": d_model,
                "encoder_attention_heads": heads,
                "encoder_ffn_dim": dff,
            }
        }
        for name, (d_model, heads, dff) in SIZES.items()
    },
    "odd_d_model": {"config": {"d_model": 15, "encoder_attention_heads": 3}},
    "deep": {"config": {"encoder_layers": 4, "decoder_layers": 3}},
    "shallow_decoder": {"config": {"encoder_layers": 3, "decoder_layers": 1}},
    "relu": {"config": {"activation_function": "relu"}},
    "silu": {"config": {"activation_function": "silu"}},
    "short": {"config": {"max_position_embeddings": 48}},
    "long": {"config": {"max_position_embeddings": 1024}},
    "separate": {"separate": True},
    "separate_surfaces": {"separate": True, "surfaces": True},
    "separate_relu_bin": {
        "separate": True,
        "config": {"activation_function": "relu"},
        "weights": "bin",
    },
    "joint_spm": {"joint": True},
    "identity": {"spm": {"normalization_rule_name": "identity"}},
    "nfkc": {"spm": {"normalization_rule_name": "nfkc"}},
    "lower_case": {"spm": {"normalization_rule_name": "nmt_nfkc_cf"}},
    "start_token": {"start_token": 1},
    "starts_with_s": {"start_token": 2},
    "shuffled": {"shuffled": True, "surfaces": True},
    "surfaces": {"surfaces": True},
    "lacking": {"lacking": 3, "surfaces": True},
    "symbols": {"spm": {"user_defined_symbols": SYMBOLS, "vocab_size": 460}},
    "symbols_not_listed": {
        "spm": {"user_defined_symbols": ["<sep>", "@@", "▁x▁"], "vocab_size": 230},
        "lacking": 4,
    },
    "bytes": {"spm": {"byte_fallback": True, "vocab_size": 480}},
    "bytes_not_listed": {
        "spm": {"byte_fallback": True, "vocab_size": 480},
        "no_bytes": True,
    },
    "bpe": {"spm": {"model_type": "bpe"}},
    "bpe_surfaces": {"spm": {"model_type": "bpe"}, "surfaces": True, "languages": True},
    "languages": {"languages": True},
    "languages_surfaces": {"languages": True, "surfaces": True, "start_token": 1},
    "sharded": {"weights": "sharded"},
    "bin": {"weights": "bin"},
    "old_bin": {"weights": "old_bin"},
    "h5": {"weights": "h5"},
    "old_h5": {"weights": "old_h5"},
    "old_h5_and_bin": {"weights": "old_h5_and_bin"},
    "all_names": {"weights": "all_names"},
    "float16": {"weights": "float16"},
    "bfloat16": {"weights": "bfloat16"},
    "harmless_keys": {"config.json": HARMLESS | {"bad_words_ids": []}},
    "generation_config": {
        "generation_config.json": HARMLESS | {"bad_words_ids": "pad", "num_beams": 6}
    },
}
ODD = ["</s>", "<unk>", "<pad>", "<s>", ">>por<<", ">>fra<<", ">>xx<<", ">>", "<<"]
ODD += ["\u00ad", "\u200b", "\ufeff", "\u2060", "\u200d", "\u0301", "\u3000", "\u00a0"]
ODD += ["你好", "😀", "مرحبا", "мир", "ﬁ", "Ω", "½", "①", "▁", "\t", "\n", "\x00"]
ODD += ["casa", "O gato", " ", "  ", ".", "É", "\u2028", "\x85", "<0x41>", ">>l07<<"]
ODD += ["<sep>", "@@", "\ufffd", "\U000e0001", "\u202e", "e\u0301", "Ａ", "ﷺ", "한국"]
# What changes the cutting of texts; other models compare fewer of them.
CUTTING = {"spm", "surfaces", "languages", "lacking", "joint", "start_token"}
CUTTING |= {"shuffled"}


def make_texts(pairs, count):
    """Phrases, phrases with odd parts, and Unicode by chance; each list is seeded."""
    chance = random.Random(0)
    sources = [source for source, _ in pairs]
    texts = sources[:: len(sources) // (count // 2) + 1]
    while len(texts) < count:
        words = chance.choice(sources).split()
        kind = len(texts) % 3
        if kind == 0:  # a phrase with odd parts
            for _ in range(chance.randint(1, 3)):
                words.insert(chance.randint(0, len(words)), chance.choice(ODD))
            texts.append(chance.choice(["", " "]).join(words))
        elif kind == 1:  # odd parts alone
            parts = chance.choices(ODD, k=chance.randint(1, 6))
            texts.append("".join(parts))
        else:  # characters by chance, those that exist
            numbers = [chance.randrange(0x30000) for _ in range(12)]
            letters = [chr(x) for x in numbers if unicodedata.category(chr(x)) != "Cs"]
            texts.append(" ".join(words[:2]) + "".join(letters))
    return texts


class Session:
    """An export, loaded as TensorFlow Serving loads it."""

    def __init__(self, path):
        self.session = tf.compat.v1.Session(graph=tf.Graph())
        with self.session.graph.as_default():
            loaded = tf.compat.v1.saved_model.load(self.session, ["serve"], str(path))
        self.signatures = loaded.signature_def

    def __call__(self, name, text):
        signature = self.signatures[name]
        find = self.session.graph.get_tensor_by_name
        outputs = {key: find(x.name) for key, x in signature.outputs.items()}
        return self.session.run(outputs, {find(signature.inputs["text"].name): text})


class Comparison:
    """Counts what is equal between an import and the answers of `transformers`."""

    def __init__(self, folder, texts, out):
        self.folder = folder
        self.texts = texts
        self.out = out
        self.answers = json.loads((folder / "answers.json").read_text("utf-8"))
        vocabulary = json.loads((folder / "vocab.json").read_text("utf-8"))
        codes = sorted(x for x in vocabulary if x.startswith(">>"))
        self.language = codes[0][2:-2] if codes else None
        self.translator = import_marian(folder, self.language)
        separate = folder / "target_vocab.json"
        lists = [vocabulary, vocabulary]
        if separate.exists():
            lists[1] = json.loads(separate.read_text("utf-8"))
        self.theirs = []  # of each side, Marian's id of each of our ids
        config = json.loads((folder / "config.json").read_text("utf-8"))
        for ids, side in zip(lists, self.translator.tokenizer.sides, strict=True):
            names = side.tokens(range(side.vocab_size))
            theirs = [ids.get(name.removeprefix(f"▁{SPELT}"), -1) for name in names]
            theirs[START_ID] = config["decoder_start_token_id"]
            self.theirs.append(theirs)
        self.differ = []

    def ids(self, key, side):
        """Whether the token ids of each text are equal, in Python and in the graph."""
        texts = self.texts[{"source": "ids", "target": "target_ids"}[key]]
        texts = texts[: len(self.answers[key])]
        tokenizer = self.translator.tokenizer.sides[side]
        python, graph = tokenizer.encode(texts), tokenizer.tokenize(texts).to_list()
        equal = 0
        for text, ours, in_graph, expected in zip(
            texts, python, graph, self.answers[key], strict=True
        ):
            found = [self.theirs[side][i] for i in ours]
            if self.language and side == 0 and tokenizer.language(text) == "":
                found = found[1:]  # the default language
            same = ours == in_graph and [*found, self.theirs[side][END_ID]] == expected
            equal += same
            if not same:
                self.differ.append((key, text, found, expected))
        return f"{equal}/{len(texts)}"

    def translations(self):
        """Counts of equal greedy and beam translations; the largest differences."""
        texts, model = self.texts["translate"], self.translator.transformer
        source = encode_source(self.translator.tokenizer, texts)
        found = {"greedy": DecodingOptions(), "beam": DecodingOptions(beam_size=4)}
        row, start = {}, BeamSearch.start

        def without_greedy(search, sources):
            # Theirs keeps no place for the greedy hypothesis.
            state = start(search, sources)
            return state._replace(greedy=tf.zeros_like(state.greedy))

        BeamSearch.start = without_greedy
        for key, options in found.items():
            decoded = decode(model, source, options)
            ours = [np.trim_zeros(ids[0]) for ids in decoded.ids.numpy()]
            ours = [[self.theirs[1][i] for i in ids] for ids in ours]
            equal = [*map(list.__eq__, ours, self.answers[key])]
            row[key] = f"{sum(equal)}/{len(texts)}"
            scores = decoded.score.numpy()[:, 0]
        BeamSearch.start = start
        difference = np.abs(scores - self.answers["beam_score"])[equal]
        row["score"] = f"{difference.max(initial=0):.0e}"
        row["attention"] = f"{self.attention(source):.0e}"
        return row

    def attention(self, source):
        folded = self.translator.folded()
        arrays = np.load(self.folder / "attention.npz")
        ours = {theirs: i for i, theirs in enumerate(self.theirs[1]) if i >= END_ID}
        worst = 0.0
        for number, expected in arrays.items():
            number = int(number)
            ids = [ours[i] for i in self.answers["greedy"][number][:-1]]
            row = np.trim_zeros(source[number].numpy())[None]
            _, found = folded.forward([[START_ID, *ids]], folded.encode(row))
            worst = max(worst, np.abs(found[0].numpy() - expected).max())
        return worst

    def exported(self):
        """Exports, which verifies in a fresh process, and compares with a session."""
        texts = self.texts["translate"]
        path, _ = export(self.translator, self.out, self.folder.name)
        session = Session(path)
        found = session("translate", texts)["translation"]
        expected = self.translator.answers("translate", {"text": texts})["translation"]
        given = self.texts["ids"][: len(self.answers["source"])]
        tokens = session("tokenize", given)["ids"]
        python = self.translator.tokenizer.encode(given)
        same = [
            np.trim_zeros(ids, "b").tolist() == row
            for ids, row in zip(tokens, python, strict=True)
        ]
        equal = sum(a == b for a, b in zip(found, expected, strict=True))
        whole = "" if all(same) else f", ids {sum(same)}/{len(same)}"
        return f"{equal}/{len(texts)}{whole}"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--transformers", required=True, help="the Python of VENV")
    parser.add_argument("--models", nargs="+", default=[*MODELS])
    parser.add_argument("--texts", type=int, default=10_000)
    parser.add_argument("--no-export", action="store_true", help="import only")
    parser.add_argument("--out", type=Path, default=HERE / "marian.json")
    args = parser.parse_args()
    lines = gzip.decompress(PHRASEBOOK.read_bytes()).decode().splitlines()
    pairs = [line.split("\t")[:2] for line in lines]
    texts = {"ids": make_texts(pairs, args.texts)}
    texts["target_ids"] = make_texts([pair[::-1] for pair in pairs], args.texts // 5)
    texts["translate"] = [source for source, _ in pairs[:: len(pairs) // 32]][:32]
    sides = [list(side)[::20] for side in zip(*pairs, strict=True)]
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        cases = {"models": {}}
        for name in args.models:
            most = (
                args.texts if CUTTING & MODELS[name].keys() or name == "plain" else 200
            )
            cases["models"][name] = MODELS[name] | {"texts": most}
        cases |= {"texts": texts, "sides": sides}
        (folder / "cases.json").write_text(json.dumps(cases), "utf-8")
        worker = HERE / "workers/marian_models.py"
        make = [args.transformers, worker, folder / "models", folder / "cases.json"]
        made = subprocess.Popen(make, stdout=subprocess.PIPE, text=True)
        for name in map(str.strip, made.stdout):
            begun = time.perf_counter()
            model = folder / "models" / name
            comparison = Comparison(model, texts, folder / "export")
            row = {
                "source ids": comparison.ids("source", 0),
                "target ids": comparison.ids("target", 1),
            }
            row |= comparison.translations()
            if not args.no_export:
                row["export"] = comparison.exported()
            rows[name] = row
            print(f"| {name} | {' | '.join(row.values())} |", flush=True)
            for kind, text, found, expected in comparison.differ[:8]:
                print(f"    {kind} {text!r}\n      {found}\n      {expected}")
            print(f"    {time.perf_counter() - begun:.0f} s", flush=True)
    if made.wait():
        raise SystemExit("the worker failed")
    equal = Counter(cell for row in rows.values() for cell in row.values())
    print(f"\n{len(rows)} models; {sum(equal.values())} comparisons")
    args.out.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
