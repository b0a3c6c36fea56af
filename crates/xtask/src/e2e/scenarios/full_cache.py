"""A writer, and a look at what arrived of it.

    full_cache.py big DIR NAME NOTES STOP MIB     writes the file NAME of so many MiB
    full_cache.py small DIR NAME NOTES STOP MIB   makes files NAME-0, NAME-1, … until STOP exists
    full_cache.py check DIR NAME NOTES            compares what is in DIR with what NOTES says was acknowledged

NOTES gets a line for each acknowledgement: the MiB that are durable of a big file, the number of the last small one. A
writer goes on after its server was killed, once. At its end it prints, as JSON, what its longest call took, the longest time
without an acknowledgement of the small writer, and how often it lost the server.
"""

import errno
import json
import os
import random
import sys
import time

MIB = 1 << 20
BLOCK = 256 << 10
# A big file is made durable after so many MiB.
SYNC = 8
# What a FUSE mount answers whose server was killed, or is about to come back.
GONE = {errno.ENOTCONN, errno.EIO, errno.ECONNABORTED, errno.ENOENT, errno.ESTALE, errno.ENODEV}
# A server that was killed is back so soon.
BACK = 30


def content(name, number, size=BLOCK):
    return random.Random(f"{name} {number}").randbytes(size)


class Clock:
    """The longest of the calls that went through it."""

    def __init__(self):
        self.longest = ("", 0.0)

    def call(self, what, work, *args):
        began = time.monotonic()
        done = work(*args)
        self.longest = max(self.longest, (what, time.monotonic() - began), key=lambda found: found[1])
        return done


class Writer:
    def __init__(self, top, name, notes, stop, mib):
        self.top, self.name, self.stop, self.mib = top, name, stop, int(mib)
        self.notes = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self.acknowledged = 0
        self.clock = Clock()
        self.lost = 0
        self.idle = 0.0
        self.since = time.monotonic()

    def acknowledge(self, number):
        self.acknowledged = number
        now = time.monotonic()
        self.idle, self.since = max(self.idle, now - self.since), now
        os.write(self.notes, f"{number}\n".encode())

    def survive(self, work):
        """Does the work, again from what is acknowledged where the server was lost."""
        while True:
            try:
                return work()
            except OSError as e:
                if e.errno not in GONE or self.lost:
                    raise
                self.lost += 1
                self.wait_for_server()

    def wait_for_server(self):
        until = time.monotonic() + BACK
        while True:
            try:
                os.scandir(self.top).close()
                self.since = time.monotonic()
                return
            except OSError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)

    def big(self):
        path = f"{self.top}/{self.name}"
        file = self.clock.call("open", os.open, path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            self.look(file)
            blocks = MIB // BLOCK
            for number in range(self.acknowledged * blocks, self.mib * blocks):
                data = content(self.name, number)
                wrote = self.clock.call("write", os.pwrite, file, data, number * BLOCK)
                if wrote != BLOCK:
                    raise RuntimeError(f"{wrote} bytes were written of {BLOCK}")
                if (number + 1) % (SYNC * blocks) == 0:
                    self.clock.call("fsync", os.fsync, file)
                    self.acknowledge((number + 1) // blocks)
        finally:
            os.close(file)

    def look(self, file):
        """What was acknowledged before the server was killed is there."""
        if os.fstat(file).st_size < self.acknowledged * MIB:
            raise RuntimeError(f"{self.name} has {os.fstat(file).st_size} bytes of {self.acknowledged} MiB")
        if self.acknowledged:
            last = self.acknowledged * MIB // BLOCK - 1
            read = self.clock.call("read", os.pread, file, BLOCK, last * BLOCK)
            if read != content(self.name, last):
                raise RuntimeError(f"{self.name} has other bytes after the server was killed")

    def small(self):
        while not os.path.exists(self.stop):
            number = self.acknowledged + 1
            self.clock.call("a small file", self.one, f"{self.top}/{self.name}-{number}", number)
            self.acknowledge(number)

    def one(self, path, number):
        file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            os.write(file, content(self.name, number, 2048 + number % 4096))
        finally:
            os.close(file)


def check(top, name, notes):
    with open(notes) as lines:
        last = max(int(line) for line in lines)
    if not os.path.exists(f"{top}/{name}"):
        for number in range(1, last + 1):
            with open(f"{top}/{name}-{number}", "rb") as file:
                assert file.read() == content(name, number, 2048 + number % 4096), f"{name}-{number}"
        return
    assert os.stat(f"{top}/{name}").st_size == last * MIB, os.stat(f"{top}/{name}")
    with open(f"{top}/{name}", "rb") as file:
        for number in range(last * MIB // BLOCK):
            assert file.read(BLOCK) == content(name, number), f"block {number} of {name}"


def main(what, *args):
    if what == "check":
        return check(*args)
    writer = Writer(*args)
    began = time.monotonic()
    writer.survive(writer.big if what == "big" else writer.small)
    call, longest = writer.clock.longest
    took = time.monotonic() - began
    told = {"call": call, "longest": longest, "idle": writer.idle, "lost": writer.lost, "took": took}
    print(json.dumps(told | {"acknowledged": writer.acknowledged}))


main(*sys.argv[1:])
