"""The command line: `aolog`, also `python -m aolog`.

Each command has a module: append, read (and tail), info, verify, repair, salvage, backup, prune,
cursor, archive (and restore); `root` lists them. They share `failing` (errors become one line and an exit status),
`output` (standard output, text and JSON), `parse` (values that users type), `option_groups`,
`cursor_state` and `lock_holders`. `input`, `record_parts` and `stop_signals` belong to
append. Commands have no logic of the log: they call the package as any program would.

Only this package imports click; `import aolog` does not import this package.

    exit status   0    done
                  1    internal error
                  2    usage        nothing was changed; change the call
                  3    corruption   bytes differ from what was written; intact records were used
                  4    storage      the disk, a pipe or a permission
                  5    locked       another process holds the lock; try again
                  130  interrupted  (129, 143: hung up, terminated); append kept what it read
                  141  the reader of standard output closed it, as `| head` does
"""

from aolog.cli.root import main

__all__ = ["main"]
