"""Settings match their documentation, and errors name the wrong setting."""

import pytest
import yaml

from tfxformer.config import PRESETS, Config, load_config
from tfxformer.errors import UserError


@pytest.fixture
def read(tmp_path):
    """Loads settings from YAML text."""

    def read(text, **options):
        path = tmp_path / "config.yaml"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return load_config(file=path, **options)

    return read


def refusal(load, *arguments, **options):
    """The error message: one line, not too long."""
    with pytest.raises(UserError) as caught:
        load(*arguments, **options)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 600
    return message


# --- Presets, file and overrides ---


@pytest.mark.parametrize(
    ("name", "sizes", "dropout"),
    [
        ("tutorial", (4, 128, 512, 8), 0.1),  # the TensorFlow tutorial's
        ("base", (6, 512, 2048, 8), 0.1),  # the paper's, Table 3
        ("big", (6, 1024, 4096, 16), 0.3),
    ],
)
def test_presets_have_the_sizes_of_the_tutorial_and_the_paper(name, sizes, dropout):
    model = load_config(name).model
    assert (model.num_layers, model.d_model, model.dff, model.num_heads) == sizes
    assert model.dropout_rate == dropout


def test_load_config_returns_a_new_tutorial_preset_by_default():
    assert [*PRESETS] == ["tiny", "tutorial", "base", "big"]
    first, second = load_config(), load_config()
    assert first == load_config("tutorial") == Config()
    first.data.sources.append("phrasebook")
    assert second == Config() == load_config()


def test_overrides_beat_the_file_and_the_file_beats_the_preset(read):
    overrides = [
        "model.num_layers=2",
        {"model": {"num_layers": 3}, "training": {"seed": 8}},
        "training.seed=9",
    ]
    text = "model: {dff: 100, num_layers: 5}\ntraining:\n  steps: 7\n"
    config = read(text, preset="base", overrides=overrides)
    assert config.model.d_model == 512  # the preset's
    assert config.model.dff == 100 and config.training.steps == 7  # the file's
    assert config.model.num_layers == 3 and config.training.seed == 9


def test_a_config_file_sets_its_preset_and_another_preset_is_refused(read):
    assert read("preset: big").model.d_model == 1024
    assert read("preset: big\nmodel: {dff: 64}").model.dff == 64
    with pytest.raises(UserError, match=r"--preset tiny: .*preset = big: leave one"):
        read("preset: big", preset="tiny")


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n"])
def test_an_empty_config_file_leaves_the_preset_unchanged(read, text):
    assert read(text, preset="base") == load_config("base")


@pytest.mark.parametrize("name", PRESETS)
def test_a_saved_config_loads_equal_with_any_preset(tmp_path, name):
    odd = ["caf\udce9.tsv", "a\n\t: b.tsv", "1", "null"]  # one is not UTF-8
    values = {"data": {"sources": odd, "valid": "1e5", "weights": [1, 2, 3, 1e-5]}}
    config = load_config(name).updated(**values)
    config.save(tmp_path / "config.yaml")
    for other in PRESETS:
        assert load_config(other, file=tmp_path / "config.yaml") == config


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("model.dff=1024", 1024),
        (" model.dff = 1024 ", 1024),
        ("model.dropout_rate=0", 0.0),
        ("training.label_smoothing=1e-3", 0.001),
        ("training.clip_norm=null", None),
        ("data.sources=phrasebook", ["phrasebook"]),
        ("data.sources=[a.tsv, 'b,c']", ["a.tsv", "b,c"]),
        ("data.columns=2,1", [2, 1]),
        ("data.valid=a=b.tsv", "a=b.tsv"),
    ],
)
def test_overrides_are_read_as_yaml(override, value):
    section, name = override.split("=")[0].strip().split(".")
    read = getattr(getattr(load_config(overrides=[override]), section), name)
    assert read == value and type(read) is type(value)


# --- Unknown names ---


@pytest.mark.parametrize(
    ("override", "named", "suggested"),
    [
        ("model.d_modle=64", "model.d_modle", "d_model"),
        ("training.step=2", "training.step", "steps"),
        ("modle.dff=64", "modle", "model"),
        ("model.zzz=1", "model.zzz", None),
    ],
)
def test_an_unknown_setting_is_refused_with_a_suggestion(
    read, override, named, suggested
):
    meant = f" (did you mean '{suggested}'?)" if suggested else ""
    expected = f"{named}: no such setting{meant}: choose from "
    assert refusal(load_config, overrides=[override]).startswith(expected)
    section, setting = override.split("=")[0].split(".")
    message = refusal(read, f"{section}:\n  {setting}: 1\n")
    assert f"config.yaml: {expected}" in message


