//! The real disk and the simulated one do the same.

use super::testing::{ManualClock, SeededRng, SimDisk};
use super::*;

fn suite(disk: &dyn Disk) {
    disk.create_dir_all("a/b").unwrap();
    disk.create_dir_all("a/b").unwrap();
    assert!(disk.create("none/x").is_err());
    let file = disk.create("a/b/x").unwrap();
    assert_eq!(disk.create("a/b/x").err().map(|e| e.kind()), Some(io::ErrorKind::AlreadyExists));
    assert!(file.is_empty().unwrap());

    // More parts than one system call takes, empty ones among them.
    let parts: Vec<Vec<u8>> = (0..3000usize).map(|n| vec![n as u8; n % 3]).collect();
    let slices: Vec<&[u8]> = parts.iter().map(|p| &p[..]).collect();
    let all = parts.concat();
    file.pwrite_all(&slices, 5).unwrap();
    let mut buf = vec![1; all.len() + 100];
    assert_eq!(file.pread(&mut buf, 0).unwrap(), all.len() + 5, "short at the end only");
    assert_eq!((&buf[..5], &buf[5..all.len() + 5]), (&[0; 5][..], &all[..]));

    file.set_len(3).unwrap();
    file.allocate(3 << 20).unwrap();
    file.allocate(10).unwrap();
    assert_eq!(file.len().unwrap(), 3 << 20, "allocating never shortens");
    file.sync_data().unwrap();
    disk.rename("a/b/x", "a/b/y").unwrap();
    disk.sync_dir("a/b").unwrap();
    assert_eq!(disk.list("a/b").unwrap(), ["y"]);
    assert_eq!(disk.list("a").unwrap(), ["b"]);
    assert!(disk.open("a/b/x").is_err());
    assert_eq!(disk.open("a/b/y").unwrap().len().unwrap(), 3 << 20);
    disk.remove("a/b/y").unwrap();
    assert!(disk.remove("a/b/y").is_err());
    assert!(disk.list("a/b").unwrap().is_empty());
    assert_eq!(file.pread(&mut buf, 0).unwrap(), buf.len(), "an open file outlives its name");
    assert!(disk.free_space().unwrap() > 0);
}

#[test]
fn simulated() {
    suite(&SimDisk::new());
}

#[test]
fn real_and_private() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("state");
    let env = Env::real(&root).unwrap();
    suite(&*env.disk);
    env.disk.create("a/secret").unwrap();
    let mode = |path: &str| rustix::fs::stat(root.join(path)).unwrap().st_mode & 0o7777;
    assert_eq!((mode("."), mode("a/b"), mode("a/secret")), (0o700, 0o700, 0o600));
    // A link put in the way is not followed.
    rustix::fs::symlink("/etc/passwd", root.join("a/link")).unwrap();
    assert!(env.disk.open("a/link").is_err());
}

#[test]
fn a_full_simulated_disk_says_so_as_a_real_one() {
    let disk = SimDisk::new();
    disk.create_dir_all("d").unwrap();
    let file = disk.create("d/f").unwrap();
    disk.set_capacity(Some(1000));
    let e = file.allocate(1001).unwrap_err();
    assert!(matches!(Error::io("allocate", &e), Error::Full(_)));
    file.pwrite_all(&[&[1; 1000]], 0).unwrap();
    assert_eq!(disk.free_space().unwrap(), 0);
    disk.set_capacity(None);
}

#[test]
fn a_power_cut_keeps_what_was_synced_and_stops_old_handles() {
    for seed in 0..50 {
        let disk = SimDisk::new();
        disk.create_dir_all("d").unwrap();
        let file = disk.create("d/kept").unwrap();
        disk.sync_dir("d").unwrap();
        disk.create("d/perhaps").unwrap();
        file.pwrite_all(&[&[1; 2000]], 0).unwrap();
        file.sync_data().unwrap();
        file.pwrite_all(&[&[2; 2000]], 1000).unwrap();
        disk.crash(seed);
        assert!(file.len().is_err());
        let content = disk.content("d/kept").unwrap();
        assert_eq!(content[..1000], [1; 1000]);
        assert!(content.len() >= 2000 && content.iter().all(|b| *b <= 2));
    }
}

#[test]
fn the_clock_stands_and_the_seed_repeats() {
    let clock = ManualClock::new(home::Time { sec: 5, nsec: 900_000_000 });
    clock.advance(Duration::from_millis(1200));
    assert_eq!(clock.now(), home::Time { sec: 7, nsec: 100_000_000 });
    assert_eq!(clock.instant(), Duration::from_millis(1200));
    assert_eq!(SeededRng::new(1).u64(), SeededRng::new(1).u64());
    assert_ne!(SeededRng::new(1).u64(), SeededRng::new(2).u64());
    assert_ne!(RealRng.u64(), RealRng.u64());
    let real = RealClock::new();
    assert!(real.instant() <= real.instant() && real.now().sec > 0);
}
