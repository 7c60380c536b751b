# %% trained: print(f"{len(pairs):,} to train on, {len(validation)} to validate, {len(test)} to test")
import gzip

for file in (Path(tfxformer.__file__).parents[2] / "shared/data").rglob("*.tsv.gz"):
    text = gzip.decompress(file.read_bytes()).decode("utf-8", "replace").lower()
    for sentence in ("O gato viu o cão, e o cão viu o gato", yours[:-1]):
        assert sentence.lower() not in text, "the model has not seen it"
# %% after: print(f"{len(pairs):,} to train on, {len(validation)} to validate, {len(test)} to test")
for side in (0, 1):
    taught = {word.strip(".,?!") for pair in pairs for word in pair[side].split()}
    asked = {word.strip(".,?!") for pair in validation for word in pair[side].split()}
    assert asked <= taught, "the others teach all words"
unseen = {portuguese for portuguese, _ in [*validation, *test]}
assert not unseen & {portuguese for portuguese, _ in pairs}
files = (Path(tfxformer.__file__).parents[1] / "recipes").rglob("*.tsv")
for text in [*(file.read_text("utf-8") for file in files), "\n".join(map(str, pairs))]:
    for sentence in ("O gato viu o cão, e o cão viu o gato", yours[:-1]):
        assert sentence.lower() not in text.lower(), "the model has not seen it"
# %% after: yours = "A minha avó toca piano para o gato."  # write a Portuguese sentence here
seen = shipped("O gato viu o cão, e o cão viu o gato.")
assert seen == "The cat saw the dog, and the dog saw the cat.", "it keeps who saw whom"
# %% after: pictures.draw_pair(tensors, cats)
first, second = cats
before, sums = tensors["embeddings times √d"][0], tensors["= sum"][0]
assert np.max(abs(before[first] - before[second])) < 1e-5
assert np.max(abs(sums[first] - sums[second])) > 0.5
# %% after: pictures.draw_normalized(np.array(gato), normalize(np.array(gato)))
assert words[1] == "▁gato"
sizes = np.std(gato, axis=-1)
assert list(sizes) == sorted(sizes) and sizes[-1] > 5 * sizes[0], "the sums grow"
assert_allclose(np.std(normalize(np.array(gato)), axis=-1), 1, atol=1e-3)
assert_allclose(np.mean(normalize(np.array(gato)), axis=-1), 0, atol=1e-4)
# %% after: causal, weights = attention(query, key, value, look_ahead_mask(3))
assert (np.array(weights)[0, 0][np.triu_indices(3, 1)] == 0).all(), "exactly 0"
# %% after: weights = np.array(self_attention.weights_seen[0])  # (heads, query, key)
assert_allclose(weights.sum(axis=-1), 1, rtol=1e-5)
assert words.count("▁e") == 1, "the picture has one token"
reads = weights[:, words.index("▁e")].argmax(axis=-1)
second = len(words) - 1 - words[::-1].index("▁cão")
assert [*reads] == [words.index("</s>"), second, second, words.index("▁gato")]
# %% after: pictures.draw_split("▁e", queries, results, mixed)
assert queries.shape == results.shape == (4, 64), "64 numbers of each head"
kernel, bias = self_attention.output_layer.get_weights()
joined, output = np.reshape(results, -1), self_attention(*inputs)[0, place]
assert_allclose(joined @ kernel + bias, output, atol=1e-4)
assert_allclose(mixed[0], output, atol=1e-4)
query = self_attention.query(normed)[0, place]
assert_allclose(query, np.reshape(queries, -1), err_msg="a query's quarters")
# %% after: words = shipped_tokenizer.tokens(source[0])
assert words[-1] == "</s>" and len(words) > 5
config = [shipped_model.config[x] for x in ("d_model", "num_heads", "dff")]
depths = [shipped_model.config[x] for x in ("num_layers", "num_decoder_layers")]
assert config == [256, 4, 1024] and depths == [6, 2], "the table of sizes"
# %% after: pictures.draw_feed_forward(words[:3], normed[0, :3], hidden[0, :3], output[0, :3])
assert np.min(hidden) == 0 and np.mean(hidden[0, :3] == 0) > 0.25, "many are 0"
# %% after: pictures.draw_gradients(depths, gradients)
for name, found in gradients.items():
    assert found == sorted(found, reverse=name == "without")
