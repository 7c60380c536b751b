"""Runs the steps of the official TensorFlow tutorial, in order, with our classes.

"Neural machine translation with a Transformer and Keras": its later cells should
run after one import. Only the sizes differ: they are smaller, and NumPy integers, like
the vocabulary's size in that notebook.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from tfxformer import (
    CausalSelfAttention,
    CrossAttention,
    CustomSchedule,
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    FeedForward,
    GlobalSelfAttention,
    PositionalEmbedding,
    Transformer,
    masked_accuracy,
    masked_loss,
    positional_encoding,
)

# Keras warns with this text when a layer drops a mask, as the tutorial's layers do.
pytestmark = pytest.mark.filterwarnings("error:.*destroy the mask information")

VOCAB, START, END = np.int32(14), 2, 3
D_MODEL, DFF, HEADS = np.int32([32, 64, 2])


def copy_task(sentences, batch_size):
    """Batches of ``((pt, en_in), en_out)``: the "translation" is the sentence."""
    rng = np.random.default_rng(0)
    pt = np.zeros((sentences, 5), np.int64)
    for row in pt:
        length = rng.integers(1, 4)
        row[: length + 2] = [START, *rng.integers(4, VOCAB, length), END]
    en_in = np.where(pt[:, :-1] == END, 0, pt[:, :-1])
    data = tf.data.Dataset.from_tensor_slices(((pt, en_in), pt[:, 1:]))
    return data.batch(batch_size).prefetch(tf.data.AUTOTUNE)


@pytest.fixture(scope="module")
def train_batches():
    return copy_task(512, 32)


@pytest.fixture(scope="module")
def batch(train_batches):
    (pt, en), _ = next(iter(train_batches))
    return pt, en


@pytest.fixture(scope="module")
def embedded(batch):
    pt, en = batch
    embed_pt = PositionalEmbedding(vocab_size=VOCAB, d_model=D_MODEL)
    embed_en = PositionalEmbedding(vocab_size=VOCAB, d_model=D_MODEL)
    return embed_pt(pt), embed_en(en), embed_en


def make_transformer(num_layers, target_vocab_size):
    return Transformer(
        num_layers=num_layers,
        d_model=D_MODEL,
        num_heads=HEADS,
        dff=DFF,
        input_vocab_size=VOCAB,
        target_vocab_size=target_vocab_size,
        dropout_rate=0.1,
    )


@pytest.fixture(scope="module")
def trained(train_batches):
    """The model after `fit`, and its history."""
    keras.utils.set_random_seed(0)
    transformer = make_transformer(1, VOCAB)

    learning_rate = CustomSchedule(D_MODEL, warmup_steps=200)
    optimizer = tf.keras.optimizers.Adam(
        learning_rate, beta_1=0.9, beta_2=0.98, epsilon=1e-9
    )
    transformer.compile(
        loss=masked_loss, optimizer=optimizer, metrics=[masked_accuracy]
    )
    history = transformer.fit(
        train_batches, epochs=6, validation_data=train_batches.take(2), verbose=0
    )
    return transformer, history.history


def test_each_layer_in_the_tutorial_gives_the_expected_shapes_and_masks(
    batch, embedded
):
    pt, en = batch
    pt_emb, en_emb, embed_en = embedded
    assert positional_encoding(length=2048, depth=512).shape == (2048, 512)
    assert en_emb.shape == (*en.shape, D_MODEL)
    assert_array_equal(en_emb._keras_mask, en != 0)
    sample_ca = CrossAttention(num_heads=2, key_dim=512)
    assert sample_ca(en_emb, pt_emb).shape == en_emb.shape
    at_padding = np.moveaxis(sample_ca.last_attn_scores.numpy(), 3, 1)[pt == 0]
    assert at_padding.size and (at_padding == 0).all()
    sample_gsa = GlobalSelfAttention(num_heads=2, key_dim=512)
    assert sample_gsa(pt_emb).shape == pt_emb.shape
    sample_csa = CausalSelfAttention(num_heads=2, key_dim=512)
    out1 = sample_csa(embed_en(en[:, :3]))
    out2 = sample_csa(embed_en(en))[:, :3]
    assert tf.reduce_max(abs(out1 - out2)).numpy() < 1e-5
    assert FeedForward(D_MODEL, DFF)(en_emb).shape == en_emb.shape


def test_encoder_and_decoder_in_the_tutorial_give_the_expected_shapes(batch, embedded):
    pt, en = batch
    pt_emb, en_emb, _ = embedded
    sizes = {"d_model": D_MODEL, "num_heads": 8, "dff": DFF}
    assert EncoderLayer(**sizes)(pt_emb).shape == pt_emb.shape
    sample_encoder = Encoder(num_layers=2, vocab_size=8500, **sizes)
    assert sample_encoder(pt, training=False).shape == pt_emb.shape
    assert DecoderLayer(**sizes)(x=en_emb, context=pt_emb).shape == en_emb.shape
    sample_decoder = Decoder(num_layers=2, vocab_size=8000, **sizes)
    assert sample_decoder(x=en, context=pt_emb).shape == en_emb.shape
    # (batch, heads, target_seq, input_seq)
    expected = (en.shape[0], 8, en.shape[1], pt.shape[1])
    assert sample_decoder.last_attn_scores.shape == expected


def test_the_transformer_in_the_tutorial_gives_logits_scores_and_a_summary(
    batch, capsys
):
    transformer = make_transformer(2, VOCAB + 2)
    pt, en = batch
    output = transformer((pt, en))
    assert output.shape == (*en.shape, VOCAB + 2)
    attn_scores = transformer.decoder.dec_layers[-1].last_attn_scores
    assert attn_scores.shape == (en.shape[0], HEADS, en.shape[1], pt.shape[1])
    transformer.summary()
    assert f"{transformer.count_params():,}" in capsys.readouterr().out


def test_training_as_in_the_tutorial_halves_the_loss(trained):
    _, history = trained
    metrics = {"loss", "masked_accuracy"}
    assert set(history) == metrics | {f"val_{metric}" for metric in metrics}
    assert np.isfinite(history["loss"]).all()
    assert history["loss"][-1] < 0.5 * history["loss"][0]
    assert history["val_loss"][-1] < 0.5 * history["val_loss"][0]
    assert history["val_masked_accuracy"][-1] > 0.7


def translate(transformer, encoder_input, max_length):
    """The decoding loop of the tutorial's `Translator`, with ids."""
    start, end = tf.constant([START], tf.int64), tf.constant([END], tf.int64)
    output_array = tf.TensorArray(dtype=tf.int64, size=0, dynamic_size=True)
    output_array = output_array.write(0, start)
    for i in tf.range(max_length):
        output = tf.transpose(output_array.stack())
        predictions = transformer([encoder_input, output], training=False)
        predictions = predictions[:, -1:, :]
        predicted_id = tf.argmax(predictions, axis=-1)
        output_array = output_array.write(i + 1, predicted_id[0])
        if predicted_id == end:
            break
    return tf.transpose(output_array.stack())


