"""Which models are served, and which of their versions."""

import pytest
from tensorflow_serving.config.model_server_config_pb2 import ModelConfig

from tfxformer.errors import UserError
from tfxformer.server.configs import find_models, versions


def test_versions_are_numbers_and_follow_the_policy(tmp_path):
    for name in ("1", "007", "12", ".part-3", "x", "1e3", "-4", "9" * 19):
        (tmp_path / name).mkdir()
    (tmp_path / "99").touch()  # a file
    for policy, found in (
        ({}, [12]),
        ({"all": {}}, [12, 7, 1]),
        ({"latest": {"num_versions": 2}}, [12, 7]),
        ({"specific": {"versions": [1, 5]}}, [1]),
    ):
        config = ModelConfig(base_path=str(tmp_path), model_version_policy=policy)
        assert [*versions(config)] == found


def test_the_models_of_a_repository(tmp_path):
    for path in ("b/1", "a/3", ".hidden/1", "no_version/x", "notes"):
        (tmp_path / path).mkdir(parents=True)
    assert [config.name for config in find_models(tmp_path)] == ["a", "b"]
    with pytest.raises(UserError, match="a: no model in NAME/VERSION; write one"):
        find_models(tmp_path / "a")


GOOD = 'config { name: "a" base_path: "a" model_platform: "tensorflow" }'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ": no model in its model_config_list"),
        ("model_config_list {\n config {\n name: 5\n", ":3: .*Expected string"),
        ("model_config_list {\n\n  konfig {}\n}", ':3: Message type .* "konfig"'),
        ('model_config_list { config { name: "a" } }', ": model 'a' needs a name, a "),
        (f"model_config_list {{ {GOOD} {GOOD} }}", ": model 'a' is there twice"),
    ],
)
def test_a_wrong_config_is_refused_with_its_line(tmp_path, text, message):
    (tmp_path / "models.config").write_text(text)
    with pytest.raises(UserError, match=f"models.config{message}"):
        find_models(None, tmp_path / "models.config")
