"""OPUS-MT models answer as in `transformers`, whose answers `marian/make.py` keeps."""

import functools
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import h5py
import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from numpy.testing import assert_allclose
from safetensors.numpy import load_file, save_file

from tfxformer import DecodingOptions, Translator
from tfxformer.decoding import decode
from tfxformer.errors import UserError
from tfxformer.exporting import ctranslate2
from tfxformer.exporting.marian import import_marian
from tfxformer.repository import read_metadata
from tfxformer.special_tokens import END_ID, PAD_ID, START_ID
from tfxformer.tokenizer import encode_source
from tfxformer.training.run import Run

MODELS = Path(__file__).parents[1] / "marian"
LANGUAGES = {"shared": None, "separate": None, "two_targets": "por"}


class Theirs:
    """The answers of `transformers` to 50 texts, with ids in the order of ours."""

    def __init__(self, name):
        self.ours = import_marian(MODELS / name, LANGUAGES[name])
        self.rows = json.loads((MODELS / name / "answers.json").read_text("utf-8"))
        self.arrays = np.load(MODELS / name / "answers.npz")
        files = "vocab.json", f"{'target_' * (name == 'separate')}vocab.json"
        self.numbers = []
        for file, side in zip(files, self.ours.tokenizer.sides, strict=True):
            vocabulary = json.loads((MODELS / name / file).read_text("utf-8"))
            ids = map(side.processor.piece_to_id, vocabulary)
            self.numbers.append(dict(zip(vocabulary.values(), ids, strict=True)))

    def texts(self, column="text"):
        """The texts that are not empty: the exported contract answers "" with ""."""
        return [row[column] for row in self.rows if row["text"].strip()]

    def ids(self, column, side):
        return [[self.numbers[side][i] for i in ids] for ids in self.texts(column)]


@functools.cache
def load(name):
    return Theirs(name)


@pytest.fixture(params=LANGUAGES)
def theirs(request):
    return load(request.param)


def test_a_marian_import_has_the_token_ids_of_transformers(theirs):
    for side, tokenizer in enumerate(theirs.ours.tokenizer.sides):
        texts = theirs.texts(("text", "english")[side])
        expected = theirs.ids(("source", "target")[side], side)
        assert {row.pop() for row in expected} == {END_ID}
        assert tokenizer.encode(texts) == expected
        assert tokenizer.tokenize(texts).to_list() == expected


def test_a_marian_tokenizer_looks_up_unknown_text_in_the_vocabulary_as_one_token():
    """As `transformers`: "Nã" is not in the vocabulary, "ã" is."""
    target = load("shared").ours.tokenizer.target
    assert target.tokens(target.encode(["Não"])[0]) == ["▁", "<unk>", "o"]
    assert target.tokens(target.encode(["ão"])[0]) == ["▁", "ã", "o"]


