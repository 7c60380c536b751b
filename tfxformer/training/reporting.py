"""What is seen of a run: ``metrics.jsonl`` for machines, TensorBoard for people.

TensorBoard's files are written with its own package alone. Its ``EventFileWriter``
would import TensorFlow; what it does is not more than a record an event, which
`RecordWriter` writes as well.
"""

import contextlib
import json
import logging
import math
import os
import time

import numpy as np
from google.protobuf import text_format
from tensorboard.compat.proto import event_pb2, types_pb2
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.plugins.projector.projector_config_pb2 import ProjectorConfig
from tensorboard.plugins.text import metadata as text
from tensorboard.summary.writer.record_writer import RecordWriter

from tfxformer.console import printable
from tfxformer.errors import UserError

log = logging.getLogger("tfxformer")

EVENTS = "events.out.tfevents."


class Reporter:
    """Writes down how a run goes.

    Args:
        run: a `Run`.
        vocabulary: the run's `Tokenizer`.
    """

    def __init__(self, run, vocabulary):
        self.vocabulary = vocabulary
        self.metrics_file = run.metrics_file
        self.folder = run.tensorboard_folder
        self.metrics = self.events = None
        self.can_draw = True

    def start(self, step, metrics_size):
        """Opens the files, and forgets what was reported after a step.

        Args:
            step: the step that the run goes on from; 0 for a new one.
            metrics_size: what `metrics_size` was at that step; 0 for a new run.

        Raises:
            UserError: here and in all that write, when a file cannot be written.
        """
        with _written(self.metrics_file):
            self.metrics = open(self.metrics_file, "a+b")  # noqa: SIM115
            self.metrics.seek(0)
            kept = self.metrics.read(metrics_size)
            # Whole lines, should someone have changed the file.
            self.metrics.truncate(kept.rfind(b"\n") + 1)
        with _written(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            self.events = RecordWriter(open(_next_file(self.folder), "xb"))  # noqa: SIM115
        self._event(file_version="brain.Event:2")
        # Every start says so: what a restart comes after is shown no more, from the
        # step that it names on.
        start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self._event(step=step + 1 if step else 0, session_log=start)

    def metrics_size(self):
        """How many bytes the metrics have: a checkpoint keeps it for `start`."""
        return os.fstat(self.metrics.fileno()).st_size

    def scalars(self, step, split, values):
        """Numbers, for the metrics and as curves.

        Args:
            step: the step they were measured at.
            split: "train" or "validation".
            values: numbers by name; one that is not finite is null in the metrics,
                since JSON has no other way to say it.
        """
        values = {name: float(value) for name, value in values.items()}
        row = {name: x if math.isfinite(x) else None for name, x in values.items()}
        line = json.dumps({"step": step, "split": split, **row})
        with _written(self.metrics_file):
            self.metrics.write(f"{line}\n".encode())
            self.metrics.flush()
        # TensorBoard has a newer way to write numbers and images, with tensors, but
        # reads this one as well, as other programs do that read its files.
        self._summary(
            step,
            *(
                Summary.Value(tag=f"{split}/{name}", simple_value=value)
                for name, value in values.items()
            ),
        )

    def texts(self, step, rows):
        """Sample translations, as a table.

        Args:
            step: the step they were made at.
            rows: triples of a source, its reference and a translation.
        """
        lines = ["source", "reference", "translation"], ["---"] * 3
        lines += tuple([_markdown(cell) for cell in row] for row in rows)
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        about = text.create_summary_metadata(display_name=None, description=None)
        tensor = TensorProto(dtype=types_pb2.DT_STRING, string_val=[table.encode()])
        self._summary(step, Summary.Value(tag="samples", metadata=about, tensor=tensor))

    def attention(self, step, source_pieces, target_pieces, weights):
        """A picture of what a translation looked at; none without Matplotlib.

        Args:
            step: the step it was made at.
            source_pieces: the source's pieces.
            target_pieces: the translation's pieces.
            weights: float ``(layers, heads, target, source)``.
        """
        if not self.can_draw or not len(target_pieces):
            return
        from tfxformer.plots import draw_attention, png

        try:
            figure = draw_attention(source_pieces, target_pieces, weights)
        except ModuleNotFoundError:
            self.can_draw = False
            log.info(
                "no attention pictures: they need Matplotlib: "
                "pip install 'tfxformer[plots]'"
            )
            return
        file = png(figure)
        # Where every PNG file has its width and height.
        width, height = (int.from_bytes(file[at : at + 4], "big") for at in (16, 20))
        image = Summary.Image(width=width, height=height, encoded_image_string=file)
        self._summary(step, Summary.Value(tag="attention", image=image))

    def embeddings(self, matrix):
        """The pieces' embeddings for the projector: the last ones, with their names.

        Args:
            matrix: floats ``(vocab_size, d_model)``.
        """
        matrix = np.asarray(matrix, "<f4")
        # One a line.
        labels = map(printable, self.vocabulary.tokens(range(len(matrix))))
        config = ProjectorConfig()
        config.embeddings.add(
            tensor_name="embeddings",
            tensor_path="embeddings.bytes",
            tensor_shape=matrix.shape,
            metadata_path="pieces.tsv",
        )
        # The last file names the others, so that TensorBoard never misses one.
        for name, content in {
            "embeddings.bytes": matrix.tobytes(),
            "pieces.tsv": "".join(f"{label}\n" for label in labels).encode(),
            "projector_config.pbtxt": text_format.MessageToString(config).encode(),
        }.items():
            part = self.folder / f".{name}.part"
            with _written(part):
                part.write_bytes(content)
                os.replace(part, self.folder / name)

    def close(self):
        """Closes the files."""
        with _written(self.metrics_file), contextlib.ExitStack() as files:
            for file in (self.metrics, self.events):
                if file is not None:
                    files.callback(file.close)

    def _summary(self, step, *values):
        self._event(step=step, summary=Summary(value=values))

    def _event(self, **content):
        event = event_pb2.Event(wall_time=time.time(), **content)
        with _written(self.folder):
            self.events.write(event.SerializeToString())
            self.events.flush()


def _next_file(folder):
    """A file of events that is read after those that are there, whatever the clock."""
    numbers = [int(time.time())]
    for file in folder.glob(f"{EVENTS}*"):
        number = file.name.removeprefix(EVENTS).partition(".")[0]
        if number.isdecimal():
            numbers.append(int(number) + 1)
    return folder / f"{EVENTS}{max(numbers):010}"


@contextlib.contextmanager
def _written(path):
    """Says which file an error is about."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None


def _markdown(cell):
    """A text that markdown shows as it is, in one cell of a table.

    Example:
        >>> _markdown("a|*b*")
        'a&#124;&#42;b&#42;'
    """
    return "".join(
        character
        if character.isalnum() or not character.isascii()
        else f"&#{ord(character)};"
        for character in printable(cell)
    ).replace("&#32;", " ")
