"""Changes a tree on a mount at random, and a shadow of it on a local disk in the same way.

Arguments: the tree, its shadow, seed. Commands come by standard input, a line each: `go N` makes N calls in both,
`compare PATH` compares the tree at PATH with the shadow. Each is answered by a line of JSON: `differs` is what was not the
same, `last` are the last calls that did something.

A few names, sizes, contents and times in whole seconds come again and again, so that they do not tell one state from another.
"""

import collections
import errno
import json
import os
import random
import re
import shutil
import stat
import sys

top, shadow, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
rng = random.Random(seed)
NAMES = ("a", "b", "c", "x", "y", "z")
SIZES = (6, 6, 6, 5000)
FILE_MODES = (0o600, 0o640, 0o644, 0o755, 0o444)
DIR_MODES = (0o700, 0o750, 0o755)
TIMES = (10**9, 10**9 + 1)
# Whatever is younger has the time of a write.
YOUNGEST = 10**9 + 10
last = collections.deque(maxlen=80)


def some_path():
    """A name in a directory that is there; few are deep, so that calls meet."""
    path = ""
    while rng.random() < 0.5:
        inner = sorted(e.name for e in os.scandir(f"{shadow}/{path}") if e.is_dir(follow_symlinks=False))
        if not inner:
            break
        path += rng.choice(inner) + "/"
    return path + rng.choice(NAMES)


def put(path, flags, mode, at, data):
    fd = os.open(path, flags, mode)
    try:
        assert os.pwrite(fd, data, at) == len(data) if at else os.write(fd, data) == len(data)
    finally:
        os.close(fd)


def save(path, mode, data):
    new = os.path.dirname(path) + "/new"
    put(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode, 0, data)
    try:
        os.rename(new, path)
    except OSError:
        os.unlink(new)
        raise


def chmod(path, mode):
    os.chmod(path, mode | 0o700 if os.path.isdir(path) else mode)


WRITES = {
    "create": os.O_WRONLY | os.O_CREAT | os.O_EXCL,
    "write": os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
    "append": os.O_WRONLY | os.O_APPEND,
    "overwrite": os.O_WRONLY,
}
REMOVALS = {"unlink": os.unlink, "rmdir": os.rmdir, "remove": shutil.rmtree}
WEIGHTS = {
    **{"create": 3, "write": 3, "append": 6, "overwrite": 3, "truncate": 2, "save": 4, "rename": 7},
    **{"unlink": 3, "mkdir": 5, "rmdir": 2, "remove": 2, "chmod": 4, "symlink": 1, "utime": 2},
}


def some_call():
    """What it is called, and what does it in the tree at a path."""
    what = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    p, q, size, byte = some_path(), some_path(), rng.choice(SIZES), rng.choice("ABC")
    mode, time, data = rng.choice(FILE_MODES), rng.choice(TIMES), byte.encode() * size
    at = rng.choice((0, 3, 6)) if what == "overwrite" else 0
    if what in WRITES:
        return f"{what} {p} {byte}*{size} at {at} {mode:o}", lambda t: put(t + p, WRITES[what], mode, at, data)
    if what == "save":
        return f"save {p} {byte}*{size} {mode:o}", lambda t: save(t + p, mode, data)
    if what == "truncate":
        return f"truncate {p} {size}", lambda t: os.truncate(t + p, size)
    if what == "rename":
        return f"rename {p} {q}", lambda t: os.rename(t + p, t + q)
    if what == "mkdir":
        mode = rng.choice(DIR_MODES)
        return f"mkdir {p} {mode:o}", lambda t: os.mkdir(t + p, mode)
    if what == "chmod":
        return f"chmod {p} {mode:o}", lambda t: chmod(t + p, mode)
    if what == "symlink":
        return f"symlink {q} {p}", lambda t: os.symlink(q, t + p)
    if what == "utime":
        return f"utime {p} {time}", lambda t: os.utime(t + p, (time, time))
    return f"{what} {p}", lambda t: REMOVALS[what](t + p)


def outcome(act, tree):
    try:
        act(tree + "/")
        return "ok"
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e.errno))


def go(number):
    differs = []
    if not os.path.isdir(shadow):
        os.mkdir(shadow)
        os.mkdir(top)
    for _ in range(number):
        what, act = some_call()
        wanted, had = outcome(act, shadow), outcome(act, top)
        if wanted == "ok":
            last.append(what)
        if wanted != had:
            differs.append(f"{what}: {had} instead of {wanted}")
            break
    return differs


def content(path):
    with open(path, "rb") as file:
        runs = re.finditer(rb"(.)\1*", file.read(), re.DOTALL)
    return "+".join(f"{run[1].decode() if run[1] != bytes(1) else 'NUL'}*{len(run[0])}" for run in runs)


def look(tree, path=""):
    """Each path in the tree with all that counts of it."""
    found = {}
    try:
        for name in os.listdir(tree + path):
            found.update(look_at(tree, f"{path}/{name}"))
    except OSError as e:
        found[path + "/"] = f"a directory that has {e.strerror}"
    return found


def look_at(tree, at):
    try:
        s = os.lstat(tree + at)
        if stat.S_ISLNK(s.st_mode):
            return {at: f"link to {os.readlink(tree + at)}"}
        if stat.S_ISDIR(s.st_mode):
            return {at: f"directory {stat.S_IMODE(s.st_mode):o}", **look(tree, at)}
        time = int(s.st_mtime) if s.st_mtime < YOUNGEST else "now"
        return {at: f"file {stat.S_IMODE(s.st_mode):o} of {time}, {s.st_size} bytes: {content(tree + at)}"}
    except OSError as e:
        return {at: f"something that has {e.strerror}"}


def compare(path):
    want, have = look(shadow), look(path)
    differ = [at for at in sorted({*want, *have}) if want.get(at) != have.get(at)]
    if not differ:
        last.append("(as wanted)")
    return [f"{at} is {have.get(at, 'nothing')} instead of {want.get(at, 'nothing')}" for at in differ]


os.umask(0o022)
for line in sys.stdin:
    command, argument = line.rstrip("\n").split(" ", 1)
    try:
        differs = go(int(argument)) if command == "go" else compare(argument)
    except OSError as e:
        differs = [f"{command}: {e}"]
    print(json.dumps({"differs": differs, "last": list(last)}), flush=True)
