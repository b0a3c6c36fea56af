"""Work whose parts are killed meanwhile, and a look at what is left of it.

    kill_clients.py client NAME DIR PLACE SEED    a client that has the home's folder at DIR, until PLACE ends the connection
    kill_clients.py outside NAME DIR PLACE SEED   another program at the home itself
    kill_clients.py check DIR HOME PROMISES    what is wrong in DIR, and left over in HOME, where each worker's promises are
                                               a file in PROMISES; DIR is on a mount where HOME is -

PLACE is the ADDRESS:PORT of the scenario: what a worker promises goes there when it ends. Every line that is written tells
its writer, its number and a checksum. Folders: `own-NAME` belongs to one worker, `both` to the clients together, and
`shared` to everybody.
"""

import collections
import ctypes
import errno
import json
import os
import random
import re
import socket
import sys
import threading
import time
import traceback
import zlib

SLOT, SLOTS = 512, 128
NAMES = 12
# Who has got nothing done for so long hangs, in seconds.
HUNG = 150
# What a FUSE mount answers whose server was killed, or is about to come back.
GONE = {errno.ENOTCONN, errno.EIO, errno.ECONNABORTED, errno.ENOENT, errno.ESTALE, errno.ETIMEDOUT, errno.ENODEV}
CONFLICT = ".trellis-conflict-"


# --- tokens


def line(writer, number, size=0):
    text = f"{writer} {number} {size}"
    return f"{text} {zlib.crc32(text.encode()):08x}\n".encode()


def whole(writer, number, size):
    """A file that shows whether all of it is there, and nothing else."""
    one = line(writer, number, size)
    return (one * (size // len(one) + 1))[: max(size, len(one))]


def told(text):
    """What a line says of itself: writer, number, size."""
    try:
        writer, number, size, _ = text.decode().split(" ")
        found = writer, int(number), int(size)
    except ValueError:
        return None
    return found if line(*found) == text else None


def identity(data):
    """The token of a whole file, "" of an empty one; anything else is torn."""
    if not data:
        return ""
    first = told(data[: data.find(b"\n") + 1])
    return f"{first[0]}.{first[1]}" if first and data == whole(*first) else f"torn, {data[:60]}…{data[-60:]}"


# --- files


def put(path, flags, *parts):
    """Writes each (offset, bytes), or to the end where that is None; returns once they are acknowledged as durable."""
    fd = os.open(path, os.O_WRONLY | flags, 0o644)
    try:
        for at, data in parts:
            while data:
                n = os.write(fd, data) if at is None else os.pwrite(fd, data, at)
                data, at = data[n:], at if at is None else at + n
        os.fsync(fd)
    finally:
        os.close(fd)


def get(path):
    with open(path, "rb", buffering=0) as file:
        return file.read()


def exchange(a, b):
    """Two names change places, in one step (renameat2 with RENAME_EXCHANGE)."""
    if ctypes.CDLL(None, use_errno=True).renameat2(-100, os.fsencode(a), -100, os.fsencode(b), 2):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), b)


# --- what is promised


class Promises:
    """What each name may stand for, by tokens, where None is no file: one, unless the last change had no answer."""

    def __init__(self):
        self.may = {}
        # Appended and acknowledged in this order; appended without an answer.
        self.log, self.log_may = [], set()
        # By slot.
        self.slots = {str(n): [0] for n in range(SLOTS)}

    def of(self, name):
        return self.may.get(name, [None])

    def change(self, changes, act):
        """`changes` say what names stand for after `act`."""
        for name, then in changes.items():
            self.may[name] = list({*self.of(name), *then})
        act()
        self.may.update(changes)


def tree_of(path):
    """How the folders that lead to a path look now."""
    looks = []
    while path != "/" and len(looks) < 4:
        try:
            seen = os.stat(path)
            looks.append(f"{os.path.basename(path)} {seen.st_mode:o} {seen.st_uid}:{seen.st_gid}")
        except OSError as e:
            looks.append(f"{os.path.basename(path)} {errno.errorcode[e.errno]}")
        path = os.path.dirname(path)
    return looks


