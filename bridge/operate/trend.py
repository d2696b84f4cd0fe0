"""Trend: when something that shrinks is empty. Pure.

A line is fitted to the last minutes (least squares; an old value counts less and less). A prune, a burst or a
sawtooth moves the line little, so the answer is steady. It takes no memory for each value: there may be
thousands of logs.
"""

from __future__ import annotations

from math import exp

MEMORY_S = 300.0  # a value of this age counts a third as much as one of now
_LEAST_S = 60.0  # a trend of less is noise
_FIT_MIN = 0.5  # a line that explains less of the movement is no trend: it goes up and down


class Trend:
    """Of one quantity. The sums are of the weights, times, values, and their products; times are seconds
    before now, values differ from the first one."""

    def __init__(self) -> None:
        self._first: float | None = None
        self._begun_s = self._now_s = 0.0
        self._n = self._t = self._v = self._tt = self._tv = self._vv = 0.0

    def add(self, now_s: float, value: float) -> float | None:
        """Adds a value. In how many seconds it is 0 at the present rate; None unless it shrinks steadily."""
        if self._first is None:
            self._first, self._begun_s = value, now_s
        else:
            self._pass(now_s - self._now_s)
        self._now_s = now_s
        moved = value - self._first
        self._n += 1
        self._v += moved
        self._vv += moved * moved
        slope = self._slope() if now_s - self._begun_s >= _LEAST_S else None
        return None if slope is None else value / -slope

    def _pass(self, took_s: float) -> None:
        """Moves the origin of time to now; everything counts less."""
        self._tt += took_s * (took_s * self._n - 2 * self._t)
        self._tv -= took_s * self._v
        self._t -= took_s * self._n
        fade = exp(-took_s / MEMORY_S)
        for name in ("_n", "_t", "_v", "_tt", "_tv", "_vv"):
            setattr(self, name, getattr(self, name) * fade)

    def _slope(self) -> float | None:
        """Of the line, a second; None if it does not fall, or does not fit."""
        spread_t = self._tt - self._t * self._t / self._n
        spread_v = self._vv - self._v * self._v / self._n
        both = self._tv - self._t * self._v / self._n
        falls = both < 0 < spread_t and spread_v > 0
        fits = both * both >= _FIT_MIN * spread_t * spread_v
        return both / spread_t if falls and fits else None
