"""JoeyNMT on PyTorch: its model, loss, optimiser and training step.

With ``--batches own`` its own data loader makes the batches, to the token budget of
ours; its sampler takes sentences as they come, without buckets. Otherwise it gets the
driver's batches. The loop is that of its `TrainManager.train_and_validate`, without
reports, validation and checkpoints; normalisation by tokens and the rest of the
settings as in its `transformer_*` configurations. (Its 16 bits are refused on a CPU.)
"""

import worker

args = worker.arguments()

import os  # noqa: E402
import tempfile  # noqa: E402
from pathlib import Path  # noqa: E402
from types import SimpleNamespace  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402
from joeynmt.batch import Batch  # noqa: E402
from joeynmt.config import parse_train_args  # noqa: E402
from joeynmt.datasets import PlaintextDataset  # noqa: E402
from joeynmt.model import build_model  # noqa: E402
from joeynmt.tokenizers import BasicTokenizer  # noqa: E402
from joeynmt.training import TrainManager  # noqa: E402
from joeynmt.vocabulary import Vocabulary  # noqa: E402

sizes = args.sizes
torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
torch.manual_seed(0)
CPU = torch.device("cpu")
# Four special tokens, then ours from the first piece on: a piece keeps its id.
SPECIAL = SimpleNamespace(
    unk_token="<unk>",
    pad_token="<pad>",
    bos_token="<s>",
    eos_token="</s>",
    sep_token=None,
    lang_tags=[],
    unk_id=0,
    pad_id=1,
    bos_id=2,
    eos_id=3,
    sep_id=None,
)


def build(vocabulary):
    stack = {
        "type": "transformer",
        "num_layers": sizes.num_layers,
        "num_heads": sizes.num_heads,
        "embeddings": {
            "embedding_dim": sizes.d_model,
            "scale": True,
            "dropout": sizes.dropout_rate,
        },
        "hidden_size": sizes.d_model,
        "ff_size": sizes.dff,
        "dropout": sizes.dropout_rate,
        "layer_norm": "post",
    }
    settings = {
        "initializer": "xavier_uniform",
        "embed_initializer": "xavier_uniform",
        "tied_embeddings": True,
        "tied_softmax": True,
        "encoder": stack,
        "decoder": stack,
    }
    model = build_model(settings, src_vocab=vocabulary, trg_vocab=vocabulary)
    model.loss_function = ("crossentropy", sizes.label_smoothing)
    return model


def build_trainer(model):
    settings = parse_train_args(
        {
            "normalization": "tokens",
            "label_smoothing": sizes.label_smoothing,
            "optimizer": "adam",
            "adam_betas": [0.9, 0.98],
            "scheduling": "noam",
            "learning_rate_warmup": 4000,
            "batch_size": sizes.tokens_per_batch,
            "batch_type": "token",
        }
    )
    return TrainManager(
        rank=0,
        model=model,
        model_dir=Path(tempfile.mkdtemp()),
        device=CPU,
        autocast={"device_type": "cpu", "enabled": False},
        train_args=settings,
    )


def own_batches(trainer, vocabulary):
    """Its own batches, epoch after epoch."""
    sides = ("source", "target")
    for side in sides:  # it wants the language as the suffix
        link = Path(trainer.model_dir) / f"pairs.{side}"
        link.symlink_to((args.folder / f"{side}.txt").resolve())
    dataset = PlaintextDataset(
        path=str(Path(trainer.model_dir) / "pairs"),
        src_lang="source",
        trg_lang="target",
        split="train",
        has_trg=True,
        has_prompt=dict.fromkeys(sides, False),
        tokenizer={side: BasicTokenizer(level="word") for side in sides},
        sequence_encoder=dict.fromkeys(sides, vocabulary.sentences_to_ids),
    )
    loader = dataset.make_iter(
        batch_size=trainer.args.batch_size,
        batch_type=trainer.args.batch_type,
        seed=trainer.seed,
        shuffle=trainer.args.shuffle,
        eos_index=vocabulary.eos_index,
        pad_index=vocabulary.pad_index,
        device=CPU,
    )
    epoch = 0
    while True:
        epoch += 1
        loader.batch_sampler.set_seed(trainer.seed + epoch)
        yield from loader


def same_batches(vocabulary):
    """The driver's batches as its `Batch`."""

    def tensor(ids):
        padded = np.where(ids == worker.PAD_ID, vocabulary.pad_index, ids)
        return torch.from_numpy(padded.astype(np.int64))

    for (source, target_in), target_out in worker.Batches(args):
        target = np.concatenate([target_in[:, :1], target_out], axis=1)
        yield Batch(
            src=tensor(source),
            src_length=torch.from_numpy(np.count_nonzero(source, axis=1)),
            src_prompt_mask=None,
            trg=tensor(target),
            trg_prompt_mask=None,
            indices=torch.arange(len(source)),
            device=CPU,
            pad_index=vocabulary.pad_index,
            eos_index=vocabulary.eos_index,
        )


pieces = [str(piece) for piece in range(worker.FIRST_PIECE, sizes.vocab_size)]
vocabulary = Vocabulary(pieces, SPECIAL)
model = build(vocabulary)
trainer = build_trainer(model)
batches = (
    own_batches(trainer, vocabulary)
    if args.batches == worker.OWN
    else same_batches(vocabulary)
)
model.train()
model.zero_grad()


def train(steps):
    done = []
    for _ in range(steps):
        batch = next(batches)
        loss, _ = trainer._train_step(batch)
        trainer.optimizer.step()
        trainer.scheduler.step(trainer.stats.steps)
        model.zero_grad()
        trainer.stats.steps += 1
        done.append((batch.ntokens, batch.trg.numel(), batch.nseqs))
    return done, loss


parameters = sum(weights.numel() for weights in model.parameters())
worker.serve(train, parameters, "joeynmt", "torch")
