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


def _returns_at_7(**changed):
    def transform(records):
        for record in records:
            yield (
                record._replace(**changed) if record.value == b"7" else record._replace(key=b"new")
            )

    return transform


def _raises_at_7(error):
    def transform(records):
        for record in records:
            if record.value == b"7":
                raise error
            yield record._replace(key=b"new")

    return transform


half_a_character_at_7 = _returns_at_7(headers=(("\ud800", b"x"),))
pair_as_list_at_7 = _returns_at_7(headers=(["a", b"x"],))
text_in_header_at_7 = _returns_at_7(headers=(("a", "x"),))
topic_with_space_at_7 = _returns_at_7(topic="no topic")
reserved_topic_at_7 = _returns_at_7(topic="__consumer_offsets")
half_a_topic_at_7 = _returns_at_7(topic="\ud800")
mark_of_filtered_at_7 = _returns_at_7(topic="\0")
far_future_at_7 = _returns_at_7(timestamp=2**70)
text_at_7 = _returns_at_7(value="text")
exits_at_7 = _raises_at_7(SystemExit(3))
closes_at_7 = _raises_at_7(GeneratorExit())
interrupted = _raises_at_7(KeyboardInterrupt())


def tuples_at_7(records):
    return [tuple(r) if r.value == b"7" else r._replace(key=b"new") for r in records]


def none_at_7(records):
    return [None if r.value == b"7" else r._replace(key=b"new") for r in records]


def renamed_to_what_a_route_maps(records):
    return [record._replace(topic="to a route") for record in records]


def with_what_becomes_bytes(records):
    return [r._replace(value=bytearray(b"v"), headers=[("a", memoryview(b"x"))]) for r in records]


def empties_its_list(records):
    while records:
        yield records.pop(0)


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