@pytest.mark.parametrize(
    "override",
    ["training.steps=yes", "training.clip_norm=true", "data.weights=[1, no]"],
)
def test_a_numeric_setting_refuses_yes_no_true_and_false(override):
    with pytest.raises(UserError, match="must not be yes or no, true or false"):
        load_config(overrides=[override])


@pytest.mark.parametrize("preset", ["bigg", "", None, 3, ["a"]])
def test_an_unknown_preset_is_refused_with_a_list_of_presets(read, preset):
    message = refusal(read, yaml.safe_dump({"preset": preset}))
    assert message.startswith(f"{preset}: no such preset")
    assert message.endswith("choose from tiny, tutorial, base, big")
    assert ("did you mean 'big'?" in message) == (preset == "bigg")


@pytest.mark.parametrize(
    "override", ["model.dff", "dff=1", "", "preset=big", "model:3"]
)
def test_an_override_that_is_not_section_name_value_is_refused(override):
    message = refusal(load_config, overrides=[override])
    assert repr(override) in message and "section.name=value" in message
    message = refusal(load_config, overrides=["training.seed=["])
    assert message == "'training.seed=[': the value is not YAML"


# --- Wrong types and impossible values ---


@pytest.mark.parametrize(
    ("setting", "value", "expected"),
    [
        # Of the wrong type.
        ("model.num_layers", "2.5", "valid integer"),
        ("model.dropout_rate", ".nan", "finite number"),
        ("data.weights", "[a]", "valid number"),
        ("model.learned_positions", "3", "valid boolean"),
        ("data.sources", "[1]", "valid string"),
        # Impossible.
        ("model.num_layers", "0", "greater than or equal to 1"),
        ("model.num_heads", "12", "must divide model.d_model, 128"),
        ("model.dropout_rate", "1", "less than 1"),
        ("model.norm", "before", "'post' or 'pre'"),
        ("model.max_length", "3", "greater than or equal to 4"),
        ("tokenizer.vocab_size", "299", "greater than or equal to 300"),
        ("data.weights", "[1]", "one for each source"),
        ("data.columns", "[1]", "at least 2 items"),
        ("data.columns", "[2, 2]", "must be two different columns"),
        ("data.columns", "[0, 1]", "greater than or equal to 1"),
        ("data.encoding", "latin-0", "unknown encoding"),
        ("training.tokens_per_batch", "127", "at least 128, model.max_length"),
        ("training.learning_rate", "0", "greater than 0"),
        ("training.metric", "bleu", "needs training.bleu_pairs"),
        ("training.seed", "4294967296", "less than 4294967296"),
    ],
)
def test_a_wrong_value_is_refused_with_its_setting_and_file(
    read, setting, value, expected
):
    section, name = setting.split(".")
    file, _, rest = refusal(read, f"{section}:\n  {name}: {value}\n").partition(
        "config.yaml: "
    )
    assert file and rest.startswith(f"{setting} = ") and expected in rest
    assert refusal(load_config, overrides=[f"{setting}={value}"]) == rest


def test_settings_are_checked_together_after_file_and_overrides_are_merged(read):
    config = read("model: {num_heads: 12}", overrides=["model.d_model=96"])
    assert config.model.num_heads == 12
    message = refusal(read, "model: {max_length: 5000}")
    assert "training.tokens_per_batch = 4096" in message and "5000" in message


def test_an_error_in_an_override_does_not_name_the_config_file(read):
    text = "training: {steps: 9}"
    message = refusal(read, text, overrides=["training.steps=0"])
    assert message.startswith("training.steps = 0: ")
    message = refusal(read, text, overrides=[{"training": {"seed": -1}}])
    assert message.startswith("training.seed = -1: ")


# --- Files without settings ---


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("model: {dff: 64", "config.yaml: not YAML: while parsing"),
        ("model:\n  dff: 64\n\tnorm: pre\n", "line 3, column 1"),
        (b"model: {norm: \xff}", "config.yaml: not YAML: 'utf-8' codec"),
        ("text", "config.yaml: must hold sections such as 'model:', not 'text'"),
        ("model:", "config.yaml: model = None: must be a valid dictionary"),
        ("model: {norm: '" + "word " * 100 + "'}", "model.norm = 'word word"),
        ("model: {3: 1}", "config.yaml: model.3 = 3: must be strings"),
    ],
)
def test_a_config_file_that_is_not_a_mapping_of_sections_is_refused(
    read, text, expected
):
    assert expected in refusal(read, text)
