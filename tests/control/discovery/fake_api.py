"""A Kubernetes API server in small: paged lists, watches, and scripted misbehaviour."""

import asyncio
import json

from aiohttp import web

SLICES = "/apis/discovery.k8s.io/v1/namespaces/{ns}/endpointslices"
PODS = "/api/v1/namespaces/{ns}/pods"
SCALE = "/apis/apps/v1/namespaces/{ns}/{kind}/{name}/scale"


class FakeApi:
    """Objects by resource; `put` and `delete` send watch events unless `silent`."""

    def __init__(self):
        self.objects = {"endpointslices": {}, "pods": {}}
        self.version = 100
        self.watchers = {"endpointslices": [], "pods": []}
        self.lists = self.watches = self.refused = 0
        self.refuse = None  # (status, body) for every request
        self.list_delay_s = 0.0
        self.page = None  # objects a page, whatever the client asks
        self.scales = {}  # "statefulsets/NAME" -> replicas
        self.patches = []  # (what, body)

    async def start(self):
        app = web.Application()
        app.router.add_get(SLICES, lambda r: self._serve(r, "endpointslices"))
        app.router.add_get(PODS, lambda r: self._serve(r, "pods"))
        app.router.add_get(SCALE, self._scale)
        app.router.add_patch(SCALE, self._scale)
        app.router.add_patch(PODS + "/{name}", self._patch_pod)
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
            self._tell(resource, {"type": kind, "object": entry})

    def delete(self, resource, name, *, silent=False):
        self.version += 1
        entry = self.objects[resource].pop(name)
        if not silent:
            self._tell(resource, {"type": "DELETED", "object": entry})

    def error(self, code, message="too old resource version"):
        """End all watches with an ERROR event."""
        status = {"kind": "Status", "code": code, "reason": "Expired", "message": message}
        for resource in self.watchers:
            self._tell(resource, {"type": "ERROR", "object": status})

    def bookmark(self):
        for resource in self.watchers:
            mark = {"metadata": {"resourceVersion": str(self.version)}}
            self._tell(resource, {"type": "BOOKMARK", "object": mark})

    def drop(self):
        """Cut all watches in the middle."""
        for queues in self.watchers.values():
            for queue in queues:
                queue.put_nowait(None)

    def _tell(self, resource, event):
        for queue in self.watchers[resource]:
            queue.put_nowait(event)

    async def _serve(self, request, resource):
        if self.refuse is not None:
            self.refused += 1
            status, body = self.refuse
            return web.json_response(body, status=status)
        if request.query.get("watch"):
            return await self._watch(request, resource)
        return await self._list(request, resource)

    async def _scale(self, request):
        what = f"{request.match_info['kind']}/{request.match_info['name']}"
        if self.refuse is not None or what not in self.scales:
            status, body = self.refuse or (404, {"message": f"{what} not found"})
            return web.json_response(body, status=status)
        if request.method == "PATCH":
            assert request.content_type == "application/merge-patch+json"
            body = await request.json()
            self.scales[what] = body["spec"]["replicas"]
            self.patches.append((what, body))
        spec = {"replicas": self.scales[what]}
        return web.json_response({"kind": "Scale", "metadata": {}, "spec": spec})

    async def _patch_pod(self, request):
        name = request.match_info["name"]
        assert request.content_type == "application/merge-patch+json"
        body = await request.json()
        self.patches.append((f"pods/{name}", body))
        if name not in self.objects["pods"]:
            return web.json_response({"message": "not found"}, status=404)
        annotations = self.objects["pods"][name]["metadata"]["annotations"]
        for key, value in body["metadata"]["annotations"].items():
            annotations.pop(key, None) if value is None else annotations.update({key: value})
        return web.json_response(self.objects["pods"][name])

    async def _list(self, request, resource):
        self.lists += 1
        await asyncio.sleep(self.list_delay_s)
        start = int(request.query.get("continue", 0))
        size = self.page or int(request.query.get("limit", 500))
        items = list(self.objects[resource].values())
        meta = {"resourceVersion": str(self.version)}
        if start + size < len(items):
            meta["continue"] = str(start + size)
        return web.json_response({"metadata": meta, "items": items[start : start + size]})

    async def _watch(self, request, resource):
        self.watches += 1
        queue = asyncio.Queue()
        self.watchers[resource].append(queue)
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while (event := await queue.get()) is not None:
                await response.write(json.dumps(event).encode() + b"\n")
            request.transport.abort()
        except ConnectionError:
            pass
        finally:
            self.watchers[resource].remove(queue)
        return response


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
