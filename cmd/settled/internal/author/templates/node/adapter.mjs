#!/usr/bin/env node
// The {{name}} adapter, in the exec form: a process per call, JSON in and out.
// It needs Node 20 and nothing else. What counts:
//   - dispatch sends at most once. Only an answer of the destination, or the
//     proof that no byte left, says something else than "unknown".
//   - read never answers "nothing" because something failed: it ends with an error.
import { readFileSync } from "node:fs";
import http from "node:http";
import https from "node:https";

const raw = readFileSync(0, "utf8");
const call = JSON.parse(raw);
const op = call.operation;

function answer(words) {
  process.stdout.write(JSON.stringify(words) + "\n", () => process.exit(0));
}

// send makes one request over a connection of its own. It rejects with
// error.sent = false when no connection was made, so no byte can have left.
function send(method, path, body, headers) {
  const url = new URL(call.config.url.replace(/\/$/, "") + path);
  const secure = url.protocol === "https:";
  return new Promise((resolve, reject) => {
    let connected = false;
    const fail = (error) => reject(Object.assign(error, { sent: connected }));
    const request = (secure ? https : http).request(url, {
      method, agent: false,
      headers: { Authorization: "Bearer " + call.secrets.token, Accept: "application/json", ...headers },
    });
    request.on("socket", (s) => s.once(secure ? "secureConnect" : "connect", () => { connected = true; }));
    request.on("error", fail);
    request.on("response", (response) => {
      const parts = [];
      response.on("data", (p) => parts.push(p));
      response.on("error", fail);
      response.on("aborted", () => fail(new Error("the answer broke off")));
      response.on("end", () => response.complete &&
        resolve({ status: response.statusCode, headers: response.headers, text: Buffer.concat(parts).toString() }));
    });
    request.end(body);
  });
}

async function get(path) {
  const r = await send("GET", path);
  if (r.status !== 200) throw new Error(`GET ${path.split("?")[0]} was answered ${r.status}`);
  return JSON.parse(r.text);
}

// exact says whether JavaScript can carry the payload: not numbers over 2^53, not half surrogates.
function exact(v) {
  if (typeof v === "number") return !Number.isInteger(v) || Number.isSafeInteger(v);
  if (typeof v === "string") return v.isWellFormed();
  return v === null || typeof v !== "object" || Object.values(v).every(exact);
}

async function dispatch() {
  if (!exact(op.payload)) return { outcome: "rejected", message: "a number beyond 2^53 or half of a surrogate pair" };
  let r;
  try {
    r = await send("POST", "/invoices", JSON.stringify(op.payload),
      { "Content-Type": "application/json", "Idempotency-Key": op.key });
  } catch (e) {
    return e.sent === false ? { outcome: "not_executed", reason: "not_sent", message: e.message }
      : { outcome: "unknown", message: e.message };
  }
  const message = `answered ${r.status}`;
  if (r.status === 201) {
    try {
      const id = JSON.parse(r.text).id;
      if (typeof id === "string" && id !== "") return { outcome: "done", object_id: id };
    } catch { /* below */ }
    return { outcome: "unknown", message: "a success that cannot be read" };
  }
  const reasons = { 400: "validation", 401: "authentication", 403: "permission", 404: "not_found", 409: "conflict", 422: "validation" };
  if (reasons[r.status]) return { outcome: "rejected", reason: reasons[r.status], message };
  if (r.status === 429) return { outcome: "not_executed", retry_after: Number(r.headers["retry-after"]) || 0, message };
  return { outcome: "unknown", message };
}

async function read() {
  const page = await get("/invoices?key=" + encodeURIComponent(op.key));
  const items = page.items.filter((i) => i.key === op.key).map((i) => {
    const same = i.customer === op.payload.customer && i.cents === op.payload.cents;
    return { object_id: i.id, key: i.key, digest: same ? op.digest : null };
  });
  // An empty list counts only if we may see everything.
  const visible = items.length > 0 || (await get("/me")).sees_all === true;
  return { items, complete: page.more === false, visible };
}

async function check() {
  await get("/me");
  return { status: "ok" };
}

answer(await { dispatch, read, check }[call.method]());
