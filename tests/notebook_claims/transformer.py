# %% after: print(f"{len(pairs):,} to train on, {len(validation)} to validate, {len(test)} to test")
unseen = {portuguese for portuguese, _ in [*validation, *test]}
assert not unseen & {portuguese for portuguese, _ in pairs}
assert len(pairs) == 42_737, "the text has this number"
# %% after: words = pieces.tokens(source[0])
assert words[-1] == "</s>" and len(words) > 5
# %% after: print(f"ReLU sets {np.mean(hidden == 0):.0%} of the hidden values to 0")
assert np.min(hidden) == 0 and np.mean(hidden == 0) > 0.5, "most are 0"
# %% after: def gradient_at_the_bottom(depth, residual):
assert with_sums > 0.1 > 1e-3 > without
# %% after: steps = [embed(source)]
ends = [i for i, word in enumerate(words) if word == "▁gato"]
rows = [np.array(x)[0, ends] for x in (embed.embedding(source), steps[0], context)]
alike = [a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in rows]
assert alike[0] > 0.999 > alike[1] > alike[2], "each has met its neighbours"
# %% after: weights = ours.stack[0].self_attention.weights_seen[0]
assert (np.array(weights)[:, *np.triu_indices(len(reading), 1)] == 0).all()
# %% after: print(f"implicit masks: moved by {implicit:.1e}; your model: moved by {explicit:.0e}")
assert implicit > 1e-3 > 1e-4 > explicit
# %% after: untrained = masked_loss(labels, logits)
metric = MaskedAccuracy()
metric.update_state(
    np.array([[5, 6, 0]]), np.eye(8)[None, [5, 5, 0]]
)  # one of two tokens
metric.update_state(np.array([[5, 5, 5]]), np.eye(8)[None, [5, 5, 5]])
assert abs(float(metric.result()) - 4 / 5) < 1e-6
# %% after: metrics = [MaskedAccuracy(name="accuracy")]
assert history.history["val_loss"][-1] < history.history["loss"][0]
assert 2 * len(pairs) > STEPS * 64, "reads a sentence once or twice"
# %% trained: metrics = [MaskedAccuracy(name="accuracy")]
assert history.history["val_accuracy"][-1] > 0.95
# %% trained: rows = []
assert len(wrong) <= 4, "your model translates"
# %% after: print(tokenizer.tokens(tokenizer.encode(["triceratops"])[0]), "→", tokens)
pieces = tokenizer.tokens(tokenizer.encode(["triceratops"])[0])
assert len(pieces) > 1, "it is not in the vocabulary"
assert any(tokens[i:][: len(pieces)] == pieces for i in range(len(tokens))), "copied"
lower = translate(model, tokenizer, "este é um problema que temos que resolver.")[0]
assert lower == lower.lower()
# %% after: plots.draw_attention(*best_head("este é o primeiro livro que eu fiz."), **names)
written, read, weights, _ = best_head("este é o primeiro livro que eu fiz.")
assert_allclose(weights.sum(axis=-1), 1, rtol=1e-5)
assert read[weights[written.index("▁book")].argmax()] == "▁livro"
# %% after: plots.draw_attention(*best_head("Eu li sobre triceratops na enciclopédia."), **names)
written, read, weights, _ = best_head("Eu li sobre triceratops na enciclopédia.")
pieces = tokenizer.tokens(tokenizer.encode(["triceratops"])[0])
begin, first = read.index(pieces[0]), written.index(pieces[0])
followed = weights[first:][: len(pieces)].argmax(axis=-1)
assert (followed == begin + np.arange(len(pieces))).mean() > 0.5, "token by token"
# %% after: served = tf.saved_model.load("mine/1").signatures["translate"]
assert answer[0].decode() == shipped(text)
# %% answer: 1
assert np.max(abs(there[:, ::-1] - back)) < 1e-5
# %% answer: 3
if STEPS > 100:
    assert peeked.history["loss"][-1] < history.history["loss"][0]
    text = "O meu irmão está na cozinha."
    assert translate(*yours, text)[0] == "My brother is in the kitchen."
    assert translate(peeking, yours[1], text)[0] != "My brother is in the kitchen."
# %% answer: 4
assert layer.weights_seen[0, 0].shape == (40, 40)
