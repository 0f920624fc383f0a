"""The examples in deploy/ name commands, options, settings, paths and ports that exist."""

from __future__ import annotations

import importlib
import json
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from elision.cli.app import app
from elision.config.setting_keys import ALL_KEYS, GATEWAY_KEYS, PREFIX
from elision.gateway import request_metrics
from elision.gateway.dashboard.pages import OPEN_PATHS
from elision.gateway.settings import gateway_settings
from elision.telemetry.metric_table import LABELS, METRICS

DEPLOY = Path(__file__).parents[2] / "deploy"
PORT = GATEWAY_KEYS["gateway_port"].default
#: Files that set something of the gateway.
FILES = ("Containerfile", "compose.yaml", "elision.service", "kubernetes/base/gateway.yaml")
#: What the container has: the gateway and what it may be watched, stored and read by.
EXTRAS = ("gateway", "prometheus", "postgres", "mcp")


def text(name: str) -> str:
    return (DEPLOY / name).read_text(encoding="utf-8")


def taken(arguments: list[str]) -> None:
    """`elision serve` understands these options."""
    group: Any = app
    group.commands["serve"].make_context("serve", list(arguments))


def variables(name: str) -> dict[str, str]:
    """Every setting that a file gives a value in plain sight."""
    if name == "compose.yaml":
        return {key: "" if "$" in value else value for key, value in compose()["gateway"]["environment"].items()}
    if name.endswith(".yaml"):
        return {each["name"]: each.get("value", "") for each in _container()["env"]}
    return dict(re.findall(rf"({PREFIX}\w+)=(\S+)", re.sub(r"^#.*$", "", text(name), flags=re.MULTILINE)))


def compose() -> dict[str, Any]:
    """The services of the compose file."""
    services: dict[str, Any] = yaml.safe_load(text("compose.yaml"))["services"]
    return services


def _container() -> dict[str, Any]:
    deployment, _ = yaml.safe_load_all(text("kubernetes/base/gateway.yaml"))
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    found: dict[str, Any] = container
    return found


