"""The least rights of commands that read, against Apache Kafka with ACLs: those of the page suffice, and
each of them is needed."""

from __future__ import annotations

import re
import uuid
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bridge.cli import main
from bridge.kafka.embedded import EmbeddedBroker
from tests.bridge.pull.pulling import produce

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("strict kafka")]

PAGE = Path(__file__).parents[3] / "aolog/docs/how-to/production.md"
ROWS = re.findall(r"^\| `(.*)` \| (topic|group) \| (\w+) \|$", PAGE.read_text(), re.MULTILINE)
COMMANDS = list(dict.fromkeys(command for command, _, _ in ROWS))


def run(kafka, command: str, rights: list[tuple], root: Path) -> Result:
    """With these rows' rights, and no others."""
    name = f"rights-{uuid.uuid4().hex[:8]}"
    if "--create" not in command:
        kafka.server.create_topic(name)
        produce(kafka.server, name, range(20))
    user = kafka.user()
    user.grant((kind.capitalize(), name, right) for _, kind, right in rights)
    words = command.replace("TOPIC", name).replace("GROUP", name).replace("ROOT", str(root))
    return CliRunner().invoke(main, [*words.split(), *user.arguments])


def test_the_page_has_the_table():
    assert len(COMMANDS) == 9


@pytest.mark.parametrize("command", COMMANDS)
def test_the_rights_of_the_page_suffice(strict_kafka, tmp_path, command):
    result = run(strict_kafka, command, [row for row in ROWS if row[0] == command], tmp_path)
    assert result.exit_code == 0, (result.output, result.exception)


@pytest.mark.parametrize("row", ROWS, ids=[f"{r[1]}-{r[2]}-{r[0][:40]}" for r in ROWS])
def test_without_one_of_the_rights_a_command_ends_with_an_error(strict_kafka, tmp_path, row):
    others = [each for each in ROWS if each[0] == row[0] and each != row]
    result = run(strict_kafka, row[0], others, tmp_path)
    assert result.exit_code == 6, (result.output, result.exception)
    assert "AUTHORIZATION_FAILED" in result.stderr or "uthoriz" in result.stderr


def test_a_mirror_needs_the_rights_of_pull_at_its_source(strict_kafka, tmp_path):
    name = f"rights-{uuid.uuid4().hex[:8]}"
    strict_kafka.server.create_topic(name)
    produce(strict_kafka.server, name, range(20))
    user = strict_kafka.user()
    user.grant([("Topic", name, "Read")])
    with EmbeddedBroker() as destination:
        words = ["mirror", "--topic", name, "--log", str(tmp_path / "log"), "--drain"]
        words += ["--from-servers", user.bootstrap_servers]
        words += [w for pair in user.settings.items() for w in ("--from-set", "=".join(pair))]
        result = CliRunner().invoke(main, [*words, "--to-servers", destination.bootstrap_servers])
        assert result.exit_code == 0, (result.output, result.exception)
