"""Messages as a public feed of earthquakes has them, made up: GeoJSON features, an event each, about
700 bytes. From a seed: the same again."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_BEGIN_MS = 1_517_356_800_000  # 2018-01-31, midnight UTC
_WEEK_MS = 7 * 86_400_000
# network, its share of the events, least magnitude that it reports, middle of its region, places
_NETWORKS: tuple[tuple[str, float, float, tuple[float, float], tuple[str, ...]], ...] = (
    ("ak", 0.30, 0.5, (-150.0, 62.0), ("Kodiak, Alaska", "Cantwell, Alaska", "Nikiski, Alaska")),
    ("ci", 0.22, 0.2, (-117.0, 34.0), ("Castaic, CA", "San Marino, CA", "Aguanga, CA")),
    ("nc", 0.22, 0.2, (-122.0, 38.0), ("The Geysers, CA", "Mammoth Lakes, CA", "Gilroy, CA")),
    ("nn", 0.10, 0.1, (-117.5, 38.5), ("Tonopah, Nevada", "Hawthorne, Nevada")),
    ("us", 0.10, 3.5, (125.0, 0.0), ("Hualien, Taiwan", "Lorengau, Papua New Guinea")),
    ("hv", 0.06, 1.0, (-155.3, 19.4), ("Volcano, Hawaii", "Pahala, Hawaii")),
)
_BURST_SHARE = 0.3  # of all events, behind one large one
_MAGNITUDES_PER_DECADE = 1.0  # ten times as many events for each magnitude less


def sample(count: int, seed: int = 1) -> Iterator[bytes]:
    """JSON texts, the newest first, as the feed has them."""
    rng = random.Random(seed)  # noqa: S311 -- for repeating
    burst_ms = _BEGIN_MS + _WEEK_MS // 2
    events = []
    for number in range(count):
        burst = rng.random() < _BURST_SHARE
        time_ms = _BEGIN_MS + int(rng.random() * _WEEK_MS)
        if burst:
            time_ms = min(burst_ms + int(rng.expovariate(1 / 14_400_000)), _BEGIN_MS + _WEEK_MS - 1)
        events.append((time_ms, number, burst))
    for time_ms, number, burst in sorted(events, reverse=True):
        yield json.dumps(_event(rng, time_ms, number, burst=burst), separators=(",", ":")).encode()


def _event(rng: random.Random, time_ms: int, number: int, *, burst: bool) -> dict[str, Any]:
    shares = [network[1] for network in _NETWORKS]
    chosen = "us" if burst else rng.choices([network[0] for network in _NETWORKS], shares)[0]
    net, _, least, (longitude, latitude), places = next(n for n in _NETWORKS if n[0] == chosen)
    magnitude: float | None = round(least + rng.expovariate(2.3 * _MAGNITUDES_PER_DECADE), 2)
    if rng.random() < 0.005:  # a few have none yet
        magnitude = None
    place = f"{rng.randint(1, 60)}km {rng.choice('NESW')} of {rng.choice(places)}"
    code = f"{38_000_000 + number}"
    reviewed = rng.random() < 0.5  # half of them
    return {
        "type": "Feature",
        "properties": {
            "mag": magnitude,
            "place": place,
            "time": time_ms,
            "updated": time_ms + rng.randint(60_000, 3_600_000),
            "tz": -480,
            "url": f"https://earthquake.example/eventpage/{net}{code}",
            "detail": f"https://earthquake.example/feed/v1.0/detail/{net}{code}.geojson",
            "felt": rng.choice([None, None, None, rng.randint(1, 40)]),
            "cdi": None,
            "mmi": None,
            "alert": None,
            "status": "reviewed" if reviewed else "automatic",
            "tsunami": 0,
            "sig": round((magnitude or 0) ** 2 * 15),
            "net": net,
            "code": code,
            "ids": f",{net}{code},",
            "sources": f",{net},",
            "types": ",geoserve,nearby-cities,origin,phase-data,scitech-link,",
            "nst": rng.choice([None, rng.randint(4, 60)]),
            "dmin": round(rng.random(), 5),
            "rms": round(rng.random(), 2),
            "gap": rng.randint(20, 300),
            "magType": "ml",
            "type": "earthquake",
            "title": f"M {magnitude or 0:.1f} - {place}",
        },
        "geometry": {
            "type": "Point",
            "coordinates": [
                round(longitude + rng.gauss(0, 1.5), 4),
                round(latitude + rng.gauss(0, 1.5), 4),
                round(rng.expovariate(0.1), 2),
            ],
        },
        "id": f"{net}{code}",
    }
