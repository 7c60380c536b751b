# %% after: translate = Translator.load()
assert translate(sources)[0].endswith("his dog.") and "her dog" in translate(sources)[1]
# %% after: WORDS = 40
assert kept["attention"] > 1000 * kept["GRU"], "the first look"
assert kept["GRU"] < 1e-6, "less than a millionth"
assert 0.7 < kept["attention"] < 1.4, "the line stays flat"
falls = np.exp(np.diff(np.log(effect["GRU"])))
assert np.all(np.abs(falls - step) < 0.2), "each step keeps about the same share"
# %% after: TRANSFORMER, ATTENTION, PLAIN = "Transformer", "GRU with attention", "plain GRU"
assert max(sizes.values()) <= 1.02 * sizes[TRANSFORMER], "within 2%"
assert min(sizes.values()) >= 0.98 * sizes[TRANSFORMER]
assert not {p.source for p in held_out} & {p.source for p in parts["train"]}

# Padding changes nothing.
padded = tf.pad(source, [[0, 0], [0, 10]], constant_values=comparison.PAD_ID)
for name, model in models.items():
    moved = model((padded, target_in)) - model((source, target_in))
    np.testing.assert_allclose(moved, np.zeros(moved.shape), atol=1e-4, err_msg=name)


def attention_in_numpy(layer, state, values, length):
    """The notebook's formula for one sentence, in double precision."""
    w, u, b, v = (np.float64(x) for x in layer.get_weights())
    energies = []
    for j in range(length):
        hidden = np.tanh(w.T @ state + u.T @ values[j] + b)
        energies.append(float(v[:, 0] @ hidden))
    shares = np.exp(np.array(energies) - max(energies))
    shares /= shares.sum()
    context = sum(shares[j] * values[j] for j in range(length))
    return context, np.append(shares, np.zeros(len(values) - length))


