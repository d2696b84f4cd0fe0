"""Transforms that the tests name in routes."""


def odd_shouted_elsewhere(records):
    """Filters even numbers, changes values and keys, sends every third elsewhere."""
    for record in records:
        number = int(record.value.split()[0])
        if number % 2:
            topic = "elsewhere" if number % 3 == 0 else record.topic
            yield record._replace(
                value=record.value.upper(),
                key=b"new",
                topic=topic,
                headers=(("n", b"%d" % number),),
            )


def fails_at_7(records):
    for record in records:
        if record.value == b"7":
            raise ZeroDivisionError
        yield record


def odd_shouted_elsewhere_or_fails(records):
    return odd_shouted_elsewhere(fails_at_7(records))


def reverses(records):
    return reversed(list(records))


def doubles(records):
    for record in records:
        yield record
        yield record


def mistypes(records):
    return [record._replace(value="text") for record in records]


def arrow_long_values_only(batch):
    import pyarrow.compute as pc

    return batch.filter(pc.greater(pc.binary_length(batch["value"]), 1))


not_a_function = 3
