"""Pairs that a model makes of one language's text: back-translation, distillation.

Both read a text file line by line and write a file of pairs, `source<TAB>target`, that
`train --data` takes beside others. Each line is one sentence to the model.

Work is done in chunks of lines. A finished chunk is added to `OUT.part`, and
`OUT.part.json` says how far that is; the same call goes on from there after whatever
ended the last one, and ends with the same bytes. A finished file has its name at once,
and `OUT.json` beside it says what it was made of, and how.
"""

import contextlib
import fcntl
import gzip
import hashlib
import itertools
import json
import logging
import os
import re
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tfxformer import __version__
from tfxformer.console import Progress
from tfxformer.corpora.cleaning import normalize, unfit
from tfxformer.corpora.files import read_lines
from tfxformer.corpora.pair import Pair
from tfxformer.corpora.splitting import sentence_key
from tfxformer.decoding_options import DecodingOptions
from tfxformer.errors import UserError

log = logging.getLogger("tfxformer")

# What is lost at most when a job is killed. Sentences of like length are translated
# together within a chunk, so a small one would leave batches half empty.
LINES_PER_CHUNK = 2048

# Why a line gives no pair, in the order in which it is found out.
_REASONS = {
    "malformed_utf8": "not UTF-8",
    "malformed_columns": "not two columns",
    "blank": "blank",
    "too_long": "too long",
    "empty": "empty translation",
    "unfinished": "translation without an end",
    "loop": "translation in a loop",
    "copy": "copied, not translated",
    "length_ratio": "length ratio",
}
# Those for which the model is to blame.
_FAILURES = ("empty", "unfinished", "loop", "copy", "length_ratio")

# The same two letters or more, four times without a break.
_LOOP = re.compile(r"(.{2,60}?)\1{3}")


def backtranslate(
    run,
    input,
    out,
    tag="<BT>",
    checkpoint="best",
    options=None,
    xla=False,
    tokens_per_batch=2048,
):
    """Makes sources for targets that people wrote (Sennrich et al. 2016).

    The model translates from the target language to the source language. Its output is
    the source of a pair, the text that it read is the target, normalised as in
    `tfxformer.corpora`. The pairs are for training in the other direction than the
    model's, without ``--reverse``.

    Before each source stands a tag, by which the student (Caswell et al. 2019) and
    ``grep`` tell such pairs from people's; what people ask to have translated has
    none. A vocabulary that is learnt with these pairs has it as one piece, another one
    spells it in a few.

    Args:
        run: the path of a run folder, or of an exported SavedModel, that translates
            from the target language.
        input: a file of text in the target language, a sentence a line; it may be
            gzipped.
        out: the file of pairs to write; gzipped if its name ends in ``.gz``.
        tag: what stands before each source, and a space; "" for nothing.
        checkpoint: which weights of a run folder.
        options: `DecodingOptions` for a run folder; None decodes greedily.
        xla: compile decoding with XLA, for a run folder.
        tokens_per_batch: see `Translator.translate`.

    Returns:
        The path of the file of pairs.

    Raises:
        UserError: when a file or the model cannot be used, or the file of pairs was
            begun with another model, other text or other options.

    Example:
        >>> backtranslate("runs/en_pt", "news.en.gz", "news.tsv.gz", tag=" <BT> ")
        Traceback (most recent call last):
        ...
        tfxformer.errors.UserError: tag ' <BT> ': must stay as it is in normalised ...
    """
    made = {"command": "backtranslate", "synthetic": "source", "tag": tag}
    how = (checkpoint, options, xla, tokens_per_batch)
    return _make(made, run, input, out, *how)


