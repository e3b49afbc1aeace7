#!/usr/bin/env python3
"""What one forwarded call costs: CPU microseconds per request of the gateway, beside nginx proxy_pass.

Both proxies get one worker, 64 kept-alive connections and the same 80-byte POSTs, and forward to the same partner (an
nginx that answers with a small JSON body). The gateway runs with `ledger: drops` and equal tokens, so that no call
has to wait for the disk. Rounds are interleaved, so that whatever else the machine does meets both alike. CPU is what
/proc/<pid>/stat says for all processes of the proxy; the load generator and the partner are not counted.
"""
import argparse
import json
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
BINARY = os.environ.get("FENCEGATE_BIN") or HERE.parents[1] / "build" / "fencegate"
TICK = 1e6 / os.sysconf("SC_CLK_TCK")

NGINX = """
{user}
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    keepalive_requests 1000000000;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    {content}
}}
"""
PARTNER = """
    server {{
        listen 127.0.0.1:{port} backlog=1024;
        location / {{ default_type application/json; return 200 '{{"id":"ch_1","status":"succeeded"}}'; }}
    }}
"""
PROXY = """
    upstream partner {{ server 127.0.0.1:{partner}; keepalive 64; keepalive_requests 1000000000; }}
    server {{
        listen 127.0.0.1:{port} backlog=1024;
        location /pay/ {{
            proxy_pass http://partner/;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
        }}
    }}
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until_served(port, process):
    deadline = time.monotonic() + 10
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"{process.args[0]} does not serve on port {port}")
            time.sleep(0.05)


def start_nginx(folder, port, content, **values):
    folder.mkdir()
    user = "user root;" if os.geteuid() == 0 else ""
    config = NGINX.format(user=user, folder=folder, content=content.format(port=port, **values))
    (folder / "nginx.conf").write_text(config)
    binary = "/usr/sbin/nginx" if os.path.exists("/usr/sbin/nginx") else "nginx"
    process = subprocess.Popen([binary, "-p", str(folder), "-c", str(folder / "nginx.conf")], stdin=subprocess.DEVNULL)
    wait_until_served(port, process)
    return process


def start_gateway(folder, port, partner):
    folder.mkdir()
    config = {
        "listen": {"address": "127.0.0.1", "port": port},
        "admin": {"address": "127.0.0.1", "port": free_port()},
        "store": {"path": "store", "max_size": "1GiB"},
        "workers": 1,
        "log": {"level": "warn", "access": False},
        "routes": [{"name": "pay", "path": "/pay", "upstream": f"http://127.0.0.1:{partner}", "ledger": "drops"}],
    }
    (folder / "fencegate.json").write_text(json.dumps(config))
    process = subprocess.Popen(
        [str(BINARY), "serve", "-c", str(folder / "fencegate.json")], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    wait_until_served(port, process)
    return process


def check_answer(port):
    """One call by hand, so that no round measures how fast a proxy says no."""
    headers = {"Workflow-Key": "order-1", "Fencing-Token": "42"}
    call = urllib.request.Request(f"http://127.0.0.1:{port}/pay/v1/charges", b"x" * 80, headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(call, timeout=10) as answer:
        assert json.load(answer)["status"] == "succeeded"


def cpu_of(pid):
    """Microseconds of CPU that the process and its children have used so far."""
    stat = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return (int(stat[11]) + int(stat[12])) * TICK + sum(cpu_of(child) for child in children)


def load(port, seconds, connections):
    run = subprocess.run(
        ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-s", str(HERE / "post.lua"), f"http://127.0.0.1:{port}"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds + 60, check=True)
    result = json.loads(run.stdout.strip().splitlines()[-1])
    if result["bad_status"] or result["bad_io"] or not result["requests"]:
        sys.exit(f"calls failed on port {port}: {result}")
    return result


def measure(name, process, port, options):
    before = cpu_of(process.pid)
    result = load(port, options.seconds, options.connections)
    cost = (cpu_of(process.pid) - before) / result["requests"]
    rate = result["requests"] / result["microseconds"] * 1e6
    print(f"{name:<10} {cost:>10.1f} {rate:>12.0f} {result['p50'] / 1000:>9.2f} {result['p99'] / 1000:>9.2f}", flush=True)
    return cost


def compare(folder, processes, options):
    partner, ports = free_port(), {"nginx": free_port(), "fencegate": free_port()}
    processes.append(start_nginx(folder / "partner", partner, PARTNER))
    proxies = {
        "nginx": start_nginx(folder / "nginx", ports["nginx"], PROXY, partner=partner),
        "fencegate": start_gateway(folder / "fencegate", ports["fencegate"], partner),
    }
    processes.extend(proxies.values())
    for name, port in ports.items():
        check_answer(port)
        load(port, 1, options.connections)  # connections, caches, and a fence for every key
    print(f"{'proxy':<10} {'CPU us/req':>10} {'requests/s':>12} {'p50 ms':>9} {'p99 ms':>9}")
    costs = {name: [] for name in proxies}
    for _ in range(options.rounds):
        for name, process in proxies.items():
            costs[name].append(measure(name, process, ports[name], options))
    return {name: statistics.median(values) for name, values in costs.items()}


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--seconds", type=int, default=5, help="of load per round and proxy")
    options.add_argument("--connections", type=int, default=64)
    options.add_argument("--at-most", type=float, help="exit status 1 if the ratio is above this")
    options = options.parse_args()
    processes = []
    with tempfile.TemporaryDirectory(prefix="fencegate-bench.") as folder:
        try:
            medians = compare(pathlib.Path(folder), processes, options)
        finally:
            for process in reversed(processes):
                process.send_signal(signal.SIGTERM)
                process.wait(60)
    ratio = medians["fencegate"] / medians["nginx"]
    print("median     " + "   ".join(f"{name} {cost:.1f} us" for name, cost in medians.items()) + f"   ratio {ratio:.2f}")
    if options.at_most and ratio > options.at_most:
        sys.exit(f"above {options.at_most}")


if __name__ == "__main__":
    main()
