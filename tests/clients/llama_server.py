"""`llama-server` of llama.cpp with a model of random weights: two requests, the text that it answers, and its end. Tokens are chosen without
chance (temperature 0), so the text tells what came back from the device.

    llama_server.py [OPTION...]
"""

import hashlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

import gguf
import steps


class Connection(http.client.HTTPConnection):
    """To a socket that is a file: no port can be taken by somebody else."""

    def __init__(self, path):
        super().__init__("localhost")
        self._path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self._path)


def ask(path, method, resource, body=None):
    """The status and the parsed answer, or None as long as nobody listens."""
    connection = Connection(path)
    try:
        connection.request(method, resource, body and json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    except (ConnectionError, FileNotFoundError):
        return None, None
    finally:
        connection.close()


def wait_until_healthy(server, path):
    while server.poll() is None:
        status, _ = ask(path, "GET", "/health")
        if status == 200:
            return
        time.sleep(0.1)
    raise RuntimeError(f"llama-server ended with {server.returncode} before it was healthy")


def complete(path, prompt):
    body = {"prompt": prompt, "n_predict": 24, "temperature": 0, "seed": 1, "cache_prompt": False, "n_probs": 4, "ignore_eos": True}
    status, answer = ask(path, "POST", "/completion", body)
    if status != 200:
        raise RuntimeError(f"llama-server answered {status}: {answer}")
    said = json.dumps([answer["content"], answer.get("completion_probabilities")])
    digest = hashlib.sha256(said.encode()).hexdigest()[:16]
    print("prompt", answer["tokens_evaluated"], "tokens, answer", answer["tokens_predicted"], "tokens", repr(answer["content"]))
    print("text and probabilities", digest, flush=True)


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "llama.sock")
        command = ["llama-server", "-m", gguf.model(), "--host", path, "-c", "256", "-np", "1", "-t", "1", "--no-webui", *sys.argv[1:]]
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr)
        try:
            wait_until_healthy(server, path)
            steps.done("loaded")
            for name, prompt in [("first", "Once upon a time"), ("second", "The device is " + "very " * 12 + "busy")]:
                complete(path, prompt)
                steps.done(name)
        finally:
            server.send_signal(signal.SIGTERM)
        print("llama-server ended with", server.wait())


main()