def test_a_marian_import_has_the_hidden_states_and_logits_of_transformers(theirs):
    model = theirs.ours.transformer
    depth = model.config["d_model"]
    for number in range(4):
        source = np.array([theirs.ids("source", 0)[number]])
        encoded = model.encoder(source)[0].numpy().reshape(-1, depth // 2, 2)
        # Ours alternates the halves of theirs.
        encoded = np.swapaxes(encoded, 1, 2).reshape(-1, depth)
        assert_allclose(encoded, theirs.arrays[f"encoded_{number}"], atol=1e-4)
        target = np.array([[START_ID, *theirs.ids("greedy", 1)[number][:7]]])
        logits = model((source, target))[0].numpy()
        order = [theirs.numbers[1][i] for i in range(len(theirs.numbers[1]))]
        expected = theirs.arrays[f"logits_{number}"]
        assert (logits[:, [PAD_ID, START_ID]] < -9e3).all()  # they are never written
        kept = [*map(PAD_ID.__ne__, order)]
        found = logits[: len(expected), order]
        assert_allclose(found[:, kept], expected[:, kept], atol=1e-4)


def test_a_marian_import_gives_the_greedy_translations_of_transformers(theirs):
    found, _ = theirs.ours.translate(theirs.texts(), split_sentences=False)
    assert found == theirs.texts("translation")


@pytest.mark.slow
def test_beams_of_a_marian_import_score_at_least_like_those_of_transformers(theirs):
    ours, scores = theirs.ours, theirs.texts("beam_score")
    source = encode_source(ours.tokenizer, theirs.texts())
    expected = theirs.ids("beam", 1)
    for row, ids, score in zip(source, expected, scores, strict=True):
        target = np.array([[START_ID, *ids[:-1]]])
        logits = ours.transformer((row[None], target))[0].numpy()
        rest = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
        assert np.mean(rest[range(len(ids)), ids]) == pytest.approx(score, abs=1e-4)
    # Ours keeps a place for the greedy hypothesis: their beam of 4 is less than our 5.
    for beam, least in ((4, -0.02), (5, 0.0)):
        found = decode(ours.transformer, source, DecodingOptions(beam_size=beam))
        assert np.mean(found.score[:, 0] - scores) > least
        own = [np.trim_zeros(ids[0]).tolist() for ids in found.ids.numpy()]
        assert sum(map(list.__eq__, own, expected)) > len(expected) / 2


def test_a_language_token_is_the_prefix_of_a_text_and_an_empty_text_has_no_token():
    translator = load("two_targets").ours
    assert translator(["", " "]) == ["", " "]
    ids = translator.tokenizer.encode(["Ana"])[0]
    assert translator.tokenizer.tokens(ids[:1]) == [">>por<<"]
    counted = translator.answers("count", {"text": ["", "Ana"]})["tokens"].tolist()
    assert counted == [0, len(ids)]


# --- Token ids ---


def marian_ids(folder, side, text):
    """The ids of `transformers`' MarianTokenizer, by its rules."""
    model = sentencepiece.SentencePieceProcessor(str(folder / f"{side}.spm"))
    ids = json.loads((folder / "vocab.json").read_text("utf-8"))
    tokens = []
    for part in re.split("(</s>|<unk>|<pad>)", text):
        if part in ("</s>", "<unk>", "<pad>"):
            tokens.append(part)
            continue
        if part.startswith(">>") and "<<" in part:
            code, part = part.split("<<", 1)
            tokens.append(f"{code}<<")
        tokens += model.encode(part, out_type=str)
    return [ids.get(token, ids["<unk>"]) for token in tokens]


# In the place of other tokens, so that there are as many.
LISTED = ["<s>", "\u4f60\u597d", "\U0001f600", "N\u00c3", "\u00ad"]
ODD = [
    "a\u00adb",
    "a\u200bb",
    "a\x00b\x1f",
    "\u4f60\u597d \u4f60\u597d\u5417",
    "\U0001f600!",
]
ODD += ["a</s>b", "</s>", "<pad>a <unk>", "<s>a</s>", "N\u00c3O", "\ufb01m", "x\u2028y"]
ODD += [
    ">>fra<<a",
    ">>fra<<",
    " >>fra<< a",
    "a >>fra<<",
    ">>deu<< a",
    ">>a",
    "<<>>fra<<",
]
ODD += [
    "</s>>>fra<<b",
    ">>fra<<>>por<<a",
    ">>fra<< </s><<",
    "\u2581a",
    "  a  b ",
    "<0x41>",
]


@pytest.fixture(scope="module")
def listed(tmp_path_factory):
    """A model whose vocabulary has tokens that SentencePiece has not."""
    folder = tmp_path_factory.mktemp("listed") / "two_targets"
    shutil.copytree(MODELS / "two_targets", folder)
    vocabulary = json.loads((folder / "vocab.json").read_text("utf-8"))
    replaced = dict(zip(filter(str.isalpha, vocabulary), LISTED, strict=False))
    vocabulary = {replaced.get(x, x): number for x, number in vocabulary.items()}
    (folder / "vocab.json").write_text(json.dumps(vocabulary), "utf-8")
    return folder, vocabulary, import_marian(folder)


@pytest.mark.parametrize("side", ["source", "target"])
def test_odd_texts_have_the_token_ids_of_marians_tokenizer(listed, side):
    folder, vocabulary, translator = listed
    tokenizer = translator.tokenizer.sides[side == "target"]
    texts = ODD
    if side == "source":  # each names its language
        texts = [text if tokenizer.language(text) else f">>por<<{text}" for text in ODD]
    found = tokenizer.encode(texts)
    assert tokenizer.tokenize(texts).to_list() == found
    for text, ids in zip(texts, found, strict=True):
        names = [x.removeprefix("\u2581\ufdd0") for x in tokenizer.tokens(ids)]
        expected = marian_ids(folder, side, text)
        assert [vocabulary[name] for name in names] == expected, text


def test_a_model_of_several_languages_serves_each_that_a_text_begins_with(listed):
    """Without a default, a text that names none is refused."""
    *_, translator = listed
    text = "O gato bebe. A Ana dorme."
    parts = translator.parts(f">>por<< {text}")
    assert parts == [" ", ">>por<<O gato bebe.", " ", ">>por<<A Ana dorme.", ""]
    assert translator(["", f">>fra<< {text}"]) != translator(["", f">>por<< {text}"])
    choose = (
        "'O gato bebe.*must begin with a language to write, such as >>fra<<, >>por<<"
    )
    with pytest.raises(UserError, match=choose):
        translator(text)
    with pytest.raises(tf.errors.InvalidArgumentError, match=choose[14:]):
        translator.answers("translate", {"text": [f">>por<<{text}", text]})


# --- Files of weights ---


def in_parts(folder):
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    index = {name: f"model-0000{len(name) % 2}.safetensors" for name in weights}
    for file in {*index.values()}:
        part = {name: x for name, x in weights.items() if index[name] == file}
        save_file(part, folder / file)
    content = json.dumps({"weight_map": index})
    (folder / "model.safetensors.index.json").write_text(content, "utf-8")


def in_float16(folder):
    weights = load_file(folder / "model.safetensors")
    half = {name: x.astype("float16") for name, x in weights.items()}
    save_file(half, folder / "model.safetensors")


def for_pytorch(zipped):
    def apply(folder):
        torch = pytest.importorskip("torch")
        file = folder / "model.safetensors"
        weights = {name: torch.tensor(x) for name, x in load_file(file).items()}
        target = folder / "pytorch_model.bin"
        torch.save(weights, target, _use_new_zipfile_serialization=zipped)
        file.unlink()

    return apply


@pytest.mark.parametrize(
    ("change", "tolerance"),
    [
        (in_parts, 0),
        (in_float16, 1e-3),
        (for_pytorch(True), 0),
        (for_pytorch(False), 0),
    ],
    ids=["in parts", "float16", "PyTorch", "old PyTorch"],
)
def test_a_marian_import_reads_every_file_of_weights(change, tolerance, tmp_path):
    folder = shutil.copytree(MODELS / "shared", tmp_path / "shared")
    change(folder)
    expected = load("shared").ours.transformer.get_weights()
    found = import_marian(folder).transformer.get_weights()
    for ours, theirs in zip(found, expected, strict=True):
        assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


def without_bias(folder):
    with h5py.File(folder / "tf_model.h5", "a") as opened:
        del opened["final_logits_bias"]


def test_an_old_file_of_tensorflow_has_no_bias_and_says_so(tmp_path, caplog):
    folder = shutil.copytree(MODELS / "two_targets", tmp_path / "two_targets")
    without_bias(folder)
    bias = import_marian(folder, "por").transformer.output_bias.numpy()
    assert not bias[END_ID:-2].any()
    assert "tf_model.h5: has no final_logits_bias: it counts as 0" in caplog.text


def test_an_old_file_of_tensorflow_gives_way_to_pytorchs(tmp_path):
    """Where PyTorch is missing, the error names its extra."""
    folder = shutil.copytree(MODELS / "two_targets", tmp_path / "two_targets")
    without_bias(folder)
    (folder / "pytorch_model.bin").write_bytes(b"cut off")
    with pytest.raises(UserError, match=r"pytorch_model.bin: (damaged|.*\[opus-bin\])"):
        import_marian(folder, "por")


def test_ctranslate2_scores_translations_like_the_marian_import(theirs, tmp_path):
    ours = theirs.ours
    spec = ctranslate2.specification(ours.tokenizer, ours.transformer)
    spec.save(str(tmp_path))
    texts = theirs.texts()[:20]
    assert "20 translations like" in ctranslate2.prove(tmp_path, ours, texts)


# --- The command ---


@pytest.mark.slow
def test_a_marian_import_serves_exports_to_ctranslate2_and_fine_tunes(
    command, tmp_path
):
    folder, out = MODELS / "two_targets", tmp_path / "export"
    options = ["--target-language", "por", "--beam", 4, "--precision", "float16"]
    printed, said, code = command("import", folder, "--to", out, *options)
    assert (printed, code) == (f"{out}/two_targets/1\n", 0), said
    assert "SERVES" in said and "has beam 4 and length penalty 1;" in said
    model = out / "two_targets" / "1"
    metadata = read_metadata(model)
    assert metadata["decoding"]["translate"] == {"method": "beam", "beam_size": 4}
    expected = {"source": "two_targets", "license": "cc-by-4.0"}
    expected |= {"languages": ["pt", "en"], "target_languages": ["fra", "por"]}
    assert metadata["origin"] == expected | {"target_language": "por"}
    opened = Translator.load(model)
    assert opened.tokenizer.digest == load("two_targets").ours.tokenizer.digest
    texts = load("two_targets").texts()[:10]
    printed, said, code = command("translate", "--model", model, *texts)
    assert (printed.splitlines(), code) == (opened(texts), 0), said

    ct2 = ["--format", "ctranslate2", "--to", tmp_path, "--name", "ct2"]
    printed, said, code = command("export", "--run", model, *ct2)
    assert code == 0, said
    files = {"tokenizer.model", "tokenizer.target.model"}
    assert files <= {path.name for path in (tmp_path / "ct2" / "1").iterdir()}

    pairs, run = tmp_path / "pairs.tsv", Run(tmp_path / "run")
    lines = [f"O gato tem {n} anos.\tThe cat is {n} years old.\n" for n in range(60)]
    pairs.write_text("".join(lines), "utf-8")
    train = ["train", "--from", model, "--data", pairs, "--out", run.path]
    printed, said, code = command(*train, "--steps", 2)
    assert code == 0, said
    tokenizer, transformer = run.load()
    assert tokenizer.digest == opened.tokenizer.digest
    assert transformer.config == opened.transformer.config


@pytest.mark.slow
def test_import_from_the_hub_downloads_safetensors_and_no_pytorch_weights(tmp_path):
    """A server on this machine stands in for the hub."""
    asked, name = [], "Helsinki-NLP/opus-mt-pt-en"

    class Hub(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            file = MODELS / "shared" / self.path.rpartition("/")[2]
            names = [x.name for x in (MODELS / "shared").iterdir()]
            names.append("pytorch_model.bin")
            found = {"id": name, "sha": "0" * 40, "private": False}
            found["siblings"] = [{"rfilename": x} for x in names]
            tree = [{"type": "file", "path": x, "size": 1, "oid": x} for x in names]
            body = json.dumps(tree if "/tree/" in self.path else found).encode()
            body = file.read_bytes() if "/resolve/" in self.path else body
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("ETag", f'"{file.name}"')
            self.send_header("X-Repo-Commit", "0" * 40)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    env = os.environ | {"HF_HOME": str(tmp_path / "hub"), "HF_HUB_DISABLE_XET": "1"}
    env["HF_ENDPOINT"] = f"http://127.0.0.1:{server.server_port}"
    run = [sys.executable, "-m", "tfxformer.cli", "import", "--from-hub", name]
    run += ["--to", str(tmp_path)]
    done = subprocess.run(run, env=env, capture_output=True, text=True)
    server.shutdown()
    assert done.stdout == f"{tmp_path}/opus-mt-pt-en/1\n", done.stderr
    assert read_metadata(done.stdout.strip())["origin"]["source"] == name
    assert any(path.endswith("model.safetensors") for path in asked)
    assert not any("pytorch_model.bin" in path for path in asked)


def changed(name, change):
    """A change of a JSON file in a folder."""

    def apply(folder):
        content = json.loads((folder / name).read_text("utf-8"))
        change(content)
        (folder / name).write_text(json.dumps(content), "utf-8")

    return apply


def setting(**values):
    return changed("config.json", lambda config: config.update(values))


def cut(folder):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:9000])


