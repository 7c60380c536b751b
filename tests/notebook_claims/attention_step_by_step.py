# %% after: keras.utils.set_random_seed(1)
assert lesson.count_right(model, lesson.HELD_OUT) >= 0.9 * len(lesson.HELD_OUT)
assert "preparando" in lesson.translate(model, asked)[0]
assert "ganando" in lesson.translate(model, asked)[1]
sources = [source for source, _ in lesson.TRAINING]
assert {*asked} <= {*sources} and "my mother is making a film" not in sources
# %% after: three = ["cat", "dog", "milk"]
lengths = np.linalg.norm(X, axis=1)
cosines = X @ X.T / lengths / lengths[:, None]
assert cosines[0, 1] > 0.95 > 0.6 > cosines[0, 2], "cat and dog point the same way"
# %% after: shares = softmax(scores)
assert np.allclose(shares.sum(axis=1), 1)
assert shares[0, :2].sum() > 0.95 and abs(shares[0, 0] - shares[0, 1]) < 0.15
assert np.abs(shares[0] @ X - X[:2].mean(axis=0)).max() < 0.1, "almost their mean"
moved = np.linalg.norm(shares @ X - X, axis=1)
assert moved.argmax() == 2 and abs(shares[2, :2].sum() - 0.5) < 0.02, "milk, by half"
for a, b in ((0, 1), (0, 2), (1, 2)):  # nearer to each other
    before, after = (np.linalg.norm(v[a] - v[b]) for v in (X, shares @ X))
    assert after < 0.6 * before
# %% after: keys = np.eye(3)  # one key for each word
assert np.allclose(hard @ values, 20, atol=1e-9)
# %% after: HEAD = 1  # head 2
layer_q = np.array(mha.query_dense(X[None]))[0, :, HEAD * d_k : (HEAD + 1) * d_k]
layer_k, layer_v = (np.array(x)[0, HEAD] for x in mha.project(X[None]))
for ours, layers in ((Q, layer_q), (K, layer_k), (V, layer_v)):
    np.testing.assert_allclose(ours, layers, atol=1e-5)
# %% after: scores = Q @ K.T
assert np.isclose(scores[3, 0], sum(Q[3, n] * K[0, n] for n in range(d_k)), atol=1e-5)
# %% after: weights = softmax(scaled)
np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-6)
np.testing.assert_allclose(weights, layer_weights[HEAD], atol=1e-5)
# %% after: SIZES = [4, 16, 64, 256, 1024]
for size, one, other in zip(SIZES, raw, divided, strict=True):
    assert abs(one[0] / size**0.5 - 1) < 0.1, "a deviation of the root of d_k"
    assert abs(other[0] - 1) < 0.1, "a deviation of 1 for any d_k"
assert raw[-1][1] > 0.9 > 0.5 > divided[-1][1]
vanished = [row[2] for row in raw]
assert vanished == sorted(vanished)
assert [f"{vanished[n]:.0%}" for n in (2, 4)] == ["15%", "62%"], SIZES
assert max(row[2] for row in divided) < 0.01
largest = [row[1] for row in divided]  # almost the same
assert max(largest) < 1.1 * min(largest)
# %% after: padded = f"{text} <pad> <pad>"
x, may = X_padded[None], mask[None]
_, layer_padded = mha(x, x, value_mask=may, return_attention_scores=True)
layer_padded = np.array(layer_padded)[0, HEAD]
np.testing.assert_allclose(layer_padded, softmax(masked), atol=1e-5)
assert (layer_padded[:, 4:] == 0.0).all(), "not nearly 0: exactly 0"
np.testing.assert_allclose(layer_padded[:4, :4], weights, atol=1e-5)
assert change < 1e-5
empty = mha(x, x, value_mask=np.zeros((1, 6), bool), return_attention_scores=True)[1]
assert (np.array(empty) == 0).all()
# %% after: mask = np.tril(np.ones((4, 4), bool))  # (queries, keys), True: may look
assert (np.array(seen)[0, 0] == mask).all()
_, layer_causal = mha(X[None], X[None], mask=seen, return_attention_scores=True)
layer_causal = np.array(layer_causal)[0, HEAD]
np.testing.assert_allclose(layer_causal, causal, atol=1e-5)
assert (layer_causal[~mask] == 0.0).all(), "0.0, not 1e-9"
assert layer_causal[0, 0] == 1.0, "the first word can read only itself"
# %% after: Z = weights @ V
mean = sum(weights[3, j] * V[j] for j in range(4))
np.testing.assert_allclose(Z[3], mean, atol=1e-5)
# %% after: _, heads, output = multi_head(mha, X, X, X)
np.testing.assert_allclose(heads[HEAD], Z, atol=1e-5)
np.testing.assert_allclose(output, layer_output, atol=1e-4)
assert len({*map(tuple, layer_weights.argmax(axis=2))}) > 1, "heads read other words"
# %% after: weights = softmax(scores)
x, of_layer = lesson.of_package(Q, K, V)
np.testing.assert_allclose(Z_4, x[3], atol=1e-5)
np.testing.assert_allclose(weights, of_layer, atol=1e-5)
assert not np.isclose(scores[3].sum(), 1) and scores[3].min() < 0
assert np.abs(scores[3] @ V - Z_4).max() > 0.5, "without softmax, another result"
# %% after: def three_kinds(model, english, spanish):
np.testing.assert_allclose(in_encoder[HEAD], weights, atol=1e-5)
assert (in_decoder[:, np.triu(np.ones((5, 5), bool), 1)] == 0.0).all()
assert in_encoder.shape == (mha.num_heads, len(source), len(source))
assert in_decoder.shape == (mha.num_heads, 5, 5)
assert in_cross.shape == (mha.num_heads, 5, 4), "5 queries read 4 keys"
assert azul.max() - azul.min() > 0.2, "heads differ"
for row, word in ((1, "ball"), (3, "blue")):
    assert in_cross.mean(axis=0)[row, source.index(word)] > 0.5, "mostly"