rng = np.random.default_rng(SEEDS[0])
layer = models[ATTENTION].attention
units, depth = layer.query.kernel.shape[0], layer.key.kernel.shape[0]
states_of = rng.normal(size=(3, units)).astype("float32")
values = rng.normal(size=(3, 6, depth)).astype("float32")
real = np.array([6, 4, 1])  # how many positions of each are no padding
mask = tf.sequence_mask(real, 6)
context, weights = layer(states_of, layer.key(values), values, mask)
for i in range(3):
    expected = attention_in_numpy(layer, states_of[i], values[i], real[i])
    np.testing.assert_allclose(context[i], expected[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(weights[i], expected[1], rtol=1e-4, atol=1e-6)
    assert not weights[i, real[i] :].numpy().any()  # padding: exactly 0
# %% after: LONGER = "Transformer, more steps"
# The trainings begin with different weights, and the two Transformers with the same.
firsts = {first[LONGER][0].tobytes() for first in untrained}
assert len(firsts) == 3
for first in untrained:
    for ours, theirs in zip(first[TRANSFORMER], first[LONGER], strict=True):
        np.testing.assert_array_equal(ours, theirs)
assert len(untrained) == len(trainings) == 3, "three trainings"
# A training depends on its first weights alone, not on the trainings before it.
again = comparison.train(trainers, untrained[0], dict.fromkeys(models, 2), batches)
for name, losses in again.losses.items():
    np.testing.assert_allclose(losses, trainings[0].losses[name][:2], rtol=1e-4)
# %% after: AVERAGED = 15  # steps
for training in trainings:
    for values in training.times.values():
        assert len(values) == STEPS - comparison.WARM_UP, "alone: not timed"
# The rule of the verdicts.
assert comparison.verdict([True] * 3) is True
assert comparison.verdict([False] * 3) is False
assert comparison.verdict([True, False, True]) is None
# %% trained: both = (LONGER, ATTENTION)
assert counts[LONGER] - len(batches) == 34, "its last steps repeat batches"
assert len(batches) >= STEPS, "the others see each batch once"
assert seconds[LONGER][-1] < 1.1 * seconds[ATTENTION][-1], "no more time"
assert np.all(final[TRANSFORMER] > final[ATTENTION]), "after the same number of steps"
assert comparison.FOUND[2][0], "so it depends on what you count"
# %% trained: AVERAGED = 15  # steps
assert all(rows.max() < 2 for rows in final.values())
# %% trained: stripped = {"with both": both}
for row in smoothed["without residuals"]:
    assert row[-1] > 0.93 * row[-20], "it stops falling"
assert min(without) > 1.25 * max(both)
# %% after: AT_ONCE = 1024  # tokens on either side of a batch
assert grows[TRANSFORMER] < min(grows[ATTENTION], grows[PLAIN]), "the title"
# %% trained: AT_ONCE = 1024  # tokens on either side of a batch
gains = [middle[PLAIN, n] / middle[TRANSFORMER, n] for n in LENGTHS]
assert gains[0] < 1 < min(gains[1:]), "only the shortest sentences are an exception"
# %% trained: CUT = 32  # tokens
assert keeps[PLAIN] < 1e-6, "the line of the plain GRU is steep"
assert ends[PLAIN] < ends[BLOCKED] < 0.01 * min(ends[LONGER], ends[ATTENTION])
for name in (LONGER, ATTENTION):  # the hump, in the points beyond the first two
    points = dict(after[name][2:])
    assert abs(max(points, key=points.get) - CUT) <= 8, name
# %% after: comparison.draw_reading(models[ATTENTION], tokenizer, text)
assert text in {p.source for p in held_out} - {p.source for p in parts["train"]}
read, written, shares = comparison.reading(models[ATTENTION], tokenizer, text)
assert shares.shape == (len(written), len(read)) and read[:-1] == text.split()
np.testing.assert_allclose(shares.sum(axis=1), 1, atol=1e-4)
# %% trained: comparison.draw_reading(models[ATTENTION], tokenizer, text)
read, written, shares = comparison.reading(models[ATTENTION], tokenizer, text)
most = {word: read[row.argmax()] for word, row in zip(written, shares, strict=True)}
assert most["Sofia"] == "Sofia" and most["Marta's"] == "Marta."
assert most["is"] != "é", "it need not read the word that it translates"
niece = dict(zip(read, shares[written.index("niece.")], strict=True))
assert min(niece["sobrinha"], niece["Marta."]) > 0.25, "it reads both"
# %% trained: pairs = test[20]
for before, after in (row.mean(axis=0) for row in read.values()):
    assert after < before, "trained heads read fewer tokens"
# %% after: comparison.conclude(
# The column "measured on".
assert AVERAGED == 15
assert A_BUCKET == 50 == len(test[LONGEST]) == len(test[BUCKETS[-1]]) == len(sources)
assert len(long[:16]) == 16
assert comparison.time_lengths.__defaults__ == (3,)
assert [*comparison.FOUND] == [*comparison.CLAIMS] == [*range(1, 7)]
assert counts[LONGER] == 5 * STEPS // 3, "five thirds of the steps"
# %% trained: at_longest = {LONGER: [], ATTENTION: []}  # BLEU on sentences of 31 to 40 tokens
longer = {name: np.multiply(at_longest[name], shares[name]) for name in shares}
for each in (shares, longer):  # the share, and the BLEU itself
    larger = np.greater(each[LONGER], each[ATTENTION])
    assert comparison.verdict(larger) is None, "quality is undecided"
# %% trained: BUCKETS = (10, 20, 30, 40, 60)  # source tokens; training has up to LONGEST
assert translations[LONGER, LONGEST] != translations[TRANSFORMER, LONGEST]
assert reference == translations[LONGER, 20][0]
fluent = {*translations[PLAIN, 20][0].split()}
assert len(fluent & {*reference.split()}) < len(fluent) / 3, "another meaning"
# %% trained: bleu = scores(translations)
assert bleu[LONGER, LONGEST] > bleu[TRANSFORMER, LONGEST], "more steps, other weights"
assert max(bleu[PLAIN, n] for n in BUCKETS) < 10, "hardly anything"
for n in BUCKETS[:-1]:
    assert bleu[LONGER, n] > bleu[ATTENTION, n], "also on short sentences"
for name in (TRANSFORMER, ATTENTION, LONGER):
    assert bleu[name, BUCKETS[-1]] < 0.8 * bleu[name, BUCKETS[0]], "the title"
    assert bleu[name, 20] > bleu[name, 30], "worse beyond 20 tokens"
# %% answer: 2
assert in_turn == {PLAIN: 40, ATTENTION: 40, TRANSFORMER: 2}
