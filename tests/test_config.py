"""Settings are as documented, and nothing wrong gets past them unnamed."""

import pytest
import yaml

from tfxformer.config import PRESETS, Config, ModelConfig, load_config
from tfxformer.errors import UserError


@pytest.fixture
def read(tmp_path):
    """Loads settings from the text of their file."""

    def read(text, **options):
        path = tmp_path / "config.yaml"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return load_config(file=path, **options)

    return read


def refusal(load, *arguments, **options):
    """The message with which something is refused: one line, not too long."""
    with pytest.raises(UserError) as caught:
        load(*arguments, **options)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 600
    return message


# --- Presets, file and overrides ---


@pytest.mark.parametrize(
    ("name", "sizes", "dropout", "steps", "tokens"),
    [
        ("tiny", (2, 128, 512, 8), 0.1, 800, 2048),
        # The TensorFlow tutorial's; the paper's Table 3.
        ("tutorial", (4, 128, 512, 8), 0.1, 20_000, 4096),
        ("base", (6, 512, 2048, 8), 0.1, 100_000, 25_000),
        ("big", (6, 1024, 4096, 16), 0.3, 300_000, 25_000),
    ],
)
def test_presets_have_their_documented_sizes(name, sizes, dropout, steps, tokens):
    config = load_config(name)
    model, training = config.model, config.training
    assert (model.num_layers, model.d_model, model.dff, model.num_heads) == sizes
    assert model.dropout_rate == dropout
    assert model.norm == ("pre" if name == "tiny" else "post")
    assert (training.steps, training.tokens_per_batch) == (steps, tokens)
    assert training.warmup_steps == (300 if name == "tiny" else 4000)
    assert training.label_smoothing == 0.1


def test_the_default_is_the_tutorial_and_loads_share_nothing():
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


def test_a_file_names_its_own_preset(read):
    assert read("preset: big", preset="tiny").model.d_model == 1024
    assert read("preset: big\nmodel: {dff: 64}").model.dff == 64


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "\ufeff"])
def test_an_empty_file_changes_nothing(read, text):
    assert read(text, preset="base") == load_config("base")
    assert read(text + "model:\r\n  dff: 64\r\n").model.dff == 64


@pytest.mark.parametrize("name", PRESETS)
def test_what_is_saved_loads_equal(tmp_path, name):
    # Paths that are not UTF-8, or hold what YAML takes for the end of a line.
    odd = ["caf\udce9.tsv", "a\x85b.tsv", "a\u2028\n\r\t\x00\ufeff.tsv", "1", "null"]
    values = {"data": {"sources": odd, "valid": "1e5", "weights": [1, 2, 3, 4, 1e-5]}}
    config = load_config(name).updated(**values)
    config.save(tmp_path / "config.yaml")
    for other in PRESETS:
        assert load_config(other, file=tmp_path / "config.yaml") == config


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("model.dff=1024", 1024),
        (" model.dff = 1024 ", 1024),
        ("training.steps=1_000", 1000),
        ("model.dropout_rate=0", 0.0),
        ("training.label_smoothing=1e-3", 0.001),
        ("training.clip_norm=null", None),
        ("training.xla=true", True),
        ("data.sources=phrasebook", ["phrasebook"]),
        ("data.sources=[a.tsv, 'b,c']", ["a.tsv", "b,c"]),
        ("data.columns=2,1", [2, 1]),
        ("data.valid=a=b.tsv", "a=b.tsv"),
        ("data.valid='1'", "1"),
    ],
)
def test_overrides_are_read_as_yaml(override, value):
    section, name = override.split("=")[0].strip().split(".")
    read = getattr(getattr(load_config(overrides=[override]), section), name)
    assert read == value and type(read) is type(value)


def test_values_of_python_are_taken_as_they_are():
    config = Config().updated(data={"valid": "[no: yaml", "sources": ["1"]})
    assert config.data.valid == "[no: yaml" and config.data.sources == ["1"]
    assert "training.steps = '5'" in refusal(Config().updated, training={"steps": "5"})
    assert "model.dff = " in refusal(ModelConfig, dff=object())


# --- What does not exist ---


@pytest.mark.parametrize(
    ("override", "named", "suggested"),
    [
        ("model.d_modle=64", "setting 'model.d_modle'", "d_model"),
        ("training.step=2", "setting 'training.step'", "steps"),
        ("modle.dff=64", "setting 'modle'", "model"),
        ("train.steps=2", "setting 'train'", "training"),
    ],
)
def test_a_typo_is_named_with_a_suggestion(read, override, named, suggested):
    expected = f"there is no {named} (did you mean '{suggested}'?): there are "
    assert expected in refusal(load_config, overrides=[override])
    section, setting = override.split("=")[0].split(".")
    message = refusal(read, f"{section}:\n  {setting}: 1\n")
    assert f"config.yaml: {expected}" in message


def test_what_is_like_nothing_is_named_with_the_choice(read):
    message = refusal(read, "model: {zzz: 1}")
    assert "model.zzz': there are num_layers, " in message
    assert message.endswith("max_length")
    message = refusal(read, "qqq: {zzz: 1}")
    assert message.endswith("qqq': there are model, tokenizer, data, training")
    assert "model.steps" in refusal(load_config, overrides=["model.steps=3"])