def distill(
    run,
    input,
    out,
    tag="",
    checkpoint="best",
    options=None,
    xla=False,
    tokens_per_batch=2048,
):
    """Makes targets that a student learns from (Kim and Rush 2016).

    The model, the teacher, translates sources; its output is the target of a pair.
    A small student that is trained on such pairs comes nearer to its teacher than one
    that is trained on people's translations, which are harder to predict. Let a beam
    search for them: it finds better ones than greedy decoding.

    By default there is no tag: a student answers as it was taught to for such a
    source, and would want the tag on all that it is asked. ``OUT.json`` marks the file
    as synthetic. Give a tag to train on people's pairs too, and to have the student
    tell them apart: without the tag it then answers as people do.

    Args:
        run: the path of a run folder, or of an exported SavedModel.
        input: a file of sentences in the source language, one a line, or of pairs, of
            which the sources are read; it may be gzipped. Its first line that is not
            blank says which: pairs have one tab.
        out: see `backtranslate`.
        tag: see `backtranslate`.
        checkpoint: see `backtranslate`.
        options: see `backtranslate`.
        xla: see `backtranslate`.
        tokens_per_batch: see `backtranslate`.

    Returns:
        The path of the file of pairs.

    Raises:
        UserError: as `backtranslate`.

    Example:
        >>> distill("runs/big", "nowhere.pt", "kd.tsv.gz")
        Traceback (most recent call last):
        ...
        tfxformer.errors.UserError: nowhere.pt: ...
    """
    made = {"command": "distill", "synthetic": "target", "tag": tag}
    how = (checkpoint, options, xla, tokens_per_batch)
    return _make(made, run, input, out, *how)


def _make(made, run, input, out, checkpoint, options, xla, tokens_per_batch):
    """Translates a file into pairs, or goes on with it."""
    if made["tag"] != normalize(made["tag"]):
        raise UserError(
            f"tag {made['tag']!r}: must stay as it is in normalised text, as <BT> "
            "does: no tabs, no spaces at its ends"
        )
    text = _Text.scan(input)
    if text.pairs and made["command"] == "backtranslate":
        raise UserError(
            f"{input}: holds pairs; give text of the target language alone, a sentence "
            "a line (of pairs: cut -f2)"
        )
    # After what is checked at once: TensorFlow takes seconds.
    from tfxformer.quiet import start_tensorflow

    start_tensorflow()
    from tfxformer.translator import Translator

    translator = Translator.load(run, checkpoint, options, xla)
    options = translator.options or _exported_options(run)
    made = {
        **made,
        "decoding": options.describe(),
        "model_sha256": _model_digest(Path(run), checkpoint),
        "input_sha256": text.sha256,
    }
    # For people; that a folder was moved changes nothing.
    where = {"tfxformer": __version__, "run": str(run), "input": str(input)}
    output = _Output(Path(out), made, where)
    if output.finished():
        log.info("%s: is there already, made with these settings", out)
        return output.path
    with output:
        if output.lines:
            log.info("%s: going on from line %s", out, f"{output.lines + 1:,}")
        _translate(translator, options, text, output, tokens_per_batch)
        output.finish()
    log.info("%s: %s", out, _describe(output.counts))
    return output.path


def _translate(translator, options, text, output, tokens_per_batch):
    """Adds chunk after chunk to the output, up to the end of the text."""
    start, began, warned = output.lines, time.monotonic(), False
    lines = itertools.islice(read_lines(text.path), start, None)
    with Progress("translating", text.lines, start) as progress:
        while chunk := list(itertools.islice(lines, LINES_PER_CHUNK)):
            pairs, counts = _pairs(
                translator, options, chunk, text.pairs, output.made, tokens_per_batch
            )
            output.add(len(chunk), pairs, counts)
            seconds = time.monotonic() - began
            progress.update(
                output.lines,
                **{"lines/s": (output.lines - start) / seconds},
                kept=output.counts["kept"] / output.counts["read"],
            )
            failures = sum(output.counts[reason] for reason in _FAILURES)
            if failures > max(output.counts["kept"], 100) and not warned:
                warned = True
                log.warning(
                    "%s: most translations are no use (%s): does the model read this "
                    "language?",
                    output.path,
                    _describe(output.counts),
                )


