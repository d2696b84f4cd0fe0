"""A Kafka cluster inside this process: librdkafka's own mock, with real listeners on loopback.

For the demo, which must run where there is no Kafka, and for fault tests, which must take a broker away
at a chosen moment. It owns some loopback sockets and one thread of librdkafka; clients in this or any
other process connect with `bootstrap_servers`. No Python runs to serve them, so a busy interpreter does
not slow the cluster.

It is librdkafka's *test* cluster, and its limits are part of this module's contract. Measured with
librdkafka 2.16.0:

- Storage is memory, and a partition keeps 5 MiB of batches as they were sent. The oldest are dropped without
  a sign to any client. A consumer that still needed them gets 'offset out of range': with
  `auto.offset.reset=earliest` it skips to the new start, and only the offsets show the gap; with `latest`
  it skips everything; with `error` it reports that. Two batches that do not fit together (over 2.5 MiB
  each) are both unreadable.
- Keys, headers and timestamps are kept. A delivery report's timestamp is always 1234.
- Watermarks are right. There is no look-up by time: `offsets_for_times` answers 'end'.
- **It does not check duplicates, order or fencing.** It ignores the sequence numbers of a merely
  idempotent producer: a batch that is sent again because its acknowledgement was lost is stored twice, and
  one after a refused batch is accepted. If a retriable error is pushed while several requests of one
  partition are in flight, librdkafka reports a record as delivered that is not stored; set
  `max.in.flight=1` in such a test. A fenced transactional producer may still commit, and a read_committed
  consumer gets aborted records. Test such things with a real Kafka.
- An unknown topic appears when it is asked for, with 4 partitions. There is no controller: CreateTopics
  and similar requests time out. Use `create_topic`.
- A fetch at the end of a partition sleeps its whole `fetch.wait.max.ms` (500 by default), new data or not.
  Consumers that need low latency set it lower.

How: the functions of `rdkafka_mock.h`, which its authors call experimental, are looked up through
confluent-kafka's extension module: that needs no search for a file, and never loads a second copy of
librdkafka. The mock belongs to a handle of its own, which has no broker to talk to, so an error that is pushed
here reaches a client's request and never this handle's.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import signal
import threading
from collections.abc import Iterator, Sequence
from typing import Final, Self

from aolog.errors import UsageError

# rd_kafka_type_t RD_KAFKA_PRODUCER: the handle sends nothing, so its kind does not matter.
_PRODUCER: Final = 0
# rdkafka_mock.h: 'Use -1 for all brokers'.
_ALL_BROKERS: Final = -1
# syslog 'error'. Hides the notice that the handle has no bootstrap.servers (it needs none), and keeps the
# mock's own errors on standard error.
_LOG_LEVEL: Final = b"3"
# Bytes for librdkafka's text about a handle that could not be made; its own examples use 512.
_ERRSTR_SIZE: Final = 512
_PARTITIONS_MAX: Final = 10_000

_Prototype = tuple[object, tuple[object, ...]]
_handle, _text, _size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
_int, _node = ctypes.c_int, ctypes.c_int32
_PROTOTYPES: Final[dict[str, _Prototype]] = {
    "rd_kafka_conf_new": (_handle, ()),
    "rd_kafka_conf_set": (_int, (_handle, _text, _text, _text, _size)),
    "rd_kafka_conf_destroy": (None, (_handle,)),
    "rd_kafka_new": (_handle, (_int, _handle, _text, _size)),
    "rd_kafka_destroy": (None, (_handle,)),
    "rd_kafka_err2name": (_text, (_int,)),
    "rd_kafka_err2str": (_text, (_int,)),
    "rd_kafka_mock_cluster_new": (_handle, (_handle, _int)),
    "rd_kafka_mock_cluster_destroy": (None, (_handle,)),
    "rd_kafka_mock_cluster_bootstraps": (_text, (_handle,)),
    "rd_kafka_mock_broker_set_down": (_int, (_handle, _node)),
    "rd_kafka_mock_broker_set_up": (_int, (_handle, _node)),
    "rd_kafka_mock_broker_set_rtt": (_int, (_handle, _node, _int)),
    "rd_kafka_mock_topic_create": (_int, (_handle, _text, _int, _int)),
    "rd_kafka_mock_clear_request_errors": (None, (_handle, ctypes.c_int16)),
    "rd_kafka_mock_push_request_errors_array": (
        None,
        (_handle, ctypes.c_int16, _size, ctypes.POINTER(_int)),
    ),
}


class EmbeddedBrokerUnavailable(UsageError):
    """confluent-kafka's librdkafka does not export the mock's functions. Nothing was started. Use a real broker, or
    install confluent-kafka from a wheel, which contains a librdkafka that does."""

    code = "embedded_broker_unavailable"


class EmbeddedBrokerRefused(UsageError):
    """A command was refused: the cluster is closed, there is no such broker, the topic exists. Nothing changed."""

    code = "embedded_broker_refused"


class EmbeddedBroker:
    """A running mock cluster of `brokers` brokers, ids 1 to `brokers`, until `close`. A context manager. Any thread
    may call any method: the cluster's own thread carries out one call after the other, and on return the change is
    in force. A forked child has no such thread. Raises EmbeddedBrokerUnavailable.

    bootstrap_servers: `host:port,host:port…`, one a broker in the order of their ids, all on loopback; a
    broker that was down comes up on its old port."""

    def __init__(self, brokers: int = 1) -> None:
        self._lib = library()
        self._lock = threading.Lock()
        self._rk: int | None = _new_handle(self._lib)
        # Its thread inherits the mask: the cluster ends when a signal interrupts its wait.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._cluster: int | None = self._lib.rd_kafka_mock_cluster_new(self._rk, brokers)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if self._cluster is None:
            self._lib.rd_kafka_destroy(self._rk)
            self._rk = None
            raise EmbeddedBrokerUnavailable("librdkafka could not open the mock's sockets")
        addresses: bytes = self._lib.rd_kafka_mock_cluster_bootstraps(self._cluster)
        self.bootstrap_servers = addresses.decode("ascii")

    def set_down(self, broker_id: int = _ALL_BROKERS) -> None:
        """Cut all connections to the broker (by default to every broker) and refuse new ones. No effect on one that is
        down. It keeps what it has stored, and stays the leader of its partitions. A request whose answer was held
        back by `set_rtt_ms` has been carried out: `set_down` during a long round trip makes the doubtful case,
        stored and never acknowledged. Raises EmbeddedBrokerRefused."""
        self._command("rd_kafka_mock_broker_set_down", broker_id)

    def set_up(self, broker_id: int = _ALL_BROKERS) -> None:
        """Listen again, on the same port; clients reconnect after their own reconnect.backoff. No effect on a broker
        that is up. Raises EmbeddedBrokerRefused."""
        self._command("rd_kafka_mock_broker_set_up", broker_id)

    def set_rtt_ms(self, ms: int) -> None:
        """Hold back every answer of every broker for `ms` milliseconds from when it was ready, also those that wait
        already; 0 for none. Requests in flight wait at the same time. Raises EmbeddedBrokerRefused."""
        self._command("rd_kafka_mock_broker_set_rtt", _ALL_BROKERS, ms)

    def create_topic(self, name: str, partitions: int = 1) -> None:
        """Create a topic without replicas: partition p is led by broker `p % brokers + 1`. Raises
        EmbeddedBrokerRefused, also where the topic exists."""
        if not 1 <= partitions <= _PARTITIONS_MAX:  # librdkafka would end the process
            raise EmbeddedBrokerRefused(
                f"partitions is {partitions}, not in [1, {_PARTITIONS_MAX}]"
            )
        self._command("rd_kafka_mock_topic_create", name.encode(), partitions, 1)

    def push_request_errors(self, api_key: int, errors: Sequence[int]) -> None:
        """Answer the next requests of one kind, from any client, with these errors, one a request, after those pushed
        before. api_key: the protocol's number (Produce 0, Fetch 1, ListOffsets 2, Metadata 3, InitProducerId 22, …).
        errors: the protocol's codes as in confluent_kafka.KafkaError. 0 lets a request pass, so `[0, 0, 10]` hits
        the third. A request that gets an error changes nothing, and a Produce gets it for all of its partitions.
        KafkaError._TRANSPORT (-195) cuts the connection instead. Raises EmbeddedBrokerRefused."""
        codes = (ctypes.c_int * len(errors))(*errors)
        with self._running() as cluster:
            self._lib.rd_kafka_mock_push_request_errors_array(cluster, api_key, len(codes), codes)

    def clear_request_errors(self, api_key: int) -> None:
        """Drop the errors that were pushed for this kind of request and not used yet."""
        with self._running() as cluster:
            self._lib.rd_kafka_mock_clear_request_errors(cluster, api_key)

    def close(self) -> None:
        """Stop the cluster, drop its data, close its ports. May be called again."""
        with self._lock:
            if self._cluster is None:
                return
            self._lib.rd_kafka_mock_cluster_destroy(self._cluster)
            self._cluster = None
            self._lib.rd_kafka_destroy(self._rk)
            self._rk = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def _running(self) -> Iterator[int]:
        """The cluster's handle, which stays open meanwhile. Raises EmbeddedBrokerRefused."""
        with self._lock:
            if self._cluster is None:
                raise EmbeddedBrokerRefused("the embedded broker is closed")
            yield self._cluster

    def _command(self, function: str, *arguments: int | bytes) -> None:
        """Call a function that returns an error code; raise if that is not 0."""
        with self._running() as cluster:
            error: int = getattr(self._lib, function)(cluster, *arguments)
        if error:
            name: bytes = self._lib.rd_kafka_err2name(error)
            text: bytes = self._lib.rd_kafka_err2str(error)
            raise EmbeddedBrokerRefused(
                f"{function}: {text.decode()} ({name.decode()})", error=error, arguments=arguments
            )


