"""What is measured, and the partner behind it. Each peer: one worker, connections kept on both sides, no access log.

A peer forwards /pay/... to the partner's /..., so that one load fits all.
"""
import json
import os
import pathlib
import socket
import subprocess
import sys

from processes import OPEN_FILES, cpu_us, free_port, memory_mib, serves, start, stop, wait_until

HERE = pathlib.Path(__file__).resolve().parent
BINARY = os.path.abspath(os.environ.get("FENCEGATE_BIN") or HERE.parents[1] / "build" / "fencegate")
NGINX, HAPROXY = "/usr/sbin/nginx", "/usr/sbin/haproxy"
BODY = 8 << 20
ANSWER = '{"id":"ch_1","status":"succeeded"}'


def get(port, path):
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        return b"".join(iter(lambda: connection.recv(65536), b"")).decode()


class Peer:
    """One program (or two) in a folder of its own. `path`: what to call; `port`: where."""
    role = "proxy"

    def __init__(self, name, folder):
        self.name, self.folder, self.port, self.path = name, folder, free_port(), "/pay/charges"
        self.output = folder / "output"
        self.processes = []
        folder.mkdir(parents=True)

    def launch(self, command, look=None):
        process = start(command, self.role, self.output)
        self.processes.append(process)
        wait_until(look or (lambda: serves(self.port)), process, self.output)
        return process

    @property
    def pids(self):
        return [process.pid for process in self.processes]

    def cpu_us(self):
        return cpu_us(self.pids)

    def memory_mib(self):
        return memory_mib(self.pids)

    def stop(self):
        for process in reversed(self.processes):
            stop(process)

    def dropped(self):
        """How many drops it has on record, for a peer that makes any."""
        return None


NGINX_CONFIG = """
{user}
daemon off;
worker_processes 1;
worker_rlimit_nofile {files};
pid {folder}/nginx.pid;
error_log {folder}/error.log error;
{modules}
events {{ worker_connections 32768; multi_accept on; }}
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
LUA = """load_module /usr/lib/nginx/modules/ndk_http_module.so;
load_module /usr/lib/nginx/modules/ngx_http_lua_module.so;"""
LUA_PATH = f"{HERE}/?.lua;/usr/share/lua/5.1/?.lua;;"


class Nginx(Peer):
    def serve(self, content, modules=""):
        user = "user root;" if os.geteuid() == 0 else ""
        self.config = self.folder / "nginx.conf"
        self.config.write_text(NGINX_CONFIG.format(user=user, files=OPEN_FILES, folder=self.folder, modules=modules,
                                                   content=content))
        self.output.touch()
        self.launch([NGINX, "-e", self.folder / "error.log", "-p", self.folder, "-c", self.config])
        return self


class Partner(Nginx):
    """A small JSON at once; /held when release() says so, or after 50 s; /big when it has read the body (nginx's own
    answers do not wait for it); the same over TLS on `tls_port`, with the certificate of `ca`."""
    role = "load"

    def __init__(self, folder):
        super().__init__("partner", folder)
        self.tls_port, self.ca = free_port(), folder / "ca.pem"
        self.make_certificate()
        say = f"""ngx.header["Content-Type"] = "application/json"
                ngx.header["Content-Length"] = {len(ANSWER)}
                ngx.print('{ANSWER}')"""
        self.serve(f"""
    client_max_body_size {2 * BODY};
    client_body_buffer_size {BODY};
    lua_package_path "{LUA_PATH}";
    init_worker_by_lua_block {{ package.loaded.held = require("ngx.semaphore").new() }}
    server {{
        listen 127.0.0.1:{self.port} backlog=16384;
        listen 127.0.0.1:{self.tls_port} ssl backlog=1024;
        ssl_certificate {self.ca};
        ssl_certificate_key {folder}/key.pem;
        ssl_protocols TLSv1.3;
        location / {{ default_type application/json; return 200 '{ANSWER}'; }}
        location = /status {{ stub_status; }}
        location /big {{
            content_by_lua_block {{
                ngx.req.read_body()
                {say}
            }}
        }}
        location /held {{
            content_by_lua_block {{
                require("held"):wait(50)
                {say}
            }}
        }}
        location = /release {{
            content_by_lua_block {{
                require("held"):post(tonumber(ngx.var.args))
                ngx.print("released")
            }}
        }}
    }}""", LUA)

    def calls_inside(self):
        """How many calls it has read and not yet answered."""
        text = get(self.port, "/status")
        return int(text.split("Writing:")[1].split()[0]) - 1  # this one

    def release(self, count):
        """Answers so many calls of /held."""
        assert "released" in get(self.port, f"/release?{count}")

    def make_certificate(self):
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
             "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
             "-keyout", str(self.folder / "key.pem"), "-out", str(self.ca)],
            check=True, capture_output=True)


class NginxProxy(Nginx):
    """proxy_pass and no fence: what forwarding alone costs."""

    def __init__(self, folder, partner, tls=False):
        super().__init__("nginx", folder)
        scheme, port = ("https", partner.tls_port) if tls else ("http", partner.port)
        self.serve(f"""
    client_max_body_size {2 * BODY};
    client_body_buffer_size {BODY};
    upstream partner {{ server 127.0.0.1:{port}; keepalive 64; keepalive_requests 1000000000; }}
    server {{
        listen 127.0.0.1:{self.port} backlog=16384;
        location /pay/ {{
            proxy_pass {scheme}://partner/;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_ssl_protocols TLSv1.2 TLSv1.3;
            proxy_ssl_verify on;
            proxy_ssl_name localhost;
            proxy_ssl_trusted_certificate {partner.ca};
        }}
    }}""")


HAPROXY_CONFIG = """
global
    nbthread 1
    maxconn {connections}
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    http-reuse always
frontend workers
    bind 127.0.0.1:{port} backlog 16384
    default_backend partner
