"""FastAPI under uvicorn.

BUNDLE=model.aotc uvicorn --app-dir examples/serving fastapi_app:app --workers 2

With BUNDLES=folder there is a route `/swap`, which has another bundle of that folder serve in the
worker that answers: for one worker, and not to be reached from outside.
"""

import contextlib
import os
from pathlib import Path

import fastapi
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, PlainTextResponse
from model import Model, log

from aotc import runtime


def make_app(make_model, bundles=None):
    """The application of a worker.

    make_model: gives its model, when the server starts; bundles: the folder that `/swap` takes
    bundles from.
    """
    models = []

    @contextlib.asynccontextmanager
    async def lifespan(app):
        models.append(await run_in_threadpool(make_model))
        yield
        await run_in_threadpool(models.pop().close)

    app = fastapi.FastAPI(lifespan=lifespan)

    @app.post("/predict")
    async def predict(request: fastapi.Request):
        try:
            body = await request.json()
        except ValueError:
            return JSONResponse({"error": "the body is not JSON"}, 400)
        model = models[0]
        if model.batcher is None:
            status, answer = await run_in_threadpool(model.answer, body)
        else:
            status, answer = await model.answer_async(body)
        return JSONResponse(answer, status)

    @app.get("/live")
    async def live():
        return {}

    @app.get("/ready")
    async def ready():
        is_ready = bool(models) and models[0].is_ready()
        return JSONResponse({}, 200 if is_ready else 503)

    @app.get("/metrics")
    async def metrics():
        return PlainTextResponse(models[0].metrics(), media_type="text/plain; version=0.0.4")

    if bundles is not None:

        @app.post("/swap")
        async def swap(request: fastapi.Request):
            name = (await request.json()).get("name")
            if name not in [each.name for each in Path(bundles).iterdir()]:
                return JSONResponse({"error": "there is no bundle of this name"}, 404)
            try:
                await run_in_threadpool(models[0].swap, Path(bundles) / name)
            except runtime.AotcError as error:
                log.error("a swap failed", exc_info=error)
                return JSONResponse({"error": error.code}, 409)
            return {"digest": models[0].deployment.digest}

    return app


def model_of_environment():
    return Model(os.environ["BUNDLE"], max_batch=int(os.environ.get("MAX_BATCH", "16")))


app = make_app(model_of_environment, os.environ.get("BUNDLES"))