class Role(threading.Thread):
    """Works in one folder of a worker."""

    def __init__(self, worker, folder, seed):
        super().__init__(daemon=True)
        self.worker, self.name, self.dir = worker, f"{worker.name}-{folder}", os.path.join(worker.dir, folder)
        self.rng = random.Random(f"{seed}.{self.name}")
        self.number, self.done, self.failed, self.last = 0, 0, collections.Counter(), time.monotonic()
        self.longest = 0.0
        self.promises = Promises()

    def path(self, name):
        return os.path.join(self.dir, name)

    def fresh(self):
        self.number += 1
        return self.number

    def run(self):
        try:
            self.begin()
            while not self.worker.stop.is_set():
                began = time.monotonic()
                try:
                    self.step()
                except OSError as e:
                    if e.errno not in self.forgiven():
                        raise
                    self.failed[errno.errorcode[e.errno]] += 1
                    time.sleep(0.05)
                else:
                    self.done += 1
                    self.last = time.monotonic()
                    self.longest = max(self.longest, self.last - began)
                self.pause()
        except BaseException as e:
            last = traceback.extract_tb(e.__traceback__)[-1]
            self.worker.fault(f"{self.name}: {type(e).__name__}: {e}, by {last.line!r}, in {tree_of(self.dir)}")

    def forgiven(self):
        return GONE if self.worker.fuse else ()

    def begin(self):
        pass

    def pause(self):
        time.sleep(self.rng.random() * self.worker.rest)

    def save(self, name, size):
        """As editors do it: a new file, and then its name."""
        number = self.fresh()
        new = self.path(f".new-{name}-{self.worker.name}")
        put(new, os.O_CREAT | os.O_TRUNC, (0, whole(self.name, number, size)))
        token = f"{self.name}.{number}"
        self.promises.change({name: [token]}, lambda: os.rename(new, self.path(name)))

    def look(self, name):
        """What is seen is what was promised."""
        try:
            seen = identity(get(self.path(name)))
        except FileNotFoundError:
            # A mount that is just missing has no such folder.
            os.listdir(self.dir)
            seen = None
        self.judge(name, seen)

    def judge(self, name, seen):
        if seen not in self.promises.of(name):
            raise AssertionError(f"{name} is {seen}, and was {self.promises.of(name)}")


class Own(Role):
    """In a folder that nobody else changes, nothing fails, and everything stays."""

    KINDS = "save slots append remove move tree look foreign".split()

    def begin(self):
        empty = [(n * SLOT, self.slot(0)) for n in range(SLOTS)]
        self.insist(lambda: put(self.path("slots"), os.O_CREAT, *empty))
        self.insist(lambda: put(self.path("log"), os.O_CREAT))

    def insist(self, act):
        while True:
            try:
                return act()
            except OSError as e:
                if e.errno not in self.forgiven():
                    raise
                time.sleep(0.05)

    def slot(self, number):
        return (line(self.name, number) * SLOT)[:SLOT]

    def step(self):
        kind = self.rng.choices(self.KINDS, (6, 4, 4, 1, 2, 1, 4, 2))[0]
        getattr(self, f"step_{kind}")(f"s{self.rng.randrange(NAMES)}")

    def step_save(self, name):
        sizes = (60, 900, 3900) if self.worker.small else (60, 900, 5000, 40_000, 300_000)
        self.save(name, self.rng.choice(sizes))

    def step_slots(self, _):
        some = {self.rng.randrange(SLOTS): self.fresh() for _ in range(self.rng.choice((1, 3, 9)))}
        slots = self.promises.slots
        for n, number in some.items():
            slots[str(n)] = [*slots[str(n)], number]
        put(self.path("slots"), 0, *((n * SLOT, self.slot(number)) for n, number in some.items()))
        slots.update((str(n), [number]) for n, number in some.items())

    def step_append(self, _):
        number = self.fresh()
        self.promises.log_may.add(number)
        put(self.path("log"), os.O_APPEND, (None, line(self.name, number)))
        self.promises.log_may.remove(number)
        self.promises.log.append(number)

    def step_remove(self, name):
        if None not in self.promises.of(name):
            self.promises.change({name: [None]}, lambda: os.unlink(self.path(name)))

    def step_move(self, name):
        other = f"s{self.rng.randrange(NAMES)}"
        if other != name and None not in self.promises.of(name):
            changes = {other: self.promises.of(name), name: [None]}
            self.promises.change(changes, lambda: os.rename(self.path(name), self.path(other)))

    def step_tree(self, _):
        """A folder that gets another name when it is full; an older one is removed."""
        number = self.fresh()
        old, new = f"t{number}", f"u{number}"
        os.mkdir(self.path(old))
        token = f"{self.name}.{number}"
        full = whole(self.name, number, 700)
        self.promises.change({f"{old}/f": [token, ""]}, lambda: put(self.path(f"{old}/f"), os.O_CREAT, (0, full)))
        self.promises.may[f"{old}/f"] = [token]
        changes = {f"{new}/f": [token], f"{old}/f": [None]}
        self.promises.change(changes, lambda: os.rename(self.path(old), self.path(new)))
        trees = [n for n, may in self.promises.may.items() if n.startswith("u") and None not in may]
        if len(trees) > 5:
            doomed = self.path(trees[0])
            self.promises.change({trees[0]: [None]}, lambda: os.unlink(doomed))
            os.rmdir(os.path.dirname(doomed))

    def step_look(self, name):
        self.look(name)

    def step_foreign(self, name):
        """What another program saves at the home is seen whole, or not at all."""
        if self.worker.small:
            return
        try:
            data = get(os.path.join(self.worker.dir, "own-outside", name))
        except OSError as e:
            if e.errno not in (errno.ENOENT, errno.ESTALE):
                raise
            return
        if not identity(data).startswith("outside-"):
            raise AssertionError(f"own-outside/{name} is {identity(data)}")


