#!/usr/bin/env python3
"""A destination for tests: it takes an Idempotency-Key and lists by it.

It prints its URL as its first line and ends with its standard input. The paths
with an underscore are for the conformance kit alone.
"""
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

TOKENS = {"token-for-tests": "write", "readonly-for-tests": "read"}
lock, rows, state = threading.Lock(), [], {"hidden": False, "n": 0}


def new_id():
    state["n"] += 1
    return "obj_%d" % state["n"]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def reply(self, status, body):
        raw = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def role(self):
        return TOKENS.get(self.headers.get("Authorization", "").removeprefix("Bearer "))

    def query(self, name):
        return parse_qs(urlsplit(self.path).query).get(name, [""])[0]

    def do_GET(self):
        path, key = urlsplit(self.path).path, self.query("key")
        with lock:
            if path == "/_effects":
                return self.reply(200, {"effects": sum(r["key"] == key for r in rows)})
            if self.role() is None:
                return self.reply(401, {"error": "who are you?"})
            if path == "/me":
                return self.reply(403 if state["hidden"] else 200, {"sees_all": not state["hidden"]})
            items = [] if state["hidden"] else [r for r in rows if r["key"] in (key, None)]
            return self.reply(200, {"items": items, "more": False})

    def do_POST(self):
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path, key = urlsplit(self.path).path, self.query("key")
        with lock:
            if path == "/_tamper":
                for r in rows:
                    if r["key"] == key:
                        r["cents"] += 1
                return self.reply(200, {})
            if path == "/_twin":
                for r in [r for r in rows if r["key"] == key]:
                    rows.append(dict(r, id=new_id(), key=None))
                return self.reply(200, {})
            if path in ("/_hide", "/_show"):
                state["hidden"] = path == "/_hide"
                return self.reply(200, {})
            role = self.role()
            if role != "write":
                return self.reply(403 if role else 401, {"error": "you may not"})
            return self.create(raw)

    def create(self, raw):
        try:
            v = json.loads(raw)
            customer, cents = v["customer"], v["cents"]
        except (ValueError, KeyError, TypeError):
            return self.reply(400, {"error": "no such object"})
        if not isinstance(customer, str) or not customer or not isinstance(cents, int) or cents < 1:
            return self.reply(422, {"error": "customer and cents are needed"})
        key = self.headers.get("Idempotency-Key")
        for r in rows:
            if key and r["key"] == key:
                if (r["customer"], r["cents"]) != (customer, cents):
                    return self.reply(409, {"error": "the key belongs to another request"})
                return self.reply(201, r)
        rows.append({"id": new_id(), "key": key, "customer": customer, "cents": cents})
        return self.reply(201, rows[-1])


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    print("http://127.0.0.1:%d" % server.server_port, flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()
