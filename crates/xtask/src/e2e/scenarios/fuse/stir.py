"""Changes and lists one directory from many processes, through two mounts of it, until they hear that the server has gone.

Arguments: the directory as each mount shows it. Prints a line when the work has begun.
"""
import errno
import os
import random
import sys
import traceback

WORKERS = 12
NAMES = 60
GONE = (errno.ENOTCONN, errno.ECONNABORTED)
# Others are faster now and then.
NORMAL = (FileNotFoundError, FileExistsError)


def step(top):
    one, other = (f"{top}/{random.randrange(NAMES)}" for _ in range(2))
    what = random.randrange(4)
    if what == 0:
        os.close(os.open(one, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
    elif what == 1:
        os.rename(one, other)
    elif what == 2:
        os.unlink(one)
    else:
        os.listdir(top)


def is_gone(top):
    """Whether the server has gone. No kernel answers this itself while it lives."""
    try:
        os.statvfs(top)
        return False
    except OSError as e:
        return e.errno in GONE


def work(top):
    while True:
        try:
            step(top)
        except NORMAL:
            pass
        except OSError as e:
            # Linux tells EIO of the one answer that a killed server was writing (fuse_dev_do_write in fs/fuse/dev.c).
            if e.errno in GONE or e.errno == errno.EIO and is_gone(top):
                return 0
            traceback.print_exc()
            return e.errno


workers = []
for number in range(WORKERS):
    child = os.fork()
    if child == 0:
        os._exit(work(sys.argv[1 + number % 2]))
    workers.append(child)
print("begun", flush=True)
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in workers]
sys.exit(max(codes))