class Both(Role):
    """Two clients of one server save the same names, and make names that only one can have made."""

    def step(self):
        if self.rng.random() < 0.3:
            return self.claim(f"x{int(time.time())}")
        name = f"c{self.rng.randrange(5)}"
        if self.rng.random() < 0.5:
            return self.look(name)
        return self.save(name, self.rng.choice((60, 3000, 50_000)))

    def claim(self, name):
        if name in self.promises.may:
            return
        number = self.fresh()
        token = f"{self.name}.{number}"
        data = whole(self.name, number, 500)
        # Empty until the bytes have come, and also another's.
        self.promises.may[name] = [None, "", token]
        try:
            put(self.path(name), os.O_CREAT | os.O_EXCL, (0, data))
            self.promises.may[name] = [token]
        except FileExistsError:
            self.promises.may[name] = [None]

    def judge(self, name, seen):
        if seen is None or seen.startswith((f"{self.name}.", "torn")):
            super().judge(name, seen)

    def look(self, name):
        try:
            super().look(name)
        except OSError as e:
            # The other client has replaced the file.
            if e.errno != errno.ESTALE:
                raise


class Shared(Role):
    """Others change the same files. Nothing is destroyed on purpose, so that no token is ever missing."""

    def __init__(self, *args):
        super().__init__(*args)
        self.tokens = []

    def forgiven(self):
        return (*GONE, errno.EEXIST)

    def step(self):
        self.rng.choice((self.make, self.append, self.publish, self.keep))()

    def moment(self, kind):
        """A name that others use at the same moment."""
        return self.path(f"{kind}{int(time.time() * 2)}")

    def token(self):
        return line(self.name, self.fresh())

    def make(self):
        token = self.token()
        put(self.moment("n"), os.O_CREAT | os.O_EXCL, (0, token))
        self.tokens.append(token.decode())

    def append(self):
        token = self.token()
        put(self.path(f"log-{self.worker.name}"), os.O_APPEND, (None, token))
        self.tokens.append(token.decode())

    def publish(self):
        token = self.token()
        own = self.path(f"draft-{self.name}-{self.number}")
        put(own, os.O_CREAT | os.O_EXCL, (0, token))
        self.tokens.append(token.decode())
        os.link(own, self.moment("p"))
        os.unlink(own)

    def keep(self):
        """A name of its own among those of others."""
        self.save(f"mine-{self.worker.name}-{self.rng.randrange(5)}", 800)


