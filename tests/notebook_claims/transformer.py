# %% after: print(f"{len(pairs):,} to train on, {len(validation)} to validate, {len(test)} to test")
unseen = {portuguese for portuguese, _ in [*validation, *test]}
assert not unseen & {portuguese for portuguese, _ in pairs}
assert len(pairs) == 42_737, "the text has this number"
# %% after: print(shipped("O gato viu o cão, e o cão viu o gato."))
seen = shipped("O gato viu o cão, e o cão viu o gato.")
assert seen == "The cat saw the dog, and the dog saw the cat.", "it keeps who saw whom"
# %% after: figure = plots.draw_positions(positional_encoding(128, 64))
assert round(128 / (2 * np.pi)) == 20
assert round(128 * 10000 ** (-62 / 64) / (2 * np.pi), 3) == 0.003
# %% after: pictures.draw_pair(tensors, cats)
first, second = cats
before, sums = tensors["embeddings times √d"][0], tensors["= sum"][0]
assert np.max(abs(before[first] - before[second])) < 1e-5
assert np.max(abs(sums[first] - sums[second])) > 0.5
# %% after: ends, nouns = shares["</s>"], shares["the four nouns"]
assert_allclose(weights.sum(axis=-1), 1, rtol=1e-5)
assert max(np.ptp(share) for share in shares.values()) > 0.1, "the heads differ"
assert words[-1] == "</s>" and kinds["the four nouns"].sum() == 4
# %% after: words = pieces.tokens(source[0])
assert words[-1] == "</s>" and len(words) > 5
config = [trained.config[x] for x in ("d_model", "num_heads", "dff")]
depths = trained.config["num_layers"], trained.config["num_decoder_layers"]
assert config == [256, 4, 1024] and depths == (6, 2), "the table of sizes"
# %% after: print(f"ReLU sets {np.mean(hidden == 0):.0%} of the hidden values to 0")
assert np.min(hidden) == 0 < np.mean(hidden == 0)
# %% after: def gradient_at_the_bottom(depth, residual):
assert with_sums > 0.1 > 1e-3 > without
for residual, last in ((True, with_sums), (False, without)):
    found = [*(gradient_at_the_bottom(depth, residual) for depth in (1, 6)), last]
    assert found == sorted(found, reverse=not residual)
# %% after: pictures.draw_parts(tensors)
total = sum(np.array(x) for x in [*tensors.values()][:3])
assert_allclose(total, tensors["= output"], atol=1e-3)
# %% after: pictures.draw_cats(alike)
first, same = ([*cosines.values()] for cosines in alike.values())
assert first[0] > 0.999 > max(first[1:]), "one embedding, and then two vectors"
assert_allclose(first[:2], same[:2], atol=1e-5)  # the same two positions
# %% after: weights = ours.stack[0].self_attention.weights_seen[0]
assert (np.array(weights)[:, *np.triu_indices(len(reading), 1)] == 0).all()
# %% after: moved = moves(lambda ids: large((ids, target_in)), source)
assert moved < 1e-4
# %% after: correct = probabilities[np.arange(len(reading)), target_out[0]]
assert 0.8 < np.median(correct) < 0.96, "near 0.9"
p = np.linspace(0.5, 0.999, 500)
loss = -0.9 * np.log(p) - 0.1 * np.log((1 - p) / (vocab_size - 1))
assert abs(p[loss.argmin()] - 0.9) < 0.002, "smoothed targets pull it to 0.9"
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
# %% trained: metrics = [MaskedAccuracy(name="accuracy")]
assert history.history["val_accuracy"][-1] > 0.95
# %% after: rows = []
known = {word for text, _ in pairs for word in text.lower().strip(".?!").split()}
assert all({*text.lower().strip(".?!").split()} <= known for text, *_ in rows)
# %% trained: rows = []
assert len(wrong) <= 4, "your model translates"
# %% after: print(pieces.tokens(ids), "→", tokens)
word = pieces.tokens(ids)
assert len(word) > 1, "it is not in the vocabulary"
assert any(tokens[i:][: len(word)] == word for i in range(len(tokens))), "copied"
# %% after: written, read, weights, name = best_head("este é o primeiro livro que eu fiz.")
assert_allclose(weights.sum(axis=-1), 1, rtol=1e-5)
assert text, "the translation has at least one of the words"
# %% after: copied = [i for i, token in enumerate(written) if token in pieces.tokens(ids)]
assert len(written) >= len(ids), "all pieces of the word are drawn"
# %% after: served = tf.saved_model.load("mine/1").signatures["translate"]
assert answer[0].decode() == shipped(text)
# %% answer: 1
assert np.max(abs(there[:, ::-1] - back)) < 1e-5
# %% answer: 3
if STEPS > 100:
    assert peeked.history["loss"][-1] < history.history["loss"][0]
    text = "O meu irmão está na cozinha."
    assert translate(model, tokenizer, text)[0] == "My brother is in the kitchen."
    assert translate(peeking, tokenizer, text)[0] != "My brother is in the kitchen."
# %% answer: 4
assert layer.weights_seen[0, 0].shape == (40, 40)
# %% answer: 5
assert moves(Implicit(), source) > 1e-3
