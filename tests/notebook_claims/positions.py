# %% after: without, with_places = (abs(one - other).max() for one, other in dogs.values())
assert without < 1e-5 < 0.1 < with_places
# %% after: print("shape (positions, depth):", encoding.shape)
for pos, i in ((0, 0), (1, 0), (7, 3), (100, 60), (2047, 255)):
    angle = pos / 10000 ** (2 * i / DEPTH)
    assert abs(encoding[pos, 2 * i] - math.sin(angle)) < 1e-6
    assert abs(encoding[pos, 2 * i + 1] - math.cos(angle)) < 1e-6
assert abs(encoding).max() <= 1
# "all sines are near 0 there and all cosines near 1"
assert abs(encoding[:100, -50::2]).max() < 0.05
assert encoding[:100, -49::2].min() > 0.99
# %% after: DEPTHS = (1, 5, 15, 20)
# "Depths 1, 5 and 15 start at 1. Depth 20 starts at 0."
assert (small[0, [1, 5, 15]] == 1).all() and small[0, 20] == 0
assert (np.diff(small_turn) > 0).all(), "the deeper the component, the longer its wave"
# %% after: curves = small[:50, list(DEPTHS)]
assert abs(curves[first, 3] - curves[second, 3]) < 0.02
assert abs(curves[first, 0] - curves[second, 0]) > 1
# %% after: similarity = dots[0] / dots[0, 0]  # of two positions, by their distance
for distance in range(100):
    assert np.ptp(np.diagonal(dots, distance)) < 1e-3
# %% after: few = curves["64 components"]
assert near < far and few[near] < few[far]
assert len(wide) and len(narrow) and similarity[1:].max() < 1
for curve in curves.values():
    assert curve[0] == curve.max() and abs(curve[0] - 1) < 1e-6
    tens = curve.reshape(10, 10).mean(axis=1)
    assert (np.diff(tens[:3]) < 0).all() and tens[-1] == tens.min()
# %% after: print("the first four rows and columns of M_3:")
for k in (1, 3, 100, -7):
    matrix = shift_matrix(k, DEPTH)
    here = encoding[max(0, -k) : len(encoding) - max(0, k)]
    assert abs(here @ matrix.T - encoding[max(0, k) :][: len(here)]).max() < 1e-5
    # It is a rotation: its inverse is its transpose, and two shifts add up.
    assert np.allclose(matrix @ matrix.T, np.eye(DEPTH))
    assert np.allclose(shift_matrix(1, DEPTH) @ matrix, shift_matrix(k + 1, DEPTH))
# %% after: accuracy = {kind: right(model, in_order) for kind, model in models.items()}
# One answer to both orders is correct for one of them at most.
assert accuracy["no positions"] <= 0.51
orders = (
    translate(models["no positions"], [s for s, _ in p])
    for p in (one_order, other_order)
)
assert [*next(orders)] == [*next(orders)]
# %% trained: accuracy = {kind: right(model, in_order) for kind, model in models.items()}
assert min(accuracy["sinusoids"], accuracy["learned"]) > 0.8
# "Even without positions, the English comes out in good order."
for answer in translate(models["no positions"], [source for source, _ in in_order]):
    assert re.fullmatch(r"the \w+ \w+s the \w+", answer)
# %% after: real = (source != 0)[rows, shuffled]
for kind, model in models.items():
    moved = abs(
        np.asarray(model((source, into)))
        - np.asarray(model((source[rows, shuffled], into)))
    )[into != 0].max()
    assert moved < 1e-3 if kind == "no positions" else moved > 0.002
# %% after: same = np.mean(np.array(straight) == np.array(mixed))
assert same > 0.95
# %% trained: same = np.mean(np.array(straight) == np.array(mixed))
for kind in ("sinusoids", "learned"):
    assert right(models[kind], jumbled) < accuracy[kind] - 0.3, "less often"
# %% after: written = as_ids(["the cat sees the dog"])[:, :-1]
assert abs(logits[0] - logits[1]).max() > 1e-3
# %% after: same = (table == untouched).all(axis=1)
assert (np.flatnonzero(same) == np.arange(trained, 24)).all()
# %% trained: same = (table == untouched).all(axis=1)
assert lengths[:trained].mean() > 2 * lengths[trained:].mean(), "have grown"
assert trained == 12
assert longest == [1, 2, 4, 7, 8, 10], "the places of the nouns and verbs"
# %% trained: tests = {clauses: some_pairs(held_out, clauses, 50) for clauses in range(1, 5)}
for kind in ("sinusoids", "learned"):
    assert whole[kind, 2] > 0.6 and whole[kind, 3] == 0 == whole[kind, 4]
# %% trained: (source, target), *_ = tests[3]
assert min(ends.values()) > 40, "the answers end where training ended"
# %% after: memory, counts, spent = {}, {}, {}
for length in (1024, 2048, 4096):
    assert memory[length] == 4 * 4 * length**2, "4 heads, 4 bytes a number"
    assert memory[length] == 4 * memory[length // 2]
    assert counts[length][0] == 4 * counts[length // 2][0]
    assert counts[length][1] == 2 * counts[length // 2][1]
assert counts[4096][0] == 64 * counts[512][0] and counts[4096][1] == 8 * counts[512][1]
# %% answer: 1
assert max(near) == 19 and max(far) == 351
# %% answer: 2
assert right(models["no positions"], in_order) <= 0.51
# %% answer: 3
assert STEPS < 300 or longer[0] > 0.6 > 0.2 > longer[1], longer
