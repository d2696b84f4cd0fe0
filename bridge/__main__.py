"""`python -m bridge`: the command line."""

from aolog_command import run

if __name__ == "__main__":
    run("bridge.cli", "python -m bridge")
