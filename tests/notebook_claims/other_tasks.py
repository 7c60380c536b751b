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
seen = {source for source, _ in es_pairs["train"]}
assert not any("blue ball" in source for source in seen)
assert not seen & {source for source, _ in es_pairs["test"]}
# %% trained: report("runs/en_es")
assert share > 0.8
# %% after: few_pairs = es_pairs["train"][:100]
# The unseen sentences are in no training, and there are many.
assert not any({*pairs} & {*unseen} for pairs in RUNS.values()) and len(unseen) > 100
# %% trained: few_pairs = es_pairs["train"][:100]
assert min(exact[run, "seen"] for run in RUNS) > 0.9
assert exact["few", "unseen"] < 0.3 and exact["en_es", "unseen"] > 0.8
# %% trained: def curve(run, split, name):
few, many = ends.values()
assert few[0] > 0.99 > 0.9 > few[1] and min(many) > 0.99, "with few pairs, a gap"
# %% trained: for run in ("en_es", "sharp"):
losses = [
    curve(f"runs/{run}", "validation", "loss")[-1][1] for run in ("en_es", "sharp")
]
assert abs(losses[0] - 0.105) < 0.02, "the correct token gets about 0.9"
assert losses[1] < 0.6 * losses[0], "without smoothing, the perplexity is nearer to 1"
configs = [
    Path(f"runs/{run}/config.yaml").read_text(encoding="utf-8")
    for run in ("chat", "en_es", "sharp")
]
smoothing = ["label_smoothing: 0.1" in config for config in configs]
assert smoothing == [True, True, False] and "dropout_rate: 0" in configs[1]
# %% after: def edits(words, wanted):
assert word_error_rate(["La bola es azul"], ["La bola es azul"]) == 0
assert word_error_rate(["El bola azul"], ["La bola es azul"]) == 2 / 4
assert word_error_rate(["a b c"], ["d"]) == 3
# %% after: TESTS = {"chat": chat_test, "en_pt": pt_pairs["test"]}
for run in TESTS:
    assert (answers[run, 4][1] > answers[run, 1][1] - 1e-4).all(), "never a lower score"
# %% trained: TESTS = {"chat": chat_test, "en_pt": pt_pairs["test"]}
assert right(answers["chat", 1][0], [reply for _, reply in chat_test]) > 0.95
# %% answer: 1
assert len(mine) == 20
# %% answer: 2
assert STEPS < 300 or share > 0.5
