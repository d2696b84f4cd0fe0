"""The command line: `aolog`, also `python -m aolog`.

One module a group of commands (append, read, info, verify, prune, cursor, completion); beside
them what they share: `failing` turns whatever goes wrong into one line and an exit status,
`output` owns standard output, `parse` reads what users type, `pick`, `split` and `stopping` serve
append. Commands hold no logic of the log: they call the package as any program would.

Only this package imports click; `import aolog` does not import this package.

    exit status   0    done
                  1    internal error
                  2    usage        nothing was changed; change the call
                  3    corruption   bytes are not what was written; the intact rest was used
                  4    storage      the disk, a pipe or a permission
                  5    locked       somebody else owns it; try again
                  130  interrupted  (129, 143: hung up, terminated); append flushed what it read
                  141  standard output was closed by its reader, as by `| head`
"""

from aolog.cli.root import main

__all__ = ["main"]
