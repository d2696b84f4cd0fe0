"""One table has a writer's options; the signature, the help and the commands are as it says."""

from __future__ import annotations

import inspect
from itertools import groupby
from typing import get_args

import pytest
from click.testing import CliRunner

import aolog
from aolog.cli import main
from aolog.log.units import size_bytes, size_text
from aolog.spark.sink_options import OF_WRITER
from aolog.write import options
from aolog.write.options import Group, WriterOptions, table

OPTIONS = list(table().values())


def test_the_signature_has_the_names_types_and_defaults_of_the_table_in_its_order():
    given = [
        (one.name, eval(one.annotation, vars(options)), one.default)
        for one in inspect.signature(aolog.Writer).parameters.values()
        if one.name not in {"path", "storage"}
    ]
    rows = WriterOptions.__annotations__
    assert given == [(one.name, get_args(rows[one.name])[0], one.default) for one in OPTIONS]


def test_options_that_answer_one_question_are_together():
    groups = [group for group, _ in groupby(one.about.group for one in OPTIONS)]
    assert groups == list(get_args(Group))


def test_the_docstring_and_the_command_have_every_option_below_its_question():
    shown = CliRunner().invoke(main, ["append", "--help"], terminal_width=80).stdout
    for text, prefix, dash in ((aolog.Writer.__doc__, "", "_"), (shown, "  --", "-")):
        for group in get_args(Group):
            part = text.split(f"{group}**" if dash == "_" else f"{group}:")[1]
            part = part.split("\n\n**" if dash == "_" else "\n\n")[0]
            wanted = [one.name for one in OPTIONS if one.about.group == group]
            for name in wanted:
                assert f"\n{prefix}{name.replace('_', dash)}" in part, (name, group)


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        (
            "--sync-records 2 --sync never",
            "--sync-records 2 with --sync never; use --sync interval",
        ),
        (
            "--compression lz4 --compression-level 20",
            "--compression-level 20; lz4 has levels 1 to 12",
        ),
        ("--format queuefka --compression zstd", "; use --format aolog, or --compression none"),
        ("--retention-max-bytes 9 --slab-bytes 9", "--retention-max-bytes 9 leaves no room"),
        ("--retention-max-bytes 9 --slab-bytes 9", "; leave out --slab-bytes, or raise the total"),
    ],
)
def test_the_command_refuses_options_as_they_are_typed(tmp_path, typed, shown):
    ended = CliRunner().invoke(main, ["append", str(tmp_path / "log"), *typed.split()], input="")
    assert ended.exit_code == 2
    assert shown in ended.stderr


def test_sparks_names_are_those_of_the_table_in_its_spelling():
    for spark_name, name in OF_WRITER.items():
        assert spark_name.lower() == name.replace("_", "")
        assert name in table()


@pytest.mark.parametrize("count", [1, 1000, 1024, 1536, 64 << 20, 3 << 30, 1 << 60])
def test_a_size_is_read_as_it_is_shown(count):
    assert size_bytes(size_text(count)) == count
