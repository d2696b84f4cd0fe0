"""Whose fault is it? One row for each error code that the client can report. Pure.

    fault            what the bridge does
    record           sets it aside, drops it, or stops its lane, as --poison says
    configuration    waits, names it, and tries again; no record is ever set aside for it
    cluster          waits; the log keeps the records
    ours             ends the producer; a new one sends again from the cursor

Only a record's fault is poison. All code that decides what an error means uses this table. An unknown code
counts as the cluster's: the bridge waits and loses nothing. Keys are Kafka's names for the codes, and the
bridge's own names for faults that it finds itself.

aolog/docs/reference/errors.md shows the rows on which the operator must act. A test fails on a code of the
client's that has no row.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

TOO_LARGE = "MSG_SIZE_TOO_LARGE"
UNKNOWN_TOPIC = "UNKNOWN_TOPIC_OR_PART"
# The bridge's own codes:
NO_TOPIC = "NO_TOPIC"  # neither the record nor the configuration names one
NO_READ = "NO_READ"  # Kafka's code does not say which right is missing
TRANSFORM_FAILED = "TRANSFORM_FAILED"
NUL_IN_HEADER = "NUL_IN_HEADER"


class Fault(Enum):
    """Who caused an error, and so who ends it."""

    RECORD = "record"
    CONFIGURATION = "configuration"
    CLUSTER = "cluster"
    OURS = "ours"


class Kind(Enum):
    """What an error concerns: whose fault it is, and what happened."""

    POISON = Fault.RECORD, "the record will never be taken"
    NEIGHBOUR = Fault.RECORD, "another record of the request was refused"
    TOPIC_MISSING = Fault.CONFIGURATION, "there is no such topic or partition"
    TOPIC_FORBIDDEN = Fault.CONFIGURATION, "the topic may not be used"
    LOCKED_OUT = Fault.CONFIGURATION, "the cluster does not let the bridge in"
    NO_TRANSACTIONS = Fault.CONFIGURATION, "the cluster has no transactions"
    TRANSACTION_SETTING = Fault.CONFIGURATION, "it refuses transactions as asked for"
    SETTING = Fault.CONFIGURATION, "the cluster does not take a setting"
    OFFSET_GONE = Fault.CONFIGURATION, "the partition does not have the offset"
    UNANSWERED = Fault.CLUSTER, "a call was not answered in time: it is asked again"
    WAITING = Fault.CLUSTER, "the cluster cannot do it now"
    FENCED = Fault.OURS, "another producer has taken over"
    CONSEQUENCE = Fault.OURS, "it follows from another error, which is reported, too"
    REJOINS = Fault.OURS, "the consumer joins its group again, by itself"
    FAULT = Fault.OURS, "the bridge or its client made a mistake"

    @property
    def fault(self) -> Fault:
        """Whose fault it is."""
        return self.value[0]


class Row(NamedTuple):
    """reads: the cause, for the operator. does: what the operator does about it."""

    kind: Kind
    reads: str
    does: str


_NOTHING = "nothing; it goes on by itself"
_ROWS: list[tuple[str, Row]] = []


def _rows(codes: str, kind: Kind, reads: str, does: str) -> None:
    _ROWS.extend((code, Row(kind, reads, does)) for code in codes.split())


# --- the record's ---------------------------------------------------------------------------

_rows(TOO_LARGE, Kind.POISON, "it is larger than the topic takes",
      "raise the topic's max.message.bytes, and the bridge's own bounds where those are less"
      " (-X message.max.bytes=..., queue.buffering.max.kbytes=...)")  # fmt: skip  # a table
_rows("RECORD_LIST_TOO_LARGE", Kind.POISON, "it is larger than a segment of the topic",
      "raise the topic's segment.bytes")  # fmt: skip  # as above
_rows(TRANSFORM_FAILED, Kind.POISON, "its route's transform raised an exception, or returned something else",
      "mend the function and restart the bridge; a replay sends what was set aside untransformed; -v logs tracebacks")  # fmt: skip  # as above
_rows(NUL_IN_HEADER, Kind.POISON, "a header's name holds a NUL, and Kafka's client would send another name",
      "write records without such names, or give the route a transform that changes them")  # fmt: skip  # as above
_rows("INVALID_RECORD", Kind.POISON,
      "it has no key, and the topic is compacted; or the cluster validates records and refused it",
      "a compacted topic needs a key: write records with one, or set cleanup.policy=delete;"
      " otherwise see which validation the cluster has")  # fmt: skip  # as above
_rows("INVALID_TIMESTAMP", Kind.POISON,
      "its timestamp is older than message.timestamp.before.max.ms, or more than"
      " message.timestamp.after.max.ms ahead",
      "raise the topic's bound, or set message.timestamp.type=LogAppendTime")  # fmt: skip  # as above
_rows("TOPIC_EXCEPTION", Kind.POISON,
      "no topic can have the name that it asks for, or Kafka reserves that topic",
      "send it elsewhere with a route")  # fmt: skip  # as above
_rows("_INVALID_DIFFERENT_RECORD _INCONSISTENT _GAPLESS_GUARANTEE", Kind.NEIGHBOUR,
      "another record of its request was refused", "nothing; the bridge looks for that one")  # fmt: skip  # as above

# --- the configuration's --------------------------------------------------------------------

_rows(f"{UNKNOWN_TOPIC} _UNKNOWN_TOPIC _UNKNOWN_PARTITION UNKNOWN_TOPIC_ID INCONSISTENT_TOPIC_ID",
      Kind.TOPIC_MISSING, "there is no such topic or partition",
      "create it, or send its records elsewhere with a route")  # fmt: skip  # as above
_rows(NO_TOPIC, Kind.TOPIC_MISSING, "it names no topic and there is no default",
      "name a default: --topic, or `topic` in the configuration")  # fmt: skip  # as above
_rows("TOPIC_AUTHORIZATION_FAILED", Kind.TOPIC_FORBIDDEN, "the bridge has no right to the topic",
      "grant Write and Describe on the topic")  # fmt: skip  # as above
_rows(NO_READ, Kind.TOPIC_FORBIDDEN, "the bridge has no right to read the topic",
      "grant Read, Write and Describe on the topic, or go on with --no-read-back")  # fmt: skip  # as above
_rows("CLUSTER_AUTHORIZATION_FAILED", Kind.LOCKED_OUT,
      "the bridge may not write with idempotence",
      "grant Write on a topic, or IdempotentWrite on the cluster")  # fmt: skip  # as above
_rows("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", Kind.LOCKED_OUT,
      "the bridge has no right to its transactional id",
      "grant Write and Describe on the transactional id")  # fmt: skip  # as above
_rows("GROUP_AUTHORIZATION_FAILED", Kind.LOCKED_OUT, "the bridge has no right to the group",
      "grant Read on the group")  # fmt: skip  # as above
_rows("SASL_AUTHENTICATION_FAILED _AUTHENTICATION UNSUPPORTED_SASL_MECHANISM ILLEGAL_SASL_STATE"
      " SECURITY_DISABLED DELEGATION_TOKEN_AUTH_DISABLED DELEGATION_TOKEN_NOT_FOUND DELEGATION_TOKEN_OWNER_MISMATCH"
      " DELEGATION_TOKEN_REQUEST_NOT_ALLOWED DELEGATION_TOKEN_AUTHORIZATION_FAILED"
      " DELEGATION_TOKEN_EXPIRED INVALID_PRINCIPAL_TYPE PRINCIPAL_DESERIALIZATION_FAILURE"
      " UNACCEPTABLE_CREDENTIAL", Kind.LOCKED_OUT, "the cluster does not accept the credentials",
      "check the user, the password and the mechanism")  # fmt: skip  # as above
_rows("_SSL", Kind.LOCKED_OUT, "TLS failed",
      "check security.protocol, ssl.ca.location, and that the broker's certificate names the host that the"
      " bridge connects to")  # fmt: skip  # as above
_rows("_UNSUPPORTED_FEATURE UNSUPPORTED_VERSION", Kind.NO_TRANSACTIONS,
      "the cluster is too old for what was asked",
      "use --delivery at_least_once, or a newer cluster")  # fmt: skip  # as above
_rows("INVALID_TRANSACTION_TIMEOUT", Kind.TRANSACTION_SETTING,
      "transaction.timeout.ms, 60000 unless given, is more than the cluster takes",
      "give at most the brokers' transaction.max.timeout.ms")  # fmt: skip  # as above
_rows("UNSUPPORTED_COMPRESSION_TYPE", Kind.SETTING, "the cluster does not take this compression",
      "use another compression.type")  # fmt: skip  # as above
_rows("UNSUPPORTED_FOR_MESSAGE_FORMAT", Kind.SETTING,
      "the topic has an old message format, which takes no idempotent producer",
      "set the topic's message.format.version to 0.11 or later")  # fmt: skip  # as above
_rows("POLICY_VIOLATION INVALID_CONFIG INVALID_PARTITIONS INVALID_REPLICATION_FACTOR"
      " INVALID_REPLICA_ASSIGNMENT", Kind.SETTING,
      "the cluster refuses to create the topic with these settings", "create it by hand")  # fmt: skip  # as above
_rows("LISTENER_NOT_FOUND MISMATCHED_ENDPOINT_TYPE UNSUPPORTED_ENDPOINT_TYPE", Kind.SETTING,
      "the address is not a listener for clients",
      "name a broker's listener for clients in bootstrap_servers")  # fmt: skip  # as above
_rows("_INVALID_ARG _NOT_CONFIGURED _FS", Kind.SETTING, "the client does not take a setting",
      "correct the setting that the message names")  # fmt: skip  # as above

_rows("_AUTO_OFFSET_RESET OFFSET_OUT_OF_RANGE", Kind.OFFSET_GONE,
      "the partition has no record at the offset: retention removed it, or the topic was made anew",
      "read from another offset, or set auto.offset.reset to earliest or latest")  # fmt: skip  # as above

# --- the cluster's --------------------------------------------------------------------------

_rows("_TRANSPORT _RESOLVE", Kind.WAITING, "a broker cannot be reached",
      "check the address, the network and the broker")  # fmt: skip  # as above
_rows("_ALL_BROKERS_DOWN _UNKNOWN_BROKER BROKER_NOT_AVAILABLE NETWORK_EXCEPTION _FAIL"
      " _NODE_UPDATE REBOOTSTRAP_REQUIRED", Kind.WAITING, "no broker can be reached",
      "check the address, the network and the brokers")  # fmt: skip  # as above
_rows("_TIMED_OUT _CONFLICT _IN_PROGRESS _PREV_IN_PROGRESS", Kind.UNANSWERED,
      "the cluster has not answered yet", _NOTHING)  # fmt: skip  # as above
_rows("_MSG_TIMED_OUT _TIMED_OUT_QUEUE REQUEST_TIMED_OUT", Kind.WAITING,
      "the cluster has not answered in time", "check that the brokers can be reached; otherwise see what they are busy with")  # fmt: skip  # as above
_rows("NOT_ENOUGH_REPLICAS NOT_ENOUGH_REPLICAS_AFTER_APPEND _ISR_INSUFF", Kind.WAITING,
      "fewer replicas are in sync than min.insync.replicas asks for",
      "start the brokers that are down")  # fmt: skip  # as above
_rows("LEADER_NOT_AVAILABLE NOT_LEADER_FOR_PARTITION REPLICA_NOT_AVAILABLE FENCED_LEADER_EPOCH"
      " UNKNOWN_LEADER_EPOCH PREFERRED_LEADER_NOT_AVAILABLE ELIGIBLE_LEADERS_NOT_AVAILABLE"
      " ELECTION_NOT_NEEDED OFFSET_NOT_AVAILABLE _LOG_TRUNCATION", Kind.WAITING,
      "the partition has no leader now, or another one",
      "start the brokers that are down, if it lasts")  # fmt: skip  # as above
_rows("KAFKA_STORAGE_ERROR LOG_DIR_NOT_FOUND", Kind.WAITING, "a broker's disk failed",
      "see to the broker's disk")  # fmt: skip  # as above
_rows("THROTTLING_QUOTA_EXCEEDED", Kind.WAITING, "a quota of the cluster's holds the bridge back",
      "raise the quota, if it lasts")  # fmt: skip  # as above
_rows("COORDINATOR_LOAD_IN_PROGRESS COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR _WAIT_COORD"
      " CONCURRENT_TRANSACTIONS TRANSACTION_COORDINATOR_FENCED TRANSACTION_ABORTABLE"
      " UNSTABLE_OFFSET_COMMIT", Kind.WAITING,
      "the transaction's coordinator moves, or is busy", _NOTHING)  # fmt: skip  # as above
_rows("STALE_CTRL_EPOCH NOT_CONTROLLER STALE_BROKER_EPOCH UNKNOWN_CONTROLLER_ID"
      " REASSIGNMENT_IN_PROGRESS NO_REASSIGNMENT_IN_PROGRESS OPERATION_NOT_ATTEMPTED"
      " INCONSISTENT_VOTER_SET INVALID_UPDATE_VERSION FEATURE_UPDATE_FAILED INVALID_REGISTRATION"
      " INVALID_VOTER_KEY DUPLICATE_VOTER VOTER_NOT_FOUND", Kind.WAITING,
      "the cluster is changing", _NOTHING)  # fmt: skip  # as above
_rows("INVALID_MSG UNKNOWN", Kind.WAITING, "the broker failed", "see the broker's own log")  # fmt: skip  # as above

# --- ours -----------------------------------------------------------------------------------

_rows("_FENCED PRODUCER_FENCED INVALID_PRODUCER_EPOCH", Kind.FENCED,
      "another producer has the transactional id, or the cluster gave a transaction up",
      "run one bridge a log")  # fmt: skip  # as above
_rows("_PURGE_QUEUE _PURGE_INFLIGHT _FATAL _DESTROY _DESTROY_BROKER _INTR", Kind.CONSEQUENCE,
      "the producer was ended for another error", _NOTHING)  # fmt: skip  # as above
_rows("NO_ERROR _PARTITION_EOF _NOOP _NO_OFFSET _WAIT_CACHE _PARTIAL _RETRY"
      " _OUTDATED TOPIC_ALREADY_EXISTS", Kind.CONSEQUENCE,
      "no error: the client reports its own progress with it", _NOTHING)  # fmt: skip  # as above
_rows("OUT_OF_ORDER_SEQUENCE_NUMBER DUPLICATE_SEQUENCE_NUMBER UNKNOWN_PRODUCER_ID"
      " INVALID_PRODUCER_ID_MAPPING INVALID_TXN_STATE _STATE", Kind.FAULT,
      "the cluster and the producer disagree on what was sent; a new producer looks it up",
      _NOTHING)  # fmt: skip  # as above
_rows("_BAD_MSG _BAD_COMPRESSION _CRIT_SYS_RESOURCE _QUEUE_FULL _UNKNOWN_PROTOCOL"
      " _NOT_IMPLEMENTED _KEY_SERIALIZATION _VALUE_SERIALIZATION _KEY_DESERIALIZATION"
      " _VALUE_DESERIALIZATION _READ_ONLY _NOENT _UNDERFLOW _INVALID_TYPE _APPLICATION"
      " INVALID_MSG_SIZE INVALID_REQUIRED_ACKS INVALID_REQUEST RESOURCE_NOT_FOUND"
      " DUPLICATE_RESOURCE", Kind.FAULT,
      "the bridge or its client made a mistake", "report it, with the log")  # fmt: skip  # as above
_rows("_ASSIGN_PARTITIONS _REVOKE_PARTITIONS _MAX_POLL_EXCEEDED _ASSIGNMENT_LOST ILLEGAL_GENERATION"
      " UNKNOWN_MEMBER_ID REBALANCE_IN_PROGRESS FETCH_SESSION_ID_NOT_FOUND"
      " INVALID_FETCH_SESSION_EPOCH MEMBER_ID_REQUIRED GROUP_MAX_SIZE_REACHED FENCED_MEMBER_EPOCH"
      " UNRELEASED_INSTANCE_ID STALE_MEMBER_EPOCH", Kind.REJOINS,
      "the consumer's group has changed, or is full",
      "nothing; if it lasts, raise max.poll.interval.ms, or group.max.size of the brokers")  # fmt: skip  # as above
_rows("_UNKNOWN_GROUP _EXISTING_SUBSCRIPTION OFFSET_METADATA_TOO_LARGE"
      " INCONSISTENT_GROUP_PROTOCOL INVALID_GROUP_ID INVALID_SESSION_TIMEOUT"
      " INVALID_COMMIT_OFFSET_SIZE NON_EMPTY_GROUP GROUP_ID_NOT_FOUND"
      " TOPIC_DELETION_DISABLED FENCED_INSTANCE_ID GROUP_SUBSCRIBED_TO_TOPIC UNSUPPORTED_ASSIGNOR"
      " UNKNOWN_SUBSCRIPTION_ID TELEMETRY_TOO_LARGE INVALID_RECORD_STATE SHARE_SESSION_NOT_FOUND"
      " INVALID_SHARE_SESSION_EPOCH FENCED_STATE_EPOCH INVALID_REGULAR_EXPRESSION"
      " STREAMS_INVALID_TOPOLOGY STREAMS_INVALID_TOPOLOGY_EPOCH STREAMS_TOPOLOGY_FENCED"
      " SHARE_SESSION_LIMIT_REACHED", Kind.FAULT,
      "a consumer group refuses the member or its request",
      "check group.id, group.instance.id and the assignors of all members")  # fmt: skip  # as above

ROWS = dict(_ROWS)
assert len(ROWS) == len(_ROWS), "a code has one row"

_UNKNOWN_CODE = Row(Kind.WAITING, "this release does not know the error", "see the broker's log")


# With these codes brokers name the records that they refuse, and the client passes that on if a request
# holds several (KIP-467).
_NAMED = {"INVALID_RECORD", "INVALID_TIMESTAMP"}


def names_records(code: str) -> bool:
    """Whether the cluster may name the refused records, if the request is sent again with a report on each."""
    return code in _NAMED or kind_of(code) is Kind.NEIGHBOUR


def row_of(code: str) -> Row:
    """The row of a code; for an unknown code, a row of the cluster's."""
    return ROWS.get(code, _UNKNOWN_CODE)


def kind_of(code: str) -> Kind:
    """What the error concerns."""
    return row_of(code).kind


def advice(code: str) -> str:
    """What the operator does about it."""
    return row_of(code).does


_FATAL = "_FATAL"  # of a consumer whose client ended: the error's own code is in its text
_WAITED_OUT = {Kind.TOPIC_MISSING, Kind.UNANSWERED, Kind.WAITING, Kind.CONSEQUENCE, Kind.REJOINS}


def ends_reading(code: str, *, resets: bool) -> bool:
    """Whether a consumer (of JSON clients, or of pull) reports the error to its caller; it waits out every other one.
    resets: whether it goes on at another offset, by auto.offset.reset, where one is gone."""
    kind = kind_of(code)
    if kind is Kind.OFFSET_GONE:
        return not resets
    return code == _FATAL or kind not in _WAITED_OUT
