"""A server in this process with two small models, shared by the tests here."""

import pytest
from local_server import save_toys, serving


def pytest_addoption(parser):
    parser.addoption("--server-url", help="a server's REST address, http://HOST:8501")
    parser.addoption("--server-grpc", help="its gRPC address, HOST:8500")
    parser.addoption("--server-model", default="pt_en", help="a tfxformer export on it")


@pytest.fixture(scope="session")
def toys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("toys")
    save_toys(folder)
    return folder


@pytest.fixture(scope="session")
def server(toys):
    """With a models.config, and with limits that tests can reach."""
    config = toys / "models.config"
    config.write_text("""
        model_config_list {
          config {
            name: "pt_en" base_path: "pt_en" model_platform: "tensorflow"
            version_labels { key: "stable" value: 1 }
            version_labels { key: "canary" value: 2 }
          }
          config {
            name: "half" base_path: "half" model_platform: "tensorflow"
            model_version_policy { all {} }
          }
        }
    """)
    limits = {"max_batch": 16, "max_waiting": 40, "max_body": 100_000}
    limits["enable_batching"] = True  # the toys are not our exports
    with serving(config=config, **limits, grace=5) as server:
        yield server
