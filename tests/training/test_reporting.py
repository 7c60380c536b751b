"""What is seen of a run, read back by TensorBoard, with TensorFlow and without."""

import contextlib
import html.parser
import json
import logging
import os
import resource
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboard import plugin_util
from tensorboard.backend.event_processing import (
    event_accumulator,
    plugin_event_accumulator,
)
from tensorboard.util import tensor_util

from tfxformer.console import printable
from tfxformer.errors import UserError
from tfxformer.training import reporting
from tfxformer.training.reporting import Reporter

PIECES = [
    "<pad>",
    "▁o",
    "a\tb",
    "\n",
    "汉字",
    "مرحبا",
    "😀",
    "\u2028",
    "\\",
    "#",
    "\r\n",
]
# TensorBoard's own, and the one that programs use which read its files.
ACCUMULATORS = [
    pytest.param(plugin_event_accumulator.EventAccumulator, id="new"),
    pytest.param(event_accumulator.EventAccumulator, id="old"),
]


class Names:
    """As much of a vocabulary as is needed."""

    def pieces(self, ids):
        return [PIECES[i % len(PIECES)] for i in ids]


def files_of(path):
    return SimpleNamespace(
        metrics_file=path / "metrics.jsonl", tensorboard_folder=path / "tensorboard"
    )


def reporter_for(path, step=0, metrics_size=0):
    reporter = Reporter(files_of(path), Names())
    reporter.start(step, metrics_size)
    return reporter


@pytest.fixture
def reporter(tmp_path):
    reporter = reporter_for(tmp_path)
    yield reporter
    reporter.close()


def metrics(path):
    text = (path / "metrics.jsonl").read_text(encoding="utf-8")
    assert text.endswith("\n") or not text
    return [json.loads(line, parse_constant=pytest.fail) for line in text.splitlines()]


def read_back(path, accumulator=plugin_event_accumulator.EventAccumulator):
    size = {"tensors": 0, "scalars": 0}  # all of them
    return accumulator(str(path / "tensorboard"), size_guidance=size).Reload()


def curve(accumulator, tag):
    if hasattr(accumulator, "Scalars"):
        return [(event.step, event.value) for event in accumulator.Scalars(tag)]
    return [
        (event.step, tensor_util.make_ndarray(event.tensor_proto).item())
        for event in accumulator.Tensors(tag)
    ]


@pytest.mark.parametrize("accumulator", ACCUMULATORS)
def test_numbers_reach_the_metrics_and_tensorboard(tmp_path, reporter, accumulator):
    reporter.scalars(50, "train", {"loss": np.float32(2.5), "learning_rate": 1e-4})
    reporter.scalars(50, "validation", {"loss": 3, "bleu": 20.25})
    reporter.scalars(100, "train", {"loss": 1.5, "learning_rate": 2e-4})
    assert metrics(tmp_path) == [
        {"step": 50, "split": "train", "loss": 2.5, "learning_rate": 1e-4},
        {"step": 50, "split": "validation", "loss": 3.0, "bleu": 20.25},
        {"step": 100, "split": "train", "loss": 1.5, "learning_rate": 2e-4},
    ]
    board = read_back(tmp_path, accumulator)
    tags = board.Tags()
    assert {*tags.get("scalars", tags["tensors"])} == {
        *["train/loss", "train/learning_rate", "validation/loss", "validation/bleu"]
    }
    assert curve(board, "train/loss") == [(50, 2.5), (100, 1.5)]
    assert curve(board, "validation/bleu") == [(50, 20.25)]


def test_tensorboard_knows_curves_when_it_sees_them(tmp_path, reporter):
    reporter.scalars(1, "train", {"loss": 1})
    board = read_back(tmp_path)
    plugin = board.SummaryMetadata("train/loss").plugin_data.plugin_name
    assert plugin == "scalars"
    assert abs(board.Tensors("train/loss")[0].wall_time - time.time()) < 60


def test_what_is_not_finite_is_null_for_machines(tmp_path, reporter):
    values = {"loss": np.nan, "perplexity": np.inf, "bleu": 1}
    reporter.scalars(1, "validation", values)
    assert metrics(tmp_path)[0]["loss"] is metrics(tmp_path)[0]["perplexity"] is None
    board = read_back(tmp_path)
    assert np.isnan(curve(board, "validation/loss")[0][1])
    assert curve(board, "validation/perplexity") == [(1, np.inf)]


def end(path, how, rng):
    """Leaves files as a killed process may: half a line, half an event."""
    newest = max((path / "tensorboard").glob("events*"))
    if "line" in how:
        with open(path / "metrics.jsonl", "ab") as file:
            file.write(b'{"step": 77, "split": "tr')
    if "event" in how:
        size = newest.stat().st_size
        os.truncate(newest, size - int(rng.integers(1, 30)))