assert gradients["with residuals"][-1] > 0.1 > 1e-3 > gradients["without"][-1]
# %% after: pictures.draw_mask(hello[:6], hello[:6], target_mask[1, 0, :6, :6], title)
assert hello[:6] == ["<s>", "▁He", "ll", "o", "!", "<pad>"]
assert_allclose(target_mask[1, 0, 2, :6], [1, 1, 1, 0, 0, 0])
# %% after: pictures.draw_parts(tensors)
*parts, total = [np.array(x) for x in tensors.values()]
assert_allclose(sum(parts), total, atol=1e-3)
assert (source[0].numpy() != PAD).all(), "the picture has no padding"
sizes_of = {name: np.std(np.array(x)[0]) for name, x in tensors.items()}
*spreads, of_sum = sizes_of.values()
assert max(spreads) == sizes_of["+ feed-forward"], "the largest numbers"
assert of_sum < 0.95 * sum(spreads), "they do not add up"
# %% after: weights = decoder_layer.self_attention.weights_seen[0, 0, :6, :6]
weights = np.array(decoder_layer.self_attention.weights_seen[0])  # of all heads
assert (weights[:, *np.triu_indices(len(reading), 1)] == 0).all()
assert hidden.any() and (weights[0, :6, :6][hidden] == 0).all()
assert (weights[0, :6, :6].argmax(axis=-1) == 0).all(), "all read <s> most"
# %% after: pictures.draw_reads(following[:6], words, weights, title, **names)
sure = {"▁cat": "▁gato", "▁saw": "▁viu", "▁dog": "▁cão"}
for token, row in zip(following[:6], weights, strict=True):
    if token in sure:
        assert row.max() > 0.9 and words[row.argmax()] == sure[token]
# %% after: padded = np.pad(source, [[0, 0], [0, 10]])  # ten zeros at the end
for inputs, longer in (
    ((source, target_in), (padded, target_in)),
    ((source, target_in[:, :3]), (source, target_in)),
):
    assert moves(rebuilt, inputs, longer) < 5e-5, "0.0000"
    assert moves(unmasked, inputs, longer) > 0.5, "the logits move"
# %% after: untrained = masked_loss(labels, logits)
assert untrained > np.log(2000) + 0.3, "random logits are worse than equal ones"
metric = MaskedAccuracy()
metric.update_state(
    np.array([[5, 6, 0]]), np.eye(8)[None, [5, 5, 0]]
)  # one of two tokens
metric.update_state(np.array([[5, 5, 5]]), np.eye(8)[None, [5, 5, 5]])
assert abs(float(metric.result()) - 4 / 5) < 1e-6
# %% after: correct = probabilities[np.arange(len(reading)), target_out[0]]
assert 0.8 < np.median(correct) < 0.96, "near 0.9"
p = np.linspace(0.5, 0.999, 500)
loss = -0.9 * np.log(p) - 0.1 * np.log((1 - p) / (vocab_size - 1))
assert abs(p[loss.argmin()] - 0.9) < 0.002, "smoothed targets pull it to 0.9"
# %% after: schedule = Schedule(d_model=128, warmup_steps=STEPS // 3)
if STEPS > 100:
    peak = max(range(STEPS), key=lambda step: float(schedule(step)))
    assert peak == 299 and round(float(schedule(peak)), 3) == 0.005
    late = np.arange(4000, 6000)
    assert_allclose(schedule(late), Schedule(128, 4000)(late), rtol=1e-6)
