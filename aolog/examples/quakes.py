"""Messages as a public feed of earthquakes has them, made up: GeoJSON features with the members that the
example looks at. From a seed: the same again."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

_BEGIN_MS = 1_517_356_800_000  # 2018-01-31, midnight UTC
_WEEK_MS = 7 * 86_400_000
# network: its share of the events, and the least magnitude that it reports
_NETWORKS = {
    "ak": (0.30, 0.5),
    "ci": (0.25, 0.2),
    "nc": (0.25, 0.2),
    "nn": (0.1, 0.1),
    "us": (0.1, 3.5),
}


def sample(count: int, seed: int = 1) -> Iterator[bytes]:
    """JSON texts, the newest first, as the feed has them."""
    rng = random.Random(seed)  # noqa: S311 -- for repeating
    times_ms = sorted((_BEGIN_MS + rng.randrange(_WEEK_MS) for _ in range(count)), reverse=True)
    for number, time_ms in enumerate(times_ms):
        (net,) = rng.choices([*_NETWORKS], [share for share, _ in _NETWORKS.values()])
        magnitude = round(
            _NETWORKS[net][1] + rng.expovariate(2.3), 2
        )  # ten times fewer a magnitude
        place = f"{rng.randint(1, 60)}km {rng.choice('NESW')} of a town"
        about = {
            "mag": magnitude,
            "place": place,
            "time": time_ms,
            "net": net,
            "type": "earthquake",
        }
        event = {"type": "Feature", "properties": about, "id": f"{net}{38_000_000 + number}"}
        yield json.dumps(event, separators=(",", ":")).encode()