@pytest.mark.parametrize("accumulator", ACCUMULATORS)
@pytest.mark.parametrize("seed", range(5))
def test_each_step_is_seen_once_whatever_was_killed(tmp_path, seed, accumulator):
    rng = np.random.default_rng(seed)
    saved, step = (0, 0), 0
    expected = {}
    for session in range(8):
        step, size = saved
        expected = {at: x for at, x in expected.items() if at <= step}
        reporter = reporter_for(tmp_path, step, size)
        for _ in range(rng.integers(1, 12)):
            step += 1
            expected[step] = session + step / 1000
            reporter.scalars(step, "train", {"loss": expected[step]})
            if rng.random() < 0.3:
                saved = step, reporter.metrics_size()
        reporter.close()
        lost = session < 7 and step > saved[0]
        end(tmp_path, rng.choice(["line", "event", "line event"]) if lost else "", rng)
    assert [(row["step"], row["loss"]) for row in metrics(tmp_path)] == [
        *expected.items()
    ]
    seen = curve(read_back(tmp_path, accumulator), "train/loss")
    assert [at for at, _ in seen] == [*expected]
    assert [x for _, x in seen] == pytest.approx([*expected.values()], rel=1e-6)


def test_what_was_reported_at_the_step_of_a_checkpoint_stays(tmp_path):
    first = reporter_for(tmp_path)
    first.texts(10, [("a", "b", "c")])
    first.scalars(10, "train", {"loss": 1})
    size = first.metrics_size()
    first.scalars(11, "train", {"loss": 2})
    first.texts(11, [("a", "b", "c")])
    first.close()
    reporter_for(tmp_path, 10, size).close()
    board = read_back(tmp_path)
    assert curve(board, "train/loss") == [(10, 1)]
    assert [event.step for event in board.Tensors("samples")] == [10]


def test_a_new_start_forgets_all(tmp_path):
    first = reporter_for(tmp_path)
    first.scalars(0, "validation", {"loss": 9})
    first.scalars(1, "train", {"loss": 8})
    first.close()
    second = reporter_for(tmp_path)
    assert second.metrics_size() == 0
    second.scalars(0, "validation", {"loss": 7})
    second.close()
    board = read_back(tmp_path)
    assert curve(board, "validation/loss") == [(0, 7)]
    assert curve(board, "train/loss") == []
    assert len(metrics(tmp_path)) == 1


def test_a_clock_set_back_changes_no_order(tmp_path):
    folder = tmp_path / "tensorboard"
    folder.mkdir()
    later = int(time.time()) + 10_000
    (folder / f"events.out.tfevents.{later}.host.1.0.v2").touch()
    (folder / "events.out.tfevents.profile").touch()
    for number in range(3):
        reporter = reporter_for(tmp_path, number)
        reporter.scalars(number + 1, "train", {"loss": number})
        reporter.close()
    assert curve(read_back(tmp_path), "train/loss") == [(1, 0), (2, 1), (3, 2)]


@pytest.mark.parametrize(
    ("content", "size", "left"),
    [
        (b'{"a": 1}\n{"b": 2}\n', 9, b'{"a": 1}\n'),
        (b'{"a": 1}\n{"b": 2}\n', 12, b'{"a": 1}\n'),
        (b'{"a": 1}\n', 500, b'{"a": 1}\n'),
        (b'{"a"', 500, b""),
        (None, 500, b""),
    ],
)
def test_metrics_that_someone_changed_are_cut_to_whole_lines(
    tmp_path, content, size, left
):
    if content is not None:
        (tmp_path / "metrics.jsonl").write_bytes(content)
    reporter = reporter_for(tmp_path, 5, size)
    assert (tmp_path / "metrics.jsonl").read_bytes() == left
    assert reporter.metrics_size() == len(left)
    reporter.scalars(6, "train", {"loss": 1})
    assert metrics(tmp_path)[-1]["step"] == 6
    reporter.close()


# --- Texts ---


