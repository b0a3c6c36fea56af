"""Work on a mount while the way to its home is cut, and a look at what each answer promised.

    reconnect.py read DIR HOME STOP           cold files, compared byte by byte with those at the home
    reconnect.py write DIR HOME STOP WHEN     a long file; what was synced must be at the home
    reconnect.py names DIR HOME STOP WHEN     appends, O_EXCL creates, renames, links and removals, each once

DIR is on the mount, HOME the same folder at the home. They go on until the file STOP is there and something was done; an
error of any call is a failure. WHEN: an answer is true of the home after `call` (strict), `sync` (cto) or in the `end` (wb).
"""

import os
import random
import sys
import time

PART = 256 << 10
# Bytes of the long file until it is begun again.
LONG = 24 << 20
# Pauses of who waits for no home, so that it keeps up.
UNSENT = 0.5


def noise(number, size):
    return random.Random(number).randbytes(size)


def all_of(path):
    with open(path, "rb") as file:
        return file.read()


def differs(one, other):
    """Where two contents differ, and whether one has zeros there."""
    at = next((i for i, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))
    zeros = len(one[at:]) - len(one[at:].lstrip(b"\0"))
    return f"at {at} of {len(other)}, length {len(one)}, {zeros} zeros follow"


def same(what, got, wanted):
    if got != wanted:
        sys.exit(f"{what}: {differs(got, wanted)}")


def read(here, home, stop):
    names = sorted(name for name in os.listdir(home) if name.startswith("bulk"))
    for count, name in enumerate(names):
        if count and os.path.exists(stop):
            break
        wanted = all_of(f"{home}/{name}")
        with open(f"{here}/{name}", "rb", buffering=0) as file:
            at = 0
            while part := file.read(PART):
                same(f"{name} read at {at}", part, wanted[at : at + len(part)])
                at += len(part)
            if at != len(wanted):
                sys.exit(f"{name} ends at {at} of {len(wanted)}")
            for at in random.Random(count).sample(range(len(wanted)), 20):
                part = os.pread(file.fileno(), 1000, at)
                same(f"{name} again at {at}", part, wanted[at : at + len(part)])
    print(f"{count} long files read")


def write(here, home, stop, when):
    done, begun = 0, 0
    while not done or not os.path.exists(stop):
        name, begun = f"long{begun % 3}", begun + 1
        fd = os.open(f"{here}/{name}", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        sent = bytearray()
        while len(sent) < LONG and (not sent or not os.path.exists(stop)):
            part = noise(done, 2 << 20)
            for at in range(0, len(part), PART):
                os.pwrite(fd, part[at : at + PART], len(sent) + at)
            sent += part
            done += 1
            os.fsync(fd)
            if when != "end":
                same(f"{name} after fsync", all_of(f"{home}/{name}"), bytes(sent))
            else:
                time.sleep(UNSENT)
        os.close(fd)
        if when != "end":
            same(f"{name} after close", all_of(f"{home}/{name}"), bytes(sent))
        same(f"{name} here", all_of(f"{here}/{name}"), bytes(sent))
    print(f"{done} parts of 2 MiB written")


class Names:
    """Each call once: a repeated one would find its own traces (EEXIST, ENOENT), or leave its line twice."""

    def __init__(self, here, home, when):
        self.here, self.home, self.when = here, home, when
        self.log = b""

    def called(self, what, true_at_home):
        if self.when == "call" and not true_at_home():
            sys.exit(f"{what} returned and is not at the home")

    def append(self, number):
        line = b"%d %s\n" % (number, noise(number, 20).hex().encode())
        fd = os.open(f"{self.here}/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(fd, line)
        self.log += line
        os.fsync(fd)
        os.close(fd)
        if self.when != "end":
            same("the log after fsync", all_of(f"{self.home}/log"), self.log)
        else:
            time.sleep(UNSENT)

    def step(self, number):
        here, home = self.here, self.home
        content = b"content %d\n" % number
        fd = os.open(f"{here}/new{number}", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        self.called("O_EXCL", lambda: os.path.exists(f"{home}/new{number}"))
        os.write(fd, content)
        os.close(fd)
        os.mkdir(f"{here}/dir{number}")
        self.called("mkdir", lambda: os.path.isdir(f"{home}/dir{number}"))
        os.rename(f"{here}/new{number}", f"{here}/dir{number}/moved")
        self.called("rename", lambda: all_of(f"{home}/dir{number}/moved") == content)
        if number % 3 == 0:
            os.symlink("moved", f"{here}/dir{number}/sym")
            self.called("symlink", lambda: os.path.islink(f"{home}/dir{number}/sym"))
        if number % 5 == 0:
            os.unlink(f"{here}/dir{number}/moved")
            self.called("unlink", lambda: not os.path.exists(f"{home}/dir{number}/moved"))

    def check(self, number):
        inside = set()
        if number % 3 == 0:
            inside.add("sym")
        if number % 5:
            inside.add("moved")
            same(f"dir{number}/moved", all_of(f"{self.home}/dir{number}/moved"), b"content %d\n" % number)
        there = set(os.listdir(f"{self.home}/dir{number}"))
        if there != inside:
            sys.exit(f"dir{number} has {there}, not {inside}")


def names(here, home, stop, when):
    work, count = Names(here, home, when), 0
    while count < 10 or not os.path.exists(stop):
        work.step(count)
        work.append(count)
        count += 1
    os.close(os.open(f"{here}/end", os.O_CREAT | os.O_EXCL))
    # The conductor calls `trellis sync`, and says so.
    deadline = time.time() + 200
    while not os.path.exists(f"{stop}ped"):
        if time.time() > deadline:
            sys.exit("nobody has synced")
        time.sleep(0.05)
    same("the log in the end", all_of(f"{home}/log"), work.log)
    for number in range(count):
        work.check(number)
    there = {name for name in os.listdir(home)}
    wanted = {f"dir{number}" for number in range(count)} | {"log", "end"}
    if there != wanted:
        sys.exit(f"at the home are also {there - wanted}, and not {wanted - there}")
    print(f"{count} rounds of names")


if __name__ == "__main__":
    {"read": read, "write": write, "names": names}[sys.argv[1]](*sys.argv[2:])
