"""`python -m aolog`: the command line."""

from aolog.cli import main

if __name__ == "__main__":
    main()
