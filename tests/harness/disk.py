"""A file system of its own, on a loop device, whose power can be cut: it loses what no sync has brought to its disk.

FS_IOC_SHUTDOWN without a log flush makes the kernel forget what was not yet written; after unmount and mount the disk is
what a power cut would have left (of the file system's own cache; a disk that lies about its syncs is not looked at).
Needs root and loop devices.
"""

import ctypes
import errno
import fcntl
import os
import pathlib
import subprocess
import sys
import tempfile
import time

FS_IOC_SHUTDOWN = 0x8004587D  # _IOR('X', 125, uint32_t)
NO_LOG_FLUSH = (2).to_bytes(4, sys.byteorder)
MNT_DETACH = 2
WRITE_AND_WAIT = 7  # of sync_file_range(2)
PATIENCE_SECONDS = 20
IMAGE_BYTES = 224 << 20  # with less room the store goes without its journal
libc = ctypes.CDLL(None, use_errno=True)


def check(result, what):
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout.strip()


def write_back(fd, begin, size):
    """These bytes only, and nothing that says where they are."""
    arguments = ctypes.c_int64(begin), ctypes.c_int64(size)
    check(libc.sync_file_range(fd, *arguments, ctypes.c_uint(WRITE_AND_WAIT)), "sync_file_range")


class Disk:
    """`folder` is made and is the mount point; the image lies beside it. `options`: of ext4."""

    def __init__(self, folder, options=None):
        self.folder, self.options = folder, options
        self.device = self.mounted = self.root = None

    def prepare(self):
        self.folder.mkdir()
        image = self.folder.with_suffix(".img")
        with image.open("wb") as file:
            file.truncate(IMAGE_BYTES)
        run("mkfs.ext4", "-q", "-F", str(image))
        self.device = run("losetup", "--show", "-f", str(image))
        self.mount()

    def mount(self):
        options = self.options.encode() if self.options else None
        check(libc.mount(self.device.encode(), bytes(self.folder), b"ext4", 0, options), f"mount {self.device}")
        self.mounted = True

    def unmount(self, flags=0):
        check(libc.umount2(bytes(self.folder), flags), f"umount {self.folder}")
        self.mounted = False

    def arm(self):
        self.root = os.open(self.folder, os.O_RDONLY)

    def cut(self):
        fcntl.ioctl(self.root, FS_IOC_SHUTDOWN, NO_LOG_FLUSH)

    def let_go(self):
        if self.root is not None:
            os.close(self.root)
            self.root = None

    def repair(self):
        """Nobody uses it any more. But a mount namespace that another program made meanwhile (a browser's sandbox, say) may
        hold a copy of the mount for a moment: then the new one is the file system that was shut down."""
        self.let_go()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            self.unmount()
            self.mount()
            if self.works():
                return
            if time.monotonic() > deadline:
                raise OSError(f"{self.folder}: somebody keeps the file system that was shut down")
            time.sleep(0.05)

    def works(self):
        """Looked at with a file that never gets a name."""
        try:
            os.close(os.open(self.folder, os.O_TMPFILE | os.O_WRONLY, 0o600))
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return False
        return True

    def remove(self):
        self.let_go()
        if self.mounted:
            self.unmount(MNT_DETACH)
        if self.device:
            run("losetup", "-d", self.device)
            self.device = None


def reason_to_skip():
    """Why no power can be cut here; None: it can."""
    if os.geteuid() != 0:
        return "needs root"
    try:
        with tempfile.TemporaryDirectory(prefix="fencegate-powercut-") as folder:
            trial = Disk(pathlib.Path(folder) / "disk")
            try:
                trial.prepare()
                trial.arm()
                trial.cut()
                trial.repair()
            finally:
                trial.remove()
    except OSError as error:
        return str(error)
    return None


def skip_or_go_on(name):
    why = reason_to_skip()
    if why:
        print(f"{name}: skipped: {why}\n{name}: 0 passed, 0 failed")
        sys.exit(1 if os.environ.get("FENCEGATE_REQUIRE_POWERCUT") == "1" else 0)