class Outsider(Shared):
    """The same without us, at the home."""

    LOGS = ("log-fuse", "log-nfs")

    def begin(self):
        for log in self.LOGS:
            put(self.path(log), os.O_CREAT)

    def append(self):
        token = self.token()
        name = self.rng.choice(self.LOGS) if self.rng.random() < 0.6 else os.path.basename(self.moment("n"))
        put(self.path(name), os.O_CREAT | os.O_APPEND, (None, token))
        self.tokens.append(token.decode())

    def publish(self):
        """Saves a log as an editor does, and keeps the old one."""
        if self.rng.random() < 0.7:
            return super().publish()
        token = self.token()
        log, new = self.path(self.rng.choice(self.LOGS)), self.path(f"was-{self.number}")
        put(new, os.O_CREAT, (0, get(log)[-2000:] + token))
        exchange(new, log)
        self.tokens.append(token.decode())


class Worker:
    def __init__(self, kind, name, path, place, seed):
        self.name, self.dir, self.fuse, self.small = name, path, name == "fuse", kind == "outside"
        # Mean pause of twice that, in seconds: few changes for each kill of who is slow, many for a long queue.
        self.rest = 0.08
        self.stop = threading.Event()
        self.line = socket.create_connection(place.split(":"))
        roles = [(Own, f"own-{name}"), (Outsider, "shared")]
        if kind == "client":
            roles = [(Own, f"own-{name}"), (Both, "both"), (Shared, "shared")]
        self.roles = [role(self, folder, seed) for role, folder in roles]

    def run(self):
        for role in self.roles:
            role.start()
        began, n = time.monotonic(), 0
        self.line.settimeout(1)
        while not self.stop.is_set():
            try:
                if not self.line.recv(1):
                    self.stop.set()
            except TimeoutError:
                pass
            n += 1
            for role in self.roles:
                if time.monotonic() - role.last > HUNG:
                    self.fault(f"{role.name}: HUNG: nothing done for {HUNG} s")
            if n % 10 == 0:
                self.tell(began)
        for role in self.roles:
            role.join(HUNG)
            if role.is_alive():
                self.fault(f"{role.name}: HUNG: does not end")
        self.tell(began)
        promised = {role.name: self.promised(role) for role in self.roles}
        self.line.settimeout(None)
        self.line.sendall(json.dumps(promised).encode())
        self.line.close()

    def promised(self, role):
        p = role.promises
        folder = os.path.basename(role.dir)
        own = isinstance(role, Own)
        return {
            "folder": folder,
            "done": role.done,
            "may": p.may,
            "log": p.log if own else None,
            "log_may": sorted(p.log_may),
            "slots": p.slots if own else None,
            "tokens": getattr(role, "tokens", []),
        }

    def tell(self, began):
        did = ", ".join(f"{r.name} {r.done}, longest {r.longest:.1f} s, {dict(r.failed)}" for r in self.roles)
        print(f"{time.monotonic() - began:.0f} s: {did}", flush=True)

    def fault(self, text):
        print(f"FAULT {text}", flush=True)
        os._exit(1)


# --- the look at what is left


def check(path, home, promises):
    """All that is wrong."""
    roles = {}
    for file in os.listdir(promises):
        roles.update(json.load(open(os.path.join(promises, file))))
    faults = []
    for name, role in roles.items():
        if role["log"] is not None:
            faults += check_own(os.path.join(path, role["folder"]), name, role)
    both = {n: r for n, r in roles.items() if r["folder"] == "both"}
    faults += check_both(os.path.join(path, "both"), both)
    faults += check_shared(os.path.join(path, "shared"), {n: r for n, r in roles.items() if r["folder"] == "shared"})
    return faults + (check_rest(home) if home != "-" else [])


def files(path):
    for top, _, names in os.walk(path):
        for name in names:
            yield os.path.relpath(os.path.join(top, name), path)


