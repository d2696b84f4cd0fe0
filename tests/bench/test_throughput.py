"""The bench of the bridge's throughput judges no contender whose records did not arrive."""

import pytest

from bench.cases import throughput
from bench.cases.plan import Plan
from bench.measure import Wrong
from bench.sizes import SIZES


def test_a_contender_whose_records_do_not_arrive_is_wrong(tmp_path):
    plan = Plan(str(tmp_path), SIZES["small"]._replace(records=500), (100,))
    groups = throughput.groups(plan)
    group = next(groups)
    _, each, _, bridge = group.contenders
    assert [one.name for one in group.contenders] == [
        throughput.RAW, throughput.RAW_EACH, throughput.RAW_STAMPED,
        throughput.BRIDGE["at_least_once"],
    ]  # fmt: skip  # a list
    with bridge.session(str(tmp_path)) as work:
        assert work() == bridge.records == 4000
    with pytest.raises(Wrong, match=r"aolog bridge.*arrived of"), bridge.session(str(tmp_path)):
        pass
    with pytest.raises(Wrong, match="callback each"), each.session(str(tmp_path)):
        pass
    groups.close()
