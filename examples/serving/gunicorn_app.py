"""gunicorn: the bundle is loaded once, then workers are forked, which share its memory.

BUNDLE=model.aotc gunicorn --chdir examples/serving --config gunicorn_conf.py gunicorn_app:app
"""

import json
import os

from model import Model

model = Model(os.environ["BUNDLE"])
STATUS = {200: "OK", 400: "Bad Request", 404: "Not Found", 503: "Service Unavailable"}


def app(environ, start_response):
    """The application by WSGI."""
    status, kind, text = 404, "application/json", "{}"
    path = environ["PATH_INFO"]
    if path == "/predict":
        try:
            length = int(environ.get("CONTENT_LENGTH") or 0)
            status, answer = model.answer(json.loads(environ["wsgi.input"].read(length)))
        except ValueError:
            status, answer = 400, {"error": "the body is not JSON"}
        text = json.dumps(answer)
    elif path == "/ready":
        status = 200 if model.is_ready() else 503
    elif path == "/metrics":
        status, kind, text = 200, "text/plain; version=0.0.4", model.metrics()
    headers = [("Content-Type", kind), ("Content-Length", str(len(text.encode())))]
    start_response(f"{status} {STATUS.get(status, 'Error')}", headers)
    return [text.encode()]