def check_own(path, writer, role):
    faults = []
    there = {n for n in files(path) if not n.startswith(".new-")} - {"log", "slots"}
    for name in sorted(there | role["may"].keys()):
        is_ = identity(get(os.path.join(path, name))) if name in there else None
        if is_ not in role["may"].get(name, [None]):
            faults.append(f"{path}/{name} is {is_}, and was {role['may'].get(name)}")
    return faults + check_slots(path, writer, role) + check_log(path, writer, role)


def check_slots(path, writer, role):
    faults, data = [], get(os.path.join(path, "slots"))
    for n, may in role["slots"].items():
        part = data[int(n) * SLOT :][:SLOT]
        if not any(part == (line(writer, number) * SLOT)[:SLOT] for number in may):
            faults.append(f"{path}/slots: slot {n} is {part[:40]}…{part[-40:]}, and was {may}")
    return faults


def check_log(path, writer, role):
    text = get(os.path.join(path, "log")).splitlines(keepends=True)
    found = [told(one) for one in text]
    numbers = [f[1] for f in found if f and f[0] == writer]
    known = {*role["log"], *role["log_may"]}
    if numbers == sorted(set(numbers)) and len(numbers) == len(text) and {*role["log"]} <= {*numbers} <= known:
        return []
    strange = [one for one, f in zip(text, found) if not f or f[0] != writer or f[1] not in known]
    lost = sorted({*role["log"]} - {*numbers})
    twice = sorted({n for n in numbers if numbers.count(n) > 1})
    return [f"{path}/log: {len(text)} lines, lost {lost[:20]}, twice {twice[:20]}, strange {strange[:5]}"]


def check_both(path, roles):
    faults = []
    there = {n for n in files(path) if not n.startswith(".new-")}
    for name in sorted(there.union(*(r["may"] for r in roles.values()))):
        is_ = identity(get(os.path.join(path, name))) if name in there else None
        may = {w: r["may"][name] for w, r in roles.items() if name in r["may"]}
        sure = [w for w, m in may.items() if None not in m]
        if name[0] == "x":
            # One alone has made it.
            good = len(sure) < 2 and is_ in (may[sure[0]] if sure else [None, *sum(may.values(), [])])
        else:
            # It is from who saved it last.
            good = not sure if is_ is None else any(is_ in m for m in may.values())
        if not good:
            faults.append(f"{path}/{name} is {is_}, and was {may}")
    return faults


def check_shared(path, roles):
    faults = []
    text = {name: get(os.path.join(path, name)) for name in files(path)}
    # Ours may stand behind a part of theirs, in the copy of a conflict.
    token = re.compile(b"(?:%s) [0-9]+ 0 [0-9a-f]{8}\n" % "|".join(roles).encode())
    found = {one for data in text.values() for one in token.findall(data)}
    for writer, role in roles.items():
        lost = [t for t in role["tokens"] if t.encode() not in found]
        if lost:
            faults.append(f"{path}: lost of {writer}: {len(lost)} of {len(role['tokens'])}: {lost[:10]}")
        for name, may in role["may"].items():
            is_ = identity(text[name]) if name in text else None
            if is_ not in may:
                faults.append(f"{path}/{name} is {is_}, and was {may}")
    copies = sum(CONFLICT in name for name in text)
    counts = ", ".join(f"{len(r['tokens'])} of {w}" for w, r in roles.items())
    print(f"{path}: {len(text)} files, {copies} copies of conflicts, tokens: {counts}")
    return faults


def check_rest(home):
    """What of ours is left at the home, but its cache and the copies of conflicts in the folder that others change."""
    faults = []
    for top, folders, names in os.walk(home):
        if top == f"{home}/.cache":
            folders.remove("trellis")
        for name in (*folders, *names):
            path = os.path.join(top, name)
            copy = CONFLICT in name and top == f"{home}/work/shared"
            if "trellis" in name and not copy or top.startswith(f"{home}/.cache"):
                faults.append(f"{path} is left")
    return faults


if __name__ == "__main__":
    if sys.argv[1] == "check":
        wrong = check(*sys.argv[2:])
        print(*wrong, sep="\n")
        sys.exit(bool(wrong))
    Worker(*sys.argv[1:]).run()
