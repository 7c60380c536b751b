"""What all commands share: `-q`, how one that is cut off ends, and the help's look."""

import functools
import inspect
import re
import sys
from typing import Annotated

import typer

from tfxformer.console import start_logging
from tfxformer.errors import INTERRUPTED, Stopped

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