@pytest.mark.parametrize("preset", ["bigg", "Base", "", None, 3, ["a"], {"a": 1}])
def test_a_preset_that_does_not_exist(read, preset):
    message = refusal(read, yaml.safe_dump({"preset": preset}))
    assert message.startswith("there is no preset ")
    assert message.endswith("there are tiny, tutorial, base, big")
    assert ("did you mean 'big'?" in message) == (preset == "bigg")


@pytest.mark.parametrize(
    "override",
    ["model.dff", "dff=1", "=", "", "model", "preset=big", "model.dff:3", "model:3"],
)
def test_an_override_that_is_none(override):
    message = refusal(load_config, overrides=[override])
    assert repr(override) in message and "section.name=value" in message


@pytest.mark.parametrize("value", ["[", "'", "\x00", "2020-13-45", "!!int ''"])
def test_an_override_that_is_not_yaml(value):
    message = refusal(load_config, overrides=[f"training.seed={value}"])
    assert message.endswith("the value is not YAML")


# --- Wrong types and impossible values ---

WHOLE, NUMBER, FINITE = "a whole number", "a number", "a finite number"


@pytest.mark.parametrize(
    ("setting", "value", "expected"),
    [
        # Of the wrong type.
        ("model.num_layers", "2.0", WHOLE),
        ("model.num_layers", "true", WHOLE),
        ("model.num_layers", "'2'", WHOLE),
        ("training.steps", "2020-01-01", WHOLE),
        ("model.dropout_rate", "true", NUMBER),
        ("model.dropout_rate", "much", NUMBER),
        ("model.dropout_rate", ".nan", FINITE),
        ("training.clip_norm", ".inf", FINITE),
        ("training.clip_norm", "1" + "0" * 400, NUMBER),
        ("data.weights", "[a]", NUMBER),
        ("model.learned_positions", "1", "true or false"),
        ("data.sources", "[1]", "text"),
        ("data.sources", "null", "a list"),
        ("data.valid", "3", "text"),
        # Impossible.
        ("model.num_layers", "0", "at least 1"),
        ("model.num_heads", "12", "must divide model.d_model, 128"),
        ("model.dropout_rate", "1", "below 1"),
        ("model.dropout_rate", "-0.1", "at least 0"),
        ("model.norm", "before", "'post' or 'pre'"),
        ("model.max_length", "3", "at least 4"),
        ("tokenizer.vocab_size", "299", "at least 300"),
        ("data.weights", "[1]", "one for each of the 0 sources"),
        ("data.columns", "[1]", "two numbers from 1"),
        ("data.columns", "[2, 2]", "two numbers from 1"),
        ("data.columns", "[0, 1]", "two numbers from 1"),
        ("data.encoding", "latin-0", "there is no such encoding"),
        ("training.tokens_per_batch", "127", "at least model.max_length, 128"),
        ("training.learning_rate", "0", "above 0"),
        ("training.metric", "bleu", "needs training.bleu_pairs"),
        ("training.seed", "4294967296", "below 4294967296"),
        ("training.seed", "1" + "0" * 5000, "cannot be read"),
    ],
)
def test_a_wrong_value_is_named(read, setting, value, expected):
    section, name = setting.split(".")
    message = refusal(read, f"{section}:\n  {name}: {value}\n")
    assert expected in message
    if expected != "cannot be read":
        file, _, rest = message.partition("config.yaml: ")
        assert file and rest.startswith(f"{setting} = "), message
        assert refusal(load_config, overrides=[f"{setting}={value}"]) == rest


def test_what_does_not_go_together_may_come_from_several_places(read):
    config = read("model: {num_heads: 12}", overrides=["model.d_model=96"])
    assert config.model.num_heads == 12
    message = refusal(read, "model: {max_length: 5000}")
    assert "training.tokens_per_batch = 4096" in message and "5000" in message


# --- Files that are no settings ---


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("model: {dff: 64", 1),
        ("model:\n  dff: 64\n\tnorm: pre\n", 3),
        ("model:\n  dff: 64\n  norm: 'pre\n", 4),
        ("model:\n  dff: *b", 2),
        ("model:\n  dff: !!python/name:os.system 1", 2),
    ],
)
def test_malformed_yaml_names_file_and_line(read, text, line):
    assert f"config.yaml, line {line}: not YAML" in refusal(read, text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("text", "must hold sections"),
        ("model:", "must hold name: value"),
        ("model: [dff]", "must hold name: value"),
        ("o gato bebe leite\n" * 1000, "must hold sections"),
        (b"model: {norm: \xff}", "not UTF-8"),
        ("training: {seed: 2020-01-01T99:00:00}", "not YAML: cannot be read"),
        ("training: {seed: " + "[" * 1500, "not YAML: cannot be read"),
        ("model: {norm: '" + "word " * 100 + "'}", "model.norm = 'word word"),
        ('model: {norm: "a\\nb"}', "model.norm = "),
        ('model: {"a\\nb": 1}', "no setting"),
        ("model: {3: 1}", "there is no setting 'model.3'"),
        ("3: {dff: 1}", "there is no setting '3'"),
    ],
)
def test_a_file_that_is_no_settings(read, text, expected):
    message = refusal(read, text)
    assert expected in message
    assert "config.yaml" in message or "a\\nb" in message


def test_files_that_cannot_be_read(tmp_path):
    missing = tmp_path / "none.yaml"
    assert f"{missing}: No such file" in refusal(load_config, file=missing)
    assert f"{tmp_path}: Is a directory" in refusal(load_config, file=tmp_path)
