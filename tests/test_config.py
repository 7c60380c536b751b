"""Settings are as documented, and nothing wrong gets past them unnamed."""

import datetime

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tfxformer.config import PRESETS, Config, load_config
from tfxformer.errors import UserError

SETTINGS = [
    f"{section}.{name}"
    for section, values in Config().to_dict().items()
    for name in values
]


@pytest.fixture
def read(tmp_path):
    """Loads a configuration from the text of its file."""

    def read(text, **options):
        return load_config(file=write(tmp_path, text), **options)

    return read


def write(folder, text):
    path = folder / "config.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def refusal(load, *arguments, **options):
    """The message with which something is refused: one line, not too long."""
    with pytest.raises(UserError) as caught:
        load(*arguments, **options)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 500
    return message


# --- Presets ---


def sizes(name):
    model = load_config(name).model
    return model.num_layers, model.d_model, model.dff, model.num_heads


def test_presets_have_their_documented_sizes():
    assert [*PRESETS] == ["tiny", "tutorial", "base", "big"]
    # The TensorFlow tutorial's; the paper's Table 3.
    assert sizes("tutorial") == (4, 128, 512, 8)
    assert sizes("base") == (6, 512, 2048, 8)
    assert sizes("big") == (6, 1024, 4096, 16)
    assert load_config("tutorial").model.dropout_rate == 0.1
    assert load_config("base").model.dropout_rate == 0.1
    assert load_config("big").model.dropout_rate == 0.3
    for name in ("tutorial", "base", "big"):
        config = load_config(name)
        assert config.training.warmup_steps == 4000
        assert config.model.norm == "post"
    assert load_config("base").training.label_smoothing == 0.1
    assert load_config("base").training.steps == 100_000
    assert load_config("big").training.steps == 300_000
    assert load_config("base").training.tokens_per_batch == 25_000
    assert sizes("tiny") < sizes("tutorial")


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_changes_defaults_only_where_it_says(name):
    expected = Config().to_dict()
    for section, changes in PRESETS[name].items():
        assert {*changes} <= {*expected[section]}
        expected[section].update(changes)
    assert load_config(name).to_dict() == expected


def test_the_default_is_the_tutorial_and_loads_share_nothing():
    assert load_config() == load_config("tutorial") == Config()
    first, second = load_config(), load_config()
    first.data.sources.append("phrasebook")
    first.model.dff = 7
    assert second == Config() == load_config()


# --- File and overrides ---


def test_overrides_beat_the_file_and_the_file_beats_the_preset(read):
    text = "model: {dff: 100, num_layers: 5}\ntraining:\n  steps: 7\n"
    config = read(
        text, preset="base", overrides=["model.num_layers=2", "model.num_layers=3"]
    )
    assert config.model.d_model == 512  # the preset's
    assert config.model.dff == 100  # the file's
    assert config.model.num_layers == 3  # the last override's
    assert config.training.steps == 7


def test_a_file_names_its_own_preset(read):
    assert read("preset: big").model.d_model == 1024
    assert read("preset: big\nmodel: {dff: 64}", preset="tiny").model.dff == 64
    assert read("preset: big", preset="tiny").model.d_model == 1024


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n", "---\n", "null", "\ufeff"])
def test_an_empty_file_changes_nothing(read, text):
    assert read(text, preset="base") == load_config("base")


def test_a_byte_order_mark_and_windows_line_ends(read):
    assert read("\ufeffmodel:\r\n  dff: 64\r\n").model.dff == 64


@pytest.mark.parametrize("name", PRESETS)
def test_a_saved_preset_loads_equal(tmp_path, name):
    config = load_config(name)
    config.save(tmp_path / "config.yaml")
    for other in PRESETS:
        assert load_config(other, file=tmp_path / "config.yaml") == config
    sections = yaml.safe_load((tmp_path / "config.yaml").read_text("utf-8"))
    assert [*sections] == ["model", "tokenizer", "data", "training"]


PATHS = st.text(
    st.characters(codec="utf-8", exclude_characters="\x85"), min_size=1, max_size=20
)


