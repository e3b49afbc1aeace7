// Partners' own SDKs, unmodified, through the gateway: a current call brings the partner's answer, a stale one makes the
// SDK fail after one attempt, and the partner's credentials come from the gateway. The webhook verifiers of two SDKs read
// what a webhook route signs. Started by `make test-clients`.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { webcrypto } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import http from "node:http";
import os from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { after, before, test } from "node:test";

import { Octokit } from "@octokit/core";
import sendgrid from "@sendgrid/mail";
import { ServerClient } from "postmark";
import { Webhook as StandardWebhook } from "standardwebhooks";
import Stripe from "stripe";
import { Svix, Webhook as SvixWebhook } from "svix";

globalThis.crypto ??= webcrypto; // Node.js 18 has it under another name, and svix wants this one
const binary = process.env.FENCEGATE_BIN;
const secrets = ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"];

/* A partner that keeps what it got, and answers each path as its API does. */
const partner = { seen: [], server: null, port: 0 };
const answers = {
  "/v1/payment_intents": [200, { id: "pi_1", object: "payment_intent", amount: 4200 }],
  "/v3/mail/send": [202, ""],
  "/emails": [200, { id: "re_1" }],
  "/email": [200, { ErrorCode: 0, Message: "OK", MessageID: "pm-1", To: "a@example.com", SubmittedAt: "2026-01-01T00:00:00Z" }],
  "/repos/o/r/issues": [201, { number: 7 }],
  "/api/v1/app/app_1/msg": [202, { id: "msg_1", eventType: "order.paid", payload: {}, timestamp: "2026-01-01T00:00:00Z" }],
};

function onRequest(request, response) {
  const parts = [];
  request.on("data", (part) => parts.push(part));
  request.on("end", () => {
    const body = Buffer.concat(parts);
    partner.seen.push({ method: request.method, url: request.url, headers: request.headers, body });
    if (body.includes("die-after-reading")) return request.socket.destroy();
    const [status, json] = answers[request.url.split("?")[0]] ?? [200, {}];
    response.writeHead(status, { "Content-Type": "application/json" });
    response.end(json === "" ? "" : JSON.stringify(json));
  });
}

function routes(upstream) {
  const keep = { strip_path: false, upstream };
  const set = (name, value) => ({ request_headers: { set: { [name]: value } } });
  return [
    { name: "stripe", path: "/v1", ...keep, ...set("Authorization", "Bearer gateway-stripe") },
    { name: "sendgrid", path: "/sendgrid", upstream, ...set("Authorization", "Bearer gateway-sendgrid") },
    { name: "resend", path: "/resend", upstream, ...set("Authorization", "Bearer gateway-resend") },
    { name: "postmark", path: "/email", ...keep, ...set("X-Postmark-Server-Token", "gateway-postmark") },
    { name: "github", path: "/github", upstream, ...set("Authorization", "token gateway-github") },
    { name: "svix", path: "/svix", upstream, ...set("Authorization", "Bearer gateway-svix") },
    {
      name: "hooks", path: "/hooks", kind: "webhook",
      webhook: { allow_hosts: ["127.0.0.1"], ports: [partner.port], allow_http: true, allow_private: true, secrets },
    },
  ];
}

const gateway = { folder: "", process: null, port: 0, admin: 0, token: "" };

before(async () => {
  partner.server = http.createServer(onRequest).listen(0, "127.0.0.1");
  await once(partner.server, "listening");
  partner.port = partner.server.address().port;
  gateway.folder = await mkdtemp(path.join(os.tmpdir(), "fencegate-clients-"));
  const config = path.join(gateway.folder, "fencegate.json");
  const loopback = { address: "127.0.0.1", port: 0 };
  await writeFile(config, JSON.stringify({
    listen: loopback, admin: loopback, store: { path: "store", max_size: "64MiB" }, workers: 1,
    routes: routes(`http://127.0.0.1:${partner.port}`),
  }));
  gateway.process = spawn(binary, ["serve", "-c", config], { stdio: ["ignore", "pipe", "ignore"] });
  const [line] = await once(createInterface({ input: gateway.process.stdout }), "line");
  [gateway.port, gateway.admin] = /proxy=127\.0\.0\.1:(\d+) admin=127\.0\.0\.1:(\d+)/.exec(line).slice(1).map(Number);
  gateway.token = (await readFile(path.join(gateway.folder, "store/admin.token"), "utf8")).trim();
});

