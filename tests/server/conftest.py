"""A server with the small translator and two toys, for all the tests that ask one."""

import shutil

import pytest
from local_server import LocalServer, save_echo, save_half_plus_two


def pytest_addoption(parser):
    group = parser.getgroup("conformance")
    group.addoption("--server-url", help="a server's REST address, http://HOST:8501")
    group.addoption("--server-grpc", help="its gRPC address, HOST:8500")
    group.addoption("--server-model", default="pt_en", help="a tfxformer export on it")


@pytest.fixture(scope="session")
def toys(once):
    """A repository of `half`, versions 1 and 2, and `echo`, version 1."""
    with once("toys") as folder:
        if not folder.exists():
            part = folder.with_name("toys-part")
            save_half_plus_two(part / "half" / "1")
            shutil.copytree(part / "half" / "1", part / "half" / "2")
            save_echo(part / "echo" / "1")
            part.rename(folder)
        return folder


@pytest.fixture(scope="session")
def config(toys, exported, tmp_path_factory):
    """A models.config of all of them."""
    file = tmp_path_factory.mktemp("config") / "models.config"
    file.write_text(f"""
        model_config_list {{
          config {{
            name: "pt_en" base_path: "{exported.parent}" model_platform: "tensorflow"
            version_labels {{ key: "stable" value: 1 }}
            version_labels {{ key: "canary" value: 2 }}
          }}
          config {{
            name: "half" base_path: "{toys}/half" model_platform: "tensorflow"
            model_version_policy {{ all {{}} }}
          }}
          config {{
            name: "echo" base_path: "{toys}/echo" model_platform: "tensorflow"
          }}
        }}
    """)
    return file


@pytest.fixture(scope="session")
def server(config):
    """With limits that are small enough to meet."""
    options = ["--max-body", 200_000, "--max-text", 2000, "--max-rows", 100]
    options += ["--max-batch", 16, "--timeout", 20, "--max-waiting", 120]
    with LocalServer("--config", config, *options) as server:
        yield server
        said, code = server.stop()
        assert code == 0 and "Traceback" not in said, said