@settings(max_examples=50)
@given(
    sources=st.lists(PATHS, max_size=4),
    valid=st.none() | PATHS,
    dropout_rate=st.floats(0, 1, exclude_max=True),
    clip_norm=st.none() | st.floats(0, exclude_min=True, allow_infinity=False),
    seed=st.integers(0, 2**32 - 1),
    strict=st.booleans(),
    data=st.data(),
)
def test_whatever_is_saved_loads_equal(
    tmp_path_factory, sources, valid, dropout_rate, clip_norm, seed, strict, data
):
    config = Config()
    config.model.dropout_rate = dropout_rate
    config.data.sources, config.data.valid = sources, valid
    config.data.strict = strict
    weight = st.floats(1e-3, 1e3)
    config.data.weights = data.draw(
        st.none() | st.lists(weight, min_size=len(sources), max_size=len(sources))
    )
    config.training.clip_norm, config.training.seed = clip_norm, seed
    config.check()
    path = tmp_path_factory.mktemp("config") / "config.yaml"
    config.save(path)
    assert load_config("big", file=path) == config


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("caf\udce9.tsv", id="not UTF-8, as Python spells it"),
        pytest.param("a\x85b.tsv", id="U+0085, a line end to YAML"),
        pytest.param("a\u2028\n\r\t\x00\ufeff.tsv", id="more of that kind"),
    ],
)
def test_odd_paths_load_equal(tmp_path, path):
    config = Config()
    config.data.sources = [path]
    config.save(tmp_path / "config.yaml")
    assert load_config(file=tmp_path / "config.yaml") == config


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("model.dff=1024", 1024),
        (" model.dff = 1024 ", 1024),
        ("training.steps=1_000", 1000),
        ("model.dropout_rate=0", 0.0),
        ("training.label_smoothing=1e-3", 0.001),
        ("training.clip_norm=null", None),
        ("training.clip_norm=5", 5.0),
        ("data.reverse=true", True),
        ("data.reverse=no", False),
        ("data.sources=phrasebook", ["phrasebook"]),
        ("data.sources=[a.tsv, 'b,c']", ["a.tsv", "b,c"]),
        ("data.sources=src.pt,src.en", ["src.pt,src.en"]),
        ("data.valid=a=b.tsv", "a=b.tsv"),
        ("data.valid='1'", "1"),
        ("tokenizer.casing=lower", "lower"),
    ],
)
def test_overrides_are_read_as_yaml(override, value):
    section, name = override.split("=")[0].strip().split(".")
    read = getattr(getattr(load_config(overrides=[override]), section), name)
    assert read == value and type(read) is type(value)


def test_weights_need_their_sources():
    config = load_config(overrides=["data.sources=[a, b]", "data.weights=[1, 2.5]"])
    assert config.data.weights == [1.0, 2.5]
    config = load_config(overrides=["data.sources=a", "data.weights=3"])
    assert config.data.weights == [3.0]


# --- What does not exist ---


@pytest.mark.parametrize(
    ("override", "named", "suggested"),
    [
        ("model.d_modle=64", "model.d_modle", "'d_model'"),
        ("model.num_layer=2", "model.num_layer", "'num_layers'"),
        ("training.step=2", "training.step", "'steps'"),
        ("modle.dff=64", "'modle'", "'model'"),
        ("train.steps=2", "'train'", "'training'"),
        ("tokeniser.casing=keep", "'tokeniser'", "'tokenizer'"),
    ],
)
def test_a_typo_is_named_with_a_suggestion(read, override, named, suggested):
    message = refusal(load_config, overrides=[override])
    assert named in message and f"did you mean {suggested}?" in message
    name, value = override.split("=")
    section, setting = name.split(".")
    message = refusal(read, f"{section}:\n  {setting}: {value}\n")
    assert named in message and f"did you mean {suggested}?" in message
    assert "config.yaml" in message


def test_what_is_like_nothing_is_named_with_the_choice(read):
    message = refusal(read, "model: {zzz: 1}")
    assert "model.zzz" in message and "did you mean" not in message
    assert "num_layers" in message and "max_length" in message
    message = refusal(read, "qqq: {zzz: 1}")
    assert "'qqq'" in message and "model, tokenizer, data, training" in message


def test_a_setting_of_another_section_is_refused():
    assert "model.steps" in refusal(load_config, overrides=["model.steps=3"])


@pytest.mark.parametrize("preset", ["bigg", "Base", "", None, 3, ["a"], {"a": 1}])
def test_a_preset_that_does_not_exist(read, preset):
    message = refusal(read, yaml.safe_dump({"preset": preset}))
    assert "does not exist" in message and "tiny, tutorial, base, big" in message
    if preset == "bigg":
        assert "did you mean 'big'?" in message


