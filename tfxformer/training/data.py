"""What a run trains and validates on: from the sources' names to token corpora."""

import logging
import math
import shutil
import time
from typing import NamedTuple

from tfxformer import corpora, fine_tuning
from tfxformer.corpora.pair import Pair
from tfxformer.corpora.splitting import hold_out
from tfxformer.errors import UserError
from tfxformer.token_corpus import TokenCorpus, cached_corpus, corpus_key
from tfxformer.tokenizer import Tokenizer

log = logging.getLogger("tfxformer")


class Data(NamedTuple):
    """All that a run reads."""

    vocabulary: Tokenizer
    corpora: list  # a `TokenCorpus` for each source
    valid: list  # pairs to validate on
    valid_rows: list  # their ids: of the source, of the target

    def keys(self):
        """What tells it from other data: digests by name."""
        found = {"tokenizer.model": self.vocabulary.digest}
        found |= {str(i): corpus.key for i, corpus in enumerate(self.corpora)}
        return found | {"validation": corpus_key(self.valid, self.vocabulary, 0)}


def check_sources(config):
    """Makes sure that all sources are there, without reading them.

    Raises:
        UserError: naming the one that is not.
    """
    if not config.data.sources:
        raise UserError("data.sources is empty: name where sentence pairs come from")
    for source in config.data.sources:
        corpora.check_source(source)
    if config.data.valid is not None:
        corpora.check_source(config.data.valid)


def load_data(config, run):
    """Reads all pairs, and learns the vocabulary where there is none yet.

    Token ids are kept in the run folder, so that only the first start tokenises.

    Args:
        config: a `Config`.
        run: the `Run`.

    Returns:
        `Data`.

    Raises:
        UserError: when a source cannot be read, or nothing is left of one.
    """
    for part in run.tokens_folder.glob(".*.part-*"):  # of a start that was killed
        shutil.rmtree(part, ignore_errors=True)
    sources, valid = read_pairs(config)
    vocabulary = _vocabulary(run, config, sources)
    longest = config.model.max_length
    found = []
    for number, (name, pairs) in enumerate(
        zip(config.data.sources, sources, strict=True)
    ):
        key = corpus_key(pairs, vocabulary, longest)
        folder = run.tokens_folder / str(number)
        corpus = cached_corpus(folder, pairs, vocabulary, longest, key)
        _say_too_long(name, corpus.counts["too_long"], len(pairs), longest)
        if not corpus.pairs:
            raise UserError(_nothing_fits(name, longest))
        found.append(corpus)
    rows = _encoded(valid, vocabulary)
    fits = [max(map(len, row)) < longest for row in rows]
    _say_too_long("validation", fits.count(False), len(rows), longest)
    if not any(fits):
        raise UserError(_nothing_fits("validation", longest))
    valid = [pair for pair, fit in zip(valid, fits, strict=True) if fit]
    rows = [row for row, fit in zip(rows, fits, strict=True) if fit]
    return Data(vocabulary, found, valid, rows)


def open_data(config, run, valid):
    """What `load_data` has left in the run folder, for another process than its own.

    Args:
        config: a `Config`.
        run: the `Run`.
        valid: the pairs to validate on, as `load_data` gave them.

    Returns:
        `Data`.

    Raises:
        UserError: when it is not there.
    """
    vocabulary = run.tokenizer()
    found = [
        TokenCorpus.open(run.tokens_folder / str(number))
        for number in range(len(config.data.sources))
    ]
    valid = [Pair(*pair) for pair in valid]
    return Data(vocabulary, found, valid, _encoded(valid, vocabulary))


def _encoded(pairs, vocabulary):
    sides = (vocabulary.encode([pair[side] for pair in pairs]) for side in (0, 1))
    return list(zip(*sides, strict=True))


def _say_too_long(name, too_long, pairs, longest):
    if too_long:
        log.info(
            "%s: %s of %s pairs have more than %s tokens and are left out",
            name,
            f"{too_long:,}",
            f"{pairs:,}",
            longest - 1,
        )


def _nothing_fits(name, longest):
    return (
        f"{name}: no pair has at most {longest - 1} tokens; raise "
        f"model.max_length = {longest}"
    )


def read_pairs(config):
    """Reads, cleans and splits the corpora that the settings name.

    Args:
        config: a `Config`.

    Returns:
        For each source a list of `Pair`s; and the pairs to validate on.

    Raises:
        UserError: when a source cannot be read or nothing is left of it.
    """
    data = config.data
    options = {
        "data_dir": data.data_dir,
        "columns": data.columns,
        "encoding": data.encoding,
    }
    sources = []
    for source in data.sources:
        pairs, counts = corpora.load(
            source,
            max_characters=data.max_characters,
            max_length_ratio=data.max_length_ratio,
            **options,
        )
        log.info("%s: %s", source, counts.describe())
        sources.append(pairs)
    if data.valid is not None:
        valid, counts = corpora.load(data.valid, "validation", cleaned=False, **options)
        log.info("%s: %s", data.valid, counts.describe())
        return sources, valid
    if data.sources == ["phrasebook"] or data.sources == ["ted"]:
        valid, _ = corpora.load(data.sources[0], "validation", cleaned=False, **options)
        return sources, valid
    return _hold_out(config, sources)


def _hold_out(config, sources):
    """Takes validation pairs out of the sources, of each as its share is."""
    total = sum(map(len, sources))
    # Never more than a twentieth: a small corpus needs its pairs for training.
    wanted = min(config.data.valid_pairs, total // 20)
    if wanted < 1:
        raise UserError(
            f"{total} pairs are too few to hold some out: name pairs to validate on "
            "with --valid"
        )
    held, valid = [], []
    for pairs in sources:
        share = math.ceil(wanted * len(pairs) / total)
        splits = hold_out(pairs, {"validation": share}, config.training.seed)
        held.append(splits["train"])
        valid += splits["validation"]
    log.info("held out for validation: %s pairs", f"{len(valid):,}")
    # What one source holds out may stand in another one.
    seen_source, seen_target = ({pair[side] for pair in valid} for side in (0, 1))
    sources = [
        [p for p in pairs if p[0] not in seen_source and p[1] not in seen_target]
        for pairs in held
    ]
    return sources, valid


def _vocabulary(run, config, sources):
    """The run's vocabulary: its own, another run's, or learnt."""
    if run.tokenizer_file.exists():
        return run.tokenizer()
    if config.training.init_from:
        vocabulary = fine_tuning.tokenizer(config.training.init_from)
    else:
        started = time.monotonic()
        size = config.tokenizer.vocab_size
        log.info("learning a vocabulary of %s tokens", f"{size:,}")
        vocabulary = Tokenizer.train(
            (side for pairs in sources for pair in pairs for side in pair),
            size,
            config.tokenizer.casing,
        )
        log.info("vocabulary learnt in %.0f s", time.monotonic() - started)
    vocabulary.save(run.tokenizer_file)
    return vocabulary
