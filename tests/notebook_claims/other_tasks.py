# %% after: bot = Translator.load("runs/chat")
assert replies == bot(list(sources))
# %% trained: bot = Translator.load("runs/chat")
assert share > 0.8
# %% after:     "My name is Clara.",
# The reply does not depend on the utterances before it.
assert bot("What is my name?") == replies[1]
# %% trained:     "My name is Clara.",
assert scores[0] == scores.max(), "a trained pattern has the highest score"
# %% after: draw = random.Random(0)
assert patterns.agree("blanco", feminine=True, plural=True) == "blancas"
assert patterns.agree("azul", feminine=True, plural=True) == "azules"
assert not any("blue ball" in source for source in seen)
assert not seen & {source for source, _ in es_pairs["test"]}
# %% trained: report("runs/en_es")
assert share > 0.8
# %% after: few_pairs = es_pairs["train"][:100]
# The test shows no sentence of the training to any run.
assert not any({*seen_pairs} & {*unseen} for seen_pairs, unseen in RUNS.values())
# %% trained: few_pairs = es_pairs["train"][:100]
assert min(exact[run, "seen"] for run in RUNS) > 0.9
assert exact["few", "unseen"] < 0.3 and exact["en_es", "unseen"] > 0.8
# %% trained: def curve(run, split, name):
assert losses["few"][-1][1] > 5 * losses["en_es"][-1][1] and fits > 0.99
for run in ("chat", "en_es"):
    # "Training pulls the probability of the correct token to 0.9, also from above."
    assert abs(losses[run][-1][1] + math.log(0.9)) < 0.02
assert low < -math.log(0.9) < losses["chat"][-1][1] and kept > 0.995
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