@pytest.mark.parametrize(
    "override",
    ["model.dff", "dff=1", "=", "", "model", "preset=big", "model.dff:3", "model:3"],
)
def test_an_override_that_is_none(override):
    message = refusal(load_config, overrides=[override])
    assert repr(override) in message and "section.name=value" in message


@pytest.mark.parametrize("override", ["model.dff=[", "model.dff='", "model.dff=\x00"])
def test_an_override_that_is_not_yaml(override):
    message = refusal(load_config, overrides=[override])
    assert repr(override) in message and "not YAML" in message


# --- Wrong types and impossible values ---

WHOLE, NUMBER, TRUTH, STRING = (
    "must be a whole number",
    "must be a number",
    "must be true or false",
    "must be a string",
)


@pytest.mark.parametrize(
    ("setting", "value", "expected"),
    [
        # Of the wrong type.
        ("model.num_layers", "2.0", WHOLE),
        ("model.num_layers", "true", WHOLE),
        ("model.num_layers", "'2'", WHOLE),
        ("model.num_layers", "null", WHOLE),
        ("model.num_layers", "[2]", WHOLE),
        ("model.num_layers", "{a: 2}", WHOLE),
        ("model.num_layers", "two", WHOLE),
        ("model.num_layers", ".nan", WHOLE),
        ("model.num_layers", ".inf", WHOLE),
        ("model.num_layers", "1e3", WHOLE),
        ("training.seed", "false", WHOLE),
        ("training.steps", "2020-01-01", WHOLE),
        ("model.dropout_rate", "true", NUMBER),
        ("model.dropout_rate", "much", NUMBER),
        ("model.dropout_rate", "null", NUMBER),
        ("model.dropout_rate", ".nan", NUMBER),
        ("model.dropout_rate", "'nan'", NUMBER),
        ("training.clip_norm", ".nan", NUMBER),
        ("training.clip_norm", "false", NUMBER),
        ("model.learned_positions", "1", TRUTH),
        ("model.tie_embeddings", "'true'", TRUTH),
        ("data.strict", "null", TRUTH),
        ("model.norm", "1", STRING),
        ("model.norm", "null", STRING),
        ("tokenizer.casing", "true", STRING),
        ("data.sources", "[1]", STRING),
        ("data.sources", "null", STRING),
        ("data.sources", "[a, [b]]", STRING),
        ("data.valid", "3", STRING),
        ("data.valid", "[a]", STRING),
        ("data.weights", "[a]", NUMBER),
        # Impossible.
        ("model.num_layers", "0", "at least 1"),
        ("model.num_layers", "-1", "at least 1"),
        ("model.num_decoder_layers", "0", "at least 1"),
        ("model.d_model", "0", "at least 1"),
        ("model.d_model", "130", "multiple of num_heads, 8"),
        ("model.num_heads", "0", "at least 1"),
        ("model.num_heads", "-8", "at least 1"),
        ("model.dff", "0", "at least 1"),
        ("model.dropout_rate", "1", "below 1"),
        ("model.dropout_rate", "-0.1", "at least 0"),
        ("model.dropout_rate", ".inf", "below 1"),
        ("model.norm", "before", '"post" or "pre"'),
        ("model.max_length", "3", "at least 4"),
        ("tokenizer.vocab_size", "299", "at least 300"),
        ("tokenizer.vocab_size", "-1", "at least 300"),
        ("tokenizer.casing", "upper", '"keep" or "lower"'),
        ("data.weights", "[1]", "one for each of the 0 sources"),
        ("data.valid_pairs", "0", "at least 1"),
        ("data.max_characters", "0", "at least 1"),
        ("data.max_length_ratio", "0.9", "at least 1"),
        ("data.max_length_ratio", "-.inf", "at least 1"),
        ("training.steps", "0", "at least 1"),
        ("training.tokens_per_batch", "0", "at least 1"),
        ("training.tokens_per_batch", "127", "at least model.max_length, 128"),
        ("training.optimizer", "adamw", "adam or muon"),
        ("training.warmup_steps", "0", "at least 1"),
        ("training.label_smoothing", "1.0", "below 1"),
        ("training.label_smoothing", "-1e-9", "at least 0"),
        ("training.clip_norm", "0", "above 0"),
        ("training.clip_norm", "-1", "above 0"),
        ("training.subword_alpha", "-0.1", "not be below 0"),
        ("training.validate_every", "0", "at least 1"),
        ("training.patience", "-1", "not be below 0"),
        ("training.seed", "-1", "from 0 to 4294967295"),
        ("training.seed", "4294967296", "from 0 to 4294967295"),
    ],
)
def test_a_wrong_value_is_named(read, setting, value, expected):
    section, name = setting.split(".")
    for message in (
        refusal(load_config, overrides=[f"{setting}={value}"]),
        refusal(read, f"{section}:\n  {name}: {value}\n"),
    ):
        culprit = "model.d_model" if "multiple" in expected else setting
        assert message.startswith(f"{culprit} = "), message
        assert expected in message


