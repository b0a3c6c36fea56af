# Programs that use what only a local mount has. $ROOT and $OTHER are two mounts of one server.
T=$ROOT/ann@lab$WORK
O=$OTHER/ann@lab$WORK
mkdir "$T/programs"
cd "$T/programs"

step "sqlite with two writers"
cat >"$TMP/writer.py" <<'PY'
import sqlite3, sys
name, base = sys.argv[1], int(sys.argv[2])
db = sqlite3.connect(name, timeout=60)
db.execute("create table if not exists t (n integer primary key, text text)")
for n in range(base, base + 100):
    with db:
        db.execute("insert into t values (?, ?)", (n, "x" * 500))
PY
python3 "$TMP/writer.py" db 0 &
one=$!
python3 "$TMP/writer.py" "$O/programs/db" 1000 &
two=$!
wait $one
wait $two
python3 - <<'PY'
import sqlite3
db = sqlite3.connect("db")
assert db.execute("select count(*), sum(length(text)) from t").fetchone() == (200, 100000)
assert db.execute("pragma integrity_check").fetchone() == ("ok",)
PY

step "python -m venv"
python3 -m venv --without-pip env
[[ $(env/bin/python -c 'import sys; print(sys.prefix)') == "$PWD/env" ]] || fail "the venv is somewhere else"

step "exec and mmap of a binary"
cp /bin/true /bin/cat .
./true
echo mapped >text
[[ $(./cat text) == mapped ]]
python3 - <<'PY'
import mmap, os
with open("mapped", "w+b") as f:
    f.truncate(3 * 4096)
    with mmap.mmap(f.fileno(), 0) as m:
        m[5000:5005] = b"hello"
        m.flush()
with open("mapped", "rb") as f:
    with mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as m:
        assert m[5000:5005] == b"hello" and len(m) == 12288
    assert f.read() == bytes(5000) + b"hello" + bytes(7283)
PY

step "read-only files of git"
git init -q objects
echo one >objects/file
git -C objects add file
git -C objects -c user.name=t -c user.email=t@example.org commit -qm one
[[ $(stat -c %a objects/.git/objects/??/* | sort -u) == 444 ]] || fail "objects of git are not read-only"
git -C objects fsck --full 2>&1

step "an editor saves by rename"
echo old >edited
exec 7<edited
echo new >.edited.swp
mv .edited.swp edited
[[ $(cat edited) == new && $(cat "$O/programs/edited") == new ]] || fail "the new text is not seen"
[[ $(cat <&7) == old ]] || fail "who had the old text open does not read it any more"
exec 7<&-

step "used after its name is gone"
echo kept >nameless
exec 8<>nameless
rm nameless
[[ ! -e nameless ]]
[[ $(cat <&8) == kept ]] || fail "a file without a name lost its content"
echo more >&8
python3 -c 'import os; assert os.pread(8, 100, 0) == b"kept\nmore\n" and os.fstat(8).st_nlink == 0'
exec 8<&-

step "appends from two mounts"
append() { python3 - "$1" "$2" <<'PY'
import os, sys
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
for n in range(300):
    os.write(fd, b"%s%04d\n" % (sys.argv[2].encode(), n))
PY
}
touch log
append log a &
one=$!
append "$O/programs/log" b &
two=$!
wait $one
wait $two
cat log >"$TMP/log"
[[ $(wc -c <"$TMP/log") == 3600 ]] || fail "appends were lost: $(wc -c <"$TMP/log") bytes"
for who in a b; do
  cmp <(grep "^$who" "$TMP/log") <(for ((n = 0; n < 300; n++)); do printf '%s%04d\n' $who $n; done)
done

step "locks of two mounts exclude each other"
touch locked
python3 - locked "$O/programs/locked" <<'PY'
import fcntl, os, signal, sys, time
one, two = open(sys.argv[1], "r+"), open(sys.argv[2], "r+")
def refused(call, *args):
    try:
        call(*args)
    except OSError as e:
        return e.errno in (11, 13)
    return False
EX, NB, UN, SH = fcntl.LOCK_EX, fcntl.LOCK_NB, fcntl.LOCK_UN, fcntl.LOCK_SH
# Ranges (the two mounts are two owners, although this is one process).
fcntl.lockf(one, EX, 10, 0)
assert refused(fcntl.lockf, two, EX | NB, 10, 5)
fcntl.lockf(two, EX | NB, 10, 10)
fcntl.lockf(one, UN, 10, 0)
fcntl.lockf(two, EX | NB, 10, 0)
fcntl.lockf(two, UN)
# Whole files.
fcntl.flock(one, SH)
fcntl.flock(two, SH | NB)
assert refused(fcntl.flock, two, EX | NB)
fcntl.flock(one, UN)
fcntl.flock(two, EX | NB)
# A signal ends the wait, and closing gives up.
def stop(*_):
    raise TimeoutError
signal.signal(signal.SIGALRM, stop)
signal.alarm(1)
began = time.monotonic()
try:
    fcntl.flock(one, EX)
    sys.exit("got a lock that somebody else has")
except TimeoutError:
    assert time.monotonic() - began < 5
two.close()
signal.alarm(10)
fcntl.flock(one, EX)
PY

step "who waits for a lock can be killed"
python3 -c 'import fcntl, time; f = open("locked", "r+"); fcntl.lockf(f, fcntl.LOCK_EX); print("has", flush=True); time.sleep(600)' >"$TMP/has" &
has=$!
while ! grep -q has "$TMP/has"; do sleep 0.1; done
python3 -c 'import fcntl; f = open("locked", "r+"); fcntl.lockf(f, fcntl.LOCK_EX)' &
waits=$!
sleep 1
kill -9 $waits
timeout 10 tail --pid=$waits -f /dev/null || fail "a process that waits for a lock cannot be killed"
kill -9 $has

step "modes that the home does not allow"
touch forbidden
chmod 000 forbidden
! cat forbidden 2>/dev/null || fail "a file of mode 0 was read"
! truncate -s 5 forbidden 2>/dev/null || fail "a file of mode 0 was cut"
chmod 644 forbidden
touch -d '1969-12-31 23:59:58.5 UTC' forbidden
[[ $(stat -c %.9Y forbidden) == -1.500000000 ]] || fail "a time before 1970: $(stat -c %.9Y forbidden)"
mkfifo fifo
[[ -p fifo ]]
python3 - <<'PY'
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def rename(old, new, flags):
    done = libc.renameat2(-100, old, -100, new, flags)
    return 0 if done == 0 else ctypes.get_errno()
open("from", "w").close()
open("to", "w").close()
assert rename(b"from", b"to", 1) == 17, "RENAME_NOREPLACE"
assert rename(b"from", b"to", 2) == 22, "RENAME_EXCHANGE"
assert rename(b"from", b"free", 1) == 0
PY
step "what was just written is no hole"
python3 - sparse <<'PY'
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
os.pwrite(fd, b"x" * (1 << 20), 4 << 20)
assert os.lseek(fd, 4 << 20, os.SEEK_DATA) == 4 << 20
assert os.lseek(fd, 4 << 20, os.SEEK_HOLE) == 5 << 20
PY
for how in auto always; do
  cp --sparse=$how sparse copy
  cmp sparse copy
done
[[ $(sha256sum <copy) == "$(python3 -c 'import hashlib; print(hashlib.sha256(bytes(4 << 20) + b"x" * (1 << 20)).hexdigest())')  -" ]]

step "programs done"
