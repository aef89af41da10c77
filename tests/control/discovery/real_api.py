"""A real kube-apiserver and its etcd on loopback, for tests; both must be on PATH.

No kubelet and no controller runs: a test writes the status of a pod and the EndpointSlices itself.
Before 1.21 there is no discovery.k8s.io/v1; a CustomResourceDefinition of that name and version
takes its place, with the same storage, watch cache and rights.
"""

import json
import shutil
import ssl
import subprocess
import time
import urllib.error
import urllib.request

import yaml

TOOLS = ("etcd", "kube-apiserver", "openssl")
ADMIN, READER, NOBODY = "admin-token", "reader-token", "nobody-token"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices"
PODS = "/api/v1/namespaces/{}/pods"
SLICES_DEFINED = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "endpointslices.discovery.k8s.io",
        "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
    },
    "spec": {
        "group": "discovery.k8s.io",
        "scope": "Namespaced",
        "names": {"plural": "endpointslices", "kind": "EndpointSlice"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}


def missing():
    """The programs that are not on PATH."""
    return [tool for tool in TOOLS if shutil.which(tool) is None]


class RealApi:
    """The two programs, and calls as an administrator."""

    def __init__(self, folder, ports):
        self.folder = folder
        self.etcd_port, self.peer_port, self.port = ports
        self.url = f"https://127.0.0.1:{self.port}"
        self.programs = {}
        key = folder / "accounts.key"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        (folder / "tokens.csv").write_text(
            f'{ADMIN},admin,1,"system:masters"\n{READER},reader,2\n{NOBODY},nobody,3\n'
        )

    def __enter__(self):
        etcd = f"http://127.0.0.1:{self.etcd_port}"
        peer = f"http://127.0.0.1:{self.peer_port}"
        self._start(
            *("etcd", "--data-dir", self.folder / "etcd", "--listen-client-urls", etcd),
            *("--advertise-client-urls", etcd, "--listen-peer-urls", peer),
            *("--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"),
        )
        self.start()
        if self.call("GET", "/apis/discovery.k8s.io/v1")[0] != 200:
            assert self.call("POST", CRDS, SLICES_DEFINED)[0] == 201
        until(lambda: self.call("GET", SLICES.format("default"))[0] == 200, 60)
        return self

    def __exit__(self, *_):
        for name in ("kube-apiserver", "etcd"):
            self.stop(name)

    def _start(self, *words):
        log = (self.folder / f"{words[0]}.log").open("ab")
        self.programs[words[0]] = subprocess.Popen(words, stdout=log, stderr=log)

    def start(self):
        """Start the API server and wait until it is ready."""
        key = self.folder / "accounts.key"
        self._start(
            *("kube-apiserver", "--etcd-servers", f"http://127.0.0.1:{self.etcd_port}"),
            *("--bind-address", "127.0.0.1", "--secure-port", str(self.port)),
            *("--advertise-address", "127.0.0.1", "--cert-dir", self.folder / "certs"),
            *("--service-cluster-ip-range", "10.96.0.0/24", "--authorization-mode", "RBAC"),
            *("--token-auth-file", self.folder / "tokens.csv"),
            *("--service-account-issuer", self.url, "--service-account-key-file", key),
            *("--service-account-signing-key-file", key),
            *("--disable-admission-plugins", "ServiceAccount"),
            *("--runtime-config", "discovery.k8s.io/v1beta1=false"),
        )
        until(lambda: self.call("GET", "/readyz")[0] == 200, 90)

    def stop(self, name="kube-apiserver", *, kill=False):
        program = self.programs[name]
        program.kill() if kill else program.terminate()
        try:
            program.wait(20)
        except subprocess.TimeoutExpired:
            program.kill()
            program.wait()

    def call(self, method, path, body=None, kind="application/json"):
        """(status, decoded body) of a request with all rights; (0, why) without a server."""
        head = {"authorization": f"Bearer {ADMIN}", "content-type": kind}
        data = None if body is None else json.dumps(body).encode()
        ask = urllib.request.Request(self.url + path, data, head, method=method)
        try:
            with urllib.request.urlopen(ask, timeout=10, context=unverified()) as answer:
                text, status = answer.read(), answer.status
        except urllib.error.HTTPError as error:
            text, status = error.read(), error.code
        except OSError as error:
            return 0, str(error)
        try:
            return status, json.loads(text)
        except ValueError:
            return status, text

    def make(self, path, entry):
        """Create an object; returns it as stored."""
        status, stored = self.call("POST", path, entry)
        assert status == 201, stored
        return stored

    def patch(self, path, body):
        """Merge into an object; returns it as stored."""
        status, stored = self.call("PATCH", path, body, "application/merge-patch+json")
        assert status == 200, stored
        return stored

    def remove(self, path):
        """Delete an object at once."""
        status, answer = self.call("DELETE", path + "?gracePeriodSeconds=0")
        assert status in (200, 202), answer

    def compact(self):
        """Throw away etcd's history: watches from an older version get a 410."""
        ask = f"http://127.0.0.1:{self.etcd_port}/v3/kv/"

        def etcd(what, body):
            data = json.dumps(body).encode()
            with urllib.request.urlopen(ask + what, data, timeout=10) as answer:
                return json.loads(answer.read())

        revision = etcd("put", {"key": "YQ==", "value": "YQ=="})["header"]["revision"]
        etcd("compaction", {"revision": revision, "physical": True})

    def kubeconfig(self, token):
        """A kubeconfig for `token`; the server's certificate is checked."""
        access = {"server": self.url, "certificate-authority": f"{self.folder}/certs/apiserver.crt"}
        path = self.folder / f"{token}.kubeconfig"
        path.write_text(
            yaml.safe_dump(
                {
                    "current-context": "it",
                    "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
                    "clusters": [{"name": "it", "cluster": access}],
                    "users": [{"name": "it", "user": {"token": token}}],
                }
            )
        )
        return str(path)


CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def unverified():
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def until(condition, timeout_s=30.0):
    """Wait for a condition; returns what it gave."""
    deadline = time.monotonic() + timeout_s
    while not (result := condition()):
        assert time.monotonic() < deadline, condition
        time.sleep(0.1)
    return result
