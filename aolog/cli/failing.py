"""Errors become one line on standard error and an exit status, never a traceback.

    aolog: CODE: MESSAGE                                  for people
    {"error": {"code": ..., "message": ..., ...}}         with --json

Codes and statuses come from the errors (aolog/errors.py); this module adds errors that only a command
line can have. Warnings of the library's logger are printed in the same form. The bridge's command line
uses this module under its own name.
"""

from __future__ import annotations

import errno
import itertools
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from aolog.cli.output import OutputClosed, named, out, silence_stdout, to_stderr
from aolog.errors import (
    AologError,
    StorageError,
    StorageFailed,
    UsageError,
    counted,
    escape_controls,
    library_missing,
    to_json,
)

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
INTERRUPTED, OUTPUT_CLOSED = 130, 141  # 128 + the signal that ends other programs there
_TRACEBACK_VARIABLE = "AOLOG_TRACEBACK"  # if set, internal errors print a traceback


class InputFailed(StorageError):
    """The input could not be read. Records that were read before are in the log."""

    code = "input_failed"


class InputTruncated(UsageError):
    """Length-delimited input ends within a record. The records before it are in the log."""

    code = "input_truncated"


class Program(click.Command):
    """A command that is a whole program: ends the process with the exit status of its result."""

    program: str | None = None  # its name in usage lines; None: argv[0]
    error_prefix: str = "aolog"  # its name in front of errors

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command; returns its exit status."""
        with _ending_quietly():
            try:
                return super().invoke(ctx)
            finally:
                out.flush()  # results before an error are printed before it

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """As click's, which prints help here."""
        with _ending_quietly():
            return super().make_context(*args, **extra)

    def main(  # type: ignore[override]  # the others are passed by name
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        *,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """As click's, with this module's errors and statuses."""
        given = list(sys.argv[1:] if args is None else args) or ["--help"]
        name = self.program if prog_name in {None, self.name} else prog_name
        run: Callable[[], Any] = partial(super().main, given, name, standalone_mode=False, **extra)
        if not standalone_mode:
            return run()
        _open_closed_streams()
        # Options are not parsed yet, and may not parse.
        as_json = "--json" in itertools.takewhile(lambda arg: arg != "--", given)
        out.forget()
        with _warnings(self.error_prefix, as_json=as_json):
            try:
                status = run()
            except Exception as error:  # noqa: BLE001 -- reported without a traceback
                status = _report(error, self, as_json=as_json)
        sys.exit(status if isinstance(status, int) else 0)


def _open_closed_streams() -> None:
    """Gives the numbers of standard streams that are closed to /dev/null. Otherwise the next file to be
    opened, a slab for example, would get the number, and with it what a library prints. Reading the
    input and writing the output fail then; errors go nowhere."""
    for fd, name, flags, mode in ((0, "stdin", os.O_WRONLY, "r"), (1, "stdout", os.O_RDONLY, "w")):
        if getattr(sys, name) is None and os.open(os.devnull, flags) == fd:
            setattr(sys, name, open(fd, mode, closefd=False))  # noqa: SIM115 -- stays open
    if sys.stderr is None:
        os.open(os.devnull, os.O_WRONLY)


@contextmanager
def _ending_quietly() -> Iterator[None]:
    """Replaces click's handling of interrupts and closed pipes, which has other exit statuses."""
    try:
        yield
    except KeyboardInterrupt:
        raise click.exceptions.Exit(INTERRUPTED) from None
    except (OutputClosed, BrokenPipeError):  # the latter when click prints help
        silence_stdout()
        raise click.exceptions.Exit(OUTPUT_CLOSED) from None


class _Commands(Mapping[str, click.Command]):
    """Imports a command's module when the command is asked for: each needs few of the package's."""

    def __init__(self, table: Mapping[str, tuple[str, str]]) -> None:
        self._table = table

    def __getitem__(self, name: str) -> click.Command:
        found: click.Command = getattr(import_module(self._table[name][0]), name.replace("-", "_"))
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)


class Root(Program, click.Group):
    """The group of all commands. An option that takes one value cannot be given twice: click would
    keep the last value and drop the others without a word.

    table: for each command, the module that has it under its name, and what the list of commands says
    about it.
    """

    program = "aolog"

    def __init__(self, *args: Any, table: Mapping[str, tuple[str, str]], **more: Any) -> None:
        super().__init__(*args, **more)
        self.commands: Any = _Commands(table)  # never changed, although click's type allows that
        self._about = {name: about for name, (_, about) in sorted(table.items())}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """As click's, without an import."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(self._about.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """As click's, without an import."""
        from click.shell_completion import CompletionItem

        names = [name for name in self._about if name.startswith(incomplete)]
        commands = [CompletionItem(name, help=self._about[name]) for name in names]
        return commands + click.Command.shell_complete(self, ctx, incomplete)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """As click's; refuses repeated options."""
        found = super().resolve_command(ctx, args)
        if found[1] is not None and not ctx.resilient_parsing:
            _refuse_repeated(found[1], ctx, found[0], found[2])
        return found


