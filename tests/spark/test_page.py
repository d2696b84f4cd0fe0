"""The examples of the pages about Spark, one after the other, as they are there; and the tables of options.
Seconds, for a stream's batch."""

import re

import aolog
from aolog.spark.options import READERS
from aolog.spark.sink_options import OF_WRITER, OPTION_NAMES
from tests.test_pages import DOCS, blocks

PAGE, TUTORIAL = DOCS / "how-to/spark.md", DOCS / "tutorials/spark.md"
OPTIONS = DOCS / "reference/spark-options.md"


def test_the_examples_do_what_they_say(tmp_path, spark, capsys):
    root = tmp_path / "logs"
    for name in ("orders", "visits"):
        with aolog.Writer(root / name) as log:
            log.append_many([b"one", b"two", b"three"])
    names = {"__name__": "__main__"}
    shown = [block.text for block in blocks(PAGE) if block.language == "python" and not block.note]
    assert len(shown) == 7
    for code in shown:
        exec(code.replace("/var/lib/app", str(tmp_path)), names)
        if ".scan(" in code:
            read = [bytes(row.value) for row in names["events"].collect()]
            assert sorted(read) == [b"one", b"three", b"two"]  # of one log
            names["events"] = spark.read.format("aolog").load(str(root))  # as the next one has it
    said = capsys.readouterr().out
    assert "True 6 []" in said
    assert "three" in said
    for below in ("other/copies/orders", "archive/orders", "copy/orders"):
        values = [record.value for record in aolog.Reader(tmp_path / below)]
        assert sorted(values) == [b"one", b"three", b"two"], below
    executors = list((tmp_path / "executors").iterdir())
    assert sum(aolog.verify(log).records for log in executors) == 6
    assert aolog.cursors(root / "orders")[0].name == "spark"


def test_the_tutorial_prints_what_it_shows(tmp_path, spark, capsys):
    names = {"__name__": "__main__"}
    (table,) = [block.text for block in blocks(TUTORIAL) if block.language == "text"]
    for block in blocks(TUTORIAL):
        if block.language == "python":
            exec(re.sub(r'"(shops|reports)', rf'"{tmp_path}/\1', block.text), names)
    said = capsys.readouterr().out
    assert table in said
    assert """b'tea' b'{"log":"north","count":2}'""" in said


def test_every_option_stands_in_the_tables():
    page = OPTIONS.read_text("utf-8")
    rows = re.findall(r"^\| (`.*?) \|", page, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert "```{generated} spark_writer_options" in page
    assert named | OF_WRITER.keys() == {
        *READERS,
        "includeHeaders",
        "includeGaps",
        *OPTION_NAMES.values(),
    }
