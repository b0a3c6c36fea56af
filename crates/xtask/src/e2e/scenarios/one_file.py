"""Writes, cuts, maps and reads one file at random, beside a copy of what it must hold.

Arguments: file, seed, seconds. The last line of the output has the number of calls and the content's SHA-256.
"""

import hashlib
import mmap
import os
import random
import sys
import time

LIMIT = 256 << 10
LONGEST = 64 << 10

path, seed, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
rng = random.Random(seed)
want = bytearray()
last = []


def show(what, *where):
    last.append(f"{what} {' '.join(map(str, where))} of {len(want)}")
    del last[:-30]


def check(at, have):
    wanted = want[at : at + len(have)]
    if have != wanted:
        off = next((i for i, (a, b) in enumerate(zip(have, wanted)) if a != b), len(wanted))
        print("\n".join(last), f"differs from byte {at + off} on", sep="\n")
        sys.exit(1)


def inside():
    """A range of bytes that the file has."""
    at = rng.randrange(len(want))
    return at, min(rng.randint(1, LONGEST), len(want) - at)


def put(at, data):
    want.extend(bytes(max(0, at + len(data) - len(want))))
    want[at : at + len(data)] = data


def fresh():
    """Bytes, and where they go."""
    at = rng.randrange(LIMIT)
    return at, rng.randbytes(min(rng.randint(1, LONGEST), LIMIT - at))


def cut(fd, size):
    os.ftruncate(fd, size)
    want.extend(bytes(max(0, size - len(want))))
    del want[size:]


def step(fd):
    act = rng.choices("read write cut map-read map-write sync reopen".split(), (6, 6, 6, 6, 6, 1, 1))[0]
    if act == "write":
        at, data = fresh()
        show(act, at, len(data))
        while data:
            n = os.pwrite(fd, data, at)
            put(at, data[:n])
            at, data = at + n, data[n:]
    elif act == "cut":
        size = rng.randrange(LIMIT)
        show(act, size)
        cut(fd, size)
    elif act == "map-write":
        at, data = fresh()
        show(act, at, len(data))
        if len(want) < at + len(data):
            cut(fd, at + len(data))
        with mmap.mmap(fd, at + len(data)) as pages:
            pages[at : at + len(data)] = data
            pages.flush()
        put(at, data)
    elif act == "sync":
        show(act)
        os.fsync(fd)
    elif act == "reopen":
        show(act)
        os.close(fd)
        fd = os.open(path, os.O_RDWR)
    elif want:
        at, n = inside()
        show(act, at, n)
        if act == "map-read":
            with mmap.mmap(fd, at + n, prot=mmap.PROT_READ) as pages:
                check(at, pages[at : at + n])
        else:
            have = os.pread(fd, n, at)
            check(at, have)
            assert len(have) == n, f"{len(have)} of {n} bytes"
    size = os.fstat(fd).st_size
    assert size == len(want), f"{last[-1]}: the size is {size}"
    return fd


fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
calls, end = 0, time.monotonic() + seconds
while time.monotonic() < end:
    fd = step(fd)
    calls += 1
os.fsync(fd)
os.close(fd)
with open(path, "rb") as file:
    check(0, file.read())
print(calls, "calls", hashlib.sha256(want).hexdigest())
