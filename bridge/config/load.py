"""Reads a configuration file, TOML or JSON, and checks all of it before anything starts.

All problems are reported at once, each with its path (`clusters.main.settings`), an unknown key with
the nearest known one. Options of the command line override the file. Relative paths in a file begin at
the file's directory.
"""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from aolog.errors import AologError, unique_names
from bridge.config.models import Archive, Cluster, Config, Route
from bridge.config.names import check_cursor
from bridge.config.settings import dotted, read_text
from bridge.errors import WrongConfiguration

_NEAR = 0.7  # for difflib; with less, "colour" is near to "cluster"


def load(path: str | os.PathLike[str] | None, over: Mapping[str, Any] | None = None) -> Config:
    """The configuration of a file, or of `over` alone. over: values that override the file's, by dotted
    keys; `clusters.*` is the default cluster. Raises WrongConfiguration with all problems."""
    if path is None:
        return _validated({}, over or {}, Path.cwd())
    file = Path(path)
    try:
        return load_text(read_text(file), over, base=file.absolute().parent)
    except WrongConfiguration as error:
        problems = error.problems
    except OSError as error:
        problems = [str(error.strerror)]
    except ValueError as error:
        problems = [str(error)]
    raise WrongConfiguration(problems, path=str(path))


def load_text(
    text: str, over: Mapping[str, Any] | None = None, *, base: Path | None = None
) -> Config:
    """As `load`. A text that begins with a brace is JSON."""
    try:
        if text.lstrip().startswith("{"):
            raw = json.loads(text, object_pairs_hook=unique_names, parse_constant=refuse_constant)
        else:
            raw = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise WrongConfiguration([str(error)]) from None
    return _validated(raw, over or {}, base or Path.cwd())


def refuse_constant(name: str) -> float:
    """For `parse_constant` of `json`, which takes NaN and Infinity. Raises ValueError."""
    raise ValueError(f"{name} is not a number in JSON")


def _validated(raw: dict[str, Any], over: Mapping[str, Any], base: Path) -> Config:
    raw = _with_paths(raw, base)
    _put(raw, over)
    problems: list[str] = []
    config = None
    try:
        config = Config.model_validate(raw, context={"base": base})
    except ValidationError as error:
        for found in error.errors(include_url=False, include_context=True):
            problems += _problem(found["loc"], found["type"], found["msg"], found["input"])
    problems += _unmet(raw)
    if config is not None and not problems:
        problems = _cursors(config)
    if config is None or problems:
        raise WrongConfiguration(problems)
    return config


def _with_paths(raw: dict[str, Any], base: Path) -> dict[str, Any]:
    """Makes paths of logs absolute. The model refuses values of a wrong type."""
    found = dict(raw)
    if isinstance(raw.get("root"), str) and raw["root"]:
        found["root"] = str(base / raw["root"])
    if isinstance(raw.get("logs"), list):
        found["logs"] = [str(base / p) if isinstance(p, str) and p else p for p in raw["logs"]]
    return found


def _put(raw: dict[str, Any], over: Mapping[str, Any]) -> None:
    """Overrides the file's values. A log or a root among the options replaces all of the file's."""
    if over.keys() & {"root", "logs"}:
        raw.pop("root", None)
        raw.pop("logs", None)
    for path, value in over.items():
        table, *rest = path.split(".", 1)
        if not rest:
            raw[table] = value
            continue
        clusters = raw.get("clusters", {})
        if not isinstance(clusters, Mapping):
            continue  # refused by the model
        name = str(raw.get("cluster") or next(iter(clusters), "main"))
        cluster = clusters.get(name, {})
        if not isinstance(cluster, Mapping):
            continue  # as above
        merged, before = value, cluster.get("settings")
        if rest == ["settings"] and isinstance(before, Mapping):
            # An option replaces the file's value, however the file wrote the key.
            merged = {**dict(dotted(before)), **value}
        raw["clusters"] = {**clusters, name: {**cluster, rest[0]: merged}}


# --- problems in words ----------------------------------------------------------------------


def _problem(loc: tuple[int | str, ...], kind: str, message: str, given: object) -> list[str]:
    where = _where(loc)
    if kind == "extra_forbidden" and len(loc) == 1 and where in Cluster.model_fields:
        return [
            f"{where}: is a key of a cluster: write [clusters.main], and below it {where} = ..."
        ]
    if kind == "extra_forbidden":
        return [f"{where}: unknown key{nearest(str(loc[-1]), _known(loc[:-1]))}"]
    if kind == "missing":
        return [f"{where}: is missing"]
    if kind == "value_error":  # from our own validators
        lines = message.removeprefix("Value error, ").split("\n")
        if loc[-1] == "settings":  # each line begins with its key
            return [where + (line if line.startswith(":") else f".{line}") for line in lines]
        return [f"{where}: {line}" for line in lines]
    if kind.endswith("_type"):
        message += f", not {type(given).__name__}"
    return [f"{where}: {message[0].lower()}{message[1:]}"]


def _where(loc: tuple[int | str, ...]) -> str:
    """Such as `routes[0].topic`, without the tags of alternatives, which the model adds."""
    parts = [p for p in loc if p not in {"[key]", "_word", "_number", "_table"}]
    text = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in parts)
    return text.removeprefix(".")


def _known(loc: tuple[int | str, ...]) -> list[str]:
    """The keys of a table."""
    tables: dict[int | str, type[BaseModel]]
    tables = {"clusters": Cluster, "routes": Route, "archive": Archive}
    return list(tables.get(loc[0] if loc else "", Config).model_fields)


def nearest(name: str, known: list[str]) -> str:
    """What a name that is not known means: the end of a sentence."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=_NEAR)
    return f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(known)}"


def _unmet(raw: dict[str, Any]) -> list[str]:
    """Problems between values: references, and keys that exclude or need each other."""
    problems = []
    clusters = raw.get("clusters")
    names = list(map(str, clusters)) if isinstance(clusters, Mapping) else []
    routes = raw.get("routes")
    asked = [("cluster", raw.get("cluster"))]
    for i, route in enumerate(routes if isinstance(routes, list) else []):
        if isinstance(route, Mapping):
            asked.append((f"routes[{i}].cluster", route.get("cluster")))
    for where, name in asked:
        if names and isinstance(name, str) and name not in names:
            problems.append(f"{where}: there is no cluster {name!r}{nearest(name, names)}")
    if len(names) > 1 and raw.get("cluster") is None:
        problems.append(f"cluster: is missing; say which of {', '.join(names)} is the default")
    if not raw.get("root") and not raw.get("logs"):
        problems.append("root: is missing; name a root or logs")
    if raw.get("root") and raw.get("logs"):
        problems.append("logs: cannot be used with root; use one of them")
    return problems


def _cursors(config: Config) -> list[str]:
    """Two clusters with one cursor would skip records that only the other one has. The model checks
    names that are written out; this checks the names that are derived, too."""
    problems = []
    taken: dict[str, str] = {}
    for name in config.clusters:
        cursor = config.cursor_of(name)
        try:
            check_cursor(cursor)
        except AologError as error:
            problems.append(f"clusters.{name}.cursor: {error}")
        if cursor in taken:
            problems.append(
                f"clusters.{name}.cursor: cluster {taken[cursor]!r} has this cursor; each needs its own"
            )
        taken[cursor] = name
    return problems
