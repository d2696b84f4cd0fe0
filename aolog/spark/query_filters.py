"""The conditions in a query's filter, from the plan that Spark optimized: casts are folded, time zones
applied, and each term of the conjunction is one of Spark's own filters. Needs a session with a JVM.

These are Spark's internal calls. A term that they cannot translate is not used as a condition, and Spark
evaluates the whole filter in any case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aolog.spark.pushdown import condition_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from aolog.spark.pushdown import Condition

_MICROS = 1_000_000


def conditions_of(filtered: DataFrame) -> list[Condition]:
    """The conditions of a DataFrame whose last step is a filter."""
    plan = plans(filtered).optimizedPlan()
    if plan.nodeName() != "Filter":  # always true, or never
        return []
    jvm: Any = filtered.sparkSession._jvm  # noqa: SLF001 -- PySpark has no public call
    datasources = jvm.org.apache.spark.sql.execution.datasources
    strategy = getattr(getattr(datasources, "DataSourceStrategy$"), "MODULE$")
    found = []
    for term in _terms(plan.condition()):
        translated = strategy.translateFilter(term, False)
        if translated.isDefined():
            found.append(_condition(translated.get()))
    return [condition for condition in found if condition is not None]


def columns_of(filtered: DataFrame) -> list[str]:
    """The columns that the filter refers to."""
    names = []
    each = plans(filtered).analyzed().condition().references().iterator()
    while each.hasNext():
        names.append(str(each.next().name()))
    return names


def plans(frame: DataFrame) -> Any:
    """Spark's QueryExecution."""
    return frame._jdf.queryExecution()  # noqa: SLF001 -- PySpark has no public call


def _terms(expression: Any) -> Iterator[Any]:
    if expression.nodeName() == "And":
        yield from _terms(expression.left())
        yield from _terms(expression.right())
    else:
        yield expression


def _condition(given: Any) -> Condition | None:
    test = given.getClass().getSimpleName()
    if test == "Not":
        inner = _condition(given.child())
        return None if inner is None else inner._replace(negated=not inner.negated)
    if test in {"And", "Or", "AlwaysTrue", "AlwaysFalse"}:
        return None
    column = str(given.attribute()).strip("`")
    if test == "In":
        return condition_of(column, test, [_value(each) for each in given.values()])
    return condition_of(column, test, None if test.startswith("Is") else _value(given.value()))


def _value(given: Any) -> Any:
    """Java's timestamps as microseconds; what Py4J has converted as it is."""
    if not hasattr(given, "getClass"):
        return given
    kind = given.getClass().getName()
    if kind == "java.sql.Timestamp":
        return given.getTime() // 1000 * _MICROS + given.getNanos() // 1000
    if kind == "java.time.Instant":
        return given.getEpochSecond() * _MICROS + given.getNano() // 1000
    return None
