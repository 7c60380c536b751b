"""Which models are served, and which of their versions."""

import pytest
from tensorflow_serving.config.model_server_config_pb2 import ModelConfig

from tfxformer.errors import UserError
from tfxformer.server.configs import find_models, read_config, versions


def test_versions_are_numbers_and_follow_the_policy(tmp_path):
    for name in ("1", "007", "12", ".part-3", "x", "1e3", "-4", str(2**63)):
        (tmp_path / name).mkdir()
    (tmp_path / "99").touch()  # a file

    def found(**policy):
        config = ModelConfig(base_path=str(tmp_path), model_version_policy=policy)
        return [*versions(config)]

    assert found() == [12]
    assert found(all={}) == [12, 7, 1]
    assert found(latest={"num_versions": 2}) == [12, 7]
    assert found(specific={"versions": [1, 5]}) == [1]


def test_the_models_of_a_repository(tmp_path):
    for path in ("b/1", "a/3", ".hidden/1", "no_version/x", "notes"):
        (tmp_path / path).mkdir(parents=True)
    assert [config.name for config in find_models(tmp_path)] == ["a", "b"]
    with pytest.raises(UserError, match="one model; name its repository"):
        find_models(tmp_path / "a")
    with pytest.raises(UserError, match="no model in"):
        find_models(tmp_path / "notes")


PLATFORM = 'model_platform: "tensorflow"'
GOOD = f'config {{ name: "a" base_path: "a" {PLATFORM} }}'


def write(folder, text):
    file = folder / "models.config"
    file.write_text(text)
    return file


def test_a_models_config(tmp_path):
    labelled = """
        config {
          name: 'b' base_path: "/models/b" model_platform: "tensorflow"
          model_version_policy { specific { versions: 4 versions: 5 } }
          version_labels { key: "stable" value: 4 }
        }"""
    a, b = read_config(write(tmp_path, f"model_config_list {{ {GOOD} {labelled} }}"))
    assert (a.name, a.base_path) == ("a", str(tmp_path / "a"))
    assert b.base_path == "/models/b" and dict(b.version_labels) == {"stable": 4}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ": no model in its model_config_list"),
        ("model_config_list {\n config {\n name: 5\n", ":3: .*Expected string"),
        ("model_config_list {\n\n  konfig {}\n}", ':3: Message type .* "konfig"'),
        ("model_config_list { config {", ":1: "),
        ('model_config_list { config { name: "a" } }', ": model 'a' needs a name, a "),
        ('model_config_list { config { base_path: "a" } }', ": model '' needs a name"),
        (f"model_config_list {{ {GOOD} {GOOD} }}", ": model 'a' is there twice"),
    ],
)
def test_a_wrong_config_is_refused_with_its_line(tmp_path, text, message):
    with pytest.raises(UserError, match=f"models.config{message}"):
        read_config(write(tmp_path, text))