def _refuse_repeated(
    command: click.Command, parent: click.Context, name: str | None, args: list[str]
) -> None:
    ctx = command.context_class(command, parent, name, **command.context_settings)
    if isinstance(command, click.Group):
        if args and (inner := command.get_command(ctx, args[0])) is not None:
            _refuse_repeated(inner, ctx, args[0], args[1:])
        return
    given: list[click.Parameter] = command.make_parser(ctx).parse_args(list(args))[2]
    for option in given:
        if not isinstance(option, click.Option) or option.multiple or option.count:
            continue
        if not option.is_flag and given.count(option) > 1:
            spelled = max(option.opts, key=len)
            raise click.UsageError(f"{spelled} is given more than once: it takes one value", ctx)


def _report(error: Exception, program: Program, *, as_json: bool) -> int:
    """Prints the error; returns the exit status."""
    if isinstance(error, click.Abort):
        return INTERRUPTED
    ours = _ours(error, program.error_prefix)
    found = {"code": ours.code, "message": ours.reason, "hint": ours.hint, **_plain(ours.details)}
    if as_json:
        to_stderr(to_json({"error": {**found, "exit_status": ours.exit_status}}))
    else:
        first, *more = _lines(ours)
        to_stderr(f"{program.error_prefix}: {ours.code}: {first}")
        for line in more:
            to_stderr(f"  {line}")
    return ours.exit_status


def _lines(error: AologError) -> list[str]:
    """The lines after the code, without --json: the error, or each of the problems that it has."""
    if not error.problems:
        return [str(error)]
    where = error.details.get("path") or "the configuration"
    return [f"{where}: {counted(len(error.problems), 'problem')}", *error.problems]


def _ours(error: Exception, program: str) -> AologError:
    """The error as one of ours."""
    if isinstance(error, ModuleNotFoundError):
        error = library_missing(error) or error
    match error:
        case AologError():
            return error
        case click.ClickException():
            reason = " ".join(error.format_message().split()).removesuffix(".")
            return UsageError(reason, hint=_usage_hint(error))
        case OSError():
            silence_stdout()  # it may have failed itself, when click printed help
            what = os.strerror(error.errno) if error.errno else str(error)
            where = f"{error.filename}: " if error.filename else ""
            return StorageFailed(where + what, errno=error.errno)
        case MemoryError():
            return AologError("out of memory: the records are too large for this machine")
    if os.environ.get(_TRACEBACK_VARIABLE):
        click.echo(escape_controls("".join(traceback.format_exception(error))), err=True)
    hint = f"this is a bug in {program}; {_TRACEBACK_VARIABLE}=1 prints a traceback"
    return AologError(f"{type(error).__name__}: {error}", hint=hint)


def _usage_hint(error: click.ClickException) -> str | None:
    """How to give a value that was given as an option instead of an argument, or the reverse; and where
    the help is."""
    ctx = getattr(error, "ctx", None)
    if ctx is None:
        return None
    hint = f"see {ctx.command_path} --help"
    arguments = [one for one in ctx.command.params if isinstance(one, click.Argument)]
    if isinstance(error, click.NoSuchOption):
        name = error.option_name.lstrip("-")
        if any(one.name == name for one in arguments):
            return f"give it as an argument: {ctx.command_path} {name.upper()}; {hint}"
    elif "unexpected extra argument" in error.message and not arguments:
        options = {name for one in ctx.command.params for name in one.opts}
        if named := [name for name in ("--log", "--topic") if name in options]:
            return f"name it with {' or '.join(named)}; {hint}"
    return hint


def _plain(details: dict[str, object]) -> dict[str, Any]:
    """Details as JSON values."""
    plain = {name: named(value) for name, value in details.items()}
    if isinstance(number := plain.get("errno"), int):
        plain["errno_name"] = errno.errorcode.get(number)
    return plain


class _ToStderr(logging.Handler):
    def __init__(self, program: str, *, as_json: bool) -> None:
        super().__init__(logging.WARNING)
        self._program = program
        self._as_json = as_json

    def emit(self, record: logging.LogRecord) -> None:
        level, message = record.levelname.lower(), record.getMessage()
        if self._as_json:
            to_stderr(to_json({level: {"message": message, "logger": record.name}}))
        else:
            to_stderr(f"{self._program}: {level}: {message}")


@contextmanager
def _warnings(program: str, *, as_json: bool) -> Iterator[None]:
    """Prints the library's warnings on standard error while a command runs."""
    logger = logging.getLogger("aolog")
    handler = _ToStderr(program, as_json=as_json)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
