#!/usr/bin/env python3
"""A stand-in for TensorFlow Serving, at its path and with its flags: no model, no GPU, no gRPC.

Serves TensorFlow Serving's own example, half of x plus two, under any name, and its metrics. Ends
with a sentence unless its fraction is above 0 and at most the share that the device plugin gave:
what the real server would not notice is what the cases are about.
"""

import argparse
import json
import os
import signal
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

METRICS = "/monitoring/prometheus/metrics"


class ModelServer(ThreadingHTTPServer):
    """Serves one model.

    Args:
        model: its name.
        fraction: of the GPU, that it was given.
    """

    def __init__(self, port: int, *, model: str, fraction: float) -> None:
        super().__init__(("", port), Handler)
        self.model = model
        self.fraction = fraction


def main() -> None:
    """Check, then serve until instructed to end."""
    options = _parser().parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    fraction = options.per_process_gpu_memory_fraction
    units, size = (int(os.environ[f"ALIYUN_COM_GPU_MEM_{name}"]) for name in ("CONTAINER", "DEV"))
    # Two places may round up by half a hundredth, as arena's own fraction does.
    if not 0 < fraction <= units / size + 0.005:
        sys.exit(f"the fraction {fraction} is not of a share of {units} in {size} units")
    monitoring = options.monitoring_config_file
    if monitoring and "prometheus_config" not in Path(monitoring).read_text():
        sys.exit(f"{monitoring} configures no monitoring")
    if not Path(options.model_base_path).is_dir():
        sys.exit(f"there is no model at {options.model_base_path}")
    server = ModelServer(options.rest_api_port, model=options.model_name, fraction=fraction)
    print(f"serving {server.model} on port {server.server_port}, {fraction=}", flush=True)
    server.serve_forever()


class Handler(BaseHTTPRequestHandler):
    """Answers for one model; the server has its name."""

    server: ModelServer

    def do_GET(self) -> None:
        """Whether the model is there, and metrics."""
        if self.path == f"/v1/models/{self.server.model}":
            status = {"version": "1", "state": "AVAILABLE", "status": {"error_code": "OK"}}
            self.reply(200, json.dumps({"model_version_status": [status]}))
        elif self.path == METRICS:
            self.reply(200, f"standin_memory_fraction {self.server.fraction}\n")
        else:
            self.reply(404, json.dumps({"error": f"Malformed request: GET {self.path}"}))

    def do_POST(self) -> None:
        """The model's answer."""
        if self.path != f"/v1/models/{self.server.model}:predict":
            self.reply(404, json.dumps({"error": f"Malformed request: POST {self.path}"}))
            return
        parsed = json.loads(self.body())
        found = [number / 2 + 2 for number in parsed["instances"]]
        self.reply(200, json.dumps({"predictions": found}))

    def body(self) -> bytes:
        """Whole, or in chunks as the API server's proxy passes it on."""
        if length := self.headers["Content-Length"]:
            return self.rfile.read(int(length))
        chunks = []
        while size := int(self.rfile.readline(), 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        return b"".join(chunks)

    def reply(self, code: int, text: str) -> None:
        """Send one answer."""
        body = text.encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing: probes would fill the log."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--rest_api_port", type=int, required=True)
    parser.add_argument("--model_name", required=True)
    parser.add_argument("--model_base_path", required=True)
    parser.add_argument("--monitoring_config_file", default="")
    parser.add_argument("--per_process_gpu_memory_fraction", type=float, required=True)
    return parser


if __name__ == "__main__":
    main()
