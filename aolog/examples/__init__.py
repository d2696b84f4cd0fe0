"""Worked examples, each a program: `python -m aolog.examples.NAME --help`."""
