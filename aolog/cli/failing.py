"""What goes wrong becomes one line on standard error and an exit status; never a traceback.

    aolog: CODE: MESSAGE                                  for people
    {"error": {"code": ..., "message": ..., ...}}         with --json

Codes and statuses are the errors' own (aolog/errors.py); this module adds those that only a
command line can meet. Warnings of the library's logger come the same way. The bridge's command
line does as this one, under its own name.
"""

from __future__ import annotations

import codecs
import errno
import io
import itertools
import logging
import os
import sys
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from aolog.cli.output import OutputClosed, out, silence_stdout, to_json, to_stderr
from aolog.errors import AologError, StorageError, UsageError, escape_controls, library_missing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["CONTEXT_SETTINGS", "OUTPUT_CLOSED", "InputFailed", "InputTruncated", "Program", "Root"]

CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
INTERNAL, STORAGE = AologError.exit_status, StorageError.exit_status
INTERRUPTED, OUTPUT_CLOSED = 130, 141  # 128 + the signal that ends other programs there
TRACEBACK_VARIABLE = "AOLOG_TRACEBACK"  # set to anything: internal errors show where they began


class InputFailed(StorageError):
    """What was to be appended could not be read. What was read before is in the log."""

    code = "input_failed"


class InputTruncated(UsageError):
    """Length-delimited input ends within a record. The records before it are in the log."""

    code = "input_truncated"


class Program(click.Command):
    """A command that is a program by itself: ends the process with the status of what happened."""

    program: str | None = None  # its name in usage lines; None: as it was called
    says: str = "aolog"  # its name before errors

    def lines(self, error: AologError) -> list[str]:
        """What people are told, behind the code."""
        return [str(error)]

    def invoke(self, ctx: click.Context) -> Any:
        """A command's status."""
        with _ending_quietly():
            try:
                return super().invoke(ctx)
            finally:
                out.flush()  # what was found before an error comes before it

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """As click's, which prints the root's help here."""
        with _ending_quietly():
            return super().make_context(*args, **extra)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: FBT001, FBT002 -- click's signature
        windows_expand_args: bool = True,  # noqa: FBT001, FBT002 -- the same
        **extra: Any,
    ) -> Any:
        """As click's, with this project's errors."""
        given = list(sys.argv[1:] if args is None else args) or ["--help"]
        name = self.program if prog_name in {None, self.name} else prog_name

        def run() -> Any:
            return super(Program, self).main(
                given,
                name,
                complete_var,
                standalone_mode=False,
                windows_expand_args=windows_expand_args,
                **extra,
            )

        if not standalone_mode:
            return run()
        _speak_utf8()
        # Looked for by hand: a command line that does not parse has no parsed options.
        as_json = "--json" in itertools.takewhile(lambda arg: arg != "--", given)
        out.forget()
        with _warnings(self.says, as_json=as_json):
            try:
                status = run()
            except Exception as error:  # noqa: BLE001 -- the last resort: no traceback
                status = _report(error, self, as_json=as_json)
        sys.exit(status if isinstance(status, int) else 0)


def _speak_utf8() -> None:
    """Where the locale has nothing but ASCII (LC_ALL=C), text goes out in UTF-8 all the same, as
    `out` writes it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and codecs.lookup(stream.encoding).name == "ascii":
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


@contextmanager
def _ending_quietly() -> Iterator[None]:
    """Interrupts and closed pipes are no errors of click's, which has statuses of its own for
    them."""
    try:
        yield
    except KeyboardInterrupt:
        raise click.exceptions.Exit(INTERRUPTED) from None
    except (OutputClosed, BrokenPipeError):  # the latter where click itself prints: help
        silence_stdout()
        raise click.exceptions.Exit(OUTPUT_CLOSED) from None


class Root(Program, click.Group):
    """The group of all commands."""

    program = "aolog"


def _report(error: Exception, program: Program, *, as_json: bool) -> int:
    """Tells what happened; the exit status."""
    found: dict[str, Any]
    lines: list[str] | None = None
    if isinstance(error, ModuleNotFoundError):
        error = library_missing(error) or error
    match error:
        case AologError():
            found = {"code": error.code, "message": error.reason}
            lines = program.lines(error)
            found |= {"hint": error.hint, **_plain(error.details)}
            found["exit_status"] = error.exit_status
        case click.Abort():
            return INTERRUPTED
        case click.ClickException():
            found = _click_error(error)
        case OSError():
            silence_stdout()  # it may be what failed: click's help, for one
            what = os.strerror(error.errno) if error.errno else str(error)
            where = f"{error.filename}: " if error.filename else ""
            found = {"code": "storage_failed", "message": where + what, "exit_status": STORAGE}
            found["errno"] = error.errno
        case MemoryError():
            what = "out of memory: the records are too large for this machine"
            found = {"code": AologError.code, "message": what, "exit_status": INTERNAL}
        case _:
            found = _internal_error(error, program.says)
    status = int(found["exit_status"])
    if as_json:
        to_stderr(to_json({"error": found}))
    else:
        first, *more = lines or [found["message"]]
        to_stderr(f"{program.says}: {found['code']}: {first}")
        for line in more:
            to_stderr(f"  {line}")
    return status


def _click_error(error: click.ClickException) -> dict[str, Any]:
    message = " ".join(error.format_message().split()).removesuffix(".")
    ctx = getattr(error, "ctx", None)
    hint = f"see {ctx.command_path} --help" if ctx is not None else None
    message += f"; {hint}" if hint else ""
    status = UsageError.exit_status
    return {"code": UsageError.code, "message": message, "hint": hint, "exit_status": status}


def _internal_error(error: Exception, program: str) -> dict[str, Any]:
    if os.environ.get(TRACEBACK_VARIABLE):
        click.echo(escape_controls("".join(traceback.format_exception(error))), err=True)
    hint = f"this is a fault of {program}; {TRACEBACK_VARIABLE}=1 shows where"
    message = f"{type(error).__name__}: {error}; {hint}"
    return {"code": AologError.code, "message": message, "hint": hint, "exit_status": INTERNAL}


def _plain(details: dict[str, object]) -> dict[str, Any]:
    """Details as JSON has them."""
    plain = {}
    for name, value in details.items():
        fields = getattr(value, "_asdict", None)
        plain[name] = fields() if fields is not None else value
        if name == "errno" and isinstance(value, int):
            plain["errno_name"] = errno.errorcode.get(value)
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
    """The library's warnings go to standard error while a command runs."""
    logger = logging.getLogger("aolog")
    handler = _ToStderr(program, as_json=as_json)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
