"""Requests from threads while something happens to the gateway."""

import http.client
import json
import threading


class Load:
    """Threads that send requests until told to stop, and keep every failure."""

    def __init__(self, port, threads, keep_alive):
        self.port, self.keep_alive = port, keep_alive
        self.done = 0
        self.failures = []
        self.stopping = threading.Event()
        self.threads = [threading.Thread(target=self._run) for _ in range(threads)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.finish()

    def finish(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join(60)

    def _run(self):
        body = json.dumps({"model": "tiny", "prompt": "hello", "max_tokens": 2}).encode()
        connection = None
        while not self.stopping.is_set():
            try:
                if connection is None:
                    connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
                    connection.auto_open = False
                    connection.connect()
                connection.request(
                    "POST", "/v1/completions", body, {"content-type": "application/json"}
                )
                answer = connection.getresponse()
                text = answer.read()
                if answer.status != 200:
                    self.failures.append((answer.status, text))
                self.done += 1
                if not self.keep_alive or answer.will_close:
                    connection.close()
                    connection = None
            except OSError as error:
                self.failures.append(repr(error))
                connection = None
