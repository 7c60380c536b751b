# %% after: bot = Translator.load("runs/chat")
assert replies == bot(list(sources))
# %% trained: bot = Translator.load("runs/chat")
assert share > 0.8
# %% after:     "My name is Clara.",
# The reply does not depend on the utterances before it.
assert bot("What is my name?") == replies[1]
# %% trained:     "My name is Clara.",
assert scores[0] == scores.max(), "a trained pattern has the highest score"
# %% after: NOUNS = entries(  # Spanish, its plural, its gender
assert agree("blanco", feminine=True, plural=True) == "blancas"
assert agree("azul", feminine=True, plural=True) == "azules"
assert not any("blue ball" in source for source in seen)
assert not seen & {source for source, _ in es_pairs["test"]}
# %% trained: report("runs/en_es")
assert share > 0.8
# %% trained: plots.draw_curves({name: quality(f"runs/{name}") for name in ("chat", "en_es")})
for name in ("chat", "en_es"):
    last = {row["split"]: row for row in measured(f"runs/{name}")}
    assert last["validation"]["masked_accuracy"] > 0.95
    assert last["train"]["loss"] > last["validation"]["loss"] + 0.1
config = Path("runs/chat/config.yaml").read_text(encoding="utf-8")
assert "label_smoothing: 0.1" in config and "dropout_rate: 0" in config
# %% after: def edits(words, wanted):
assert word_error_rate(["La bola es azul"], ["La bola es azul"]) == 0
assert word_error_rate(["El bola azul"], ["La bola es azul"]) == 2 / 4
assert word_error_rate(["a b c"], ["d"]) == 3
# %% after: TESTS = {"chat": chat_test, "en_es": es_pairs["test"], "en_pt": pt_pairs["test"]}
for run in TESTS:
    assert (answers[run, 4][1] > answers[run, 1][1] - 1e-4).all(), "never a lower score"
# %% answer: 1
assert len(mine) == 20
# %% answer: 2
assert STEPS < 300 or share > 0.5
