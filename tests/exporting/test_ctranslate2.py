"""The export for CTranslate2 gives the same translations as our decoding."""

import json

import ctranslate2
import numpy as np
import oracle
import pytest
import sentencepiece

from tfxformer import Tokenizer
from tfxformer.decoding import decode
from tfxformer.errors import UserError
from tfxformer.exporting import ctranslate2 as exporting
from tfxformer.exporting.ctranslate2 import prove, specification
from tfxformer.exporting.saved_model import PROBES, export
from tfxformer.special_tokens import END_ID, PAD_ID
from tfxformer.translator import Translator

VARIANTS = {
    "post, learned": {"norm": "post", "learned_positions": True},
    "pre, tied": {"norm": "pre", "tie_embeddings": True, "learned_positions": True},
    # An odd width, one wide head, an odd hidden layer, a deeper encoder.
    "odd": {"num_decoder_layers": 1, "d_model": 15, "num_heads": 1, "dff": 7},
}
FILES = {"config.json", "model.bin", "shared_vocabulary.json", "tokenizer.model"}


@pytest.fixture(scope="module", params=VARIANTS)
def pair(request, tmp_path_factory):
    """A `Translator` with random weights, and CTranslate2's engine with the same."""
    tokenizer = Tokenizer.train(["o gato bebe leite", "a casa é azul"] * 50, 300)
    size = tokenizer.vocab_size
    vocabularies = {"input_vocab_size": size, "target_vocab_size": size}
    variant = VARIANTS[request.param]
    transformer = oracle.tiny_transformer(max_length=20, **vocabularies, **variant)
    # Forbidden tokens are the most probable, and some sentences end.
    if transformer.final_layer is not None:
        weight, values = transformer.final_layer.bias, [9, 9, 9, 2]
    else:
        weight = transformer.encoder.pos_embedding.embedding.embeddings
        values = np.array(weight)[: END_ID + 1] * [[20], [20], [20], [2]]
    weight.assign(np.concatenate([values, np.array(weight)[END_ID + 1 :]]))
    folder = tmp_path_factory.mktemp("ctranslate2")
    specification(tokenizer, transformer).save(str(folder))
    engine = ctranslate2.Translator(str(folder), intra_threads=1)
    translator = Translator(tokenizer, transformer)
    assert "7 translations like the run" in prove(folder, translator, PROBES)
    return translator, engine


def test_ctranslate2_gives_the_same_greedy_translations(pair):
    translator, engine = pair
    tokens, size = translator.tokenizer.tokens, translator.tokenizer.vocab_size
    rng = np.random.default_rng(0)
    # No tokens, one, several, and more than the model can read.
    lengths = [0, 1, 19, 20, 60, *range(2, 14)]
    ids = [rng.integers(END_ID + 1, size, n).tolist() for n in lengths]
    source = np.full((len(ids), 20), PAD_ID, "int32")
    for row, sentence in zip(source, ids, strict=True):
        row[: len(sentence) + 1] = [*sentence[:19], END_ID]
    decoded = decode(translator.transformer, source).ids[:, 0].numpy()
    ours = [tokens(row[row > END_ID]) for row in decoded]
    lengths = {"max_input_length": 20, "max_decoding_length": 20}
    lengths["min_decoding_length"] = 0
    rows = [*map(tokens, ids)]
    results = engine.translate_batch(rows, beam_size=1, **lengths)
    limits = [min(2 * (len(row) + 1) + 10, 20) for row in ids]
    theirs = [x.hypotheses[0][:n] for x, n in zip(results, limits, strict=True)]
    assert theirs == ours
    assert theirs[0] == [] and len({tuple(line) for line in theirs}) >= 3
    # Padding, unknown and start are the most probable, but are never written.
    beam = engine.translate_batch(rows[5:], beam_size=4, max_decoding_length=20)
    written = {token for result in beam for token in result.hypotheses[0]}
    assert written and not written & {*tokens(range(END_ID))}


# --- The command ---


@pytest.fixture(scope="module")
def folder(run_folder, tmp_path_factory):
    """The export of the shared run."""
    to = tmp_path_factory.mktemp("to")
    return export(run_folder, to, "toy", format="ctranslate2")[0]


def test_a_ctranslate2_export_translates_without_tfxformer(folder, translator):
    """Uses the code of docs/export.md."""
    assert {file.name for file in folder.iterdir()} == FILES
    texts = ["", "O gato bebe leite.", "Onde está a chave?", "😀 Olá", "não " * 99]
    longest = json.loads((folder / "config.json").read_text())["max_length"]
    model_file = str(folder / "tokenizer.model")
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=model_file)
    engine = ctranslate2.Translator(str(folder), intra_threads=1)
    source = tokenizer.encode(texts, out_type=str)
    limits = [min(2 * len(tokens) + 12, longest) for tokens in source]
    lengths = {"max_input_length": longest, "max_decoding_length": max(limits)}
    lengths["min_decoding_length"] = 0
    results = engine.translate_batch(source, beam_size=1, **lengths)
    translations = [
        tokenizer.decode(result.hypotheses[0][:limit])
        for result, limit in zip(results, limits, strict=True)
    ]
    ours = translator.answers("translate", {"text": texts})["translation"]
    assert translations == [translation.decode() for translation in ours]


def test_export_to_ctranslate2_prints_the_folder_of_the_next_version(
    command, folder, run_folder
):
    args = ["--run", run_folder, "--to", folder.parents[1], "--name", "toy"]
    out, err, code = command("export", *args, "--format", "ctranslate2")
    assert (out, code) == (f"{folder.parent / '2'}\n", 0), err
    assert "7 translations like the run" in err


def test_a_ctranslate2_export_with_other_scores_is_not_published(
    run_folder, tmp_path, monkeypatch
):
    def wrong(*args):  # too little to change a word
        spec = specification(*args)
        spec.encoder.layer[0].self_attention.layer_norm.beta.array[:] += 0.003
        return spec

    monkeypatch.setattr(exporting, "specification", wrong)
    with pytest.raises(UserError, match="log-probabilities of the same tokens differ"):
        export(run_folder, tmp_path, "toy", format="ctranslate2")
    assert list((tmp_path / "toy").iterdir()) == []


# --- Errors ---


def test_ctranslate2_refuses_a_savedmodel_folder_and_a_model_without_positions(
    run_folder, exported, translator
):
    to, name = exported.parents[1], exported.parent.name
    with pytest.raises(UserError, match="holds SavedModels"):
        export(run_folder, to, name, format="ctranslate2")
    model = oracle.tiny_transformer(use_positions=False)
    with pytest.raises(UserError, match="use_positions=False"):
        specification(translator.tokenizer, model)
