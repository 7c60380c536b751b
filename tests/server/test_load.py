"""The shipped model served by the command, under load: no error, no wrong answer."""

import shutil
import signal
import threading

import pytest
from local_server import LocalServer, wait_for
from serving_load import Load, right_answers

from tfxformer.exporting.repository import shipped_model

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def answers():
    return right_answers(100)


@pytest.fixture
def folder(tmp_path):
    """A model's folder with the shipped model as version 1."""
    shutil.copytree(shipped_model(), tmp_path / "export" / "pt_en" / "1")
    return tmp_path / "export" / "pt_en"


def add(folder, number, broken=False):
    part = folder / f".part-{number}"
    shutil.copytree(folder / "1", part)
    if broken:
        shutil.rmtree(part / "variables")
    part.rename(folder / str(number))


def test_versions_under_load_fail_no_request(folder, answers):
    with LocalServer(folder.parent) as server:
        with Load(server, answers, clients=16) as load:
            load.wait(requests=100)
            add(folder, 2, broken=True)
            wait_for(lambda: server.state().get(2, ("",))[0] == "END")
            load.wait(requests=100)
            assert server.state()[2][1] and server.state()[1] == ("AVAILABLE", "")
            add(folder, 3)
            wait_for(lambda: server.state().get(3) == ("AVAILABLE", ""))
            load.wait(requests=100)
        assert not load.errors and not load.wrong, (load.errors[:3], load.wrong[:3])
        assert {*load.versions} == {1, 3} and load.done["REST"]
        said, code = server.stop()
    assert code == 0 and "Traceback" not in said
    assert "pt_en version 2: cannot be loaded" in said


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)]
)
def test_a_signal_loses_no_request_that_has_come(answers, number, code):
    with LocalServer() as server:
        body = {"instances": [*answers] * 3}
        found = []

        def ask():
            found.append(server.ask("/v1/models/pt_en:predict", body))

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        rows = 4 * len(body["instances"])
        wait_for(lambda: server.metric("tfxformer_waiting_rows") > rows * 3 // 4)
        said, ended = server.stop(number)
        for thread in threads:
            thread.join()
    assert ended == code and "Traceback" not in said
    for status, answer in found:
        texts = [row["translation"] for row in answer["predictions"]]
        assert status == 200 and texts == [*answers.values()] * 3