backend partner
    http-request replace-path /pay/(.*) /\\1
    server partner 127.0.0.1:{partner} {tls}
"""


class Haproxy(Peer):
    """HAProxy and no fence: what forwarding alone costs."""

    def __init__(self, folder, partner, tls=False):
        super().__init__("haproxy", folder)
        config = folder / "haproxy.cfg"
        config.write_text(HAPROXY_CONFIG.format(
            connections=(OPEN_FILES - 100) // 2, port=self.port, partner=partner.tls_port if tls else partner.port,
            tls=f"ssl verify required verifyhost localhost ca-file {partner.ca}" if tls else ""))
        self.launch([HAPROXY, "-db", "-f", config])


REDIS_CONFIG = """
port 0
unixsocket {folder}/redis.sock
dir {folder}
daemonize no
save ""
appendonly yes
appendfsync always
auto-aof-rewrite-percentage 0
"""


class NginxLuaRedis(Nginx):
    """A fence built by hand: nginx asks a Redis that syncs every write (fence.lua). Redis's CPU and memory count."""

    def __init__(self, folder, partner, effects):
        super().__init__("nginx+lua+redis " + ("effects" if effects else "drops"), folder)
        self.socket = folder / "redis.sock"
        config = folder / "redis.conf"
        config.write_text(REDIS_CONFIG.format(folder=folder))
        self.launch(["/usr/bin/redis-server", config], self.socket.exists)
        self.serve(f"""
    lua_package_path "{LUA_PATH}";
    lua_max_pending_timers 65536;
    lua_max_running_timers 16384;
    init_by_lua_block {{ require("fence").init("{self.socket}") }}
    upstream partner {{ server 127.0.0.1:{partner.port}; keepalive 64; keepalive_requests 1000000000; }}
    server {{
        listen 127.0.0.1:{self.port} backlog=16384;
        location /pay/ {{
            access_by_lua_block {{ require("fence").admit({str(effects).lower()}) }}
            {'log_by_lua_block { require("fence").outcome() }' if effects else ''}
            proxy_pass http://partner/;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
        }}
    }}""", LUA)

    def ask(self, *words):
        """The integer that Redis answers."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.socket))
            connection.sendall(" ".join(words).encode() + b"\r\n")
            return int(connection.recv(64).strip()[1:])

    def dropped(self):
        return self.ask("LLEN", "drops")


class Fencegate(Peer):
    def __init__(self, folder, partner, ledger, workers=1, tls=False, store=None, limits=None, name=None):
        super().__init__(name or f"fencegate {ledger}", folder)
        route = {"name": "pay", "path": "/pay", "ledger": ledger, "in_flight": 1_000_000}
        route["upstream"] = f"https://127.0.0.1:{partner.tls_port}" if tls else f"http://127.0.0.1:{partner.port}"
        if tls:
            route["tls"] = {"ca_file": str(partner.ca)}
        self.admin_port = free_port()
        self.store = store or folder / "store"
        (folder / "fencegate.json").write_text(json.dumps({
            "listen": {"address": "127.0.0.1", "port": self.port},
            "admin": {"address": "127.0.0.1", "port": self.admin_port},
            "store": {"path": str(self.store), "max_size": "16GiB"},
            "workers": workers, "limits": limits or {}, "log": {"level": "warn", "access": False}, "routes": [route]}))
        self.launch([BINARY, "serve", "-c", folder / "fencegate.json"], self.is_ready)

    def is_ready(self):
        return self.output.read_bytes().startswith(b"fencegate ready")

    def dropped(self):
        return sum(int(line.split()[-1]) for line in get(self.admin_port, "/metrics").splitlines()
                   if line.startswith("fencegate_requests_total{") and 'reason="stale-token"' in line)


def versions():
    """One line for each program."""
    found = []
    for command in ([BINARY, "version"], [NGINX, "-v"], [HAPROXY, "-v"], ["redis-server", "-v"], ["wrk", "-v"]):
        try:
            run = subprocess.run(command, capture_output=True, text=True)
        except FileNotFoundError:
            sys.exit(f"{command[0]} is missing: `make bench` installs it")
        found.append((run.stdout + run.stderr).strip().splitlines()[0])
    return found
