#!/usr/bin/env python3
"""Power cuts under load: the file system under the store loses everything that no sync has brought to its disk.

The store lies on an ext4 image behind a loop device (disk.py). From within the partner stand-in, at the moment when a
call arrives, a cut finds in a few cycles what one at random times finds in hundreds. Cuts while a store is made, started,
restored or stopped are starts.py's. Needs root and loop devices; without them it is skipped, unless
FENCEGATE_REQUIRE_POWERCUT=1 makes that a failure.
"""

import crash
import disk


class PowerCut(crash.Round):
    def prepare(self):
        self.disk = disk.Disk(self.folder)
        self.disk.prepare()

    def arm(self):
        self.disk.arm()

    def crash(self):
        self.disk.cut()

    def repair(self):
        self.disk.repair()

    def remove(self):
        self.disk.remove()


if __name__ == "__main__":
    disk.skip_or_go_on("powercut")
    crash.main("powercut", PowerCut, __doc__)
