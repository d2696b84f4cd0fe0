"""Worked examples, each a program: `python -m aolog.spark.examples.NAME --help`."""
