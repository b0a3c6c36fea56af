"""Days on which an account is out of quota, a clock is set, a key is withdrawn, somebody starts a second server, and a disk
takes no writes.

    bad_days.py WORLD   on a guest whose /dev/ubda is empty; ends with an exception where a promise is broken
"""

import contextlib
import ctypes
import errno
import json
import os
import subprocess
import sys
import time

from machine import LOGS, STATE, Machine, end_all_of, kill, sh, stop_all_of, tail

MIB = 1 << 20


class Quota(ctypes.Structure):
    """struct dqblk of quotactl(2)."""

    _fields_ = [(name, ctypes.c_uint64) for name in "bhard bsoft used ihard isoft inodes btime itime".split()]
    _fields_.append(("valid", ctypes.c_uint32))


def set_quota(who, size):
    """Bytes that an account may use in its home; 0: any."""
    limits = 1  # QIF_BLIMITS
    set_user = 0x800008 << 8  # QCMD(Q_SETQUOTA, USRQUOTA)
    libc = ctypes.CDLL(None, use_errno=True)
    quota = Quota(bhard=size // 1024, valid=limits)
    if libc.quotactl(set_user, b"/dev/mapper/home", who.pw_uid, ctypes.byref(quota)) != 0:
        raise OSError(ctypes.get_errno(), "quotactl")


def content(seed, size):
    token = f"<{seed}>".encode()
    return (token * (size // len(token) + 1))[:size]


def put(path, data, flags=os.O_CREAT | os.O_TRUNC):
    """Writes a file until it is acknowledged."""
    fd = os.open(path, flags | os.O_WRONLY, 0o644)
    try:
        for at in range(0, len(data), MIB):
            os.pwrite(fd, data[at : at + MIB], at)
        os.fsync(fd)
    finally:
        os.close(fd)


def expect(found, wanted, what):
    if found != wanted:
        raise RuntimeError(f"{what}: {str(found)[:2000]}, not {str(wanted)[:200]}\n{tail(f'{LOGS}/serve.log')}")


def read(path):
    with open(path, "rb") as file:
        return file.read()


def wait_until(what, is_so, seconds=90):
    until = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > until:
            raise RuntimeError(f"{what}: not within {seconds} s\n{tail(f'{LOGS}/serve.log')}")
        time.sleep(0.2)


@contextlib.contextmanager
def acting(who):
    """What is done to files meanwhile is done by this account."""
    os.setegid(who.pw_gid), os.seteuid(who.pw_uid)
    try:
        yield
    finally:
        os.seteuid(0), os.setegid(0)


class Day:
    """A machine with a home that is mounted, whose files are told by their bytes."""

    def __init__(self, machine):
        self.machine = machine
        self.there = machine.ann.pw_dir
        self.here = f"/trellis/ann@lab{self.there}"
        self.files = {}

    def status(self):
        (home,) = json.loads(self.machine.ask("status", "--json"))["homes"]
        return home

    def user(self):
        return acting(self.machine.gateway)

    def put(self, name, data):
        with self.user():
            put(f"{self.here}/{name}", data)
        self.files[name] = data

    def read(self, name):
        with self.user():
            return read(f"{self.here}/{name}")

    def free(self):
        with self.user():
            space = os.statvfs(self.here)
        return space.f_bavail * space.f_frsize

    def all_is_well(self):
        """All that was acknowledged is at the home, is seen here, and was in nobody's way."""
        self.machine.ask("sync", "--timeout", "120")
        for name, data in self.files.items():
            for where, found in (("at the home", read(f"{self.there}/{name}")), ("here", self.read(name))):
                expect(self.difference(found, data), None, f"what {name} has {where} that was not written")
        visible = {name for name in os.listdir(self.there) if name not in (".cache", "lost+found")}
        expect(visible, set(self.files), "names at the home")
        status = self.status()
        expect((status["conflicts"], status["parked"], status["unsent_ops"]), (0, [], 0), "the status")

    def difference(self, found, wanted):
        """Where bytes differ from what they are to be, and what is known of the home then."""
        if found == wanted:
            return None
        first = next((n for n, (a, b) in enumerate(zip(found, wanted)) if a != b), min(len(found), len(wanted)))
        what = f"{len(found)} bytes instead of {len(wanted)}, from {first} on {found[first : first + 40]}"
        return f"{what}; {self.status()}; {sh(*self.machine.trellis('conflicts', '--state', f'{STATE}/trellis'))}"

    def away(self):
        self.machine.end_home()

    def back(self):
        self.machine.start_home()


# --- the days


def out_of_quota(day):
    """What the quota leaves no room for is refused at once; what the home refuses later waits, and is told once."""
    ann = day.machine.ann
    set_quota(ann, 8 * MIB)
    data, taken = content("quota", 16 * MIB), 0
    wait_until("the quota", lambda: day.free() <= 8 * MIB)
    free = day.free()
    with day.user():
        fd = os.open(f"{day.here}/quota", os.O_CREAT | os.O_WRONLY, 0o644)
        try:
            while taken < len(data):
                os.pwrite(fd, data[taken : taken + 100_000], taken)
                os.fsync(fd)
                taken += 100_000
        except OSError as e:
            expect(e.errno in (errno.ENOSPC, errno.EDQUOT), True, f"refused for want of space ({e})")
        finally:
            os.close(fd)
    print(f"{taken} bytes were taken where {free} were free", flush=True)
    expect(free - MIB < taken <= free, True, "what fits is taken, and no more")
    day.files["quota"] = data[:taken]
    day.all_is_well()
    # A home that is away cannot say that it has no room.
    day.away()
    day.put("late", content("late", 2 * MIB))
    day.back()
    wait_until("the refusal", lambda: any("quota" in one["why"] for one in day.status()["parked"]))
    expect(day.read("late") == day.files["late"], True, "what waits is there")
    for told in (True, False):
        try:
            with day.user():
                put(f"{day.here}/late", day.files["late"][:1], flags=0)
        except OSError as e:
            expect((told, e.errno in (errno.EDQUOT, errno.ENOSPC)), (True, True), f"the reason is told once ({e})")
        else:
            expect(told, False, "the refusal of what had been taken is told")
    set_quota(ann, 0)
    day.machine.ask("retry", "ann@lab")
    day.all_is_well()


def clock_is_set(day):
    """Forwards and back, here and so at the home, with changes under way and with a home that is away."""
    began = time.time()
    for n, step in enumerate((86_400, -172_800, 3_600, 90_000)):
        day.put(f"before-{n}", content(f"before-{n}", 5000))
        if n % 2:
            day.away()
            day.put(f"away-{n}", content(f"away-{n}", 200_000))
        sh("date", "-s", f"@{int(time.time()) + step}")
        day.put(f"after-{n}", content(f"after-{n}", 5000))
        day.put("again", content(f"again-{n}", 7000))
        if n % 2:
            day.machine.end_server()
            day.back()
            day.machine.start_server()
        day.all_is_well()
        # Another program writes there: clients see it, whatever the times say.
        theirs = content(f"theirs-{n}", 6000)
        path = f"{day.there}/again"
        sh("setpriv", f"--reuid={day.machine.ann.pw_uid}", "sh", "-c", f"printf %s '{theirs.decode()}' > {path}")
        day.files["again"] = theirs
        wait_until("what another program wrote", lambda: day.read("again") == theirs)
        day.all_is_well()
    print(f"the clock is {time.time() - began:.0f} s ahead of where it began", flush=True)


def key_is_withdrawn(day):
    """In the middle of what goes home: nothing is lost, and it goes on when the key is let in again."""
    machine = day.machine
    keys = f"{machine.world}/keys/ann"
    for n in range(8):
        if n == 2:
            stop_all_of(machine.ann)
        day.put(f"key-{n}", content(f"key-{n}", 4 * MIB))
    expect(day.status()["unsent_ops"] > 0, True, "something is on its way when the key is withdrawn")
    os.rename(keys, keys + ".gone")
    end_all_of(machine.ann)
    for n in range(8):
        day.put(f"no-key-{n}", content(f"no-key-{n}", 100_000))
    wait_until("the state", lambda: day.status()["state"] in ("down", "login needed"))
    print(f"without its key: {day.status()['state']}: {day.status()['reason']}", flush=True)
    expect(day.status()["unsent_ops"] > 0, True, "what cannot go is kept")
    os.rename(keys + ".gone", keys)
    day.all_is_well()


def second_server(day):
    """Two are started on one state directory: the second one says so and ends; when the first one dies it takes over."""
    machine = day.machine
    second = machine.trellis("serve", "--state", f"{STATE}/trellis", "--hosts", "*")
    out = subprocess.run(second, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
    print(f"a second server: {out.stdout.strip()[-300:]}", flush=True)
    expect(out.returncode != 0 and str(machine.server.pid) in out.stdout, True, "it is refused, and told by whom")
    day.put("first", content("first", 3000))
    day.away()
    day.put("unsent", content("unsent", 300_000))
    kill(machine.server)
    machine.start_server()
    day.back()
    day.all_is_well()


def refused(day, name):
    """What nobody can make durable is not acknowledged, and soon said to be so."""
    began = time.monotonic()
    try:
        with day.user():
            put(f"{day.here}/{name}", content(name, 5000))
    except OSError as e:
        expect(e.errno, errno.EIO, f"the reason why {name} is not taken")
    else:
        expect(name, None, "nothing is acknowledged that is not on a disk, as is")
    expect(time.monotonic() - began < 30, True, f"{name} is refused within 30 s")


def disk_fails(day):
    """The gateway's: what was acknowledged before arrives when the disk works again, and nothing was acknowledged since."""
    machine = day.machine
    day.put("early", content("early", 400_000))
    day.away()
    day.put("kept", content("kept", 300_000))
    machine.parts["state"].fail()
    for n in range(4):
        refused(day, f"refused-{n}")
    expect(day.read("kept") == day.files["kept"], True, "what is on the disk can be read")
    why = day.status()["journal"]
    print(f"accepts no changes: {why}", flush=True)
    expect(bool(why), True, "status says that no change is accepted")
    machine.end_server()
    machine.parts["state"].mend()
    machine.start_server()
    day.back()
    day.all_is_well()


def home_disk_fails(day):
    """What the home cannot make durable stays here, however much of it shows there until it is mounted again."""
    day.put("before", content("before", 200_000))
    day.all_is_well()
    day.machine.parts["home"].fail()
    for n in range(4):
        day.put(f"waits-{n}", content(f"waits-{n}", 30_000))
    day.put("before", content("after", 200_000))
    time.sleep(5)
    status = day.status()
    print(f"{status['unsent_ops']} changes wait, {len(status['parked'])} were refused: {status['parked'][:1]}", flush=True)
    expect(status["unsent_ops"] > 0, True, "what the home has not made durable is kept")
    day.away()
    day.machine.parts["home"].mend()
    day.back()
    day.machine.ask("retry", "ann@lab")
    day.all_is_well()


def main(world):
    sh("modprobe", "-a", "ext4", "quota_v2", "dm-mod", "dm-flakey", "nfsv3")
    machine = Machine(world, "/dev/ubda", new=True)
    day = Day(machine)
    day.back()
    machine.mount(machine.start_server())
    for each in (out_of_quota, clock_is_set, key_is_withdrawn, second_server, disk_fails, home_disk_fails):
        began = time.monotonic()
        each(day)
        for name in list(day.files):
            with day.user():
                os.unlink(f"{day.here}/{name}")
            del day.files[name]
        day.all_is_well()
        print(f"{each.__name__}: {time.monotonic() - began:.1f} s", flush=True)
    machine.end_server()
    machine.end_home()


if __name__ == "__main__":
    main(sys.argv[1])