# Keras's softmax asks whether a sequence of one token, the loop's first, is meant.
@pytest.mark.filterwarnings("error::UserWarning")
def test_the_tutorial_s_decoding_loop_translates_token_by_token(trained, batch):
    transformer, _ = trained
    right = 0
    for sentence in batch[0][:3]:
        sentence = tf.boolean_mask(sentence, sentence != 0)[tf.newaxis]
        output = translate(transformer, sentence, 5)
        assert output.dtype == tf.int64 and output[0, 0] == START
        transformer([sentence, output[:, :-1]], training=False)
        attention_weights = transformer.decoder.last_attn_scores.numpy()
        expected = (1, HEADS, output.shape[1] - 1, sentence.shape[1])
        assert attention_weights.shape == expected
        assert_allclose(attention_weights.sum(-1), 1, rtol=1e-5)
        right += output.shape == sentence.shape and bool(
            tf.reduce_all(output == sentence)
        )
    assert right >= 2


def test_the_tutorial_s_decoding_loop_gives_the_same_ids_in_an_export(
    trained, batch, tmp_path
):
    """As in the tutorial's `ExportTranslator`; a graph leaves no scores behind."""
    export, sentence = tf.Module(), batch[0][:1, :2]
    export.transformer, _ = trained
    export.translate = tf.function(
        lambda ids: translate(export.transformer, ids, 3),
        [tf.TensorSpec([1, None], tf.int64)],
    )
    expected = translate(export.transformer, sentence, 3)
    kept = export.transformer.decoder.last_attn_scores.numpy()
    tf.saved_model.save(export, tmp_path / "translator")
    reloaded = tf.saved_model.load(tmp_path / "translator")
    assert_array_equal(reloaded.translate(sentence), expected)
    assert_array_equal(export.transformer.decoder.last_attn_scores, kept)