@pytest.mark.parametrize("weights", ["[1, 0]", "[1, -1]", "[1, .inf]"])
def test_impossible_weights(weights):
    overrides = ["data.sources=[a, b]", f"data.weights={weights}"]
    message = refusal(load_config, overrides=overrides)
    assert "data.weights" in message and "above 0" in message


def test_an_infinite_alpha_is_refused():
    message = refusal(load_config, overrides=["training.subword_alpha=.inf"])
    assert "training.subword_alpha" in message


def test_what_is_wrong_together_is_refused(read):
    # Each may be, but not with the other.
    assert read("model: {d_model: 96, num_heads: 12}").model.num_heads == 12
    assert "model.d_model" in refusal(read, "model: {num_heads: 12}")
    message = refusal(read, "model: {max_length: 5000}")
    assert "training.tokens_per_batch = 4096" in message and "5000" in message


# --- Files that are no settings ---


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("model: {dff: 64", 1),
        ("model:\n  dff: 64\n\tnorm: pre\n", 3),
        ("model:\n  dff: 64\n  norm: 'pre\n", 4),
        ("a: b: c", 1),
        ("model:\n  dff: *b", 2),
        ("model:\n- a\nb: 1\n- c", 4),
        ("model: {}\n---\nmodel: {}", 2),
        ("model:\n  dff: !!python/name:os.system 1", 2),
        ("model:\n  ? [a]\n  : b", 2),
    ],
)
def test_malformed_yaml_names_file_and_line(read, text, line):
    message = refusal(read, text)
    assert f"config.yaml, line {line}: not YAML" in message


@pytest.mark.parametrize(
    "text",
    ["text", "3", "[model]", "- model\n- data", "true", "2020-01-01", "'model: 3'"],
)
def test_a_file_without_sections(read, text):
    message = refusal(read, text)
    assert "config.yaml" in message and "sections" in message


@pytest.mark.parametrize("text", ["model:", "model: 3", "model: [dff]", "data: a.tsv"])
def test_a_section_without_settings(read, text):
    assert text.split(":")[0] in refusal(read, text)


def test_files_that_cannot_be_read(tmp_path, read):
    missing = tmp_path / "none.yaml"
    assert f"{missing}: No such file" in refusal(load_config, file=missing)
    assert f"{tmp_path}: Is a directory" in refusal(load_config, file=tmp_path)
    assert "not UTF-8" in refusal(read, b"model: {norm: \xff}")
    assert "not UTF-8" in refusal(read, "model: {}".encode("utf-16"))
    assert "too long" in refusal(load_config, file=tmp_path / ("a" * 300))


HUGE = "1" + "0" * 400


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("2020-13-45", id="no date"),
        pytest.param("2020-01-01T99:00:00", id="no time"),
        pytest.param("!!float abc", id="no float"),
        pytest.param("!!int ''", id="no int"),
        pytest.param("!!bool maybe", id="no bool"),
        pytest.param("!!timestamp soon", id="no timestamp"),
        pytest.param("0b", id="no binary number"),
        pytest.param("[" * 1500, id="deep list"),
        pytest.param("{a: " * 1500, id="deep mapping"),
        pytest.param("9" * 5000, id="5000 digits"),
        pytest.param("0x" + "f" * 5000, id="5000 hexadecimal digits"),
    ],
)
def test_values_that_break_a_yaml_reader_are_refused(read, value):
    refusal(read, f"training:\n  seed: {value}\n")
    if len(value) < 100:  # it is in the message
        refusal(load_config, overrides=[f"training.seed={value}"])