@pytest.mark.parametrize("name", FILES)
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
    deployment, service = yaml.safe_load_all(text("kubernetes/base/gateway.yaml"))
    pod, container = deployment["spec"]["template"]["spec"], _container()
    taken(container["args"])
    assert container["ports"] == [{"name": "http", "containerPort": PORT}]
    probes = [container[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")]
    assert {probe["path"] for probe in probes} == set(OPEN_PATHS)
    drain = float(variables("kubernetes/base/gateway.yaml")[f"{PREFIX}GATEWAY_DRAIN_SECONDS"])
    pause = int(container["lifecycle"]["preStop"]["exec"]["command"][-1])
    assert pod["terminationGracePeriodSeconds"] > drain + pause
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"] == labels


def render_kustomization(folder: Path) -> Iterator[dict[str, Any]]:
    """What `kubectl kustomize` makes of a folder, as far as ours use it: resources, images, ConfigMaps of files."""
    found = yaml.safe_load((folder / "kustomization.yaml").read_text(encoding="utf-8"))
    assert set(found) <= {"apiVersion", "kind", "resources", "images", "configMapGenerator"}
    tags = {each["name"]: f"{each['name']}:{each['newTag']}" for each in found.get("images", ())}
    for name in found.get("resources", ()):
        place = (folder / name).resolve()
        made = render_kustomization(place) if place.is_dir() else yaml.safe_load_all(place.read_text(encoding="utf-8"))
        for each in made:
            for container in list_containers(each):
                container["image"] = tags.get(container["image"], container["image"])
            yield each
    for each in found.get("configMapGenerator", ()):
        metadata = {"name": each["name"], "labels": each["options"]["labels"]}
        data = {name: (folder / name).read_text(encoding="utf-8") for name in each["files"]}
        yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def list_containers(resource: dict[str, Any]) -> list[dict[str, Any]]:
    """The containers of a Deployment's or a CronJob's pods."""
    spec = resource.get("spec", {})
    spec = spec.get("jobTemplate", {}).get("spec", spec)
    containers: list[dict[str, Any]] = spec.get("template", {}).get("spec", {}).get("containers", [])
    return containers


@pytest.fixture
def cluster() -> dict[str, dict[str, Any]]:
    """Every resource of the fleet, by its kind."""
    return {each["kind"]: each for each in render_kustomization(DEPLOY / "kubernetes" / "monitoring")}


def test_the_cluster_has_what_a_fleet_needs(cluster: dict[str, dict[str, Any]]) -> None:
    """Each resource is about the pods of the one Deployment, and names what there is."""
    assert set(cluster) == {
        *("Deployment", "Service", "HorizontalPodAutoscaler", "PodDisruptionBudget", "NetworkPolicy", "CronJob"),
        *("ServiceMonitor", "ConfigMap"),
    }
    pods = cluster["Deployment"]["spec"]["selector"]
    assert cluster["PodDisruptionBudget"]["spec"]["selector"] == pods
    assert cluster["NetworkPolicy"]["spec"]["podSelector"] == pods
    assert cluster["ServiceMonitor"]["spec"]["selector"]["matchLabels"] == cluster["Service"]["metadata"]["labels"]
    assert cluster["ServiceMonitor"]["spec"]["endpoints"][0]["port"] == cluster["Service"]["spec"]["ports"][0]["name"]
    spread = cluster["Deployment"]["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert [each["labelSelector"] for each in spread] == [pods, pods]
    scaled = cluster["HorizontalPodAutoscaler"]["spec"]
    assert scaled["scaleTargetRef"]["name"] == cluster["Deployment"]["metadata"]["name"]
    assert scaled["metrics"][0]["pods"]["metric"]["name"] in SERIES
    assert int(scaled["metrics"][0]["pods"]["target"]["averageValue"]) < GATEWAY_KEYS["gateway_max_concurrent"].default
    # No gateway fewer while one is replaced.
    assert cluster["Deployment"]["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    images = {each["image"] for name in ("Deployment", "CronJob") for each in list_containers(cluster[name])}
    assert images == {"elision:latest"}
    json.loads(cluster["ConfigMap"]["data"]["dashboard.json"])


def test_the_retention_is_a_command(cluster: dict[str, dict[str, Any]]) -> None:
    """The CronJob's command is one that `elision` takes."""
    (container,) = list_containers(cluster["CronJob"])
    program, *arguments = container["command"]
    assert program == "elision"
    group: Any = app
    sessions = group.commands[arguments[0]]
    context = sessions.commands[arguments[1]].make_context(arguments[1], arguments[2:])
    assert context.params["ttl"] == ["*/ci-*=7d"]
    assert context.params["older_than"] == "90d"


def test_the_cluster_fits_kubernetes_schema(cluster: dict[str, dict[str, Any]]) -> None:
    """Strictly: an unknown field is an error. The ServiceMonitor, a custom resource, has no schema there."""
    validator = pytest.importorskip(
        "kubernetes_validate", reason="kubernetes-validate is not installed: Kubernetes's schema is NOT asked"
    )
    version = validator.latest_version()
    for kind, resource in cluster.items():
        if kind != "ServiceMonitor":
            assert validator.validate(resource, version, strict=True) is not None
    cluster["Deployment"]["spec"]["replica"] = 2
    with pytest.raises(validator.ValidationError, match="replica"):
        validator.validate(cluster["Deployment"], version, strict=True)


def test_the_container() -> None:
    """It copies what is there, installs extras that exist, serves at the port it exposes, and asks for its health."""
    lines = text("Containerfile").replace("\\\n", " ").splitlines()
    told = {line.split()[0]: line.split(maxsplit=1)[1] for line in lines if line[:1].isupper()}
    _, *arguments = yaml.safe_load(told["ENTRYPOINT"])
    assert arguments.pop(0) == "serve"
    taken(arguments)
    assert arguments == ["--port", told["EXPOSE"]] == ["--port", str(PORT)]
    assert f"127.0.0.1:{PORT}{OPEN_PATHS[0]}" in told["HEALTHCHECK"]
    for line in lines:
        if line.startswith("COPY") and "--from" not in line:
            places = [each for each in line.split()[1:-1] if each != "deploy/wheels*"]
            assert all((DEPLOY.parent / each).exists() for each in places)
    # Everything from the locks, by its hash; the package itself from its sources.
    installs = [line for line in "\n".join(lines).split("&&") if "pip install" in line]
    assert len(installs) == 3
    assert all("--require-hashes -r /wheels/" in line or "--no-deps --no-index" in line for line in installs)


def read_lock(name: str) -> dict[str, str]:
    """Package -> version, of a lock whose every entry has a hash and whose text names no place to fetch from."""
    content = text(name)
    assert "://" not in content
    found = {}
    for entry in re.split(r"\n(?=\S)", content):
        if entry.startswith("#"):
            continue
        package = re.match(r"([\w.-]+)==([\w.+!]+)", entry)
        assert package is not None, entry[:60]
        assert "--hash=sha256:" in entry, package[0]
        found[canonicalize_name(package[1])] = package[2]
    return found


def test_the_locks_hold_what_is_needed() -> None:
    """Each package that the extras and the build ask for is locked, at a version that they take."""
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    waiting = [*project["project"]["dependencies"], *(each for extra in EXTRAS for each in extras[extra])]
    locked = read_lock("requirements.lock")
    while waiting:
        needed = Requirement(waiting.pop())
        if needed.name == "elision":
            waiting += [each for extra in needed.extras for each in extras[extra]]
            continue
        assert needed.specifier.contains(locked[canonicalize_name(needed.name)]), f"{needed}: make lock"
    built = read_lock("build.lock")
    for each in map(Requirement, project["build-system"]["requires"]):
        assert each.specifier.contains(built[canonicalize_name(each.name)]), f"{each}: make lock"


def test_compose() -> None:
    """The gateway is the container's, keeps sessions in the PostgreSQL beside it, and only this machine reaches any."""
    document = yaml.safe_load(text("compose.yaml"))
    services = document["services"]
    gateway = services["gateway"]
    taken(gateway["command"])
    assert (DEPLOY / gateway["build"]["context"] / gateway["build"]["dockerfile"]).exists()
    assert gateway["environment"][f"{PREFIX}STORE"].endswith("@postgres/elision")
    assert set(gateway["depends_on"]) <= set(services)
    assert int(gateway["stop_grace_period"].removesuffix("s")) > GATEWAY_KEYS["gateway_drain_seconds"].default
    assert gateway["ports"] == [f"127.0.0.1:{PORT}:{PORT}"]
    for service in services.values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert source in document["volumes"] or (DEPLOY / source).is_file(), volume
        assert set(service.get("secrets", ())) <= set(document["secrets"])


def test_prometheus_finds_the_gateway() -> None:
    """At its name and port in the compose file, at its path, with the token that opens it."""
    (job,) = yaml.safe_load(text("prometheus.yaml"))["scrape_configs"]
    assert job["static_configs"] == [{"targets": [f"gateway:{PORT}"]}]
    assert job["metrics_path"] == "/metrics"
    (secret,) = compose()["prometheus"]["secrets"]
    assert job["authorization"]["credentials_file"] == f"/run/secrets/{secret}"
    (source,) = yaml.safe_load(text("grafana/provisioning.yaml"))["datasources"]
    assert source["url"] == "http://prometheus:9090"


#: Metric, as Prometheus names its series -> its labels.
SERIES = {
    f"{metric.name}{suffix}": {*metric.labels, *(["le"] if suffix else [])}
    for metric in (*METRICS, *request_metrics.METRICS, *request_metrics.GAUGES)
    for suffix in (["_bucket", "_sum", "_count"] if metric.kind == "histogram" else [""])
}


def test_the_dashboard_asks_for_what_there_is() -> None:
    """Every query names metrics of the gateway, and labels that these have."""
    panels = json.loads(text("grafana/dashboard.json"))["panels"]
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    assert len(queries) > 10
    for query in queries:
        names = re.findall(r"agent_context_\w+", query)
        assert names, query
        assert set(names) <= set(SERIES), query
        labels = {label for found in re.findall(r"by \(([^)]+)\)", query) for label in found.split(", ")}
        labels |= set(re.findall(r"(\w+)=\"", query))
        assert labels <= set.union(*(SERIES[name] for name in names)), query
        for name, bill in re.findall(r"(\w+)\{bill=\"(\w+)\"\}", query):
            assert bill in LABELS["bill"], name


def test_the_dashboard_is_one_that_grafana_takes() -> None:
    """Panels have names of their own, lie beside each other on a grid of 24 columns, and ask the chosen source."""
    dashboard = json.loads(text("grafana/dashboard.json"))
    assert {"title", "uid", "schemaVersion", "panels", "templating", "time"} <= set(dashboard)
    assert len(dashboard["uid"]) <= 40
    (variable,) = dashboard["templating"]["list"]
    assert (variable["name"], variable["type"], variable["query"]) == ("datasource", "datasource", "prometheus")
    taken_cells: set[tuple[int, int]] = set()
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels}) == len(panels)
    for panel in panels:
        assert panel["type"] in ("stat", "timeseries")
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert [target["refId"] for target in panel["targets"]] == list("ABCDEF"[: len(panel["targets"])])
        grid = panel["gridPos"]
        assert grid["x"] + grid["w"] <= 24
        cells = {
            (x, y) for x in range(grid["x"], grid["x"] + grid["w"]) for y in range(grid["y"], grid["y"] + grid["h"])
        }
        assert not cells & taken_cells, panel["title"]
        taken_cells |= cells


def test_the_dashboard_fits_grafanas_schema() -> None:
    """The classes that Grafana makes from its schema read every field of the dashboard, of its panels and queries.

    What they do not know they drop; written again, the dashboard has all that it had, beside defaults.
    """
    sdk = "grafana_foundation_sdk"
    pytest.importorskip(sdk, reason="grafana-foundation-sdk is not installed: Grafana's schema is NOT asked")
    importlib.import_module(f"{sdk}.cog.plugins").register_default_plugins()
    ours = json.loads(text("grafana/dashboard.json"))
    read = importlib.import_module(f"{sdk}.models.dashboard").Dashboard.from_json(ours)
    written = json.loads(importlib.import_module(f"{sdk}.cog.encoder").JSONEncoder().encode(read))
    assert list_lost(ours, written) == []
    ours["panels"][0]["titel"] = "?"
    ours["panels"][1]["options"]["legnd"] = {}
    read = importlib.import_module(f"{sdk}.models.dashboard").Dashboard.from_json(ours)
    written = json.loads(importlib.import_module(f"{sdk}.cog.encoder").JSONEncoder().encode(read))
    assert list_lost(ours, written) == ["/panels/0/titel", "/panels/1/options/legnd"]


def list_lost(before: Any, after: Any, path: str = "") -> list[str]:
    """The paths of values in `before` that `after` has not, or has otherwise."""
    if isinstance(before, dict) and isinstance(after, dict):
        found = []
        for name, value in before.items():
            found += list_lost(value, after[name], f"{path}/{name}") if name in after else [f"{path}/{name}"]
        return found
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = enumerate(zip(before, after, strict=True))
        return [each for place, (one, two) in pairs for each in list_lost(one, two, f"{path}/{place}")]
    return [] if before == after else [path]


def test_options_are_looked_at() -> None:
    """An option that does not exist is seen by these tests."""
    assert CliRunner().invoke(app, ["serve", "--prot", "1"]).exit_code != 0
    with pytest.raises(Exception, match="prot"):
        taken(["--prot", "1"])


def test_the_job_of_a_study() -> None:
    """It fits Kubernetes's schema, and its pods are as many as the parts that they are told of."""
    validator = pytest.importorskip(
        "kubernetes_validate", reason="kubernetes-validate is not installed: Kubernetes's schema is NOT asked"
    )
    job = yaml.safe_load(text("study-job.yaml"))
    assert validator.validate(job, validator.latest_version(), strict=True) is not None
    (container,) = job["spec"]["template"]["spec"]["containers"]
    # Kubernetes sets JOB_COMPLETION_INDEX in each pod of an indexed job.
    assert container["command"][-1] == f"$(JOB_COMPLETION_INDEX)/{job['spec']['completions']}"
    assert job["spec"]["completionMode"] == "Indexed"
