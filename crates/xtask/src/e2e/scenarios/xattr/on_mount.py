# Extended attributes as a program uses them; the folder on the mount is the first argument.
import ctypes, errno, os, shutil, subprocess, sys

top = sys.argv[1]
os.chdir(top)
libc = ctypes.CDLL(None, use_errno=True)


def fails(number, call, *args):
    try:
        call(*args)
    except OSError as e:
        assert e.errno == number, (call.__name__, args, e)
    else:
        raise AssertionError((call.__name__, args, "succeeded"))


# What the home has, and what is set here.
assert os.getxattr("there", "user.from-home") == b"\0binary\xff"
assert os.listxattr("there") == ["user.from-home"]
with open("new", "w") as f:
    f.write("text\n")
    os.setxattr(f.fileno(), "user.fd", b"by descriptor")
os.mkdir("dir")
for name in ["new", "dir", "there"]:
    os.setxattr(name, "user.a", b"one", os.XATTR_CREATE)
    fails(errno.EEXIST, os.setxattr, name, "user.a", b"x", os.XATTR_CREATE)
    os.setxattr(name, "user.a", b"two", os.XATTR_REPLACE)
    fails(errno.ENODATA, os.setxattr, name, "user.none", b"x", os.XATTR_REPLACE)
    fails(errno.ENODATA, os.getxattr, name, "user.none")
    fails(errno.ENODATA, os.removexattr, name, "user.none")
    os.setxattr(name, "user.gone", b"")
    os.removexattr(name, "user.gone")
    assert os.getxattr(name, "user.a") == b"two"
os.removexattr("there", "user.from-home")
assert sorted(os.listxattr("new")) == ["user.a", "user.fd"]

# Lengths are asked for without a buffer, and a short one is not enough.
size = libc.getxattr(b"new", b"user.fd", None, 0)
assert size == 13, size
assert libc.getxattr(b"new", b"user.fd", ctypes.create_string_buffer(5), 5) == -1
assert ctypes.get_errno() == errno.ERANGE
assert libc.listxattr(b"new", None, 0) == len(b"user.a\0user.fd\0")
assert libc.listxattr(b"new", ctypes.create_string_buffer(3), 3) == -1
assert ctypes.get_errno() == errno.ERANGE
fails(errno.E2BIG, os.setxattr, "new", "user.long", bytes(65537))
fails(errno.ERANGE, os.setxattr, "new", "user." + "n" * 251, b"x")

# Other namespaces, and objects that have none.
for name in ["system.posix_acl_access", "security.capability", "trusted.x"]:
    try:
        os.getxattr("new", name)
    except OSError as e:
        # The kernel hides `trusted.` from whoever is not root.
        assert e.errno in (errno.EOPNOTSUPP, errno.ENODATA), (name, e)
    else:
        raise AssertionError(name)
fails(errno.EOPNOTSUPP, os.setxattr, "new", "system.posix_acl_access", b"\2\0\0\0")
os.symlink("new", "link")
assert os.listxattr("link", follow_symlinks=False) == []
try:
    os.setxattr("link", "user.a", b"x", follow_symlinks=False)
except OSError as e:
    assert e.errno == errno.EPERM, e
else:
    raise AssertionError("an attribute of a link")
os.chmod("there", 0o444)
fails(errno.EACCES, os.setxattr, "there", "user.a", b"x")
os.chmod("there", 0o644)

# Whoever copies trees takes them along, both ways.
own = os.environ["TMP"]
os.mkdir(f"{own}/src")
for i in range(20):
    with open(f"{own}/src/{i}", "w") as f:
        f.write(f"content {i}\n")
    os.setxattr(f"{own}/src/{i}", "user.number", str(i).encode())
os.setxattr(f"{own}/src", "user.top", b"a directory's")
os.chmod(f"{own}/src/3", 0o444)


def compare(there):
    assert os.getxattr(there, "user.top") == b"a directory's", there
    for i in range(20):
        assert os.getxattr(f"{there}/{i}", "user.number") == str(i).encode(), (there, i)
    assert os.stat(f"{there}/3").st_mode & 0o777 == 0o444


for command in [["cp", "-a"], ["rsync", "-aX"]]:
    name = command[0]
    slash = "/" if name == "rsync" else ""
    subprocess.run([*command, f"{own}/src{slash}", f"by-{name}"], check=True)
    compare(f"by-{name}")
    subprocess.run([*command, f"by-{name}{slash}", f"{own}/{name}"], check=True)
    compare(f"{own}/{name}")
shutil.copytree("by-cp", "by-python")
compare("by-python")
print("done")
