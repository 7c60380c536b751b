# %% after: print(f"{len(pairs):,} to train on, {len(validation)} to validate, {len(test)} to test")
unseen = {portuguese for portuguese, _ in [*validation, *test]}
assert not unseen & {portuguese for portuguese, _ in pairs}
assert len(pairs) == 42_737, "the text has this number"
# %% after: print(shipped("O gato viu o cão, e o cão viu o gato."))
seen = shipped("O gato viu o cão, e o cão viu o gato.")
assert seen == "The cat saw the dog, and the dog saw the cat.", "it keeps who saw whom"
# %% after: draw("The positions tell the two cats apart", tensors, words, "▁gato")
first, second = (i for i, word in enumerate(words) if word == "▁gato")
before, sums = tensors["embeddings times √d"][0], tensors["= sum"][0]
assert np.max(abs(before[first] - before[second])) < 1e-5
assert np.max(abs(sums[first] - sums[second])) > 0.5
# %% after: display(draw_heads("Each head reads something else", words, weights, heads, "source"))
ahead = [np.mean([w[i, i + 1 : i + 3].sum() for i in range(10)]) for w in weights]
assert to_nouns[2] == max(to_nouns) > 2 * to_nouns[0], "head 3 reads the nouns"
assert ahead[0] == max(ahead), "head 1 reads the next tokens"
# %% after: words = pieces.tokens(source[0])
assert words[-1] == "</s>" and len(words) > 5
# %% after: print(f"ReLU sets {np.mean(hidden == 0):.0%} of the hidden values to 0")
assert np.min(hidden) == 0 and np.mean(hidden == 0) > 0.5, "most are 0"
# %% after: def gradient_at_the_bottom(depth, residual):
assert with_sums > 0.1 > 1e-3 > without
# %% after: display(draw(title, tensors, words, shared=True))
assert sizes[2] > 2 * max(sizes[:2]), "the feed-forward network adds most"
total = sum(np.array(x) for x in [*tensors.values()][:3])
assert_allclose(total, tensors["= output"], atol=1e-3)
# %% after: context = ours(source, source_mask)  # (batch, source, d_model)
ends = [i for i, word in enumerate(words) if word == "▁gato"]
vectors = embed.embedding(source), source_vectors, context
rows = [np.array(x)[0, ends] for x in vectors]
alike = [a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in rows]
assert alike[0] > 0.999 > alike[1] > alike[2], "each has met its neighbours"
# %% after: weights = ours.stack[0].self_attention.weights_seen[0]
assert (np.array(weights)[:, *np.triu_indices(len(reading), 1)] == 0).all()
assert np.mean(weights[0, :, 0]) > 0.5, "head 1 reads mostly <s>"
assert np.trace(np.array(weights[3])) / len(reading) > 0.5, "head 4, the token itself"
# %% after: print(f"implicit masks: moved by {implicit:.1e}; your model: moved by {explicit:.0e}")
assert implicit > 1e-3 > 1e-4 > explicit
# %% after: correct = probabilities[np.arange(len(reading)), target_out[0]]
assert (probabilities.argmax(axis=-1) == np.array(target_out[0])).all()
# %% after: untrained = masked_loss(labels, logits)
metric = MaskedAccuracy()
metric.update_state(
    np.array([[5, 6, 0]]), np.eye(8)[None, [5, 5, 0]]
)  # one of two tokens
metric.update_state(np.array([[5, 5, 5]]), np.eye(8)[None, [5, 5, 5]])
assert abs(float(metric.result()) - 4 / 5) < 1e-6
# %% after: schedule = Schedule(d_model=128, warmup_steps=STEPS // 3)
if STEPS > 100:
    peak = max(range(STEPS), key=lambda step: float(schedule(step)))
    assert peak == 299 and round(float(schedule(peak)), 3) == 0.005
    late = np.arange(4000, 6000)
    assert_allclose(schedule(late), Schedule(128, 4000)(late), rtol=1e-6)
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
que = weights[written.index("▁I")].argmax()
assert read[que : que + 2] == ["▁que", "▁eu"]
# %% after: copied = slice(written.index("▁tri"), written.index("s") + 1)
pieces = tokenizer.tokens(tokenizer.encode(["triceratops"])[0])
begin, first = read.index(pieces[0]), written.index(pieces[0])
followed = weights[first:][: len(pieces)].argmax(axis=-1)
assert (followed == begin + np.arange(len(pieces))).all(), "token by token"
assert written[copied] == pieces
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
