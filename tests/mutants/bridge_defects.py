"""The mutants of the bridge, in the order of the promise's clauses, as in defects.py."""

from tests.mutants import changes as c
from tests.mutants.mutant import Mutant

__all__ = ["BRIDGE_MUTANTS"]

AT_LEAST, EXACTLY = "bridge.deliver.at_least_once", "bridge.deliver.exactly_once"
GROWING = "kafka_model::test_topics_that_grow_and_messages_that_are_copied_cost_no_record_and_no_repeat[finders]"
WALKS = "engine_model::test_walks_at_random_keep_every_promise[finders]"
TABLE, ROWS = (
    "engine::test_the_engine_follows_its_table",
    "transactions::test_each_row_of_the_table_happens",
)
COMPARED = (
    "deduplicate::test_what_is_there_in_the_logs_order_has_arrived_up_to_the_first_that_is_missing"
)
TWICE = "transactions::test_an_end_that_was_requested_twice_ends_no_later_transaction"
LOSSES = (
    "log_losses::test_a_bridge_that_never_reached_its_cluster_counts_pruned_records[at_least_once]"
)


def then(after):
    """After the call, this is done with its object and arguments."""

    def make(original):
        def call(self, *args, **known):
            result = original(self, *args, **known)
            after(self, *args, **known)
            return result

        return call

    return make


def first(before):
    """As `then`, before the call."""

    def make(original):
        def call(self, *args, **known):
            before(self, *args, **known)
            return original(self, *args, **known)

        return call

    return make


def assigns(**values):
    """The object's attributes, for `then`."""

    def assign(self, *_, **__):
        for name, value in values.items():
            setattr(self, name, value)

    return assign


def counts_as_sent(machine, _, to, *__, **___):
    machine.position = to


def taken_for_open(room):
    """Every lane is, before its first record was acknowledged."""

    def unopened(lane):
        opened, lane.opened = lane.opened, True
        try:
            return room(lane)
        finally:
            lane.opened = opened

    return unopened


def over_holes(take):
    """A record that is not found does not end the comparison."""

    def takes(found, digest):
        offset = take(found, digest)
        return found.end if offset is None and not found.is_compared else offset

    return takes


def only_the_first(add):
    """Reading back stops after a partition's first message."""
    return lambda wanted, message, found: None if found.addresses else add(wanted, message, found)


def proves_all_before(lane, found):
    lane.arrived(max(found.held, found.greatest))


def ended(engine, *_, **__):
    engine.state = type(engine.state)("stopped")


def in_any_lane(partition_of):
    """Records of one key go to partitions in turn."""
    calls = []

    def turns(key, topic_uuid, partitions):
        calls.append(key)
        return len(calls) % partitions

    return turns


def after_its_records(send, take):
    """Poison is set aside once a batch's records are put."""
    later = []

    def sends(*args):
        refusal = send(*args)
        while later:
            take(*later.pop())
        return refusal

    return sends, lambda *args: later.append(args)


def no_file(storage, path):
    raise FileNotFoundError(path)


def a_guess(machine, _):
    machine.outstanding, machine.sent_to = 0, machine.position
    machine.state = type(machine.state)("sending")


