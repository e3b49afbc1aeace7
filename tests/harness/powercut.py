#!/usr/bin/env python3
"""Power cuts: the file system under the store loses everything that no sync has brought to its disk.

The store lies on an ext4 image behind a loop device. FS_IOC_SHUTDOWN without a log flush makes the kernel forget what
was not yet written; after unmount and mount the disk is what a power cut would have left. From within the partner
stand-in, at the moment when a call arrives, this finds in a few cycles what a cut at random times finds in hundreds.
Needs root and loop devices; without them it is skipped, unless FENCEGATE_REQUIRE_POWERCUT=1 makes that a failure.
"""

import ctypes
import fcntl
import os
import subprocess
import sys
import tempfile

import crash

FS_IOC_SHUTDOWN = 0x8004587D  # _IOR('X', 125, uint32_t)
NO_LOG_FLUSH = (2).to_bytes(4, sys.byteorder)
MNT_DETACH = 2
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


class PowerCut(crash.Round):
    def prepare(self):
        self.device = self.mounted = self.root = None
        self.folder.mkdir()
        image = self.folder.with_suffix(".img")
        with image.open("wb") as file:
            file.truncate(IMAGE_BYTES)
        run("mkfs.ext4", "-q", "-F", str(image))
        self.device = run("losetup", "--show", "-f", str(image))
        self.mount()

    def mount(self):
        check(libc.mount(self.device.encode(), bytes(self.folder), b"ext4", 0, None), f"mount {self.device}")
        self.mounted = True

    def unmount(self, flags=0):
        check(libc.umount2(bytes(self.folder), flags), f"umount {self.folder}")
        self.mounted = False

    def arm(self):
        self.root = os.open(self.folder, os.O_RDONLY)

    def crash(self):
        fcntl.ioctl(self.root, FS_IOC_SHUTDOWN, NO_LOG_FLUSH)

    def let_go(self):
        if self.root is not None:
            os.close(self.root)
            self.root = None

    def repair(self):
        self.let_go()
        self.unmount()
        self.mount()

    def remove(self):
        self.let_go()
        if self.mounted:
            self.unmount(MNT_DETACH)
        if self.device:
            run("losetup", "-d", self.device)


def reason_to_skip():
    """Why no power can be cut here; None: it can."""
    if os.geteuid() != 0:
        return "needs root"
    try:
        with tempfile.TemporaryDirectory(prefix="fencegate-powercut-") as folder:
            trial = PowerCut(0, os.path.join(folder, "disk"))
            try:
                trial.prepare()
                trial.arm()
                trial.crash()
                trial.repair()
            finally:
                trial.load.close()
                trial.remove()
    except OSError as error:
        return str(error)
    return None


if __name__ == "__main__":
    why = reason_to_skip()
    if why:
        print(f"powercut: skipped: {why}\npowercut: 0 passed, 0 failed")
        sys.exit(1 if os.environ.get("FENCEGATE_REQUIRE_POWERCUT") == "1" else 0)
    crash.main("powercut", PowerCut, __doc__)
