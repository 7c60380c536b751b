"""OpenNMT-tf: its Transformer and its trainer, with the settings it comes with.

With ``--batches own`` its own input pipeline makes the batches, of lengths that
differ by two at most, to the token budget of ours; otherwise its pipeline gets the
driver's batches. One update a batch: it would add up the gradients of several, as many
as make 25,000 tokens. (Its 16 bits are float16, for GPUs.)
"""

import worker

args = worker.arguments()

import tempfile  # noqa: E402
from pathlib import Path  # noqa: E402

import opennmt  # noqa: E402
import tensorflow as tf  # noqa: E402
from opennmt.models import EmbeddingsSharingLevel  # noqa: E402
from opennmt.training import Trainer, TrainingStats  # noqa: E402

sizes = args.sizes
tf.random.set_seed(0)


def build():
    model = opennmt.models.Transformer(
        source_inputter=opennmt.inputters.WordEmbedder(embedding_size=sizes.d_model),
        target_inputter=opennmt.inputters.WordEmbedder(embedding_size=sizes.d_model),
        num_layers=sizes.num_layers,
        num_units=sizes.d_model,
        num_heads=sizes.num_heads,
        ffn_inner_dim=sizes.dff,
        dropout=sizes.dropout_rate,
        attention_dropout=sizes.dropout_rate,
        ffn_dropout=0.0,
        share_embeddings=EmbeddingsSharingLevel.ALL,
        pre_norm=False,
    )
    # Its three special tokens, our pieces, and the one it adds for the unknown.
    tokens = ["<blank>", "<s>", "</s>"]
    tokens += map(str, range(worker.FIRST_PIECE, sizes.vocab_size))
    file = Path(tempfile.mkdtemp()) / "vocabulary.txt"
    file.write_text("\n".join(tokens) + "\n")
    params = model.auto_config()["params"]
    params["label_smoothing"] = sizes.label_smoothing
    model.initialize(
        {"source_vocabulary": str(file), "target_vocabulary": str(file)}, params=params
    )
    return model


def own_batches(model):
    defaults = opennmt.config.merge_config(
        {"length_bucket_width": 2}, model.auto_config()["train"]
    )
    return model.examples_inputter.make_training_dataset(
        str(args.folder / "source.txt"),
        str(args.folder / "target.txt"),
        batch_size=sizes.tokens_per_batch,
        batch_type=defaults["batch_type"],
        shuffle_buffer_size=defaults["sample_buffer_size"],
        length_bucket_width=defaults["length_bucket_width"],
        maximum_features_length=sizes.max_length,
        maximum_labels_length=sizes.max_length,
    )


def same_batches(model):
    """The driver's batches as text, which its pipeline makes ids of again."""

    def lines(ids):
        return [
            " ".join(str(id) for id in row if id >= worker.FIRST_PIECE) for row in ids
        ]

    def generate():
        for (source, _), target in worker.Batches(args):
            yield lines(source), lines(target)

    text = tf.TensorSpec((None,), tf.string)
    dataset = tf.data.Dataset.from_generator(generate, output_signature=(text, text))
    dataset = dataset.map(
        lambda *sides: model.examples_inputter.make_features(sides, training=True)
    )
    return dataset.prefetch(2)


class Noted:
    """A dataset that tells how large the batch was that it gave last."""

    def __init__(self, dataset):
        self.dataset, self.element_spec = dataset, dataset.element_spec

    def __iter__(self):
        for features, labels in self.dataset:
            lengths = labels["length"].numpy()
            self.size = (lengths.sum(), tf.size(labels["ids_out"]), len(lengths))
            yield features, labels


model = build()
make = own_batches if args.batches == worker.OWN else same_batches
dataset = Noted(make(model))
optimizer = model.get_optimizer()
model.create_variables(optimizer)
trainer = Trainer(model, optimizer)
# What its `__call__` does before the first step, without checkpoints and reports.
trainer._gradient_accumulator.reset()
trainer._training_stats = TrainingStats(model, optimizer)
losses = trainer._steps(dataset)


def train(steps):
    done = []
    for _ in range(steps):
        loss = next(losses)
        done.append(dataset.size)
    return done, loss


worker.serve(train, model.count_params(), "OpenNMT-tf", "tensorflow-cpu")
