"""The export for CTranslate2: its engine, with our weights, gives our answers."""

import json
import subprocess
import sys

import numpy as np
import oracle
import pytest
import sentencepiece
from numpy.testing import assert_allclose

from tfxformer import Tokenizer, cli
from tfxformer.decoding import decode
from tfxformer.errors import UserError
from tfxformer.exporting import ctranslate2 as ctranslate2_model
from tfxformer.exporting.ctranslate2 import (
    POSITIONS,
    export_ctranslate2,
    first_difference,
    prove,
    specification,
    translate_pieces,
)
from tfxformer.tokenizer import END_ID, PAD_ID
from tfxformer.translator import Translator

ctranslate2 = pytest.importorskip("ctranslate2")

MAX_LENGTH = 20
VARIANTS = {
    "post": {"norm": "post"},
    "pre": {"norm": "pre"},
    "post, tied": {"norm": "post", "tie_embeddings": True},
    "pre, tied, learned": {
        "norm": "pre",
        "tie_embeddings": True,
        "learned_positions": True,
    },
    "post, learned": {"norm": "post", "learned_positions": True},
    # One layer, an odd width, an odd hidden layer.
    "odd": {"num_layers": 1, "d_model": 15, "num_heads": 3, "dff": 7, "norm": "pre"},
    "deep encoder": {"num_layers": 3, "num_decoder_layers": 1, "tie_embeddings": True},
    "one head": {"num_heads": 1, "tie_embeddings": True},
}
FILES = {"config.json", "model.bin", "shared_vocabulary.json", "tokenizer.model"}


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(["o gato bebe leite", "a casa é azul"] * 50, vocab_size=300)


@pytest.fixture(scope="module")
def make(tokenizer, tmp_path_factory):
    """A `Translator` of random weights, and CTranslate2's engine with the same."""

    def make(**options):
        size = tokenizer.vocab_size
        sizes = {"input_vocab_size": size, "target_vocab_size": size}
        transformer = oracle.tiny_transformer(
            **{"max_length": MAX_LENGTH} | sizes | options
        )
        folder = tmp_path_factory.mktemp("ctranslate2")
        tempt(transformer)
        specification(tokenizer, transformer).save(str(folder))
        return Translator(tokenizer, transformer), folder

    return make


def tempt(transformer):
    """Makes what may not be written likelier than all else, and some sentences end."""
    if transformer.final_layer is not None:
        weight, special, end = transformer.final_layer.bias, lambda x: 9, lambda x: 2
    else:
        weight = transformer.encoder.pos_embedding.embedding.embeddings
        special, end = lambda x: 20 * x, lambda x: 2 * x
    values = np.array(weight)
    values[:END_ID] = special(values[:END_ID])
    values[END_ID] = end(values[END_ID])
    weight.assign(values)


@pytest.fixture(scope="module", params=VARIANTS)
def pair(request, make):
    translator, folder = make(**VARIANTS[request.param])
    return translator, ctranslate2.Translator(str(folder), intra_threads=1)


def sentences(tokenizer, count=40):
    """Lists of ids: none, one, some, and more than the model can read."""
    rng = np.random.default_rng(0)
    lengths = [0, 1, MAX_LENGTH - 2, MAX_LENGTH - 1, MAX_LENGTH, 3 * MAX_LENGTH]
    lengths += rng.integers(1, MAX_LENGTH, count - len(lengths)).tolist()
    return [rng.integers(END_ID + 1, tokenizer.vocab_size, n).tolist() for n in lengths]


def our_greedy(transformer, ids):
    """Our translations of ids as ids, without the end and padding."""
    source = np.full((len(ids), MAX_LENGTH), PAD_ID, "int32")
    for row, sentence in zip(source, ids, strict=True):
        sentence = [*sentence[: MAX_LENGTH - 1], END_ID]
        row[: len(sentence)] = sentence
    decoded = decode(transformer, source).ids[:, 0].numpy()
    return [[i for i in row.tolist() if i not in (PAD_ID, END_ID)] for row in decoded]


