"""The root of the command line: the list of commands, and what becomes of errors."""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import Any, NoReturn

import click

from aolog.cli.completion import completion_of
from aolog.cli.failing import OUTPUT_CLOSED, TRACEBACK_VARIABLE
from aolog.cli.output import OutputClosed
from aolog.errors import AologError
from bridge.cli.check_config import check_config
from bridge.cli.cursors import cursors
from bridge.cli.demo import demo
from bridge.cli.replay import replay
from bridge.cli.run import run
from bridge.cli.seek import seek
from bridge.cli.status import status
from bridge.errors import WrongConfiguration

__all__ = ["main"]

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class _Group(click.Group):
    """Turns errors into one line and an exit status."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().main(*args, **kwargs)
        except AologError as error:
            _fail(error, as_json="--json" in sys.argv)
        except OutputClosed:
            sys.exit(OUTPUT_CLOSED)
        except Exception as error:  # noqa: BLE001 -- the last resort: no traceback
            if os.environ.get(TRACEBACK_VARIABLE):
                traceback.print_exception(error)
            told = AologError(
                f"{type(error).__name__}: {error}",
                hint=f"this is a fault of the bridge; {TRACEBACK_VARIABLE}=1 shows where",
            )
            _fail(told, as_json="--json" in sys.argv)


def _fail(error: AologError, *, as_json: bool) -> NoReturn:
    problems = error.problems if isinstance(error, WrongConfiguration) else []
    if as_json:
        details = {k: v for k, v in error.details.items() if isinstance(v, str | int)}
        told: dict[str, Any] = {"code": error.code, "message": str(error), **details}
        if problems:
            told["problems"] = problems
        click.echo(json.dumps({"error": told}), err=True)
    elif problems:
        where = error.details["path"] or "the configuration"
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        click.echo(f"aolog-bridge: {error.code}: {where}: {count}", err=True)
        for problem in problems:
            click.echo(f"  {problem}", err=True)
    else:
        click.echo(f"aolog-bridge: {error.code}: {error}", err=True)
    sys.exit(error.exit_status)


@click.group(cls=_Group, context_settings=_CONTEXT)
@click.version_option(package_name="aolog", prog_name="aolog-bridge")
def main() -> None:
    """Drain append-only logs to Kafka: in order, through outages, crashes and restarts.

    \b
    Examples:
      python -m bridge demo                     see it work, on a broker of its own
      python -m bridge run --log /var/lib/app/log --topic events --bootstrap-servers kafka:9092
      python -m bridge run --root /var/lib/app/logs --bootstrap-servers kafka:9092
      python -m bridge run --config bridge.toml
    """


for _command in (
    run, status, check_config, seek, replay, cursors, demo, completion_of("aolog-bridge")
):  # fmt: skip  # one thing
    main.add_command(_command)
