"""What commands share: options made from settings, `-q`, the help's look, the end."""

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
    """The commands of a program, or of a part of it."""

    def command(self, *args, **kwargs):
        register = super().command(*args, **kwargs)
        return lambda function: register(_with_ends(_with_quiet(function)))


def _in_words(record):
    """A parameter's ``get_help_record`` with words for types: ``<texts>``."""

    def record_in_words(ctx):
        found = record(ctx)
        if found is None:
            return None
        names = re.sub(r"(?<=<)[^<>]+(?=>)", lambda x: _WORDS.get(x[0], x[0]), found[0])
        return names, found[1]

    return record_in_words


# Options that are not called as their fields are.
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


def with_settings(argument, kind, *fields):
    """Gives a command options that are made from fields of settings.

    Args:
        argument: the command's argument for what was given: a dictionary by field.
        kind: the class of the settings.
        fields: which of its fields; all if none is named.

    Returns:
        A decorator of commands.
    """
    fields = fields or [*kind.model_fields]

    def decorate(command):
        signature = inspect.signature(command)
        parameters = []
        for parameter in signature.parameters.values():
            if parameter.name != argument:
                parameters.append(parameter.replace(kind=parameter.KEYWORD_ONLY))
            else:
                parameters += [_option(name, kind) for name in fields]

        @functools.wraps(command)
        def with_options(**arguments):
            given = {name: arguments.pop(name) for name in fields}
            given = {name: x for name, x in given.items() if x not in (None, [])}
            return command(**arguments, **{argument: given})

        with_options.__signature__ = signature.replace(parameters=parameters)
        return with_options

    return decorate


def _option(name, settings):
    """A field of settings as a parameter that Typer makes an option of."""
    field = settings.model_fields[name]
    kind, about = _plain(field.annotation), {"help": field.description}
    if kind in (list[int], list[float]):
        about |= {"metavar": "N,N", "callback": _numbers(option(name), *get_args(kind))}
        kind = str
    elif kind == list[str]:
        about["help"] += " Repeat it to name several."
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


def made(kind, given):
    """Settings of what a command was given, refused as the command line spells them.

    Args:
        kind: the class of the settings.
        given: values by field.

    Returns:
        The settings.

    Raises:
        UserError: naming the option that is wrong.

    Example:
        >>> from tfxformer.config import DataConfig
        >>> made(DataConfig, {"columns": [2]})
        Traceback (most recent call last):
        ...
        tfxformer.errors.UserError: --columns [2]: must be two numbers from 1, ...
    """
    try:
        return kind(**given)
    except UserError as error:
        name, equals, wrong = str(error).removeprefix(kind.section).partition(" = ")
        if equals:
            raise UserError(f"{option(name)} {wrong}") from None
        for field in kind.model_fields:
            name = re.sub(rf"\b{field}\b", option(field), name)
        raise UserError(name) from None


def _with_quiet(command):
    """Gives a command the option ``-q``, which may also stand before its name."""
    signature = inspect.signature(command)
    option = inspect.Parameter(
        "quiet", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Quiet
    )

    @functools.wraps(command)
    def with_quiet(*, quiet, **arguments):
        if quiet:
            start_logging(quiet)
        return command(**arguments)

    parameters = [*signature.parameters.values(), option]
    with_quiet.__signature__ = signature.replace(parameters=parameters)
    return with_quiet


def _with_ends(command):
    """Ends a command as `tfxformer.cli.main` promises: Typer would not let it."""

    @functools.wraps(command)
    def with_ends(**arguments):
        try:
            return command(**arguments)
        except KeyboardInterrupt:
            raise Stopped("interrupted", INTERRUPTED) from None
        except BrokenPipeError:  # whoever read our answer has seen enough
            sys.stdout = None
            sys.exit(0)

    return with_ends