BRIDGE_MUTANTS = (
    Mutant("a mark counts before its answer", "acknowledged", f"{AT_LEAST}:Lane.low",
           lambda _: lambda lane: lane.waits_from,
           "engine::test_the_cursor_is_the_least_address_that_no_lane_has_acknowledged"),
    Mutant("the cursor is saved before the commit", "acknowledged", f"{EXACTLY}:Transactions.sent",
           then(counts_as_sent), "transactions::TestTransactionsAgainstACluster"),
    Mutant("slabs are pruned before the cursor is durable", "acknowledged", "bridge.deliver:_all",
           lambda all_: lambda steps: all_(steps[::-1]),
           "committer::test_a_commit_is_the_cursor_then_checkpoints_then_pruning_and_none_is_repeated"),
    Mutant("a copied message proves all before it", "acknowledged", f"{AT_LEAST}:Lane.read_back",
           lambda _: proves_all_before, WALKS),
    Mutant("a lane forgets its first record that waits", "acknowledged", f"{AT_LEAST}:Lane.leave",
           lambda leave: lambda lane, place: lane.waits_from or leave(lane, place), WALKS),
    Mutant("no lane waits for its first acknowledgement", "acknowledged", f"{AT_LEAST}:Lane.room",
           taken_for_open, WALKS),
    Mutant("a comparison goes on after a missing record", "acknowledged", f"{AT_LEAST}:Found.take",
           over_holes, COMPARED),
    Mutant("values go with the first answer for their batch", "acknowledged", "bridge.kafka:KeptValues.add",
           lambda add: lambda kept, held, last: add(kept, held, dict(list(last.items())[:1])),
           "kept_values::test_a_batch_goes_with_the_last_answer_for_it_and_no_sooner"),
    Mutant("a retry sends later records of a lane first", "order", f"{AT_LEAST}:plan", c.given(begin=0),
           "batch_planner::test_records_that_were_set_aside_are_skipped_and_earlier_records_of_a_lane_come_first"),
    Mutant("records of one key go to any partition", "order", "bridge.config:partition_of", in_any_lane,
           "partitioner::test_each_record_goes_where_its_key_its_address_or_the_rule_says"),
    Mutant("a lost connection ends the delivery", "outage", f"{AT_LEAST}:Engine.failed", then(ended), TABLE),
    Mutant("a lost producer ends the transactions", "outage", f"{EXACTLY}:Transactions.broken", then(ended), ROWS),
    Mutant("pauses grow without bound", "outage", "bridge.deliver:Backoff.next_s",
           first(assigns(max_s=1e9)), "engine_poison::test_a_refusal_that_teaches_nothing_is_retried_after_growing_pauses"),
    Mutant("reading back stops early", "not again", f"{AT_LEAST}:Wanted.add", only_the_first, GROWING),
    Mutant("a new number of partitions counts at once", "not again", "bridge.deliver:PartitionCounts.grown",
           lambda _: lambda counts, _, partitions: type(counts).always(partitions), GROWING),
    Mutant("a growth passes records that were found", "not again", f"{AT_LEAST}:Lane.read_back",
           then(assigns(seen_to=-1)), GROWING),
    Mutant("a transaction has no cursor", "once", "bridge.kafka:TransactionalProducer._put_cursor", c.always(True),
           "exactly_once_mock::test_the_cursor_is_the_last_record_of_each_transaction"),
    Mutant("a commit without an answer counts as failed", "once", f"{EXACTLY}:Transactions.unanswered",
           lambda _: a_guess, "transactions::test_a_commit_whose_answer_is_lost_is_asked_for_again_and_counts_once"),
    Mutant("a producer goes on after an end that it requested twice", "once", f"{EXACTLY}:Transactions._go_on",
           then(lambda machine: setattr(machine, "state", type(machine.state)("sending"))), TWICE),
    Mutant("poison is set aside after the next record is sent", "poison", f"{AT_LEAST}:Sender.take",
           then(lambda sender, *_: sender.send()), GROWING),
    Mutant("poison is set aside after its transaction's records", "poison",
           f"{EXACTLY}:Sender.send bridge.deliver:DeadLetters.take", after_its_records,
           "exactly_once_mock::test_no_record_follows_poison_that_is_not_set_aside_yet"),
    Mutant("what was dropped is not noted", "poison", "bridge.deliver:Checkpoints.drop", c.nothing, GROWING),
    Mutant("another fault counts as the record's", "poison", "bridge.kafka:Refusal.is_poison",
           lambda _: property(lambda _: True),
           "batch_planner::test_a_lane_stops_before_a_refusal_that_is_not_the_records_fault_with_every_policy"),
    Mutant("a gap is forwarded as nothing", "loud", "bridge.deliver:LogSource._on_gap", c.nothing,
           "log_source::test_a_gap_is_passed_counted_and_logged"),
    Mutant("pruned records are not counted", "loud", "bridge.deliver:LogSource.count_pruned", c.nothing, LOSSES),
    Mutant("copies are not reported", "loud", f"{AT_LEAST}:Found.add_copies", c.nothing, COMPARED),
    Mutant("notes take room each time", "space", "aolog.storage:Storage.open_write", lambda _: no_file,
           "checkpoints::test_on_a_full_disk_larger_checkpoints_name_the_room_they_need_and_the_old_ones_stay"),
    Mutant("nothing is pruned", "space", "bridge.deliver:LogSource.prune", c.nothing,
           "damaged_log::test_with_prune_slabs_are_deleted_once_the_durable_cursor_has_passed_them"),
    Mutant("records in flight have no bound", "space", f"{AT_LEAST}:Engine.wants_batch",
           lambda _: property(lambda engine: engine.state.value == "sending" and not engine.pending),
           "engine::test_records_of_held_lanes_are_counted_apart_and_bounded_by_closing_the_connection"),
)  # fmt: skip  # a table
