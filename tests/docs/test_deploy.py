"""The examples in deploy/ name commands, options, settings, paths and ports that exist."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner

from elision.cli.app import app
from elision.config.gateway_keys import ALL_KEYS, GATEWAY_KEYS
from elision.config.setting_keys import PREFIX
from elision.gateway.admin import OPEN_PATHS
from elision.gateway.settings import gateway_settings

DEPLOY = Path(__file__).parents[2] / "deploy"
PORT = GATEWAY_KEYS["gateway_port"].default
FILES = sorted(each.name for each in DEPLOY.iterdir())


def text(name: str) -> str:
    return (DEPLOY / name).read_text(encoding="utf-8")


def taken(arguments: list[str]) -> None:
    """`elision serve` understands these options."""
    group: Any = typer.main.get_command(app)
    group.commands["serve"].make_context("serve", list(arguments))


def variables(name: str) -> dict[str, str]:
    """Every setting that a file gives a value in plain sight."""
    if name.endswith(".yaml"):
        return {each["name"]: each.get("value", "") for each in _container()["env"]}
    return dict(re.findall(rf"({PREFIX}\w+)=(\S+)", re.sub(r"^#.*$", "", text(name), flags=re.MULTILINE)))


def _container() -> dict[str, Any]:
    deployment, _ = yaml.safe_load_all(text("kubernetes.yaml"))
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    found: dict[str, Any] = container
    return found


@pytest.mark.parametrize("name", [each for each in FILES if each != "elision.toml"])
def test_settings(name: str) -> None:
    """Each variable is a setting, or names the file; its value is one that it may have."""
    found = variables(name)
    assert found
    known = {key.variable: key for key in ALL_KEYS.values()}
    for variable, value in found.items():
        assert variable == f"{PREFIX}CONFIG" or variable in known
        if value and variable in known:
            known[variable].read(value.removesuffix("\\"))


def test_the_file(tmp_path: Path) -> None:
    """The example of a file is taken as it is."""
    assert tomllib.loads(text("elision.toml"))
    (tmp_path / "elision.toml").write_text(text("elision.toml"), encoding="utf-8")
    gateway_settings({}, tmp_path)


def test_systemd() -> None:
    """The unit runs `elision serve` with options that exist, and waits longer for its end than answers are given."""
    unit = text("elision.service")
    (start,) = re.findall(r"^ExecStart=(.+)$", unit, re.MULTILINE)
    program, command, *arguments = shlex.split(start)
    assert (Path(program).name, command) == ("elision", "serve")
    taken(arguments)
    stop = int(re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)[0])
    assert stop > GATEWAY_KEYS["gateway_drain_seconds"].default
    assert (DEPLOY / "elision.toml").exists()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_takes_it(tmp_path: Path) -> None:
    """systemd finds nothing wrong with the unit, where its program is there."""
    program = tmp_path / "elision"
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    program.chmod(0o755)
    unit = tmp_path / "elision.service"
    unit.write_text(text("elision.service").replace("/opt/elision/bin/elision", str(program)), encoding="utf-8")
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_kubernetes() -> None:
    """Options, port and probes are the gateway's own, and a pod is given longer than its answers."""
    deployment, service = yaml.safe_load_all(text("kubernetes.yaml"))
    pod, container = deployment["spec"]["template"]["spec"], _container()
    taken(container["args"])
    assert container["ports"] == [{"name": "http", "containerPort": PORT}]
    probes = [container[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")]
    assert {probe["path"] for probe in probes} == set(OPEN_PATHS)
    drain = float(variables("kubernetes.yaml")[f"{PREFIX}GATEWAY_DRAIN_SECONDS"])
    pause = int(container["lifecycle"]["preStop"]["exec"]["command"][-1])
    assert pod["terminationGracePeriodSeconds"] > drain + pause
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"] == labels


def test_the_container() -> None:
    """It copies what is there, installs extras that exist, serves at the port it exposes, and asks for its health."""
    lines = text("Containerfile").replace("\\\n", " ").splitlines()
    told = {line.split()[0]: line.split(maxsplit=1)[1] for line in lines if line[:1].isupper()}
    _, *arguments = yaml.safe_load(told["ENTRYPOINT"])
    assert arguments.pop(0) == "serve"
    taken(arguments)
    assert arguments == ["--port", told["EXPOSE"]] == ["--port", str(PORT)]
    assert f"127.0.0.1:{PORT}{OPEN_PATHS[0]}" in told["HEALTHCHECK"]
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (extras,) = re.findall(r"pip install [^']*'\.\[([\w,]+)\]'", "\n".join(lines))
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    for line in lines:
        if line.startswith("COPY") and "--from" not in line:
            assert all((DEPLOY.parent / each).exists() for each in line.split()[1:-1])


def test_options_are_looked_at() -> None:
    """An option that does not exist is seen by these tests."""
    assert CliRunner().invoke(app, ["serve", "--prot", "1"]).exit_code != 0
    with pytest.raises(Exception, match="prot"):
        taken(["--prot", "1"])
