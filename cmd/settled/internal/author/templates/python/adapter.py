#!/usr/bin/env python3
"""The {{name}} adapter, in the exec form: a process per call, JSON in and out.

What counts:
  - dispatch sends at most once. Only an answer of the destination, or the proof
    that no byte left, says something else than "unknown".
  - read says what the destination holds of the key. It never answers "nothing"
    because something failed: it ends with an error instead.
"""
import http.client
import json
import sys
import time
from datetime import datetime
from urllib.parse import quote, urlsplit


def answer(**words):
    print(json.dumps(words))
    sys.exit(0)


def connect(request):
    """A connection of its own for every call; nothing is ever sent twice."""
    base = urlsplit(request["config"]["url"])
    kind = http.client.HTTPSConnection if base.scheme == "https" else http.client.HTTPConnection
    left = 30.0
    if request.get("deadline"):
        left = datetime.fromisoformat(request["deadline"][:19] + "+00:00").timestamp() - time.time()
    return kind(base.netloc, timeout=max(left, 1.0)), base.path.rstrip("/")


def headers(request, **more):
    return {"Authorization": "Bearer " + request["secrets"]["token"], "Accept": "application/json", **more}


def get(request, path):
    """A read that was not answered 200 with JSON is an error."""
    connection, prefix = connect(request)
    connection.request("GET", prefix + path, headers=headers(request))
    response = connection.getresponse()
    body = response.read()
    if response.status != 200:
        sys.exit("GET %s was answered %d" % (path.split("?")[0], response.status))
    return json.loads(body)


def dispatch(request):
    op = request["operation"]
    try:
        body = json.dumps(op["payload"], ensure_ascii=False).encode()
    except UnicodeEncodeError:
        answer(outcome="rejected", message="half of a surrogate pair is no text")
    try:
        connection, prefix = connect(request)
        connection.connect()
    except OSError as e:  # refused, no such host, no TLS: no byte of the request left
        answer(outcome="not_executed", reason="not_sent", message=str(e))
    try:
        more = {"Content-Type": "application/json", "Idempotency-Key": op["key"]}
        connection.request("POST", prefix + "/invoices", body, headers(request, **more))
        response = connection.getresponse()
        text = response.read()
    except (OSError, http.client.HTTPException) as e:
        answer(outcome="unknown", message=repr(e))
    conclude(response, text)


def conclude(response, text):
    status, said = response.status, "answered %d" % response.status
    if status == 201:
        try:
            made = json.loads(text)["id"]
        except (ValueError, KeyError, TypeError):
            answer(outcome="unknown", message="a success that cannot be read")
        if isinstance(made, str) and made:
            answer(outcome="done", object_id=made)
    reasons = {400: "validation", 404: "not_found", 409: "conflict", 422: "validation", 401: "authentication", 403: "permission"}
    if status in reasons:
        answer(outcome="rejected", reason=reasons[status], message=said)
    if status == 429:
        wait = response.headers.get("Retry-After", "")
        answer(outcome="not_executed", retry_after=int(wait) if wait.isdigit() else 0, message=said)
    answer(outcome="unknown", message=said)


def read(request):
    op = request["operation"]
    page = get(request, "/invoices?key=" + quote(op["key"], safe=""))
    items = []
    for i in page["items"]:
        if i["key"] != op["key"]:  # a filter that the server does not know is silently dropped
            continue
        same = all(i.get(name) == value for name, value in op["payload"].items() if name in ("customer", "cents"))
        items.append({"object_id": i["id"], "key": i["key"], "digest": op["digest"] if same else None})
    visible = True
    if not items:  # an empty list counts only if we may see everything
        visible = get(request, "/me")["sees_all"] is True
    answer(items=items, complete=page["more"] is False, visible=visible)


def check(request):
    get(request, "/me")
    answer(status="ok")


if __name__ == "__main__":
    call = json.load(sys.stdin)
    {"dispatch": dispatch, "read": read, "check": check}[call["method"]](call)