def _pairs(translator, options, lines, columns, made, tokens_per_batch):
    """Pairs of lines, and counts of those and of what gave none.

    Args:
        translator: a `Translator`.
        options: the `DecodingOptions` that it has.
        lines: strings, and None for what is not UTF-8.
        columns: whether the lines are pairs.
        made: the settings.
        tokens_per_batch: see `Translator.translate`.

    Returns:
        A list of `Pair`s, and a `Counter` of `_REASONS`, ``"read"`` and ``"kept"``.
    """
    counts = Counter(read=len(lines))
    texts = []
    for line in lines:
        text, reason = _usable(line, columns)
        if reason:
            counts[reason] += 1
        else:
            texts.append(text)
    lengths = _lengths(translator, texts)
    limits = _limits(lengths, options, translator.max_length)
    fit = np.flatnonzero(lengths < translator.max_length)
    if len(fit) < len(texts):
        counts["too_long"] += len(texts) - len(fit)
    texts = [texts[i] for i in fit]
    translations, _ = translator.translate(
        texts, tokens_per_batch=tokens_per_batch, split_sentences=False
    )
    translations = [normalize(translation) for translation in translations]
    unfinished = _lengths(translator, translations) >= limits[fit]
    pairs = []
    for text, translation, endless in zip(texts, translations, unfinished, strict=True):
        reason = _unusable(text, translation, endless)
        if reason:
            counts[reason] += 1
            continue
        backwards = made["synthetic"] == "source"
        source, target = (translation, text) if backwards else (text, translation)
        pairs.append(Pair(f"{made['tag']} {source}".lstrip(), target))
    counts["kept"] = len(pairs)
    return pairs, counts


def _usable(line, columns):
    """The text of a line and None, or None and the reason why it has none."""
    if line is None:
        return None, "malformed_utf8"
    text, *rest = line.split("\t") if columns else [line]
    if columns and len(rest) != 1 and line.strip():
        return None, "malformed_columns"
    text = normalize(text)
    if not text:
        return None, "blank"
    # What is wrong with one side, whatever the other one is.
    reason = unfit(Pair(text, text))
    return (None, reason) if reason else (text, None)


def _unusable(text, translation, endless):
    """The reason why a translation teaches nothing; None if it may."""
    if not translation:
        return "empty"
    if endless:
        return "unfinished"
    keys = [sentence_key(side) for side in (text, translation)]
    # The space lets the last word of "no no no no" be like the others.
    source_loops, loops = (_LOOP.search(f"{key} ") for key in keys)
    if loops and not source_loops:
        return "loop"
    if keys[0] == keys[1]:
        return "copy"
    return unfit(Pair(text, translation))


def _lengths(translator, texts):
    """How many tokens each text has, without start and end: an int array."""
    if not texts:
        return np.zeros(0, int)
    return translator.answers("count", {"text": texts})["tokens"]


def _limits(lengths, options, max_length):
    """How many tokens the translation of a text of each length may have."""
    from tfxformer.decoding.search import length_limit

    # Any tokens will do, and the end after them.
    width = lengths.max(initial=0) + 1
    tokens = (np.arange(width) <= lengths[:, None]).astype("int32")
    return np.asarray(length_limit(tokens, options, max_length))


def _exported_options(run):
    """How an exported model decodes."""
    from tfxformer.exporting.metadata import read_metadata

    decoding = read_metadata(run)["model"].get("decoding")
    if decoding is None:
        return DecodingOptions()
    return DecodingOptions.described(decoding["translate"])


def _model_digest(run, checkpoint):
    """A SHA-256 of all that decides what a model answers but its options."""
    if (run / "saved_model.pb").exists():
        files = [run / "saved_model.pb", *sorted(run.glob("variables/*"))]
    else:
        from tfxformer.run import Run

        opened = Run.open(run)
        files = [opened.tokenizer_file, opened.weights_file(checkpoint)]
    digest = hashlib.sha256()
    for path in files:
        with open(path, "rb") as file:
            while block := file.read(2**20):
                digest.update(block)
    return digest.hexdigest()


def _describe(counts):
    """One line: what was read, what was written, and why the rest was not."""
    left_out = counts["read"] - counts["kept"]
    line = f"{counts['read']:,} lines read, {counts['kept']:,} pairs made"
    if not left_out:
        return line
    reasons = ", ".join(
        f"{counts[name]:,} {text}" for name, text in _REASONS.items() if counts[name]
    )
    return f"{line}, {left_out:,} left out ({reasons})"


class _Text(NamedTuple):
    """A text file that was read through once.

    Attributes:
        path: where it is.
        lines: how many lines it has.
        sha256: of its lines, whether they are gzipped or not.
        pairs: whether they are pairs: the first line that is not blank has one tab.
    """

    path: Path
    lines: int
    sha256: str
    pairs: bool

    @classmethod
    def scan(cls, path):
        path = Path(path)
        if path.exists() and not path.is_file() and not path.is_dir():
            raise UserError(f"{path}: is read more than once; give a file on disk")
        digest, first, lines = hashlib.sha256(), None, 0
        for line in read_lines(path):
            lines += 1
            digest.update(b"\xff\n" if line is None else f"{line}\n".encode())
            if first is None and line and line.strip():
                first = line
        if first is None:
            raise UserError(f"{path}: there is no text in it; give a sentence a line")
        return cls(path, lines, digest.hexdigest(), first.count("\t") == 1)