def test_huge_numbers():
    message = refusal(load_config, overrides=[f"training.seed={HUGE}"])
    assert "training.seed" in message and "from 0 to 4294967295" in message
    # More than a float holds.
    assert "training.clip_norm" in refusal(
        load_config, overrides=[f"training.clip_norm={HUGE}"]
    )
    assert "data.weights" in refusal(
        load_config, overrides=["data.sources=a", f"data.weights=[{HUGE}]"]
    )


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("model: {norm: '" + "word " * 100 + "'}", id="long value"),
        pytest.param('model: {norm: "a\\nb"}', id="value of two lines"),
        pytest.param('model: {"a\\nb": 1}', id="setting of two lines"),
        pytest.param('"a\\nb": {}', id="section of two lines"),
        pytest.param('preset: "a\\nb"', id="preset of two lines"),
        pytest.param("model: {dff: !!binary aGk=}", id="binary"),
        pytest.param("o gato bebe leite\n" * 1000, id="a file of text"),
        pytest.param("- o gato\n" * 1000, id="a long list"),
    ],
)
def test_messages_are_one_line_of_some_length(read, text):
    refusal(read, text)


# --- Anything at all ---


def loads_or_refuses(folder, load):
    """Whatever is given, it is settings, or a `UserError`."""
    try:
        config = load()
    except UserError as error:
        assert str(error)
        return
    config.check()
    config.save(folder / "again.yaml")
    assert load_config(file=folder / "again.yaml") == config


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("any")


@settings(deadline=None)
@given(text=st.text(max_size=60))
def test_any_text_is_settings_or_refused(folder, text):
    path = write(folder, text)
    loads_or_refuses(folder, lambda: load_config(file=path))


@settings(deadline=None)
@given(content=st.binary(max_size=60))
def test_any_bytes_are_settings_or_refused(folder, content):
    path = write(folder, content)
    loads_or_refuses(folder, lambda: load_config(file=path))


TOKENS = [
    "model",
    "dff",
    "data",
    ":",
    "\n",
    " ",
    "-",
    "{",
    "}",
    "[",
    "]",
    ",",
    "'",
    '"',
]
TOKENS += ["&a", "*a", "!!str", "!", "|", ">", "?", "<<", "%", "#", "---", "1", ".nan"]


@settings(deadline=None)
@given(tokens=st.lists(st.sampled_from(TOKENS), max_size=25))
def test_any_yaml_like_text_is_settings_or_refused(folder, tokens):
    path = write(folder, "".join(tokens))
    loads_or_refuses(folder, lambda: load_config(file=path))


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=10)
    | st.dates(min_value=datetime.date(1900, 1, 1))
    | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@settings(deadline=None, max_examples=200)
@given(setting=st.sampled_from(SETTINGS), value=VALUES)
def test_any_value_of_any_setting_is_taken_or_refused(folder, setting, value):
    section, name = setting.split(".")
    path = write(folder, yaml.safe_dump({section: {name: value}}))
    loads_or_refuses(folder, lambda: load_config(file=path))


@settings(deadline=None)
@given(sections=st.dictionaries(st.sampled_from(["model", "data"]) | st.text(), VALUES))
def test_any_sections_are_taken_or_refused(folder, sections):
    path = write(folder, yaml.safe_dump(sections))
    loads_or_refuses(folder, lambda: load_config(file=path))


@settings(deadline=None)
@given(
    override=st.text(max_size=20)
    | st.builds(
        "{}={}".format, st.sampled_from(SETTINGS), st.text(max_size=20) | st.floats()
    )
)
def test_any_override_is_taken_or_refused(folder, override):
    loads_or_refuses(folder, lambda: load_config(overrides=[override]))


@settings(deadline=None, max_examples=300)
@given(setting=st.sampled_from(SETTINGS), value=st.integers() | st.floats())
def test_a_number_that_is_taken_is_what_it_says(setting, value):
    section, name = setting.split(".")
    text = yaml.safe_dump(value).splitlines()[0]
    try:
        config = load_config(overrides=[f"{setting}={text}"])
    except UserError as error:
        assert name in str(error) or section in str(error)
    else:
        taken = getattr(getattr(config, section), name)
        assert float(taken) == float(value) and type(taken) in (int, float)