# %% after: apart = {}
for name, (of_weights, of_output) in apart.items():  # only one way is the model's
    assert (of_weights < 1e-4) == name.startswith("Q decoder, K encoder")
    model_s_own = name == "Q decoder, K encoder, V encoder"  # prints 0.00
    assert of_output < 1e-4 if model_s_own else of_output > 0.1, "not just rounding"
# %% after: def cosine(a, b):
assert np.isclose(rows[0][0], rows[1][0])
assert np.isclose(2 * rows[0][1], rows[1][1])
assert rows[1][2] > rows[0][2]
# %% after: near, counts = lesson.neighbours(vocabulary)  # the table, how often two words meet
assert rows[0][2] < 10, "milk and black begin in nearly the same direction"
assert rows[1][0] < 60 and 75 < rows[1][1] < 105 and rows[1][2] > 120
assert near[vocabulary.index("black"), vocabulary.index("milk")] == 0, "no neighbours"
# %% after: text, spanish = "the black cat drank the milk", "el gato negro bebió la leche"
np.testing.assert_allclose(milk.sum(axis=1), 1, atol=1e-5)
assert (milk.argmax(axis=1) != 3).all(), "no head reads “drank” most"
# %% after: lesson.draw_cross(text, spanish, found[2].mean(axis=0), title)
in_picture = found[2].mean(axis=0)
for row, word in ((1, "cat"), (2, "black")):
    assert text.split()[in_picture[row].argmax()] == word, "attention moves, too"
# %% after: def on_verb(english, spanish, verb):
assert writes[reader, 3] > 0.99, "a head that reads only “dinner”"
mean = writes.mean(axis=0)
assert mean[3] < mean[2], "the mean hides it"
# %% after: labels, rows = [], []
wins = there > here
assert len(rows) > wins.sum() > len(rows) / 2, "most, but not all"
exceptions = [thing for thing, win in zip(lesson.MADE, wins, strict=True) if not win]
assert exceptions == ["dinner", "coffee"]
assert len(labels) == 7, "the picture has room for 7"
# %% after: def right():
assert sum(map(len, lesson.PATTERNS.values())) == len(lesson.PAIRS)
assert np.mean(rows[1:]) < np.mean(rows[0]), "heads are of use"
assert len({*map(tuple, rows[1:])}) > 1, "losses differ from head to head"
stay = np.array([row[3] for row in rows[1:]])
assert stay.argmin() != looks.argmax(), "another head is missed most"
english, spanish = lesson.PATTERNS["she is making ..."][0]  # the batch and one alone
words = spanish.split()
one = three_kinds(model, english, spanish)[2][:, words.index("está") + 1]
[at] = [k for k, word in enumerate(english.split()) if word == "making"]
mine = lesson.on_objects(model, [(english, spanish)])
np.testing.assert_allclose(mine, one[:, at + 1 :].sum(axis=1), atol=1e-5)
# %% after: portrait, hair = lesson.face()
query = 6 * (patches - MEAN)[43]
_, of_layer = lesson.of_package(query[None], patches - MEAN, patches)
np.testing.assert_allclose(look_for(43), of_layer[0], atol=1e-5)
assert np.isclose(look_for(43)[43], look_for(43)[46])
assert min(rows[0]) > 95, "both changes"
assert rows[1][1] < 10 and rows[2][0] < 20, "each change helps"
assert look_for(14)[~HAIR].max() < 0.005, "each patch with a number has hair"
lengths = np.linalg.norm(patches, axis=1)
assert patches[lengths.argmax()].mean() > 0.75, "bright patches have the longest keys"
assert look_for(14, mean=0) @ patches.mean(axis=1) > 0.6, "hair reads them"
# %% answer: 1
assert equal and words_read[ours[3].argmax()] == "are"
# %% answer: 2
assert (sharp.max(axis=1) > 0.995).all() and np.allclose(flat, 1 / 4), "1. and 0.25"
assert (sharp.argmax(axis=1) == 2).all(), "the best key is that of “are”"
# %% answer: 3
assert abs(looks[3] - 0.66) < 0.1 and abs(looks[1] - 0.02) < 0.05