class _Output:
    """The file of pairs, as it grows.

    Args:
        path: its name when it is finished.
        made: settings that must be the same for the work to go on.
        where: more to be told about it.
    """

    def __init__(self, path, made, where):
        self.path, self.where = path, where
        self.made = json.loads(json.dumps(made))  # as it will be read again
        self.part = path.with_name(f"{path.name}.part")
        self.journal = path.with_name(f"{path.name}.part.json")
        self.sidecar = path.with_name(f"{path.name}.json")
        self.lines = self.size = 0
        self.counts = Counter()

    def finished(self):
        """Whether it is there, made with these settings.

        Raises:
            UserError: when another file has its name.
        """
        if not self.path.exists():
            return False
        if not self.sidecar.exists():
            raise UserError(f"{self.path}: is there already; name another file")
        self._read(self.sidecar, self.path)
        self.journal.unlink(missing_ok=True)  # where the end was cut off
        return True

    def __enter__(self):
        with _writing(self.part):
            self.file = open(self.part, "ab")
        try:
            self._lock()
            if self.journal.exists():
                self._resume()
            with _writing(self.part):
                self.file.truncate(self.size)  # what was not yet in the journal
        except BaseException:
            self.file.close()
            raise
        return self

    def __exit__(self, *_):
        self.file.close()

    def _lock(self):
        with _writing(self.part):
            try:
                fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(f"{self.part}: another process writes it") from None
        if self.path.exists():  # the other one has finished since we looked
            raise UserError(f"{self.path}: another process has just written it")

    def _resume(self):
        state = self._read(self.journal, self.part)
        self.lines, self.size = state["lines"], state["size"]
        self.counts = Counter(state["counts"])
        if self.part.stat().st_size < self.size:
            raise UserError(
                f"{self.part}: is shorter than {self.journal.name} says; delete both "
                "to begin anew"
            )

    def _read(self, file, of):
        """What a JSON file says of another one, if that has these settings."""
        try:
            state = json.loads(file.read_text(encoding="utf-8"))
            old = state["made"]
        except (ValueError, KeyError, TypeError):
            raise UserError(
                f"{file}: damaged; delete it and {of.name} to begin anew"
            ) from None
        changes = [
            f"another {name.removesuffix('_sha256')}"
            if name.endswith("_sha256")
            else f"{name} was {old.get(name)!r} and is {value!r}"
            for name, value in self.made.items()
            if old.get(name) != value
        ]
        if changes:
            raise UserError(
                f"{of}: was made otherwise ({'; '.join(changes)}): name another file, "
                f"or delete it and {file.name}"
            )
        return state

    def add(self, lines, pairs, counts):
        """Adds the pairs of so many lines of the text, for good."""
        data = "".join(f"{source}\t{target}\n" for source, target in pairs).encode()
        if data and self.path.name.lower().endswith(".gz"):
            # A member of its own: gzip files may be put one after the other.
            data = gzip.compress(data, mtime=0)
        with _writing(self.part):
            self.file.write(data)
            self.file.flush()
            os.fsync(self.file.fileno())
        self.lines += lines
        self.size += len(data)
        self.counts.update(counts)
        self._write(self.journal, lines=self.lines, size=self.size)

    def finish(self):
        """Gives the file its name."""
        if not self.counts["kept"]:
            self.part.unlink()
            self.journal.unlink()
            raise UserError(
                f"{self.where['input']}: not one pair came of it: "
                f"{_describe(self.counts)}"
            )
        self._write(self.sidecar, **self.where, pairs=self.counts["kept"])
        with _writing(self.path):
            os.replace(self.part, self.path)
            self.journal.unlink()

    def _write(self, path, **more):
        state = {"made": self.made, **more, "counts": self.counts}
        part = path.with_name(f".{path.name}.new")
        with _writing(path):
            with open(part, "w", encoding="utf-8") as file:
                json.dump(state, file, indent=2, ensure_ascii=False)
                file.write("\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, path)


@contextlib.contextmanager
def _writing(path):
    """Says in one line that a file cannot be written."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
