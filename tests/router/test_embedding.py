"""The examples of docs/embedding.md run as they stand there."""

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from aiohttp import web

DOCUMENT = Path(__file__).parents[2] / "docs" / "embedding.md"
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


def example(name):
    found = [b for b in BLOCK.findall(DOCUMENT.read_text()) if b.startswith(f"# file: {name}\n")]
    assert len(found) == 1
    return found[0]


def test_the_first_lines_work():
    first = BLOCK.findall(DOCUMENT.read_text())[0]
    subprocess.run([sys.executable, "-c", first], check=True, timeout=20)


def test_the_batch_scheduler_runs_without_a_network():
    program = "import sys\n" + example("batch.py") + "assert 'asyncio' not in sys.modules\n"
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, timeout=20, capture_output=True, text=True
    )
    assert " in " in done.stdout


async def _serve_and_run(path):
    counts = []

    async def answer(request):
        await request.read()
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for word in ("Hello", " there"):
            event = {"choices": [{"index": 0, "delta": {"content": word}}]}
            await response.write(f"data: {json.dumps(event)}\n\n".encode())
        await response.write(b"data: [DONE]\n\n")
        counts.append(request.url.port)
        return response

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    sites = [web.TCPSite(runner, "127.0.0.1", 0) for _ in range(2)]
    for site in sites:
        await site.start()
    urls = [f"http://127.0.0.1:{s._server.sockets[0].getsockname()[1]}" for s in sites]
    dead = "http://127.0.0.1:9"
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(path), *urls, dead, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await asyncio.wait_for(process.communicate(), 30)
    await runner.cleanup()
    return process.returncode, out.decode(), counts


@pytest.mark.e2e
def test_the_asyncio_client_streams_from_all_and_gets_around_a_dead_one(tmp_path):
    path = tmp_path / "client.py"
    path.write_text(example("client.py"))
    code, out, counts = asyncio.run(_serve_and_run(path))
    assert (code, out) == (0, "8 answers, 88 characters\n")
    assert len(counts) == 8 and len(set(counts)) == 2
