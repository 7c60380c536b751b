"""The TensorFlow tutorial's own export, around our `Transformer`, loads and answers."""

import pytest
import tensorflow as tf
from tensorflow_text import BertTokenizer

from tfxformer import Transformer
from tfxformer.corpora import load

START, END = 2, 3


class Tokenizer(tf.Module):
    """BERT's WordPiece between a start and an end token, as int64 ids."""

    def __init__(self, texts, file):
        super().__init__()
        tokens = ["[PAD]", "[UNK]", "[START]", "[END]"]
        tokens += sorted({x for text in texts for x in text.lower().split()})
        file.write_text("".join(f"{token}\n" for token in tokens), "utf-8")
        self.size, self.bert = len(tokens), BertTokenizer(str(file), lower_case=True)

    def tokenize(self, texts):
        ids = self.bert.tokenize(texts).merge_dims(1, 2)
        edge = tf.ones([ids.nrows(), 1], tf.int64)
        return tf.concat([START * edge, ids, END * edge], axis=1).to_tensor()

    def detokenize(self, ids):
        words = self.bert.detokenize(tf.ragged.boolean_mask(ids, ids > END))
        return tf.strings.reduce_join(words, axis=-1, separator=" ")


@pytest.mark.slow
def test_the_tutorial_s_export_with_its_tokenizers_loads(tmp_path):
    pairs = load("phrasebook", "test", cleaned=False)[0][:200]
    pt = Tokenizer([pair.source for pair in pairs], tmp_path / "pt.txt")
    en = Tokenizer([pair.target for pair in pairs], tmp_path / "en.txt")
    sizes = {"num_layers": 1, "d_model": 16, "num_heads": 2, "dff": 32}
    sizes |= {"input_vocab_size": pt.size, "target_vocab_size": en.size}
    export = tf.Module()
    export.pt, export.en, export.transformer = pt, en, Transformer(**sizes)

    @tf.function(input_signature=[tf.TensorSpec([], tf.string)])
    def translate(sentence):
        source, ids = (
            pt.tokenize(sentence[tf.newaxis]),
            tf.constant([[START]], tf.int64),
        )
        for _ in range(4):
            logits = export.transformer([source, ids], training=False)
            ids = tf.concat([ids, tf.argmax(logits[:, -1:], axis=-1)], axis=1)
        return en.detokenize(ids)[0]

    export.translate = translate
    tf.saved_model.save(export, tmp_path / "translator")
    reloaded = tf.saved_model.load(tmp_path / "translator")
    assert reloaded.translate(pairs[0].source) == translate(
        tf.constant(pairs[0].source)
    )
