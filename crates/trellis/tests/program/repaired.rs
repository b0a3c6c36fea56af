//! A host that did not let us in: what is said of it, what is left of it, and how soon it is tried again after a person has
//! mended the reason.

use crate::place::{Place, stderr, stdout};
use crate::ssh::lab;
use home::testing::sshd::{Options, Sshd};
use serde_json::Value;
use std::fs;
use std::time::Duration;

/// How long a command may go on failing after the mend.
const MOMENT: Duration = Duration::from_millis(1100);

/// A reason why a host is out of reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Broken {
    Key,
    Config,
    HostName,
}

impl Broken {
    fn make(self, sshd: &Sshd) {
        let config = sshd.ssh_config();
        let good = fs::read_to_string(&config).unwrap();
        match self {
            Broken::Key => fs::write(sshd.dir().join("authorized_keys"), ""),
            Broken::Config => fs::write(&config, format!("{good}Nonsense yes\n")),
            Broken::HostName => fs::write(&config, good.replace("HostName 127.0.0.1", "HostName no.invalid")),
        }
        .unwrap();
        fs::write(config.with_extension("good"), good).unwrap();
    }

    fn mend(self, sshd: &Sshd) {
        fs::copy(sshd.dir().join("user_key.pub"), sshd.dir().join("authorized_keys")).unwrap();
        fs::copy(sshd.ssh_config().with_extension("good"), sshd.ssh_config()).unwrap();
    }
}

fn unreached(place: &Place) -> Vec<Value> {
    let status: Value = serde_json::from_slice(&place.run(&["status", "--json"]).stdout).unwrap();
    assert_eq!(status["homes"].as_array().unwrap().len(), 0, "{status}");
    status["unreached"].as_array().unwrap().clone()
}

fn of_homes(place: &Place) -> Vec<Value> {
    let found: Vec<Value> = serde_json::from_slice(&place.run(&["doctor", "--json"]).stdout).unwrap();
    found.into_iter().filter(|f| f["about"] == "home").collect()
}

#[test]
fn a_host_that_was_never_reached_is_told_once_and_tried_again_soon() {
    for broken in [Broken::Key, Broken::Config, Broken::HostName] {
        let Some((sshd, place, far)) = lab(&Options::default()) else { return };
        broken.make(&sshd);
        let _server = place.serve();
        let hello = format!("lab:{}/hello", far.display());
        for path in [&hello, "/lab/x"] {
            let said = place.run(&["cat", path]);
            assert_eq!(said.status.code(), Some(1), "{broken:?}");
            assert!(!stderr(&said).contains("\\r"), "{}", stderr(&said));
        }
        let told = unreached(&place);
        assert_eq!(told.len(), 1, "{told:?}");
        let one = &told[0];
        assert_eq!((one["name"].as_str(), &one["also"]), (Some("lab"), &serde_json::json!(["scp:lab:"])));
        let asks = broken == Broken::Key;
        assert_eq!(one["state"], if asks { "login needed" } else { "down" }, "{one}");
        assert_eq!(one["login"].is_string(), asks, "{one}");
        let found = of_homes(&place);
        assert!(found.len() == 1 && found[0]["level"] == "warn", "{found:?}");
        assert_eq!(found[0]["advice"].as_str().unwrap().contains("trellis login"), asks, "{found:?}");
        for kept in ["data", "journal"] {
            let left = fs::read_dir(place.path("state").join(kept)).map_or(0, Iterator::count);
            assert_eq!(left, 0, "{broken:?} leaves something in {kept}");
        }
        broken.mend(&sshd);
        std::thread::sleep(MOMENT);
        let said = place.run(&["cat", &hello]);
        assert_eq!(stdout(&said), "hello\n", "{broken:?}: {}", stderr(&said));
    }
}

#[test]
fn doctor_tries_at_once_what_has_failed() {
    for broken in [Broken::Key, Broken::Config] {
        let Some((sshd, place, _)) = lab(&Options::default()) else { return };
        broken.make(&sshd);
        let _server = place.serve();
        assert_eq!(place.run(&["ls", "/lab"]).status.code(), Some(2));
        broken.mend(&sshd);
        let found = of_homes(&place);
        assert!(found.iter().all(|f| f["level"] == "ok") && !found.is_empty(), "{broken:?}: {found:?}");
    }
}

#[test]
fn a_home_that_refused_a_login_is_asked_again_by_a_person() {
    let Some((mut sshd, place, far)) = lab(&Options::default()) else { return };
    // Too large to be fetched ahead.
    fs::write(far.join("large"), vec![b'x'; 8 << 20]).unwrap();
    let _server = place.serve();
    let cat = |name: &str| place.run(&["cat", &format!("lab:{}/{name}", far.display())]);
    assert_eq!(stdout(&cat("hello")), "hello\n");
    Broken::Key.make(&sshd);
    sshd.restart().unwrap();
    let said = cat("large");
    assert_eq!(said.status.code(), Some(1));
    assert!(stderr(&said).contains("does not let us in"), "{}", stderr(&said));
    Broken::Key.mend(&sshd);
    std::thread::sleep(MOMENT);
    let said = cat("large");
    assert_eq!(said.stdout.len(), 8 << 20, "{}", stderr(&said));
}
