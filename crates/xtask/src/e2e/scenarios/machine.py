"""A guest that is gateway and home at once: each has its state on a file system of its own of one disk.

Runs as root. What the processes say is in /logs.
"""

import json
import os
import pwd
import subprocess
import time

STATE = "/state"
LOGS = "/logs"


def sh(*args, **kw):
    return subprocess.run(args, check=True, stdout=subprocess.PIPE, text=True, **kw).stdout


class Part:
    """A file system on a part of a disk: a device, and its first sector there and how many it has."""

    def __init__(self, name, where, path, option):
        self.name, self.where, self.path, self.option = name, where, path, option

    def table(self, target, *more):
        device, at, sectors = self.where
        return ("--table", " ".join(map(str, (0, sectors, target, device, at, *more))))

    def appear(self):
        dmsetup("create", self.name, *self.table("linear"))

    def mount(self):
        os.makedirs(self.path, exist_ok=True)
        sh("mount", "-o", self.option, f"/dev/mapper/{self.name}", self.path)
        os.chmod(self.path, 0o700)

    def unmount(self):
        sh("umount", f"/dev/mapper/{self.name}")
        dmsetup("remove", self.name)

    def fail(self):
        """From now on every write to the disk fails; what is there can be read."""
        dmsetup("suspend", "--noflush", "--nolockfs", self.name)
        dmsetup("load", self.name, *self.table("flakey", 0, 3600, 1, "error_writes"))
        dmsetup("resume", self.name)

    def mend(self):
        """The disk works again, with what was written before it failed. Nothing may be open there."""
        self.unmount()
        self.appear()
        self.mount()


class Machine:
    """What runs on the disk that is mounted. `world` is the scenario's folder; the home of a new one keeps quotas."""

    def __init__(self, world, device, new=False):
        self.world, self.home, self.server = world, None, None
        self.gateway, self.ann = pwd.getpwnam("gateway"), pwd.getpwnam("ann")
        half = int(sh("blockdev", "--getsz", device)) // 2
        self.parts = {
            "state": Part("state", (device, 0, half), STATE, "defaults"),
            "home": Part("home", (device, half, half), self.ann.pw_dir, "usrquota"),
        }
        for part, who, features in (("state", self.gateway, []), ("home", self.ann, ["-O", "quota"])):
            self.parts[part].appear()
            if new:
                options = "lazy_itable_init=0,lazy_journal_init=0,root_owner={}:{}".format(who.pw_uid, who.pw_gid)
                sh("mkfs.ext4", "-q", *features, "-E", options, f"/dev/mapper/{part}")
            self.parts[part].mount()

    def unmount(self):
        for part in self.parts.values():
            part.unmount()

    def start_home(self):
        os.makedirs("/run/sshd", exist_ok=True)
        log = open(f"{LOGS}/sshd.log", "ab")
        args = ["/usr/sbin/sshd", "-D", "-e", "-f", f"{self.world}/sshd-lab/sshd_config"]
        self.home = subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def end_home(self):
        kill(self.home)
        end_all_of(self.ann)
        self.home = None

    def start_server(self):
        """Answers its port."""
        ready = "/tmp/ready.json"
        if os.path.exists(ready):
            os.unlink(ready)
        log = open(f"{LOGS}/serve.log", "ab")
        config = f"{self.gateway.pw_dir}/ssh_config"
        args = ["serve", "--state", f"{STATE}/trellis", "--ready", ready, "--hosts", "*", "--ssh-config", config]
        self.server = subprocess.Popen(self.trellis(*args), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        for _ in range(600):
            time.sleep(0.1)
            if self.server.poll() is not None:
                raise RuntimeError(f"the server ended: {tail(f'{LOGS}/serve.log')}")
            if os.path.exists(ready):
                return json.load(open(ready))["nfs"][0].rsplit(":", 1)[1]
        raise RuntimeError("the server does not begin")

    def mount(self, port):
        """The server's tree, at /trellis."""
        os.makedirs("/trellis", exist_ok=True)
        options = f"vers=3,tcp,port={port},mountport={port},mountproto=tcp,nolock,soft,timeo=600"
        sh("mount", "-t", "nfs", "-o", options, "127.0.0.1:/", "/trellis")

    def end_server(self):
        kill(self.server)
        end_all_of(self.gateway)
        self.server = None

    def trellis(self, *args):
        """A command of the gateway's account."""
        who = self.gateway
        ids = [f"--reuid={who.pw_uid}", f"--regid={who.pw_gid}", "--clear-groups"]
        env = ["env", "-i", "PATH=/usr/bin:/bin", f"HOME={who.pw_dir}"]
        return ["setpriv", *ids, *env, f"{self.world}/trellis", *args]

    def ask(self, *args):
        return sh(*self.trellis(*args, "--state", f"{STATE}/trellis"), stderr=subprocess.STDOUT, cwd="/")


def dmsetup(*args):
    sh("dmsetup", *args)
    # Nobody else makes the nodes of devices here.
    sh("dmsetup", "mknodes")


def kill(process):
    if process is not None:
        process.kill()
        process.wait()


def stop_all_of(who):
    """Their processes stand still, as if the machine had no time for them, until they are ended."""
    subprocess.run(["pkill", "-STOP", "-U", str(who.pw_uid)], check=True)


def end_all_of(who):
    for _ in range(100):
        if subprocess.run(["pkill", "-KILL", "-U", str(who.pw_uid)]).returncode == 1:
            return
        time.sleep(0.05)
    raise RuntimeError(f"processes of {who.pw_name} live on")


def tail(path):
    return open(path, "rb").read()[-3000:].decode(errors="replace") if os.path.exists(path) else ""
