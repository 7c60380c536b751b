"""The data of a run: from the names of its sources to token ids."""

import hashlib
import itertools
import json
import logging
import math
from typing import NamedTuple

import numpy as np

from tfxformer import corpora
from tfxformer.corpora import Pair
from tfxformer.corpora.splitting import hold_out
from tfxformer.errors import UserError
from tfxformer.token_file import TokenFile, encode_pairs, write_tokens
from tfxformer.tokenizer import Tokenizer
from tfxformer.training import fine_tuning

log = logging.getLogger("tfxformer")


class Data(NamedTuple):
    """The input of a run."""

    tokenizer: Tokenizer
    tokens: TokenFile  # the training pairs
    valid: list  # the validation pairs
    valid_rows: list  # their ids: source, target

    def digests(self, sources):
        """Digests by name, to tell these data from others."""
        digests = [source["digest"] for source in self.tokens.sources]
        validation = hashlib.sha256(json.dumps(self.valid).encode()).hexdigest()
        return dict(zip(sources, digests, strict=True)) | {
            "validation": validation,
            "tokenizer.model": self.tokenizer.digest,
        }


def load_data(config, run):
    """Reads all pairs of a `Config`, and learns the vocabulary if there is none yet.

    The token ids stay in the folder of the `Run` until settings or files change.
    """
    made_of = _made_of(config)
    if run.tokens_folder.exists() and run.tokenizer_file.exists():
        try:
            data = open_data(run)
            if data.tokens.about["made_of"] == [*made_of, data.tokenizer.digest]:
                return data
        except (UserError, OSError) as error:
            log.info("%s; making the token ids again", error)
    sources, valid = _read_pairs(config)
    # A run with a checkpoint keeps the vocabulary of its weights.
    if not (run.checkpoints() and run.tokenizer_file.exists()):
        _make_tokenizer(config, sources).save(run.tokenizer_file)
    tokenizer, longest = run.tokenizer(), config.model.max_length
    fits = [max(map(len, row)) < longest for row in encode_pairs(valid, tokenizer)]
    about = {
        "made_of": [*made_of, tokenizer.digest],
        "valid": [*itertools.compress(valid, fits)],
    }
    tokens = write_tokens(
        run.tokens_folder, sources, tokenizer, max_length=longest, about=about
    )
    counts = [*tokens.sources, {"pairs": sum(fits), "too_long": fits.count(False)}]
    for name, count in zip([*config.data.sources, "validation"], counts, strict=True):
        kept, too_long = count["pairs"], count["too_long"]
        if not kept:
            raise UserError(
                f"{name}: no pair has at most {longest - 1} tokens; raise "
                f"model.max_length = {longest}"
            )
        if too_long:
            total = f"{kept + too_long:,} pairs have more than {longest - 1} tokens"
            log.info("%s: %s of %s and are left out", name, f"{too_long:,}", total)
    return open_data(run)


def open_data(run):
    """The `Data` that `load_data` wrote to a `Run`'s folder, or a `UserError`."""
    tokenizer, tokens = run.tokenizer(), TokenFile(run.tokens_folder)
    valid = [Pair(*pair) for pair in tokens.about["valid"]]
    return Data(tokenizer, tokens, valid, encode_pairs(valid, tokenizer))


def _read_pairs(config):
    """The cleaned pairs of each source, and the validation pairs."""
    data, sources = config.data, []
    options = data.model_dump(include={"data_dir", "columns", "encoding"})
    limits = data.model_dump(include={"max_characters", "max_length_ratio"})
    for source in data.sources:
        pairs, counts = corpora.load(source, **limits, **options)
        log.info("%s: %s", source, counts.describe())
        sources.append(pairs)
    valid = data.valid
    if valid is None and data.sources in (["phrasebook"], ["ted"]):
        valid = data.sources[0]  # these two have a validation split
    if valid is None:
        return _hold_out(config, sources)
    pairs, counts = corpora.load(valid, "validation", cleaned=False, **options)
    log.info("%s: %s", valid, counts.describe())
    return sources, pairs


def _hold_out(config, sources):
    """Takes validation pairs out of the sources, in proportion to their sizes."""
    total = sum(map(len, sources))
    # At most a twentieth: a small corpus needs its pairs for training.
    wanted = min(config.data.valid_pairs, total // 20)
    if wanted < 1:
        raise UserError(
            f"{total} pairs are too few to hold some out for validation: give "
            "validation pairs with --valid"
        )
    train, valid = [], []
    for pairs in sources:
        share = math.ceil(wanted * len(pairs) / total)
        splits = hold_out(pairs, {"validation": share}, config.training.seed)
        train.append(splits["train"])
        valid += splits["validation"]
    log.info("held out for validation: %s pairs", f"{len(valid):,}")
    # No pair may share a side with a validation pair of another source.
    sources, targets = ({*side} for side in zip(*valid, strict=True))
    for i, pairs in enumerate(train):
        leaks = (x.source in sources or x.target in targets for x in pairs)
        train[i] = pairs.select(np.flatnonzero(~np.fromiter(leaks, bool)))
    return train, valid


def _made_of(config):
    """Everything the token ids depend on, except the vocabulary."""
    names = [*config.data.sources, *filter(None, [config.data.valid])]
    files = [(str(file), file.stat()) for file in corpora.input_files(names)]
    return [
        config.data.model_dump(exclude={"weights"}),
        config.tokenizer.model_dump(),
        config.model.max_length,
        config.training.model_dump(include={"init_from", "seed"}),
        [[name, stat.st_size, stat.st_mtime_ns] for name, stat in files],
    ]


def _make_tokenizer(config, sources):
    """The tokenizer of ``init_from``, or one learnt from the pairs."""
    if config.training.init_from:
        return fine_tuning.load(config.training.init_from)[0]
    size, casing = config.tokenizer.vocab_size, config.tokenizer.casing
    log.info("learning a vocabulary of %s tokens", f"{size:,}")

    def learn(*sides):
        lines = (pair[side] for pairs in sources for pair in pairs for side in sides)
        return Tokenizer.train(lines, size, casing)

    if config.tokenizer.shared:
        return learn(0, 1)
    return Tokenizer(learn(0).model, learn(1))
