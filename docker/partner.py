#!/usr/bin/env python3
"""A stand-in partner: takes any call, prints one line for each arrival, answers with a small JSON body.

Used by `make run` and by the compose file; it is no part of the gateway and keeps nothing. `GET /arrivals` says
how many there were and is not one itself.
The first line on standard output says where it listens; arrivals go to standard error.
"""
import argparse
import http.server
import json
import signal
import sys
import threading

LOOK = 120  # bytes of a body that are shown


class Partner(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    arrivals = 0
    lock = threading.Lock()  # guards arrivals, and keeps its lines whole

    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path == "/arrivals":
            self.reply({"arrivals": Partner.arrivals})
            return
        with self.lock:
            Partner.arrivals += 1
            arrival = Partner.arrivals
            shown = body[:LOOK].decode("ascii", "backslashreplace")
            line = f"  partner: arrival {arrival}: {self.command} {self.path} {shown}"
            print("".join(c if c.isprintable() else "?" for c in line), file=sys.stderr, flush=True)
        self.reply({"arrival": arrival, "status": "succeeded"})

    def reply(self, value):
        reply = json.dumps(value).encode() + b"\n"
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = answer

    def log_message(self, *_):
        pass  # answer() has said it


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--address", default="127.0.0.1")
    options.add_argument("--port", type=int, default=9090, help="0 picks a free one")
    options = options.parse_args()
    server = Server((options.address, options.port), Partner)
    for number in (signal.SIGTERM, signal.SIGINT):
        # shutdown() waits for serve_forever(), which this thread is in
        signal.signal(number, lambda *_: threading.Thread(target=server.shutdown).start())
    print(f"partner ready http://{options.address}:{server.server_port}", flush=True)
    server.serve_forever(poll_interval=0.1)


if __name__ == "__main__":
    main()
