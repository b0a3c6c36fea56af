//! A place to run the program in.

use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A directory with a state directory, a configuration and a local home in it.
pub struct Place {
    dir: tempfile::TempDir,
    /// More arguments of `serve` and of the file commands.
    pub ssh_config: Option<PathBuf>,
}

/// A running server, ended with the test.
pub struct Server {
    pub child: Child,
    pub nfs: SocketAddr,
}

impl Place {
    pub fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        let place = Place { dir, ssh_config: None };
        std::fs::create_dir(place.path("srv")).unwrap();
        let config = format!("[[home]]\nname = \"here\"\nscl = \"local:{}\"\n", place.path("srv").display());
        std::fs::write(place.path("config.toml"), config).unwrap();
        place
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A command with this place's state directory, and nothing of the user's own configuration.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trellis"));
        command.args(args).arg("--state").arg(self.path("state"));
        command.env("HOME", self.dir.path()).env_remove("XDG_CONFIG_HOME").env_remove("XDG_STATE_HOME");
        command.stdin(Stdio::null());
        command
    }

    pub fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// A command of files, which needs the configuration when no server runs.
    pub fn files(&self, args: &[&str]) -> Output {
        self.files_command(args).output().unwrap()
    }

    pub fn files_command(&self, args: &[&str]) -> Command {
        let mut command = self.command(args);
        command.arg("--config").arg(self.path("config.toml"));
        if let Some(file) = &self.ssh_config {
            command.arg("--ssh-config").arg(file);
        }
        command
    }

    pub fn serve_command(&self) -> Command {
        let mut command = self.command(&["serve", "--insecure", "--no-root-squash", "--allow-network-state"]);
        command.arg("--ready").arg(self.path("ready")).arg("--config").arg(self.path("config.toml"));
        if let Some(file) = &self.ssh_config {
            command.arg("--ssh-config").arg(file);
        }
        command
    }

    pub fn serve(&self) -> Server {
        self.serve_by(self.serve_command().stdout(Stdio::piped()))
    }

    /// Starts what [`Place::serve_command`] gave, and waits until it serves.
    pub fn serve_by(&self, command: &mut Command) -> Server {
        let ready = self.path("ready");
        let _ = std::fs::remove_file(&ready);
        let mut child = command.spawn().unwrap();
        let until = Instant::now() + Duration::from_secs(30);
        while !ready.exists() {
            assert!(child.try_wait().unwrap().is_none(), "the server ended at once");
            assert!(Instant::now() < until, "the server is not ready");
            std::thread::sleep(Duration::from_millis(20));
        }
        Server { child, nfs: address(&ready) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails where the server has ended, as it should have.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    pub fn exit(&mut self) -> (Option<i32>, String) {
        let until = Instant::now() + Duration::from_secs(20);
        while self.child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < until, "the server does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut said = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap().code(), said)
    }

    pub fn signal(&self) {
        let pid = rustix::process::Pid::from_raw(self.child.id() as i32).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }
}

fn address(ready: &Path) -> SocketAddr {
    let text = std::fs::read_to_string(ready).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    json["nfs"][0].as_str().unwrap().parse().unwrap()
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
