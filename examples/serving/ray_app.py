"""Ray Serve.

BUNDLE=/shared/model.aotc serve run --app-dir examples/serving ray_app:app
"""

import asyncio
import os

from model import Model
from ray import serve
from starlette.responses import JSONResponse


@serve.deployment(num_replicas=2, max_ongoing_requests=16, ray_actor_options={"num_cpus": 1})
class Replica:
    """One replica: a process with a program; `check_health` is asked by Ray."""

    def __init__(self, path):
        self.model = Model(path, max_batch=16)

    async def __call__(self, request):
        try:
            body = await request.json()
        except ValueError:
            return JSONResponse({"error": "the body is not JSON"}, 400)
        if self.model.batcher is None:
            status, answer = await asyncio.to_thread(self.model.answer, body)
        else:
            status, answer = await self.model.answer_async(body)
        return JSONResponse(answer, status)

    def check_health(self):
        if not self.model.is_ready():
            raise RuntimeError("the program is closed")


app = Replica.bind(os.environ.get("BUNDLE", "model.aotc"))
