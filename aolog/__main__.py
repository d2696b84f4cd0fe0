"""`python -m aolog`: the command line."""

from aolog_command import run

if __name__ == "__main__":
    run("aolog.cli")
