"""What is too large for a manifest is damage, and is not read into memory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import aolog
from aolog.log.manifest import read_manifest
from aolog.log.names import MANIFEST_NAME
from aolog.storage.storage import Storage


def test_a_manifest_of_a_terabyte_is_damage_and_not_read(tmp_path: Path) -> None:
    manifest = tmp_path / MANIFEST_NAME
    manifest.touch()
    os.truncate(manifest, 1 << 40)
    with pytest.raises(aolog.CorruptionError, match="1099511627776 bytes"):
        read_manifest(str(tmp_path), Storage())
