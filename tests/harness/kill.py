#!/usr/bin/env python3
"""SIGKILL under load, restart, look.

What a dead process can't lose is what the kernel already has: this does not see a missing sync (powercut.py does). It
sees intents, leftovers, the order of things in a restart.
"""

import crash


class Kill(crash.Round):
    def prepare(self):
        self.folder.mkdir()

    def crash(self):
        self.load.stopped = True
        self.gateway.process.kill()


if __name__ == "__main__":
    crash.main("kill", Kill, __doc__)