after(async () => {
  if (gateway.process !== null) {
    gateway.process.kill("SIGTERM");
    const [status] = gateway.process.exitCode !== null ? [gateway.process.exitCode] : await once(gateway.process, "exit");
    assert.equal(status, 0);
  }
  partner.server.closeAllConnections();
  partner.server.close();
  await rm(gateway.folder, { recursive: true, force: true });
});

/* What the gateway recorded for a key, outcomes included: they are written while the client reads its answer. */
async function records(key, count) {
  for (;;) {
    const response = await fetch(`http://127.0.0.1:${gateway.admin}/v1/audit?key=${key}`,
      { headers: { Authorization: `Bearer ${gateway.token}` } });
    const found = (await response.json()).records;
    if (found.length >= count) return found.map((record) => record.kind);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

const lease = (token, key) => ({ "Fencing-Token": String(token), "Workflow-Key": key });
const base = () => `http://127.0.0.1:${gateway.port}`;

/* Each calls its partner once, as its documentation says, with the two headers by the means that it has for headers.
 * `path` is what the partner then sees, `credential` the header that the gateway puts in. */
const clients = {
  stripe: {
    path: "/v1/payment_intents", credential: ["authorization", "Bearer gateway-stripe"],
    async call(headers, description) {
      const stripe = new Stripe("unused", { host: "127.0.0.1", port: gateway.port, protocol: "http", maxNetworkRetries: 3 });
      const intent = await stripe.paymentIntents.create({ amount: 4200, currency: "eur", description }, { headers });
      return intent.id;
    },
    answer: "pi_1", error: (error) => error.statusCode === 412 && error.code === "stale-token",
  },
  sendgrid: {
    path: "/v3/mail/send", credential: ["authorization", "Bearer gateway-sendgrid"],
    async call(headers) {
      sendgrid.setApiKey("SG.unused");
      sendgrid.client.setDefaultRequest("baseUrl", `${base()}/sendgrid/`);
      for (const [name, value] of Object.entries(headers)) sendgrid.client.setDefaultHeader(name, value);
      const [response] = await sendgrid.send({ to: "a@example.com", from: "b@example.com", subject: "s", text: "t" });
      return response.statusCode;
    },
    answer: 202, error: (error) => error.code === 412,
  },
  resend: {
    path: "/emails", credential: ["authorization", "Bearer gateway-resend"],
    async call(headers) {
      process.env.RESEND_BASE_URL = `${base()}/resend`; // read when the module is loaded
      const { Resend } = await import("resend");
      const resend = new Resend("re_unused");
      for (const [name, value] of Object.entries(headers)) resend.headers.set(name, value);
      const { data, error } = await resend.emails.send({ from: "b@example.com", to: "a@example.com", subject: "s", text: "t" });
      if (error) throw Object.assign(new Error(error.message), error); // it has no exceptions: this is how it says no
      return data.id;
    },
    answer: "re_1", error: (error) => error.status === 412 || error.statusCode === 412,
  },
  postmark: {
    path: "/email", credential: ["x-postmark-server-token", "gateway-postmark"],
    async call(headers) {
      const client = new ServerClient("unused", { requestHost: `127.0.0.1:${gateway.port}`, useHttps: false });
      Object.assign(client.httpClient.client.defaults.headers.common, headers);
      return (await client.sendEmail({ From: "b@example.com", To: "a@example.com", Subject: "s", TextBody: "t" })).MessageID;
    },
    answer: "pm-1", error: (error) => error.statusCode === 412,
  },
  octokit: {
    path: "/repos/o/r/issues", credential: ["authorization", "token gateway-github"],
    async call(headers) {
      const octokit = new Octokit({ auth: "unused", baseUrl: `${base()}/github`, log: console_off });
      const issue = await octokit.request("POST /repos/{owner}/{repo}/issues", { owner: "o", repo: "r", title: "t", headers });
      return issue.data.number;
    },
    answer: 7, error: (error) => error.status === 412,
  },
  svix: {
    path: "/api/v1/app/app_1/msg", credential: ["authorization", "Bearer gateway-svix"],
    async call(headers) {
      const svix = new Svix("unused", {
        serverUrl: `${base()}/svix`, numRetries: 3,
        fetch: (url, init) => fetch(url, { ...init, headers: { ...init.headers, ...headers } }),
      });
      return (await svix.message.create("app_1", { eventType: "order.paid", payload: { order: 17 } })).id;
    },
    answer: "msg_1", error: (error) => error.code === 412,
  },
};
const quiet = () => {};
const console_off = { debug: quiet, info: quiet, warn: quiet, error: quiet };

for (const [name, client] of Object.entries(clients)) {
  test(`${name}: current calls pass, a stale one fails after one attempt`, async () => {
    const key = `order-${name}`;
    const from = partner.seen.length;
    assert.equal(await client.call(lease(41, key)), client.answer);
    assert.equal(await client.call(lease(42, key)), client.answer);
    await assert.rejects(client.call(lease(41, key)), client.error);
    assert.deepEqual(await records(key, 3), ["sent", "sent", "dropped"]);
    const seen = partner.seen.slice(from);
    assert.deepEqual(seen.map((got) => got.url.split("?")[0]), [client.path, client.path]);
    for (const got of seen) {
      assert.equal(got.headers[client.credential[0]], client.credential[1]);
      assert.equal(got.headers["fencing-token"], undefined);
      assert.ok(!JSON.stringify(got.headers).includes("unused"));
    }
  });
}

test("stripe: a call whose outcome is unknown is not repeated", async () => {
  const from = partner.seen.length;
  await assert.rejects(clients.stripe.call(lease(41, "order-unknown"), "die-after-reading"),
    (error) => error.statusCode === 502 && error.code === "upstream-failed");
  assert.deepEqual(await records("order-unknown", 1), ["unknown"]);
  assert.equal(partner.seen.length - from, 1);
});

test("webhooks are verified by two SDKs, with the old secret and the new one", async () => {
  const target = `http://127.0.0.1:${partner.port}/hook?x=1`;
  const body = JSON.stringify({ type: "order.paid", text: "ünïcode \u2028 \\" });
  for (const own of [undefined, "evt_1"]) {
    const from = partner.seen.length;
    const response = await fetch(`${base()}/hooks`, {
      method: "POST", body,
      headers: { ...lease(41, `hook-${own}`), "Fencegate-Target": target, "Content-Type": "application/json", ...(own && { "Webhook-Id": own }) },
    });
    assert.equal(response.status, 200);
    const [got] = partner.seen.slice(from);
    assert.equal(got.url, "/hook?x=1");
    assert.equal(got.headers["webhook-id"], own ?? `msg_${response.headers.get("Fencegate-Effect-Id")}`);
    assert.equal(got.headers["fencegate-target"], undefined);
    for (const secret of secrets) {
      for (const Verifier of [StandardWebhook, SvixWebhook]) {
        assert.deepEqual(new Verifier(secret).verify(got.body, got.headers), JSON.parse(body));
        assert.throws(() => new Verifier(secret).verify(got.body + " ", got.headers));
      }
    }
    assert.throws(() => new StandardWebhook("whsec_" + "A".repeat(32)).verify(got.body, got.headers));
  }
});
