"""The shipped model served by the command, under load: no error, no wrong answer."""

import shutil
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
from local_server import Command, wait_for
from serving_load import Load, right_answers

from tfxformer.exporting.repository import shipped_model

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def answers():
    return right_answers(100)


def test_versions_under_load_fail_no_request(tmp_path, answers):
    def add(number, broken=False):
        part = tmp_path / ".part"
        shutil.copytree(shipped_model(), part)
        if broken:
            shutil.rmtree(part / "variables")
        part.rename(tmp_path / "export" / "pt_en" / str(number))

    (tmp_path / "export" / "pt_en").mkdir(parents=True)
    add(1)
    with Command(tmp_path / "export") as command:
        server = command.server
        with Load(server, answers, clients=16) as load:
            load.wait(requests=100)
            add(2, broken=True)
            wait_for(lambda: server.state().get(2, ("",))[0] == "END")
            load.wait(requests=100)
            assert server.state()[2][1] and server.state()[1] == ("AVAILABLE", "")
            add(3)
            wait_for(lambda: server.state().get(3) == ("AVAILABLE", ""))
            load.wait(requests=100)
        assert not load.errors and not load.wrong
        assert {*load.versions} == {1, 3}
        assert "pt_en version 2: cannot be loaded" in command.stop(signal.SIGTERM, 0)


def test_a_signal_loses_no_request_that_has_come(answers):
    body = {"instances": [*answers] * 3}
    with Command() as command, ThreadPoolExecutor(4) as pool:
        server = command.server
        asked = [pool.submit(server.ask, "/v1/models/pt_en:predict", body)] * 4
        wait_for(lambda: server.metric("tfxformer_waiting_rows") > 0)
        command.stop(signal.SIGINT, 130)
        for status, found in (each.result() for each in asked):
            texts = [row["translation"] for row in found["predictions"]]
            assert status == 200 and texts == [*answers.values()] * 3