def without(name):
    return lambda folder: (folder / name).unlink()


def copied(source, target):
    return lambda folder: shutil.copy(MODELS / source, folder / target)


def together(*changes):
    return lambda folder: [change(folder) for change in changes]


def tensors(change):
    """A change of the weights, a dict of arrays by name."""

    def apply(folder):
        weights = load_file(folder / "model.safetensors")
        change(weights)
        weights = {name: np.ascontiguousarray(x) for name, x in weights.items()}
        save_file(weights, folder / "model.safetensors")

    return apply


def tensor(name, change):
    return tensors(lambda weights: weights.update({name: change(weights[name])}))


def written(name, content):
    return lambda folder: (folder / name).write_text(content, "utf-8")


SHARED, FC1 = "model.shared.weight", "model.encoder.layers.0.fc1.weight"
BAD = {
    "no config": (without("config.json"), r"config.json: No such file"),
    "no tokens": (without("source.spm"), r"source.spm: No such file"),
    "no weights": (
        without("model.safetensors"),
        r"must have one of model.safetensors, ",
    ),
    "cut weights": (cut, r"model.safetensors: damaged: "),
    "other weights": (
        copied("separate/model.safetensors", "model.safetensors"),
        r"model.safetensors: cut off, or another model's .*: \S+ has shape \(220",
    ),
    "fewer layers": (setting(decoder_layers=1), r"it also has model.decoder.layers.1."),
    "more layers": (
        setting(encoder_layers=3),
        r"encoder.layers.2.self_attn.q_proj.weight is",
    ),
    "another size": (
        setting(encoder_ffn_dim=9),
        r"decoder_ffn_dim = 32: must be enc",
    ),
    "another model": (
        setting(model_type="bart"),
        r"model_type = 'bart': must be",
    ),
    "pre-norm": (
        setting(normalize_before=True),
        r"normalize_before = True: must",
    ),
    "no scaling": (
        setting(scale_embedding=False),
        r"scale_embedding = False: must",
    ),
    "gelu": (
        setting(activation_function="gelu"),
        r"function = 'gelu': must be 'relu'",
    ),
    "no size": (
        changed("config.json", lambda config: config.pop("d_model")),
        r"config.json: d_model: is missing",
    ),
    "not JSON": (copied("shared/source.spm", "config.json"), r"config.json: damaged: "),
    "ids with a gap": (
        changed("vocab.json", lambda tokens: tokens.pop(".")),
        r"vocab.json: its 383 ids are not 0, 1, 2",
    ),
    "not SentencePiece": (
        copied("shared/vocab.json", "source.spm"),
        r"source.spm: not a SentencePiece model",
    ),
    "no end token": (
        changed("vocab.json", lambda tokens: tokens.update(end=tokens.pop("</s>"))),
        r"vocab.json: '</s>' is missing",
    ),
    "a list": (written("config.json", "[1]"), r"config.json: must be a JSON object, n"),
    "a list of tokens": (
        written("vocab.json", "[1]"),
        r"vocab.json: must be a JSON",
    ),
    "deep JSON": (written("config.json", "[" * 99999), r"config.json: damaged: "),
    "a broken search": (
        written("generation_config.json", "{"),
        r"generation_config.json: damaged: ",
    ),
    "a size in words": (setting(d_model="16"), r"d_model = '16': must be a valid int"),
    "a truth": (
        setting(encoder_layers=True),
        r"encoder_layers = True: must not be",
    ),
    "a fraction": (setting(d_model=16.5), r"d_model = 16.5: must be a valid integer"),
    "no heads": (
        setting(encoder_attention_heads=0),
        r"encoder_attention_heads = 0: ",
    ),
    "three heads": (
        setting(encoder_attention_heads=3, decoder_attention_heads=3),
        r"config.json: encoder_attention_heads = 3: must divide d_model, 16",
    ),
    "another d_model": (
        setting(d_model=32),
        r"model.safetensors: .*: \S+ has shape \(\d+, 16\), not \(\d+, 32\)",
    ),
    "another end": (
        setting(eos_token_id=5),
        r"config.json: eos_token_id = 5: must be 0",
    ),
    "another end in a search": (
        written("generation_config.json", '{"eos_token_id": 7}'),
        r"generation_config.json: eos_token_id = 7: must be 0, by vocab.json",
    ),
    "another padding": (
        setting(pad_token_id=9, bad_words_ids=None),
        r"token_id = 9: must",
    ),
    "a start too high": (setting(decoder_start_token_id=384), r"start_token_id = 384"),
    "another size of vocabulary": (
        setting(vocab_size=383),
        r"config.json: vocab_size = 383: must be 384, by vocab.json",
    ),
    "a first token": (
        setting(forced_bos_token_id=0),
        r"forced_bos_token_id = 0: must",
    ),
    "a least length": (setting(min_length=5), r"config.json: min_length = 5: changes "),
    "words that are bad": (
        setting(bad_words_ids=[[5]]),
        r"bad_words_ids = \[\[5\]\]: ",
    ),
    "no n-grams": (
        written("generation_config.json", '{"no_repeat_ngram_size": 3}'),
        r"generation_config.json: no_repeat_ngram_size = 3: changes the translation",
    ),
    "a beam in words": (
        setting(num_beams="six"),
        r"num_beams = 'six': must be a v",
    ),
    "numbers as words": (
        changed("vocab.json", lambda tokens: tokens.update({".": "7"})),
        r"vocab.json: its 384 ids are not 0, 1, 2",
    ),
    "one model for both": (
        copied("shared/source.spm", "target.spm"),
        r"target.spm: it is source.spm again, but \d+ tokens of vocab.json are not in",
    ),
    "int8": (tensor(FC1, lambda x: x.astype("int8")), rf"{FC1} is int8; give"),
    "not a number": (tensor(FC1, lambda x: x * np.nan), rf"damaged: {FC1} has NaN"),
    "another shape": (tensor(FC1, lambda x: x[0]), rf"{FC1} has shape \(16,\), not"),
    "another output": (
        tensors(lambda x: x.update({"lm_head.weight": x[SHARED] + 1})),
        r"model.shared.weight differs from lm_head.weight",
    ),
    "another embedding": (
        tensors(
            lambda weights: weights.update(
                {"model.decoder.embed_tokens.weight": weights[SHARED] * 2}
            )
        ),
        r"model.shared.weight differs from model.decoder.embed_tokens.weight",
    ),
    "other positions": (
        tensors(
            lambda weights: weights.update(
                {"model.encoder.embed_positions.weight": np.ones((256, 16), "float32")}
            )
        ),
        r"model.encoder.embed_positions.weight has other values than sines",
    ),
    "another vocabulary": (
        together(
            copied("separate/target_vocab.json", "vocab.json"),
            copied("separate/config.json", "config.json"),
            setting(share_encoder_decoder_embeddings=True),
        ),
        r"source.spm: another model's: \d+ of its \d+ tokens are not in vocab.json",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_wrong_marian_folder_raises_a_one_line_error_with_its_path(name, tmp_path):
    change, message = BAD[name]
    folder = shutil.copytree(MODELS / "shared", tmp_path / "shared")
    change(folder)
    with pytest.raises(UserError, match=message) as caught:
        import_marian(folder)
    assert str(caught.value).startswith(str(folder)) and "\n" not in str(caught.value)


def test_settings_that_change_no_translation_are_accepted(tmp_path):
    folder = shutil.copytree(MODELS / "shared", tmp_path / "shared")
    harmless = {"renormalize_logits": True, "early_stopping": True, "author": "Ana"}
    harmless |= {"output_past": True, "task_specific_params": {"a": {"num_beams": 9}}}
    harmless |= {"forced_bos_token_id": None, "min_length": 0, "unk_token_id": 1}
    harmless |= {"transformers.js_config": {"dtype": "q8"}, "bad_words_ids": []}
    setting(**harmless)(folder)
    search = {"bad_words_ids": None, "min_length": 1, "repetition_penalty": 1.0}
    written("generation_config.json", json.dumps(search))(folder)
    written("README.md", "---\nlanguage: no\n---\n")(folder)
    imported = import_marian(folder)
    assert imported.tokenizer.digest == load("shared").ours.tokenizer.digest
    assert imported.origin["languages"] == "no"


CHOOSE = "choose --target-language from "


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("", "give a model's folder, or its name with --from-hub"),
        ("two_targets --target-language deu", f"{CHOOSE}fra, por"),
        ("shared --target-language deu", f"{CHOOSE}none: the model writes one"),
    ],
)
def test_import_refuses_a_missing_model_or_target_language_in_one_line(
    command, args, message, tmp_path, monkeypatch
):
    monkeypatch.chdir(MODELS)
    args = [*args.split(), "--to", tmp_path / "export"]
    printed, said, code = command("import", *args)
    assert (printed, code) == ("", 1) and message in said.splitlines()[-1]
    assert not (tmp_path / "export").exists()
