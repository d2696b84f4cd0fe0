"""`python -m aolog.spark.pipeline`, also through spark-submit: logs to Parquet, Kafka or other logs.

The command line of `transfer`: parses its arguments into a Transfer, and reports an error as one line
and an exit status. Results go to standard output, progress to standard error.
"""

from __future__ import annotations

import importlib
import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from aolog.cli.failing import CONTEXT_SETTINGS, Program
from aolog.cli.output import json_option, out, to_stderr
from aolog.errors import UsageError, counted
from aolog.spark.session import in_our_words, session
from aolog.spark.transfer import Moved, Transfer, checked, parse_target, run_transfer

if TYPE_CHECKING:
    from collections.abc import Iterator


def _pairs(name: str, given: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UsageError(f"{name} {text}: is not KEY=VALUE")
        pairs[key] = value
    return pairs


def _function(text: str) -> Any:
    """The function that `module:function` names. Raises UsageError."""
    module, _, name = text.partition(":")
    if not module or not name:
        raise UsageError(f"--transform {text}: is not MODULE:FUNCTION")
    if "" not in sys.path:
        sys.path.insert(0, "")  # as `python -m` does; spark-submit adds only the script's directory
    try:
        found = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"--transform {text}: no module {error.name!r}",
            hint="it is looked for here and on PYTHONPATH; spark-submit has --py-files",
        ) from None
    except AttributeError:
        raise UsageError(f"--transform {text}: {module} has no {name!r}") from None
    except Exception as error:
        raise UsageError(
            f"--transform {text}: importing it raised {type(error).__name__}: {error}"
        ) from error
    if not callable(found):
        raise UsageError(f"--transform {text}: is not a function")
    return found


@click.command(
    cls=Program,
    context_settings=CONTEXT_SETTINGS,
    short_help="Logs to Parquet, Kafka or other logs.",
    epilog="""\b
Examples:
  python -m aolog.spark.pipeline --from LOGS --to parquet:/data/events
  python -m aolog.spark.pipeline --from LOGS --to parquet:/data/events --checkpoint /data/state
  python -m aolog.spark.pipeline --from LOGS --to kafka:events --bootstrap-servers kafka:9092 \\
      --stream --checkpoint /data/state --subscribe 'app-1,app-2'
  python -m aolog.spark.pipeline --from LOGS --to aolog:/var/lib/by-network \\
      --transform aolog.examples.earthquakes:by_network --option startingOffsets=earliest
  spark-submit --master spark://host:7077 --py-files aolog.zip \\
      "$(python -c 'import aolog.spark.pipeline as p; print(p.__file__)')" --from LOGS --to ...

Without --checkpoint, the command moves all records that exist now in one batch; Parquet must be a new
directory. With --checkpoint, it moves all records since the last run and ends; with --stream it goes
on until SIGTERM or SIGINT. After a kill, the next run continues after the last complete batch. Parquet
and logs then have each row once. Kafka has it at least once: what a killed task or batch had sent is
sent again. The header "aolog" of a message (36 bytes, as the bridge's: log, epoch, address, timestamp)
names the record from which it was made, if the rows still have their columns log and offset.

Exit status: 0 done or stopped, 1 the job failed, 2 usage, 3 damage, 4 storage, 5 locked.""",
)
@click.option(
    "--from", "root", required=True, metavar="ROOT",
    help="A log or a root of logs, or the URL of either in an object store.",
)  # fmt: skip  # one option
@click.option(
    "--to",
    required=True,
    metavar="KIND:PLACE",
    help="parquet:PATH, kafka:TOPIC or aolog:ROOT. The column log names the log of each row.",
)
@click.option("--stream", is_flag=True, help="Continue until stopped. Needs --checkpoint.")
@click.option(
    "--transform",
    "transforms",
    multiple=True,
    metavar="MODULE:FUNCTION",
    help="A function that takes a DataFrame and returns one. Repeatable, applied in order.",
)
@click.option(
    "--checkpoint", metavar="DIR", help="Directory of the progress that the next run continues."
)
@click.option("--subscribe", metavar="LOGS", help="Only these logs, separated by commas.")
@click.option("--bootstrap-servers", "bootstrap", metavar="HOST:PORT", help="Of the Kafka cluster.")
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    help="Option of the reader. Repeatable.",
)
@click.option(
    "--write-option",
    "write_options",
    multiple=True,
    metavar="KEY=VALUE",
    help="Option of the writer; for kafka, of librdkafka. Repeatable.",
)
@click.option("--master", help="Spark's master.  [default: spark-submit's, or local[*]]")
@click.option(
    "--conf", "settings", multiple=True, metavar="KEY=VALUE", help="Setting of Spark. Repeatable."
)
@json_option
def pipeline(
    root: str,
    to: str,
    transforms: tuple[str, ...],
    subscribe: str | None,
    options: tuple[str, ...],
    write_options: tuple[str, ...],
    master: str | None,
    settings: tuple[str, ...],
    as_json: bool,  # noqa: FBT001 -- click passes by name
    **given: Any,
) -> None:
    """Move records of logs through Spark: to Parquet files, a Kafka topic, or other logs."""
    kind, place = parse_target(to)
    chosen = {} if subscribe is None else {"subscribe": subscribe}
    wanted = checked(
        Transfer(
            root,
            kind,
            place,
            tuple(map(_function, transforms)),
            _pairs("--option", options) | chosen,
            _pairs("--write-option", write_options),
            **given,
        )
    )
    conf = _pairs("--conf", settings) | ({} if master is None else {"spark.master": master})

    def tell(moved: Moved) -> None:
        if as_json:
            out.json(moved._asdict())
            out.flush()
        else:
            to_stderr(f"batch {moved.batch}: {_summary(moved)}")

    with session(conf, tell=to_stderr) as spark, _signals() as stops, in_our_words():
        sums = run_transfer(spark, wanted, tell=tell, stopped=lambda: bool(stops))
    if as_json:
        out.json({**sums._asdict(), "done": True})
    else:
        out.line(_summary(sums))


def _summary(moved: Moved) -> str:
    read = "" if moved.records_in is None else f"{counted(moved.records_in, 'record', ',')} in, "
    lost = [f"{records:,} lost ({reason})" for reason, records in moved.lost.items()]
    if moved.uncounted:
        lost.append(f"{counted(moved.uncounted, 'gap')} without a count of records")
    skipped = "".join(f"{each}, " for each in lost)
    return f"{read}{moved.records_out:,} out, {skipped}{moved.seconds:.1f} s"


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Yields the list of SIGTERM and SIGINT that came, which grows; outside the main thread no signal is
    handled."""
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    before = {
        number: signal.signal(number, lambda number, _: came.append(number))
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


main = pipeline


if __name__ == "__main__":
    main()
