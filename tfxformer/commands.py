"""What commands share: options made from settings, `-q`, the help, how they end."""

import functools
import importlib.util
import inspect
import re
import sys
from pathlib import Path
from types import UnionType
from typing import Annotated, Union, get_args, get_origin

import typer
from typer import Option

from tfxformer.console import start_logging, start_tensorflow
from tfxformer.errors import INTERRUPTED, Stopped, UserError
from tfxformer.exporting.repository import chosen_model

Checkpoint = Annotated[str, Option(help="Weights of a run folder: best, last or ema.")]
Model = Annotated[
    Path | None,
    Option(
        "--run",
        "--model",
        help="A run folder, or an exported SavedModel; by default the "
        "Portuguese-to-English model that comes with the package.",
    ),
]

# Python's names of types, as the help calls them.
_WORDS = {
    "<str>": "<text>",
    "<int>": "<number>",
    "<int range>": "<number>",
    "<float>": "<number>",
    "<list[str]>": "<texts>",
    "<list[Path]>": "<paths>",
}


class _Group(typer.core.TyperGroup):
    """Commands that take the group's `-q`, too, under a title for each panel."""

    def __init__(self, **attributes):
        super().__init__(**attributes)
        quiet = next(x for x in self.params if x.name == "quiet")
        for command in self.commands.values():
            if not isinstance(command, _Group):
                command.params.append(quiet)
            for parameter in command.params:
                parameter.display_type = _in_words(parameter.display_type)

    def invoke(self, ctx):
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # Typer would end both in its own way
            raise Stopped("interrupted", INTERRUPTED) from None
        except BrokenPipeError:  # whoever read our answer has seen enough
            sys.stdout = None
            sys.exit(0)

    def format_commands(self, ctx, formatter):
        panels = {}
        for name, command in self.commands.items():
            row = f"{name:10}", command.get_short_help_str(limit=1000)
            panels.setdefault(command.rich_help_panel or "Commands", []).append(row)
        for title, rows in panels.items():
            with formatter.section(title):
                formatter.write_dl(rows)


def _in_words(display_type):
    return lambda ctx: _WORDS.get(found := display_type(ctx), found)


def _quiet(value: bool):
    if value:
        start_logging(quiet=True)


_QUIET = "Warnings and errors only."
Quiet = Annotated[
    bool,
    Option("--quiet", "-q", help=_QUIET, callback=_quiet, expose_value=False),
]


def commands(help):
    """A Typer application: the commands of a program, or of a part of it.

    Args:
        help: what it is for.

    Returns:
        The application.
    """
    app = typer.Typer(
        help=help,
        cls=_Group,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )

    @app.callback()
    def options(quiet: Quiet = False):
        """What holds for every command."""

    return app


def need(extra, *modules):
    """Refuses to work without the modules that an extra installs."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise UserError(f"{module} is missing: pip install 'tfxformer[{extra}]'")


def load_translator(model, checkpoint="best", *options):
    """`Translator.load` of what the user named, or of the shipped model."""
    model = chosen_model(model)
    start_tensorflow()
    from tfxformer.translator import Translator

    return Translator.load(model, checkpoint, *options)


# --- Options made from settings ------------------------------------------------------

# Those that are not called as their fields are.
_NAMES = {
    "sources": "--data",
    "init_from": "--from",
    "beam_size": "--beam",
    "sampling": "--sample",
}


def option(field):
    """What the command line calls a field of settings.

    Example:
        >>> option("n_best"), option("beam_size")
        ('--n-best', '--beam')
    """
    return _NAMES.get(field, "--" + field.replace("_", "-"))


def with_settings(argument, kind, *fields, check=True):
    """Gives a command options that are made from the fields of settings.

    Args:
        argument: the command's argument that takes the settings. The options come in
            its place.
        kind: the class of the settings.
        fields: which of its fields; all if none is named.
        check: make the settings; otherwise the command takes a dictionary of what
            was given.

    Returns:
        A decorator of commands.
    """
    fields = fields or [*kind.model_fields]

    def decorate(function):
        @functools.wraps(function)
        def command(**arguments):
            given = {name: arguments.pop(name) for name in fields}
            given = {name: x for name, x in given.items() if x not in (None, [])}
            settings = _made(kind, given) if check else given
            return function(**arguments, **{argument: settings})

        parameters = []
        for parameter in inspect.signature(function).parameters.values():
            made = [_parameter(name, kind.model_fields[name], check) for name in fields]
            kept = parameter.replace(kind=parameter.KEYWORD_ONLY)
            parameters += made if parameter.name == argument else [kept]
        command.__signature__ = inspect.Signature(parameters)
        return command

    return decorate


def _parameter(name, field, with_default):
    """A field of settings as a parameter that Typer makes an option of."""
    kind, about = _plain(field.annotation), field.description
    if with_default and field.default and field.default is not True:
        about += f"  [default: {field.default}]"
    metavar = None
    if get_origin(kind) is list and _plain(get_args(kind)[0]) is str:
        about += " Repeat it to name several."
    elif get_origin(kind) is list:
        kind, metavar = str, "N,N"
    made = Annotated[kind | None, Option(option(name), help=about, metavar=metavar)]
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, keyword, default=None, annotation=made)


def _plain(annotation):
    """A field's type without its limits and the None that it may be."""
    wrapped = get_origin(annotation) in (UnionType, Union, Annotated)
    return _plain(get_args(annotation)[0]) if wrapped else annotation


def _made(kind, given):
    """Settings of what was given, refused as the command line spells them."""
    try:
        return kind(**given)
    except UserError as error:
        name, equals, wrong = str(error).removeprefix(kind.section).partition(" = ")
        if equals:
            raise UserError(f"{option(name)} {wrong}") from None
        for field in kind.model_fields:
            name = re.sub(rf"\b{field}\b", option(field), name)
        raise UserError(name) from None
