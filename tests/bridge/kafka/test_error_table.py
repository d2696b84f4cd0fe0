"""Each error code that the client can report has one row: whose fault it is, what the operator reads
and does."""

import pytest
from confluent_kafka import KafkaError

from bridge.kafka.error_table import ROWS, Fault, Kind, ends_reading, kind_of

CODES = {name for name, value in vars(KafkaError).items() if isinstance(value, int)}


def test_each_code_of_the_client_has_a_row():
    assert len(CODES) > 180, "the codes are not where they are looked for"
    assert CODES - ROWS.keys() == set()


def test_a_code_is_called_in_the_table_as_the_client_calls_it():
    named = {name: KafkaError(getattr(KafkaError, name)).name() for name in CODES}
    assert {name: told for name, told in named.items() if name != told} == {}
    assert ROWS.keys() - CODES == {"NO_READ", "NO_TOPIC", "NUL_IN_HEADER", "TRANSFORM_FAILED"}


def test_each_row_has_a_cause_and_an_action_for_the_operator():
    assert all(row.reads and row.does for row in ROWS.values())


def test_only_what_the_record_itself_is_to_blame_for_is_poison():
    assert {code for code in ROWS if kind_of(code) is Kind.POISON} == {
        "MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "INVALID_RECORD", "INVALID_TIMESTAMP",
        "TOPIC_EXCEPTION", "TRANSFORM_FAILED", "NUL_IN_HEADER",
    }  # fmt: skip  # a list


@pytest.mark.parametrize("code", ["", "Err-999?", "A_CODE_OF_A_LATER_KAFKA"])
def test_a_code_without_a_row_is_waited_out_as_the_clusters(code):
    assert kind_of(code).fault is Fault.CLUSTER


@pytest.mark.parametrize(
    ("code", "with_reset", "without"),
    [
        ("OFFSET_OUT_OF_RANGE", False, True),
        ("_AUTO_OFFSET_RESET", False, True),
        ("INVALID_SESSION_TIMEOUT", True, True),  # the group never takes it
        ("TOPIC_AUTHORIZATION_FAILED", True, True),
        ("_FATAL", True, True),
        ("REBALANCE_IN_PROGRESS", False, False),
        ("_MAX_POLL_EXCEEDED", False, False),
        ("UNKNOWN_TOPIC_OR_PART", False, False),
        ("_TRANSPORT", False, False),
        ("A_CODE_OF_A_LATER_KAFKA", False, False),
    ],
)
def test_a_consumer_reports_what_waiting_does_not_solve(code, with_reset, without):
    assert (ends_reading(code, resets=True), ends_reading(code, resets=False)) == (
        with_reset,
        without,
    )
