"""Settings of the Kafka client as a configuration writes them: dotted keys, or nested tables (in TOML,
`sasl.password = ...` without quotes is one); on a command line KEY=VALUE. All are librdkafka's but one:
"oauth_cb" = "module:function" names a function that returns a token.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bridge.config.names import load_function
from bridge.config.secrets import Setting, is_reference, setting_of
from bridge.errors import WrongSetting

_OAUTH_CB = "oauth_cb"


def read_settings(given: Mapping[Any, Any], base: Path) -> tuple[dict[str, Setting], list[str]]:
    """The settings, and what is wrong with them. base: directory of relative files."""
    found: dict[str, Setting] = {}
    problems: list[str] = []
    for key, value in dotted(given):
        setting = setting_of(key, value, base)
        if isinstance(setting, str):
            problems.append(f"{key}: {setting}")
        elif key in found:
            problems.append(f"{key}: appears twice")
        else:
            found[key] = setting
    return found, problems


def dotted(given: Mapping[Any, Any], table: str = "") -> Iterator[tuple[str, Any]]:
    """Each setting with its whole key, which may appear twice. table: the begin of all keys."""
    for part, value in given.items():
        key = f"{table}{part}"
        if isinstance(value, Mapping) and not is_reference(key, value):
            yield from dotted(value, f"{key}.")
        else:
            yield key, value


_REFERENCE = re.compile(r"\{\s*(file|env)\s*=\s*[\"']?(.*?)[\"']?\s*\}")


def settings_of_options(pairs: Iterable[str]) -> dict[str, Setting]:
    """From KEY=VALUE on a command line; VALUE may be {file=PATH} or {env=NAME}. The last value of a key
    counts. Raises ValueError, which never quotes a value."""
    found: dict[str, Setting] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        key = key.strip()
        if not equals or not key:
            raise ValueError("a setting is not KEY=VALUE (its text may be a secret)")
        match = _REFERENCE.fullmatch(value)
        given = value if match is None else {match[1]: match[2]}
        setting = setting_of(key, given, Path())
        if isinstance(setting, str):
            raise ValueError(f"{key}: {setting}")  # noqa: TRY004 -- the value is wrong, not its type
        if setting.secret and setting.source is None:
            seen = "the process list shows it; write KEY={file=PATH}, or set it in a configuration"
            setting = setting._replace(exposure=seen)
        found[key] = setting
    return found


def plain_values(settings: Mapping[str, Setting]) -> dict[str, Any]:
    """For the client, with secrets; oauth_cb as a function. Raises WrongSetting if that cannot be loaded."""
    plain: dict[str, Any] = {key: s.value.get_secret_value() for key, s in settings.items()}
    if _OAUTH_CB in plain:
        try:
            plain[_OAUTH_CB] = load_function(plain[_OAUTH_CB])
        except ValueError as error:
            raise WrongSetting(f"{_OAUTH_CB}: {error}", hint="write module:function") from None
    return plain


def refused_keys(
    settings: Mapping[str, Any], refusal: Callable[[Mapping[str, Any]], str | None]
) -> dict[str, str]:
    """Why a client refuses settings, by key; under "" if it refuses only their combination. refusal: why it
    refuses some settings, None if it takes them."""
    together = refusal(settings)
    if together is None:
        return {}
    alone = {key: refusal({key: value}) for key, value in settings.items()}
    # Otherwise only the other keys are missing. The client may name the key by an alias.
    named = {
        key: said
        for key, said in alone.items()
        if said is not None and (key in said or "configuration property" in said)
    }
    return named or {"": together}