def log_softmax(logits):
    logits = logits - logits.max(axis=-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def scores(transformer, source, target):
    """Log-probabilities of a target's tokens and its end, of what may be written."""
    source, target_in = np.array([[*source, END_ID]]), np.array([[2, *target]])
    logits = np.array(transformer((source, target_in)))[0]
    logits[:, :END_ID] = -np.inf
    return log_softmax(logits)[np.arange(len(target) + 1), [*target, END_ID]]


# --- The same model -----------------------------------------------------------------


def test_log_probabilities_are_the_same(pair):
    translator, engine = pair
    pieces = translator.tokenizer.tokens
    rng = np.random.default_rng(1)
    vocab_size = translator.tokenizer.vocab_size
    sources, targets = (
        [rng.integers(END_ID + 1, vocab_size, n).tolist() for n in lengths]
        for lengths in ([0, 1, 5, MAX_LENGTH - 1, 9], [3, 0, 7, 12, MAX_LENGTH - 1])
    )
    results = engine.score_batch([*map(pieces, sources)], [*map(pieces, targets)])
    for source, target, result in zip(sources, targets, results, strict=True):
        expected = scores(translator.transformer, source, target)
        assert expected.std() > 0.1 or len(target) == 0
        assert_allclose(result.log_probs, expected, rtol=0, atol=1e-4)


def test_greedy_translations_are_the_same(pair):
    translator, engine = pair
    tokenizer = translator.tokenizer
    ids = sentences(tokenizer)
    ours = [tokenizer.tokens(i) for i in our_greedy(translator.transformer, ids)]
    theirs = translate_pieces(engine, map(tokenizer.tokens, ids), MAX_LENGTH)
    assert theirs == ours
    assert theirs[0] == [] and len({tuple(pieces) for pieces in theirs}) > 3
    assert {len(pieces) for pieces in theirs[1:]} != {MAX_LENGTH}


def test_a_translation_has_the_limit_of_its_own_sentence(make):
    """Also where a longer one in the batch lets CTranslate2 write on."""
    translator, folder = make(max_length=48)
    engine = ctranslate2.Translator(str(folder), intra_threads=1)
    pieces = translator.tokenizer.tokens
    short, long = [5], [*range(5, 25)]
    alone, _ = translate_pieces(engine, [pieces(short)] * 2, 48)
    together, _ = translate_pieces(engine, [pieces(short), pieces(long)], 48)
    assert alone == together and len(alone) == 14


def test_a_translation_may_be_empty(make, tokenizer):
    """CTranslate2 would have at least one piece, unless it is told otherwise."""
    translator, folder = make()
    bias = translator.transformer.final_layer.bias
    bias.assign(np.array(bias) + 99 * (np.arange(bias.shape[0]) == END_ID))
    specification(tokenizer, translator.transformer).save(str(folder))
    engine = ctranslate2.Translator(str(folder), intra_threads=1)
    assert our_greedy(translator.transformer, [[5, 6]]) == [[]]
    assert translate_pieces(engine, [tokenizer.tokens([5, 6])], MAX_LENGTH) == [[]]


def test_the_special_pieces_are_never_written(pair):
    """By no option of CTranslate2's: it is in the model."""
    translator, engine = pair
    special = {*translator.tokenizer.tokens(range(END_ID))}
    sources = [
        translator.tokenizer.tokens(ids) for ids in sentences(translator.tokenizer)
    ]
    sources = [pieces[:9] for pieces in sources]
    for beam_size in (1, 4):
        results = engine.translate_batch(
            sources, beam_size=beam_size, max_decoding_length=MAX_LENGTH
        )
        written = {piece for result in results for piece in result.hypotheses[0]}
        assert written and not written & special
    # They are the likeliest, all the same.
    logits = translator.transformer((np.array([[7, 3]]), np.array([[2, 9, 8, 7]])))
    assert np.isin(np.argmax(logits, axis=-1), range(END_ID)).any()


def test_epsilon_is_ours(make, tokenizer):
    """What the first norm reads varies so little that epsilon decides."""
    translator, folder = make(norm="pre", learned_positions=True)
    transformer = translator.transformer
    for stack in (transformer.encoder, transformer.decoder):
        embedding = stack.pos_embedding
        embedding.embedding.embeddings.assign(embedding.embedding.embeddings * 1e-3)
        embedding.positions.assign(embedding.positions * 0)
    specification(tokenizer, transformer).save(str(folder))
    source, target = [5, 9, 200], [7, 30, 100, 8]
    expected = scores(transformer, source, target)

    def difference():
        engine = ctranslate2.Translator(str(folder), intra_threads=1)
        pair = [tokenizer.tokens(source)], [tokenizer.tokens(target)]
        return np.abs(engine.score_batch(*pair)[0].log_probs - expected).max()

    assert difference() < 1e-4
    config = json.loads((folder / "config.json").read_text())
    assert config["layer_norm_epsilon"] == 1e-6
    config["layer_norm_epsilon"] = 1e-5
    (folder / "config.json").write_text(json.dumps(config))
    assert difference() > 0.01


def test_tied_weights_are_written_once(make):
    """And one table of positions: so much that CTranslate2's own limits need none."""
    translator, folder = make(tie_embeddings=True)
    numbers = translator.transformer.count_params()
    numbers += POSITIONS * oracle.TINY["d_model"] + translator.tokenizer.vocab_size
    assert 4 * numbers < (folder / "model.bin").stat().st_size < 4.1 * numbers + 9000
    engine = ctranslate2.Translator(str(folder), intra_threads=1)
    [result] = engine.translate_batch([["▁"] * 1500], min_decoding_length=256)
    assert len(result.hypotheses[0]) == 256


# --- The command --------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(run_folder, tmp_path_factory):
    """What the command writes, from the run that the tests share."""
    to = tmp_path_factory.mktemp("repository")
    command = [sys.executable, "-m", "tfxformer.cli", "export", "--run", run_folder]
    command += ["--to", to, "--name", "toy", "--format", "ctranslate2"]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{to / 'toy' / '1'}\n"
    assert "8 probes" in done.stderr
    return to / "toy" / "1"


def test_the_folder_translates_without_tfxformer(folder, translator):
    """As the README does it."""
    texts = [f"Tenho {n} gatos." for n in range(9)]
    texts += ["", "O gato bebe leite.", "Onde está a chave?", "😀 Olá", "não " * 99]
    config = json.loads((folder / "config.json").read_text())
    longest = config["max_length"]
    tokenizer = sentencepiece.SentencePieceProcessor(
        model_file=str(folder / "tokenizer.model")
    )
    engine = ctranslate2.Translator(str(folder), intra_threads=1)
    source = tokenizer.encode(texts, out_type=str)
    limits = [min(2 * len(pieces) + 12, longest) for pieces in source]
    results = engine.translate_batch(
        source,
        beam_size=1,
        min_decoding_length=0,
        max_input_length=longest,
        max_decoding_length=max(limits),
    )
    translations = [
        tokenizer.decode(result.hypotheses[0][:limit])
        for result, limit in zip(results, limits, strict=True)
    ]
    batch = np.array([text.encode() for text in texts], dtype=object)
    ours = translator.answers("translate", {"text": batch})["translation"]
    assert translations == [translation.decode() for translation in ours]
    assert len({*translations}) > 5


def test_versions_count_up_and_nothing_else_stays(folder, run_folder):
    assert {file.name for file in folder.iterdir()} == FILES
    second = export_ctranslate2(run_folder, folder.parent.parent, "toy", "last")
    assert second == folder.parent / "2"
    assert sorted(path.name for path in folder.parent.iterdir()) == ["1", "2"]


def test_an_export_that_translates_otherwise_is_not_published(
    run_folder, tmp_path, monkeypatch
):
    def wrong(*args):
        spec = specification(*args)
        spec.decoder.layer[0].ffn.linear_1.bias.array[::2] += 1
        return spec

    monkeypatch.setattr(ctranslate2_model, "specification", wrong)
    with pytest.raises(UserError, match="would not translate as the run does"):
        export_ctranslate2(run_folder, tmp_path, "toy")
    assert list((tmp_path / "toy").iterdir()) == []


@pytest.mark.slow
def test_a_little_noise_in_the_weights_shows_in_the_log_probabilities(
    folder, translator, tmp_path
):
    """So little that no word changes."""
    spec = specification(translator.tokenizer, translator.transformer)
    spec.encoder.layer[0].self_attention.layer_norm.beta.array[:] += 0.003
    spec.save(str(tmp_path))
    with pytest.raises(UserError, match="log-probabilities of the same tokens differ"):
        prove(tmp_path, translator)
    assert "at most" in prove(folder, translator)


def test_an_export_that_cannot_be_loaded_is_named(folder, translator, tmp_path):
    for name in FILES:
        (tmp_path / name).write_bytes((folder / name).read_bytes()[:100])
    with pytest.raises(UserError, match="CTranslate2 cannot load the export"):
        prove(tmp_path, translator)


def test_first_difference(translator):
    transformer = translator.transformer
    source, ours = [20, 30, 40], [50, 60, 70]
    assert first_difference(transformer, source, ours, ours) is None
    logits = np.array(transformer((np.array([[*source, 3]]), np.array([[2, 50, 60]]))))
    position, gap = first_difference(transformer, source, ours, [50, 60, 99, 5])
    assert position == 2
    assert_allclose(gap, logits[0, 2, 70] - logits[0, 2, 99], rtol=1e-4)
    position, gap = first_difference(transformer, source, ours, [50, 60])
    assert position == 2
    assert_allclose(gap, logits[0, 2, 70] - logits[0, 2, END_ID], rtol=1e-4)


# --- What cannot be -----------------------------------------------------------------


def refused(monkeypatch, capfd, *args):
    """The one line that a command ends in."""
    monkeypatch.setattr(sys, "argv", ["tfxformer", "export", *map(str, args)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    out, err = capfd.readouterr()
    assert end.value.code == 1 and out == ""
    [line] = err.splitlines()
    return line


def test_an_unknown_format_is_refused(monkeypatch, capfd, run_folder, tmp_path):
    line = refused(
        monkeypatch, capfd, "--run", run_folder, "--to", tmp_path, "--format", "onnx"
    )
    assert "--format 'onnx': there are savedmodel and ctranslate2" in line
    assert list(tmp_path.iterdir()) == []


def test_a_missing_package_is_named(monkeypatch, capfd, run_folder, tmp_path):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    args = ["--run", run_folder, "--to", tmp_path, "--format", "ctranslate2"]
    line = refused(monkeypatch, capfd, *args)
    assert "pip install 'tfxformer[ctranslate2]'" in line
    assert list(tmp_path.iterdir()) == []


def test_positions_cannot_be_left_out(tokenizer):
    size = tokenizer.vocab_size
    model = oracle.tiny_transformer(
        use_positions=False, input_vocab_size=size, target_vocab_size=size
    )
    with pytest.raises(UserError, match="use_positions=False"):
        specification(tokenizer, model)


def test_savedmodels_and_this_do_not_share_a_folder(exported, run_folder):
    repository, name = exported.parent.parent, exported.parent.name
    with pytest.raises(UserError, match="holds SavedModels"):
        export_ctranslate2(run_folder, repository, name)
    assert [path.name for path in exported.parent.iterdir()] == [exported.name]


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden", "a b"])
def test_names_that_are_no_folder_are_refused(run_folder, tmp_path, name):
    with pytest.raises(UserError, match="model name"):
        export_ctranslate2(run_folder, tmp_path, name)


def test_other_wrong_input_is_named(run_folder, exported, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="file"):
        export_ctranslate2(run_folder, tmp_path / "file")
    with pytest.raises(UserError, match="no such run folder"):
        export_ctranslate2(tmp_path / "none", tmp_path)
    with pytest.raises(UserError, match="there are best, last"):
        export_ctranslate2(run_folder, tmp_path, checkpoint="first")
