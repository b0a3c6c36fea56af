"""Work at a gateway whose disk logs every write, each acknowledgement being a mark in the log; and what a disk that lost
its power must hold.

Runs as root in a guest whose disks are /dev/ubd*. The gateway's state and the home are file systems of one disk, so that
both lose their power at once.

    power_cut.py record WORLD STEPS OPTIONS   logs the writes to /dev/ubda in /dev/ubdb; the state is mounted with OPTIONS
    power_cut.py check WORLD CUT...           a disk for each cut: what was acknowledged before it, as "0.7,1.3"

Ends with 3 where a promise was broken.
"""

import json
import os
import random
import select
import subprocess
import sys
import time

from machine import LOGS, STATE, Machine, dmsetup, sh, tail

WORKERS = 3
NAMES = 6
LOGGED = "/dev/mapper/logged"


# --- the work: each step is told by its number alone


def step(worker, number):
    """What a worker does: a kind, a name, and bytes or a number."""
    rng = random.Random(worker * 1_000_003 + number)
    kind = rng.choices("save append overwrite truncate remove new".split(), (5, 3, 3, 1, 2, 2))[0]
    size = rng.choice((60, 900, 5000, 5000, 120_000))
    # No byte is zero: that is what a disk shows where nothing was written.
    token = f"<{worker}.{number}>".encode()
    return kind, f"f{rng.randrange(NAMES)}", (token * (size // len(token) + 1))[:size], rng.random()


def after(files, kind, name, data, where):
    """The files after a step, by name; those of before are left as they are."""
    files = dict(files)
    old = files.get(name, b"")
    at = int(len(old) * where)
    if kind == "save" or (kind == "new" and name not in files):
        files[name] = data
    elif kind == "append":
        files[name] = old + data
    elif kind == "overwrite":
        files[name] = old[:at] + data + old[at + len(data) :]
    elif kind == "truncate":
        files[name] = old[:at]
    elif kind == "remove":
        files.pop(name, None)
    return files


def execute(files, kind, name, data, where):
    """Does a step in the current directory, and returns when all of it is acknowledged as durable."""
    at = int(len(files.get(name, b"")) * where)
    if kind == "save":
        write(".new", os.O_CREAT | os.O_TRUNC, 0, data)
        os.rename(".new", name)
    elif kind == "new" and name not in files:
        write(name, os.O_CREAT | os.O_EXCL, 0, data)
    elif kind == "append":
        write(name, os.O_CREAT, len(files.get(name, b"")), data)
    elif kind == "overwrite":
        write(name, os.O_CREAT, at, data)
    elif kind == "truncate":
        write(name, os.O_CREAT, 0, b"", at)
    elif kind == "remove" and name in files:
        os.unlink(name)


def write(name, flags, at, data, size=None):
    fd = os.open(name, flags | os.O_WRONLY, 0o644)
    if size is not None:
        os.ftruncate(fd, size)
    os.pwrite(fd, data, at)
    os.fsync(fd)
    os.close(fd)


# --- the record


def mark(text):
    dmsetup("message", "logged", "0", "mark", text)


class Worker:
    """A process that works in a directory of the mount, one step after each word of `go`."""

    def __init__(self, number, who, path, steps):
        self.number, self.done = number, 0
        (go, self.go), (self.told, told) = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid:
            os.close(go), os.close(told)
            return
        os.setgroups([]), os.setgid(who.pw_gid), os.setuid(who.pw_uid)
        os.chdir(path)
        files = {}
        for n in range(steps):
            os.read(go, 1)
            execute(files, *step(number, n))
            files = after(files, *step(number, n))
            os.write(told, b".")
        os._exit(0)


def record(world, steps, options):
    sh("modprobe", "-a", "ext4", "dm-log-writes", "nfsv3")
    size = sh("blockdev", "--getsz", "/dev/ubda").strip()
    dmsetup("create", "logged", "--table", f"0 {size} log-writes /dev/ubda /dev/ubdb")
    machine = Machine(world, LOGGED, new=True)
    sh("mount", "-o", f"remount,{options}", STATE)
    for n in range(WORKERS):
        os.mkdir(f"{machine.ann.pw_dir}/w{n}")
        os.chown(f"{machine.ann.pw_dir}/w{n}", machine.ann.pw_uid, machine.ann.pw_gid)
    os.sync()
    machine.start_home()
    machine.mount(machine.start_server())
    mark("ready")
    path = f"/trellis/ann@lab{machine.ann.pw_dir}"
    work(machine, [Worker(n, machine.gateway, f"{path}/w{n}", steps) for n in range(WORKERS)], steps)
    mark("end")
    machine.end_server()
    machine.end_home()


def work(machine, workers, steps):
    """All steps. For the middle third of them the home is out of reach."""
    for w in workers:
        os.write(w.go, b".")
    while any(w.done < steps for w in workers):
        ready = select.select([w.told for w in workers if w.done < steps], [], [], 60)[0]
        if not ready:
            raise RuntimeError(f"nothing is acknowledged any more: {tail(f'{LOGS}/serve.log')}")
        for w in (w for w in workers if w.told in ready):
            if not os.read(w.told, 1):
                raise RuntimeError(f"worker {w.number} failed")
            w.done += 1
            mark(f"{w.number}.{w.done}")
            if w.done < steps:
                os.write(w.go, b".")
        slowest = min(w.done for w in workers)
        if machine.home and steps // 3 <= slowest < 2 * steps // 3:
            machine.end_home()
        elif not machine.home and slowest >= 2 * steps // 3:
            machine.start_home()
    for w in workers:
        os.waitpid(w.pid, 0)


# --- the check


def check(world, cuts):
    """All cuts, each on its disk, until one breaks a promise."""
    sh("modprobe", "-a", "ext4", "dm-mod")
    for n, cut in enumerate(cuts):
        began = time.monotonic()
        machine = Machine(world, f"/dev/ubd{'abcdefghijklmnop'[n]}")
        try:
            faults = look(machine, dict((int(w), int(s)) for w, s in (a.split(".") for a in cut.split(",") if a)))
            machine.end_server()
            machine.end_home()
            machine.unmount()
        except (RuntimeError, subprocess.CalledProcessError) as e:
            faults = [f"{e} {getattr(e, 'output', '')}", tail(f"{LOGS}/serve.log")]
        print(f"cut {n} behind {cut or 'nothing'}: {time.monotonic() - began:.1f} s", *faults, sep="\n  ", flush=True)
        if faults:
            sys.exit(3)


def look(machine, acknowledged):
    """What is wrong once the gateway and the home are up again, and all that is unsent was sent."""
    machine.start_home()
    machine.start_server()
    machine.ask("sync", "--timeout", "120")
    faults = []
    for home in json.loads(machine.ask("status", "--json"))["homes"]:
        if home["conflicts"] or home["parked"]:
            faults.append(f"nobody else changed anything, and yet: {json.dumps(home)}")
    for w in range(WORKERS):
        faults += compare(f"{machine.ann.pw_dir}/w{w}", w, acknowledged.get(w, 0))
    return faults


def compare(path, worker, done):
    """What is wrong with the directory of a worker of which so many steps were acknowledged. The next one may be done, or
    half done."""
    files = {}
    for n in range(done):
        files = after(files, *step(worker, n))
    kind, name, data, where = step(worker, done)
    then = after(files, kind, name, data, where)
    have = {n: open(f"{path}/{n}", "rb").read() for n in os.listdir(path)}
    at_will = {name} if kind != "save" else {".new"}
    faults = []
    for n in sorted(have.keys() | files.keys() | then.keys()):
        old, new, is_ = files.get(n), then.get(n), have.get(n)
        if is_ == old or is_ == new:
            continue
        if n not in at_will or not may_be(is_, old, new if n != ".new" else data):
            faults.append(f"{path}/{n} after {done} steps, then {kind} {name}: {show(is_)}, not {show(old)} or {show(new)}")
    return faults


def may_be(have, old, new):
    """Whether a file may be so while it is changed: each byte old, new or not yet written."""
    if have is None:
        return old is None or new is None
    old, new = old or b"", new or b""
    if len(have) > max(len(old), len(new)):
        return False
    fits = lambda i, b: b == 0 or b in old[i : i + 1] or b in new[i : i + 1]
    return all(fits(i, b) for i, b in enumerate(have))


def show(content):
    if content is None:
        return "nothing"
    return f"{len(content)} bytes {content[:12]!r}..{content[-12:]!r}"


if __name__ == "__main__":
    if sys.argv[1] == "record":
        record(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    else:
        check(sys.argv[2], sys.argv[3:])
