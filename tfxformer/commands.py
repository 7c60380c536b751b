"""What commands share: options made from settings, `-q`, the help, how they end."""

import functools
import inspect
import re
import sys
from types import UnionType
from typing import Annotated, Union, get_args, get_origin

import typer

from tfxformer.console import start_logging
from tfxformer.errors import INTERRUPTED, Stopped, UserError

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Warnings and errors only.")]

# Python's names of types, as the help calls them.
_WORDS = {
    "str": "text",
    "int": "number",
    "int range": "number",
    "float": "number",
    "float range": "number",
    "list[str]": "texts",
    "list[Path]": "paths",
}


class Group(typer.core.TyperGroup):
    """Commands, whose help shows each summary in full, under a title for each panel."""

    def __init__(self, **attributes):
        super().__init__(**attributes)
        for command in self.commands.values():
            for parameter in command.params:
                parameter.get_help_record = _in_words(parameter.get_help_record)

    def format_commands(self, ctx, formatter):
        panels = {}
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            row = name, command.get_short_help_str(limit=1000)
            panels.setdefault(command.rich_help_panel or "Commands", []).append(row)
        widest = max(len(name) for rows in panels.values() for name, _ in rows)
        for title, rows in panels.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:{widest}}", text) for name, text in rows])


class Commands(typer.Typer):
    """The commands of a program, or of a part of it; `help` says what it is for."""

    def __init__(self, help):
        super().__init__(
            help=help,
            cls=Group,
            no_args_is_help=True,
            add_completion=False,
            pretty_exceptions_enable=False,
            rich_markup_mode=None,
        )

    def command(self, *args, **kwargs):
        register = super().command(*args, **kwargs)
        return lambda function: register(_as_command(function))


def _in_words(record):
    """A parameter's ``get_help_record`` with words for types: ``<texts>``."""

    def record_in_words(ctx):
        name, *text = record(ctx) or ("",)
        name = re.sub(r"(?<=<)[^<>]+(?=>)", lambda x: _WORDS.get(x[0], x[0]), name)
        return (name, *text) if text else None

    return record_in_words


def _as_command(function):
    """The function with ``-q``, ended as `tfxformer.cli.main` promises."""
    signature = inspect.signature(function)
    quiet = inspect.Parameter(
        "quiet", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Quiet
    )

    @functools.wraps(function)
    def command(*, quiet, **arguments):
        if quiet:
            start_logging(quiet)
        try:
            return function(**arguments)
        except KeyboardInterrupt:  # Typer would end both in its own way
            raise Stopped("interrupted", INTERRUPTED) from None
        except BrokenPipeError:  # whoever read our answer has seen enough
            sys.stdout = None
            sys.exit(0)

    parameters = [*signature.parameters.values(), quiet]
    command.__signature__ = signature.replace(parameters=parameters)
    return command


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
        parameters = []
        for parameter in inspect.signature(function).parameters.values():
            if parameter.name == argument:
                parameters += [_parameter(name, kind, check) for name in fields]
            else:
                parameters.append(parameter.replace(kind=parameter.KEYWORD_ONLY))

        @functools.wraps(function)
        def with_options(**arguments):
            given = {name: arguments.pop(name) for name in fields}
            given = {name: x for name, x in given.items() if x not in (None, [])}
            settings = _made(kind, given) if check else given
            return function(**arguments, **{argument: settings})

        with_options.__signature__ = inspect.Signature(parameters)
        return with_options

    return decorate


def _parameter(name, settings, with_default):
    """A field of settings as a parameter that Typer makes an option of."""
    field = settings.model_fields[name]
    kind, about = _plain(field.annotation), {"help": field.description}
    if with_default and field.default and field.default is not True:
        about["help"] += f"  [default: {field.default}]"
    item = _plain(get_args(kind)[0]) if get_origin(kind) is list else None
    if item is str:
        about["help"] += " Repeat it to name several."
    elif item is not None:
        about |= {"metavar": "N,N", "callback": _numbers(option(name), item)}
        kind = str
    annotation = Annotated[kind | None, typer.Option(option(name), **about)]
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, keyword, default=None, annotation=annotation)


def _plain(annotation):
    """A field's type without its limits and the None that it may be."""
    wrapped = get_origin(annotation) in (UnionType, Union, Annotated)
    return _plain(get_args(annotation)[0]) if wrapped else annotation


def _numbers(name, kind):
    """What reads an option's numbers, such as 2,1."""

    def read(text):
        try:
            return text and [kind(number) for number in text.split(",")]
        except ValueError:
            raise UserError(
                f"{name} {text!r}: write numbers with commas between, such as 2,1"
            ) from None

    return read


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
