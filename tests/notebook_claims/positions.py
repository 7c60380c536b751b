# %% after: without, with_places = (abs(rows[-1]).max() for rows in dogs.values())
assert without < 1e-5 < 0.1 < with_places
# %% after: print("shape (positions, columns):", encoding.shape)
for pos, i in ((0, 0), (1, 0), (7, 3), (100, 20), (2047, 31)):
    angle = pos / 10000 ** (2 * i / D_MODEL)
    assert abs(encoding[pos, 2 * i] - math.sin(angle)) < 1e-6
    assert abs(encoding[pos, 2 * i + 1] - math.cos(angle)) < 1e-6
assert abs(encoding).max() <= 1
# "At the edge, all sines stay near 0, and all cosines near 1."
assert abs(encoding[:100, -8::2]).max() < 0.05
assert encoding[:100, -7::2].min() > 0.99
# %% after: COLUMNS = (1, 5, 15, 20)
assert (np.diff(turn) > 0).all(), "each next pair of columns has a longer wave"
# %% after: found = sum(source in known for source, _ in in_order)
assert found == 0 and len(in_order) == len({*in_order}) == 120
# %% after: pair = 20, 35
heights = encoding[:50, [20, 1]]
first, second = pair
assert abs(heights[first, 0] - heights[second, 0]) < 0.02, "nearly the same"
assert abs(heights[first, 1] - heights[second, 1]) > 1, "they differ"
# %% after: print(f"length of each position's vector: {np.sqrt(squares[0]):.2f}")
assert distances.min() > np.sqrt(squares[0]) / 4, "well apart"
# %% after: similarity = products / squares[0]  # all vectors have the same length
assert np.ptp(squares) < 1e-4
for distance in range(100):
    assert np.ptp(np.diagonal(similarity, distance)) < 1e-4
    cosines = np.cos(2 * np.pi * distance / turn)
    assert abs(similarity[0, distance] - cosines.mean()) < 1e-5, "a cosine a pair"
# %% after: rises = [np.sum(np.diff(curve) > 0) for curve in curves.values()]
assert rises[0] > rises[1] > 0
for curve in curves.values():
    assert curve[0] == curve.max() and abs(curve[0] - 1) < 1e-6
    tens = curve.reshape(10, 10).mean(axis=1)
    assert (np.diff(tens[:3]) < 0).all() and tens[-1] == tens.min()
# %% after: R = np.array([[math.cos(1), math.sin(1)], [-math.sin(1), math.cos(1)]])
assert np.allclose(encoding[:-1, :2] @ R.T, encoding[1:, :2], atol=1e-6)
assert np.allclose(turn[0], 2 * np.pi), "in columns 0 and 1, the angle is 1"
# %% after: print("the first four rows and columns of M_3:")
for k in (1, 3, 100, -7):
    matrix = shift_matrix(k, D_MODEL)
    here = encoding[max(0, -k) : len(encoding) - max(0, k)]
    assert abs(here @ matrix.T - encoding[max(0, k) :][: len(here)]).max() < 1e-5
    # It is a rotation: its inverse is its transpose, and two shifts add up.
    assert np.allclose(matrix @ matrix.T, np.eye(D_MODEL))
    assert np.allclose(shift_matrix(1, D_MODEL) @ matrix, shift_matrix(k + 1, D_MODEL))
# %% after: scores = encoding @ shift_matrix(3, D_MODEL) @ encoding[10]  # one a position
assert scores.argmax() == 13
# %% trained: models, losses = {}, {}
assert -0.05 < noun - math.log(2) < 0.2, "it hesitates between the two nouns"
assert both > 0.9
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
# %% after: full = (sources != 0).all(axis=1)  # without padding, reading backwards is easy
assert (into != 0).all() and len(source) == 64
for kind, model in models.items():
    both = (np.asarray(model((x, into))) for x in (source, source[:, ::-1]))
    moved = abs(next(both) - next(both)).max()
    assert moved < 1e-3 if kind == "no positions" else moved > 0.002
# %% after: written = "the cat sees the dog and", "the dog sees the cat and"
masked = change()
with pictures.without_mask(model):
    assert change() < 1e-4 < 1e-3 < masked, "only rounding is left"
assert change() == masked
# %% trained: written = "the cat sees the dog and", "the dog sees the cat and"
assert all(orderly), "the English comes out in good order"
# %% after: unchanged = np.flatnonzero((table == untouched).all(axis=1))
assert [*unchanged] == [*range(trained, len(table))]
assert content == [1, 2, 4, 7, 8, 10] and trained == 12
# %% trained: unchanged = np.flatnonzero((table == untouched).all(axis=1))
longest = np.argsort(-lengths)[: len(content)]
assert {*longest} == {*content}, "the title"
assert lengths[:trained].mean() > 2 * lengths[trained:].mean()
# %% after: emptied = {}
assert (positions.numpy() == table).all()
# %% trained: emptied = {}
# "The encoder can do without the places of the articles. Without the verb's, ..."
assert emptied["nouns"] < accuracy["no positions"]
assert emptied["nouns"] < emptied["verb"] < emptied["articles"]
assert emptied["articles"] > accuracy["learned"] - 0.05
# %% after: best = [min(1, 11 / (6 * n - 1)) for n in tests]  # two clauses have 11 words
for n, pairs in tests.items():
    for source, target in pairs:
        assert {*source.split(" e ")} <= {source for source, _ in in_order}
        assert len(target.split()) == 6 * n - 1
# %% trained: best = [min(1, 11 / (6 * n - 1)) for n in tests]  # two clauses have 11 words
for kind in ("sinusoids", "learned"):
    assert right(models[kind], tests[2]) > 0.6
    assert right(models[kind], tests[3] + tests[4]) == 0
    for share, most in [*zip(places[kind], best, strict=True)][2:]:
        assert 0.8 * most < share <= most, "the title, and nearly all of two clauses"
# %% trained: (source, target), *_ = tests[3]
assert min(ends.values()) > 90, "the answers stop after two clauses"
assert round(least, 2) < 1, "some words of two clauses are wrong"
# %% after: counts = {  # Q times K, and weights times V; four projections, two of the network
for name, factor in {"scores and sums": 4, "projections and network": 2}.items():
    assert counts[name][-1] == factor * counts[name][-2]
# %% after: memory = {}
for length in (1024, 2048, 4096):
    assert memory[length] * 2**20 == 4 * 4 * length**2, "4 heads, 4 bytes a number"
    assert memory[length] == 4 * memory[length // 2]
# %% answer: 1
columns = [
    np.flatnonzero(abs(encoding[10] - encoding[n]) > 0.1).max() for n in (11, 1010)
]
assert columns == [15, 62]
# %% answer: 2
assert right(models["no positions"], in_order) <= 0.51
# %% answer: 3
assert STEPS < 300 or longer[0] > 0.6 > 0.2 > longer[1], longer
