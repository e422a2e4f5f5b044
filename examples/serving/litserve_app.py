"""LitServe.

BUNDLE=model.aotc python examples/serving/litserve_app.py 8000
"""

import os
import sys

import litserve
from fastapi import HTTPException
from model import Model


class Api(litserve.LitAPI):
    """Each worker is a process with a program of its own; the weights are pages of one file."""

    def setup(self, device):
        self.model = Model(os.environ["BUNDLE"])

    def decode_request(self, request):
        return request

    def predict(self, body):
        return self.model.answer(body)

    def encode_response(self, output):
        status, answer = output
        if status != 200:
            raise HTTPException(status, answer["error"])
        return answer


if __name__ == "__main__":
    server = litserve.LitServer(Api(), accelerator="cpu", workers_per_device=2)
    server.run(host="127.0.0.1", port=int(sys.argv[1]), generate_client_file=False)