def _new_handle(lib: ctypes.CDLL) -> int:
    """A librdkafka handle that connects to nothing; the mock needs one for its threads and logs."""
    errstr = ctypes.create_string_buffer(_ERRSTR_SIZE)
    conf = lib.rd_kafka_conf_new()
    for key, value in ((b"client.id", b"embedded-broker"), (b"log_level", _LOG_LEVEL)):
        lib.rd_kafka_conf_set(conf, key, value, errstr, len(errstr))
    handle: int | None = lib.rd_kafka_new(_PRODUCER, conf, errstr, len(errstr))
    if handle is None:  # otherwise the handle owns `conf`
        lib.rd_kafka_conf_destroy(conf)
        raise EmbeddedBrokerUnavailable(f"librdkafka: {errstr.value.decode()}")
    return handle


@functools.cache
def library() -> ctypes.CDLL:
    """The librdkafka that is loaded in this process, with every prototype declared."""
    path = str(importlib.import_module("confluent_kafka.cimpl").__file__)
    lib = ctypes.CDLL(path)
    for name, (result, arguments) in _PROTOTYPES.items():
        function = getattr(lib, name, None)
        if function is None:
            raise EmbeddedBrokerUnavailable(
                f"the librdkafka of {path} does not export {name}",
                hint="install confluent-kafka from a wheel, or use a real broker",
            )
        function.restype, function.argtypes = result, arguments
    return lib