class Cells(html.parser.HTMLParser):
    """The texts in the cells of a table, as a browser shows them."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.rows, self.inside = [], []

    def handle_starttag(self, tag, attributes):
        self.inside.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
        else:
            assert tag in ("table", "thead", "tbody"), tag

    def handle_endtag(self, tag):
        assert self.inside.pop() == tag

    def handle_data(self, data):
        if self.inside and self.inside[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def shown(markdown):
    page = plugin_util.markdown_to_safe_html(markdown)
    cells = Cells()
    cells.feed(page)
    cells.close()
    return cells.rows


def table_of(reporter):
    """The markdown that `texts` wrote last."""
    board = read_back(reporter.metrics_file.parent)
    assert board.SummaryMetadata("samples").plugin_data.plugin_name == "text"
    event = board.Tensors("samples")[-1]
    return tensor_util.make_ndarray(event.tensor_proto).item().decode()


def test_samples_are_a_table(reporter):
    rows = [
        ("O gato | bebe *leite*.", "<b>The cat</b> `drinks`", "_x_ [a](b) ![c](d)"),
        ("1. # &amp; \\| \\", "汉字 مرحبا 😀", ""),
        ("two\nlines\tand a tab", "http://a.b/c", "~~$x$~~ --- :---:"),
    ]
    reporter.texts(3, rows)
    first, *others = shown(table_of(reporter))
    assert first == ["source", "reference", "translation"]
    assert others == [[printable(cell) for cell in row] for row in rows]


@given(st.lists(st.text(), min_size=3, max_size=3))
def test_any_text_is_shown_as_it_is(cells):
    line = " | ".join(map(reporting._markdown, cells))
    _, row = shown(f"| a | b | c |\n| --- | --- | --- |\n| {line} |")
    # Spaces at the ends are not seen in any case.
    assert [x.strip() for x in row] == [printable(cell).strip() for cell in cells]


# --- Pictures ---


def test_attention_is_a_picture(tmp_path, reporter):
    pytest.importorskip("matplotlib")
    from matplotlib.image import imread

    weights = np.full((2, 4, 3, 5), 0.2, np.float32)
    reporter.attention(7, [*"abcde"], [*"xyz"], weights)
    board = read_back(tmp_path)
    assert board.SummaryMetadata("attention").plugin_data.plugin_name == "images"
    (event,) = board.Tensors("attention")
    width, height, file = tensor_util.make_ndarray(event.tensor_proto)
    (tmp_path / "picture.png").write_bytes(file)
    assert imread(tmp_path / "picture.png").shape[:2] == (int(height), int(width))
    assert event.step == 7


@pytest.mark.filterwarnings("error")
def test_a_translation_of_nothing_and_one_of_a_broken_model(tmp_path, reporter):
    pytest.importorskip("matplotlib")
    reporter.attention(1, ["a"], [], np.ones((2, 4, 0, 1)))
    assert read_back(tmp_path).Tags()["tensors"] == []
    reporter.attention(2, ["a"], ["b"], np.full((2, 4, 1, 1), np.nan))
    assert [event.step for event in read_back(tmp_path).Tensors("attention")] == [2]


def test_without_matplotlib_one_line_says_so(tmp_path, reporter, monkeypatch, caplog):
    for name in [name for name in sys.modules if name.startswith("matplotlib")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(logging.getLogger("tfxformer"), "propagate", True)
    with caplog.at_level(logging.INFO, logger="tfxformer"):
        for step in range(3):
            reporter.attention(step, ["a"], ["b"], np.ones((1, 1, 1, 1)))
    (message,) = {record.getMessage() for record in caplog.records}
    assert "tfxformer[plots]" in message
    assert {record.levelname for record in caplog.records} == {"INFO"}
    assert read_back(tmp_path).Tags()["tensors"] == []


# --- The projector ---


def test_embeddings_have_their_pieces_as_labels(tmp_path, reporter):
    from google.protobuf import text_format
    from tensorboard.plugins.projector import projector_plugin
    from tensorboard.plugins.projector.projector_config_pb2 import ProjectorConfig

    rng = np.random.default_rng(0)
    for _ in range(2):  # the last ones stay
        matrix = rng.normal(size=(len(PIECES), 16))
        reporter.embeddings(matrix)
    folder = tmp_path / "tensorboard"
    config = folder / "projector_config.pbtxt"
    (embedding,) = text_format.Parse(config.read_text(), ProjectorConfig()).embeddings
    path = projector_plugin._rel_to_abs_asset_path(embedding.tensor_path, str(config))
    # The plugin takes what is no UTF-8 for numbers in binary.
    with pytest.raises(UnicodeDecodeError):
        projector_plugin._read_tensor_tsv_file(path)
    tensor = projector_plugin._read_tensor_binary_file(path, embedding.tensor_shape)
    np.testing.assert_array_equal(tensor, matrix.astype("float32"))
    labels = (folder / embedding.metadata_path).read_text(encoding="utf-8")
    assert labels.split("\n")[:-1] == [printable(piece) for piece in PIECES]
    assert "\t" not in labels  # it would make the first label a heading
    assert not [*folder.glob(".*")]


# --- TensorBoard itself ---


def fetch(port, path, **query):
    address = f"http://127.0.0.1:{port}/data/{path}"
    if query:
        address += "?" + urllib.parse.urlencode(query)
    with urllib.request.urlopen(address, timeout=30) as answer:
        return answer.read()


def wait_for(what):
    for _ in range(90):
        with contextlib.suppress(OSError):
            if found := what():
                return found
        time.sleep(0.5)
    pytest.fail("TensorBoard has not answered within 45 seconds")


@pytest.mark.slow
def test_tensorboard_serves_all_of_it(tmp_path):
    run = tmp_path / "runs" / "mine"
    run.mkdir(parents=True)
    first = reporter_for(run)
    for step in (1, 2):
        first.scalars(step, "train", {"loss": step})
    size = first.metrics_size()
    first.scalars(3, "train", {"loss": 99})
    first.close()
    end(run, "event", np.random.default_rng(0))
    second = reporter_for(run, 2, size)
    second.scalars(3, "train", {"loss": 3})
    second.texts(3, [("gato", "cat", "dog")])
    second.attention(3, ["a"], ["b"], np.ones((1, 2, 1, 1)))
    matrix = np.random.default_rng(0).normal(size=(len(PIECES), 4)).astype("float32")
    second.embeddings(matrix)
    second.close()

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = "from tensorboard.main import run_main\nrun_main()"
    server = subprocess.Popen(
        [
            sys.executable,
            "-c",
            code,
            "--port",
            str(port),
            "--logdir",
            tmp_path / "runs",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        (name,) = wait_for(lambda: json.loads(fetch(port, "runs")))
        assert name == "mine/tensorboard"

        def get(plugin, what, **query):
            return fetch(port, f"plugin/{plugin}/{what}", run=name, **query)

        def tags(plugin):
            return json.loads(fetch(port, f"plugin/{plugin}/tags"))[name]

        # It reads while it answers.
        wait_for(lambda: "attention" in tags("images"))
        assert [*tags("scalars")] == ["train/loss"] and tags("text") == ["samples"]
        points = json.loads(get("scalars", "scalars", tag="train/loss"))
        assert [point[1:] for point in points] == [[1, 1], [2, 2], [3, 3]]
        (table,) = json.loads(get("text", "text", tag="samples"))
        assert "<td>gato</td>" in table["text"]
        (picture,) = json.loads(get("images", "images", tag="attention", sample=0))
        image = fetch(port, f"plugin/images/individualImage?{picture['query']}")
        assert image.startswith(b"\x89PNG")
        assert json.loads(fetch(port, "plugin/projector/runs")) == [name]
        (info,) = json.loads(get("projector", "info"))["embeddings"]
        assert info["tensorShape"] == [*matrix.shape]
        tensor = get("projector", "tensor", name=info["tensorName"])
        assert tensor == matrix.tobytes()
        labels = get("projector", "metadata", name=info["tensorName"]).decode()
        assert labels.split("\n")[:-1] == [printable(piece) for piece in PIECES]
        listing = wait_for(
            lambda: json.loads(fetch(port, "plugins_listing"))["projector"]["enabled"]
        )
        assert listing is True
    finally:
        server.terminate()
        server.wait(timeout=30)


# --- What cannot be written ---


@pytest.mark.parametrize("name", ["metrics.jsonl", "tensorboard"])
def test_a_file_that_cannot_be_opened_is_named(tmp_path, name):
    if name == "tensorboard":
        (tmp_path / name).touch()
    else:
        (tmp_path / name).mkdir()
    reporter = Reporter(files_of(tmp_path), Names())
    with pytest.raises(UserError, match=rf"{name}: (Is a directory|File exists)"):
        reporter.start(0, 0)
    reporter.close()


@contextlib.contextmanager
def full_disk(size):
    """No file may grow beyond so many bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_is_said_and_what_follows_is_whole(tmp_path):
    reporter = reporter_for(tmp_path)
    reporter.scalars(1, "train", {"loss": 1})
    size = reporter.metrics_size()
    with full_disk(size + 20):
        with pytest.raises(UserError, match=r"metrics\.jsonl: File too large"):
            reporter.scalars(2, "train", {"loss": 2})
        with pytest.raises(UserError, match=r"tensorboard: File too large"):
            reporter.texts(2, [("a" * 1000, "b", "c")])
        with contextlib.suppress(UserError):
            reporter.close()
    again = reporter_for(tmp_path, 1, size)
    again.scalars(2, "train", {"loss": 3})
    again.close()
    assert [row["loss"] for row in metrics(tmp_path)] == [1, 3]
    assert curve(read_back(tmp_path), "train/loss") == [(1, 1), (2, 3)]
