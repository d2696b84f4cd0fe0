"""Which of the client's settings name files. The client reads these files when it connects anew."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Mapping
from typing import Any

_NAMES_A_FILE = re.compile(r"\.location$|\.keytab$|^sasl\.oauthbearer\.assertion\..*\.file$")
NO_FILES = {"", "probe"}  # the client looks for its authorities where systems have them


def names_a_file(key: str) -> bool:
    """Whether the value of this setting is the path of a file or directory, or one of NO_FILES."""
    return _NAMES_A_FILE.search(key) is not None


def unreadable_file(settings: Mapping[str, Any]) -> str | None:
    """What is wrong with the first file that these settings name and that cannot be read; None if all
    can be. The client's own words name neither the file nor the reason."""
    for key, path in settings.items():
        if not names_a_file(key) or not isinstance(path, str) or path in NO_FILES:
            continue
        try:
            opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # it may be a FIFO
        except OSError as error:
            reason = error.strerror
        else:
            is_directory = stat.S_ISDIR(os.fstat(opened).st_mode)
            os.close(opened)
            if not is_directory or key.endswith("ca.location"):
                continue
            reason = os.strerror(errno.EISDIR)
        return f"{key} names {path}, which cannot be read: {reason}"
    return None