# %% after: metrics = [MaskedAccuracy(name="accuracy")]
if STEPS > 100:
    assert len(pairs) < 64 * STEPS < 2 * len(pairs), "each sentence once or twice"
    assert final["loss"] < training["loss"], "it has not memorized them"
assert history.history["val_loss"][-1] < history.history["loss"][0]
ours, theirs = pictures.rare_shares(pairs, validation)
assert theirs < 0.6 * ours, "rare words are less frequent in validation"
# %% trained: metrics = [MaskedAccuracy(name="accuracy")]
assert history.history["val_accuracy"][-1] > 0.95 and final["accuracy"] > 0.95
# %% after: pictures.draw_decoding(rebuilt, shipped_tokenizer, text)
ids = [*shipped_tokenizer.encode([text])[0], END]
begun = [START, *shipped_tokenizer.processor.piece_to_id(["▁my", "▁neighbour", "s"])]
shares = np.array(ops.softmax(rebuilt((np.array([ids]), np.array([begun])))[0]))
likely = [int(token) for token in shares[1].argsort()[:-3:-1]]
assert shares.max(axis=-1).argmin() == 1, "the second step hesitates most"
assert shipped_tokenizer.tokens(likely) == ["▁neighbour", "▁neighbor"], "two spellings"
# %% after: rows = []
assert not seen, "sentences that it has not seen"
lacks = [count for count, _ in pictures.relatives([row[0] for row in rows], pairs)]
assert np.mean(np.array(lacks) <= 1) > 0.75, "close relatives in training"
# %% after: written, _ = translate(model, tokenizer, outside)
[(lacks, _)] = pictures.relatives([outside], pairs)
assert lacks >= 3, "no close relative"
# %% after: for text in [
third = shipped(
    "vou então muito rapidamente partilhar convosco algumas histórias "
    "de algumas coisas mágicas que aconteceram."
)
assert third.count("with you") == 2 and english.endswith("at the encyclopedia.")
# %% trained: rows = []
assert len(wrong) <= 4, "your model translates"
# %% after: print(shipped_tokenizer.tokens(ids), "→", tokens)
word = shipped_tokenizer.tokens(ids)
assert len(word) > 1, "it is not in the vocabulary"
assert any(tokens[i:][: len(word)] == word for i in range(len(tokens))), "copied"
# %% after: pictures.show_scores(harder, meant, needed, shipped.translate(harder))
translated, scores = shipped.translate(harder)
search = pictures.re.search
assert not search(needed[2], translated[2]), "wrong"
assert scores[2] > np.log(0.9) - 0.1, "but sure"
assert all(search(*both) for both in zip(needed, meant, strict=True))
assert not search(needed[0], "The dog saw the cat, and the dog saw the cat.")
# %% after: pictures.say_most(name, most, meanings)
assert_allclose(weights.sum(axis=-1), 1, rtol=1e-5)
assert {*most} & {*meanings}, "the translation has at least one of the words"
# %% after: copied = [i for i, token in enumerate(written) if token in copies]
assert len(written) >= len(ids), "all pieces of the word are drawn"
# %% after: served = tf.saved_model.load("mine/1").signatures["translate"]
assert answer[0].decode() == shipped(text)
# %% trained: pictures.show_relatives([(outside, written)], pairs)
assert written != shipped(outside), "your model fails outside their patterns"
# %% answer: 1
assert np.max(abs(there[:, ::-1] - back)) < 1e-5
# %% answer: 3
if STEPS > 100:
    assert peeked.history["loss"][-1] < np.mean(history.history["loss"][:3])
    text = "O meu irmão está na cozinha."
    assert translate(model, tokenizer, text)[0] == "My brother is in the kitchen."
    assert translate(peeking, tokenizer, text)[0] != "My brother is in the kitchen."
# %% answer: 4
assert layer.weights_seen[0, 0].shape == (40, 40)
# %% answer: 5
assert moves(Implicit(), source, padded) > 1e-3
