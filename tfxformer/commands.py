"""Shared parts of the commands: `-q`, `--run`, and options made from settings."""

import functools
import importlib.util
import inspect
import itertools
import operator
import reprlib
import signal
import sys
from pathlib import Path
from typing import Annotated, get_args, get_type_hints

import typer
from typer import Option

import tfxformer
from tfxformer.console import console, start_logging, start_tensorflow
from tfxformer.errors import SettingError, Stopped, UserError
from tfxformer.repository import chosen_model

Checkpoint = Annotated[str, Option(help="The weights of a run folder: best or last.")]
Model = Annotated[
    Path | None,
    Option(
        "--run",
        "--model",
        help="A run folder, or an exported SavedModel; by default the "
        "Portuguese-to-English model that comes with the package.",
    ),
]


class _Group(typer.core.TyperGroup):
    """Commands in groups that also take the program's `-q`, and end in one line."""

    def __init__(self, **attributes):
        super().__init__(**attributes)
        quiet = next(x for x in self.params if x.name == "quiet")
        for command in self.commands.values():
            if not isinstance(command, _Group):
                command.params.append(quiet)

    def invoke(self, ctx):
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Stopped(signal.SIGINT) from None
        except BrokenPipeError:  # the reader has closed the pipe, as `head` does
            sys.stdout = None
            sys.exit(0)

    def format_commands(self, ctx, formatter):
        panel = operator.attrgetter("rich_help_panel")
        for title, group in itertools.groupby(self.commands.values(), panel):
            with formatter.section(title or "Commands"):
                formatter.write_dl([(x.name, x.get_short_help_str(99)) for x in group])


class _App(typer.Typer):
    """A Typer application whose help names types in words."""

    def command(self, *args, **kwargs):
        register = super().command(*args, **kwargs)

        def decorate(function):
            for parameter in inspect.signature(function).parameters.values():
                _name_type(*get_args(parameter.annotation))
            return register(function)

        return decorate


def _name_type(kind=None, info=None, *_):
    """Gives an option the word for its type in the help, unless it has one."""
    if isinstance(info, typer.models.OptionInfo) and info.metavar is None:
        kinds = {kind, *get_args(kind)}
        choices = [x for x in get_args(kind) if isinstance(x, str)]
        if choices:
            info.metavar = f"<{'|'.join(choices)}>"
        elif bool not in kinds:
            is_number = bool(kinds & {int, float})
            info.metavar = "<number>" if is_number else "<text>"
            info.metavar = "<path>" if Path in kinds else info.metavar


def _quiet(value: bool):
    if value:
        start_logging(quiet=True)


def _version(value: bool):
    if value:
        print(tfxformer.__version__)
        raise typer.Exit


def commands(help):
    """A Typer application for a program or a group of its commands."""
    app = _App(
        help=help,
        cls=_Group,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )

    quiet = Option("--quiet", "-q", callback=_quiet, expose_value=False)
    version = Option("--version", callback=_version, help="Print the version.")
    quiet.help = "Print only warnings and errors."

    @app.callback()
    def options(
        quiet: Annotated[bool, quiet] = False, version: Annotated[bool, version] = False
    ):
        """Adds the options of the whole program."""

    return app


def need(extra, modules):
    """Checks that the modules of an extra are installed."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            hint = f"run: pip install 'tfxformer[{extra}]'"
            raise UserError(f"{module} is missing; {hint}")


def load_translator(model, checkpoint="best", *options):
    """`Translator.load` for the given model, or for the shipped one."""
    model = chosen_model(model)
    with console.status("loading the model"):  # on a terminal alone
        start_tensorflow()
        from tfxformer.translator import Translator

        return Translator.load(model, checkpoint, *options)


# --- Options made from settings ------------------------------------------------------

# Options with other names than their fields.
_NAMES = {
    "sources": "--data",
    "init_from": "--from",
    "beam_size": "--beam",
    "sampling": "--sample",
}


def option(field):
    """The command-line option of a field of settings."""
    return _NAMES.get(field, "--" + field.replace("_", "-"))


def with_settings(argument, kind, fields=None):
    """A decorator that replaces a command's argument, some settings, by options.

    Each field of the settings' class gets an option; by default all its fields.
    """
    fields = fields or [*kind.model_fields]

    def decorate(function):
        @functools.wraps(function)
        def command(**arguments):
            given = {name: arguments.pop(name) for name in fields}
            given = {name: x for name, x in given.items() if x not in (None, [])}
            return function(**arguments, **{argument: _made(kind, given)})

        parameters = []
        for parameter in inspect.signature(function).parameters.values():
            made = [_parameter(kind, name) for name in fields]
            kept = parameter.replace(kind=parameter.KEYWORD_ONLY)
            parameters += made if parameter.name == argument else [kept]
        command.__signature__ = inspect.Signature(parameters)
        return command

    return decorate


def _parameter(kind, name):
    """A field of settings as a parameter, which Typer turns into an option."""
    annotation, field = get_type_hints(kind)[name], kind.model_fields[name]
    made = Option(option(name), help=field.description)
    # The default of "steps" depends on the preset.
    if field.default and field.default is not True and name != "steps":
        made.help += f"  [default: {field.default}]"
    if annotation in (list[str], tuple[str, ...]):
        made.help += " Repeatable."
        annotation = list[str]
    elif "list" in str(annotation):
        annotation = str
        made.metavar = "<number,number>"
    annotation = Annotated[annotation | None, made]
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=None, annotation=annotation)


def _made(kind, given):
    """Settings from options; errors name the options, not the fields."""
    try:
        return kind(**given)
    except SettingError as error:
        value = reprlib.repr(error.value)
        text = f"{option(error.name)} {value}: {error.explain(option)}"
        raise UserError(text) from None
