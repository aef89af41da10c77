"""A Kubernetes API server in small: lists, watches, scales, Leases, and scripted misbehaviour.

Writes obey resource versions as the real one does: a version that is not the present one is a
conflict, and a Lease is neither created with one nor replaced without.
"""

import asyncio
import json
import re
from functools import partial

from aiohttp import web

SLICES = "/apis/discovery.k8s.io/v1/namespaces/{ns}/endpointslices"
PODS = "/api/v1/namespaces/{ns}/pods"
SCALE = "/apis/apps/v1/namespaces/{ns}/{kind}/{name}/scale"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases"
MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
SELECTOR = "app=vllm"  # of every workload


class FakeApi:
    """Objects by resource; `put` and `delete` send watch events unless `silent`."""

    def __init__(self):
        self.objects = {"endpointslices": {}, "pods": {}}
        self.version = 100
        self.compacted = 0  # versions before this one are gone
        self.history = {"endpointslices": [], "pods": []}  # (version, event)
        self.watchers = {"endpointslices": [], "pods": []}
        self.lists = self.watches = self.refused = 0
        self.refuse = None  # (status, body) for every request, or those for `refuse_only`
        self.refuse_only = None  # "leases", "scale" or "pods"
        self.list_delay_s = self.lease_delay_s = 0.0
        self.page = None  # objects a page, whatever the client asks
        self.scales = {}  # "statefulsets/NAME" -> replicas
        self.scale_versions = {}
        self.leases = {}
        self.lease_calls = []  # verbs
        self.patches = []  # (what, body)
        self.is_mute = False  # watches hear nothing of new annotations

    async def start(self):
        app = web.Application()
        app.router.add_get(SLICES, partial(self._serve, resource="endpointslices"))
        app.router.add_get(PODS, partial(self._serve, resource="pods"))
        app.router.add_get(SCALE, self._scale)
        app.router.add_patch(SCALE, self._scale)
        app.router.add_patch(PODS + "/{name}", self._patch_pod)
        app.router.add_post(LEASES, self._create_lease)
        app.router.add_get(LEASES + "/{name}", self._get_lease)
        app.router.add_put(LEASES + "/{name}", self._update_lease)
        self.runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"

    async def stop(self):
        await self.runner.cleanup()

    def put(self, resource, entry, *, silent=False):
        self.version += 1
        entry["metadata"]["resourceVersion"] = str(self.version)
        name = entry["metadata"]["name"]
        kind = "MODIFIED" if name in self.objects[resource] else "ADDED"
        self.objects[resource][name] = entry
        if not silent:
            self._record(resource, {"type": kind, "object": entry})

    def delete(self, resource, name, *, silent=False):
        self.version += 1
        entry = self.objects[resource].pop(name)
        if not silent:
            self._record(resource, {"type": "DELETED", "object": entry})

    def compact(self):
        """Forget the past: watches and pages from before get a 410."""
        self.compacted = self.version
        for past in self.history.values():
            past.clear()

    def _record(self, resource, event):
        self.history[resource].append((self.version, event))
        self.tell(resource, event)

    def set_scale(self, what, replicas):
        """Change a scale as somebody else would."""
        self.version += 1
        self.scales[what], self.scale_versions[what] = replicas, str(self.version)

    def annotations(self, name):
        """Of a pod."""
        return self.objects["pods"][name]["metadata"]["annotations"]

    def annotate(self, name, **annotations):
        """Set (None: remove) annotations headrace.io/NAME of a pod, as somebody else would."""
        said = {f"headrace.io/{key}": value for key, value in annotations.items()}
        self._merge_annotations(name, said)

    def error(self, code, message="too old resource version"):
        """End all watches with an ERROR event."""
        status = {"kind": "Status", "code": code, "reason": "Expired", "message": message}
        for resource in self.watchers:
            self.tell(resource, {"type": "ERROR", "object": status})

    def bookmark(self):
        for resource in self.watchers:
            mark = {"metadata": {"resourceVersion": str(self.version)}}
            self.tell(resource, {"type": "BOOKMARK", "object": mark})

    def drop(self):
        """Cut all watches in the middle."""
        for queues in self.watchers.values():
            for queue in queues:
                queue.put_nowait(None)

    def tell(self, resource, event):
        """Send an event to all who watch."""
        for queue in self.watchers[resource]:
            queue.put_nowait(event)

    def _refusal(self, what):
        if self.refuse is None or self.refuse_only not in (None, what):
            return None
        self.refused += 1
        status, body = self.refuse
        return web.json_response(body, status=status)

    async def _serve(self, request, resource):
        if (refusal := self._refusal(resource)) is not None:
            return refusal
        if request.query.get("watch"):
            return await self._watch(request, resource)
        return await self._list(request, resource)

    async def _scale(self, request):
        what = f"{request.match_info['kind']}/{request.match_info['name']}"
        if (refusal := self._refusal("scale")) is not None:
            return refusal
        if what not in self.scales:
            return failure(404, f"{what} not found")
        version = self.scale_versions.setdefault(what, "1")
        if request.method == "PATCH":
            assert request.content_type == "application/merge-patch+json"
            body = await request.json()
            if body.get("metadata", {}).get("resourceVersion", version) != version:
                return failure(409, "the object has been modified")
            self.set_scale(what, body["spec"]["replicas"])
            self.patches.append((what, body["spec"]))
        return web.json_response(
            {
                "kind": "Scale",
                "metadata": {"resourceVersion": self.scale_versions[what]},
                "spec": {"replicas": self.scales[what]},
                "status": {"selector": SELECTOR},
            }
        )

    async def _get_lease(self, request):
        self.lease_calls.append("get")
        await asyncio.sleep(self.lease_delay_s)
        if (refusal := self._refusal("leases")) is not None:
            return refusal
        lease = self.leases.get(request.match_info["name"])
        return failure(404, "not found") if lease is None else web.json_response(lease)

    async def _create_lease(self, request):
        self.lease_calls.append("create")
        if (refusal := self._refusal("leases")) is not None:
            return refusal
        lease = await request.json()
        if lease["metadata"].get("resourceVersion"):
            return failure(422, "resourceVersion should not be set on objects to be created")
        if lease["metadata"]["name"] in self.leases:
            return failure(409, "already exists")
        return self._store_lease(lease)

    async def _update_lease(self, request):
        self.lease_calls.append("update")
        if (refusal := self._refusal("leases")) is not None:
            return refusal
        lease = await request.json()
        known = self.leases.get(request.match_info["name"])
        if known is None:
            return failure(404, "not found")
        version = lease["metadata"].get("resourceVersion")
        if not version:
            return failure(422, "metadata.resourceVersion: must be specified for an update")
        if version != known["metadata"]["resourceVersion"]:
            return failure(409, "the object has been modified")
        return self._store_lease(lease)

    def _store_lease(self, lease):
        spec = lease["spec"]
        times = [spec[name] for name in ("acquireTime", "renewTime") if name in spec]
        if (
            not all(MICRO_TIME.fullmatch(time) for time in times)
            or spec["leaseDurationSeconds"] < 1
        ):
            return failure(422, f"spec: {spec}")
        self.version += 1
        lease["metadata"]["resourceVersion"] = str(self.version)
        self.leases[lease["metadata"]["name"]] = lease
        return web.json_response(lease)

    async def _patch_pod(self, request):
        if (refusal := self._refusal("pods")) is not None:
            return refusal
        name = request.match_info["name"]
        assert request.content_type == "application/merge-patch+json"
        body = await request.json()
        self.patches.append((f"pods/{name}", body))
        if name not in self.objects["pods"]:
            return web.json_response({"message": "not found"}, status=404)
        self._merge_annotations(name, body["metadata"]["annotations"])
        return web.json_response(self.objects["pods"][name])

    def _merge_annotations(self, name, new):
        entry = json.loads(json.dumps(self.objects["pods"][name]))
        merged = {**entry["metadata"]["annotations"], **new}
        kept = {key: value for key, value in merged.items() if value is not None}
        entry["metadata"]["annotations"] = kept
        self.put("pods", entry, silent=self.is_mute)

    async def _list(self, request, resource):
        self.lists += 1
        await asyncio.sleep(self.list_delay_s)
        token = request.query.get("continue", f"{self.version}:0")
        version, start = map(int, token.split(":"))
        if version < self.compacted:
            return failure(410, "the provided continue parameter is too old")
        size = self.page or int(request.query.get("limit", 500))
        wanted = request.query.get("labelSelector", "")
        items = [
            entry
            for entry in self.objects[resource].values()
            if not wanted
            or dict(pair.split("=") for pair in wanted.split(",")).items()
            <= entry["metadata"]["labels"].items()
        ]
        meta = {"resourceVersion": str(version)}
        if start + size < len(items):
            meta["continue"] = f"{version}:{start + size}"
        return web.json_response({"metadata": meta, "items": items[start : start + size]})

    async def _watch(self, request, resource):
        self.watches += 1
        since = int(request.query.get("resourceVersion", 0))
        if since < self.compacted:
            return failure(410, f"too old resource version: {since}")
        queue = asyncio.Queue()
        for version, event in self.history[resource]:
            if version > since:
                queue.put_nowait(event)
        self.watchers[resource].append(queue)
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while (event := await queue.get()) is not None:
                await response.write(json.dumps(event).encode() + b"\n")
            if request.transport is not None:
                request.transport.abort()
        except ConnectionError:
            pass
        finally:
            self.watchers[resource].remove(queue)
        return response


def failure(code, message):
    return web.json_response({"kind": "Status", "code": code, "message": message}, status=code)


def endpoint_slice(name, endpoints, *, labels=None, port=8000):
    """An EndpointSlice; endpoints are (address, pod name or None, conditions)."""
    return {
        "metadata": {"name": name, "namespace": "ns", "labels": labels or {}},
        "ports": [{"name": "http", "port": port}],
        "endpoints": [
            {
                "addresses": [address],
                "conditions": conditions,
                **({"targetRef": {"kind": "Pod", "name": pod}} if pod else {}),
            }
            for address, pod, conditions in endpoints
        ],
    }


def pod(name, address, *, labels=None, annotations=None, ready=True, node="node-1", **meta):
    """A pod; ready None: without the condition."""
    conditions = [] if ready is None else [{"type": "Ready", "status": str(ready)}]
    return {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "labels": labels or {},
            "annotations": annotations or {},
            "creationTimestamp": "2026-01-01T00:00:00Z",
            **meta,
        },
        "spec": {"nodeName": node, "containers": [{"ports": [{"containerPort": 8000}]}]},
        "status": {"podIP": address, "conditions": conditions},
    }
