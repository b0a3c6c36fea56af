//! Unmodified programs on a kernel mount, and the same bytes, modes, links and times at the home after it.

use crate::e2e::accounts::{ANN, GATEWAY};
use crate::e2e::guest::Guest;
use crate::e2e::proc::wait_for;
use crate::e2e::trees::{self, Times};
use crate::e2e::world::World;
use crate::run;
use anyhow::{Context, Result, ensure};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const FILES: usize = 2000;
const UNITS: usize = 40;

/// What the client does. `$T` is the work folder on the mount.
const SCRIPT: &str = r#"
T=$ROOT/ann@lab$WORK
cd "$T"
step "copy a tree in"
# Unpacked here first, because the guest sees the host's own files with whole seconds.
mkdir "$TMP"/src
tar -xf "$W/src.tar" -C "$TMP"/src
cp -a "$TMP"/src tree
step "copy it out"
cp -a tree "$TMP"/out
diff -r --no-dereference "$TMP"/src "$TMP"/out
other=$(rsync -ain --omit-dir-times --no-owner --no-group "$TMP"/src/ "$TMP"/out/)
[[ -z $other ]] || fail "modes or times that came out differ: $other"
rm -r "$TMP"/out "$TMP"/src

step "git"
git clone -q "$W/repo" clone
cd clone
[[ -z $(git status --porcelain) ]] || fail "git status is not clean after the clone: $(git status --porcelain)"
echo change >>"unit1.c"
[[ $(git status --porcelain) == " M unit1.c" ]] || fail "git status misses a change"
git -c user.name=t -c user.email=t@example.org commit -qam change
git gc -q
git fsck --full 2>&1
[[ -z $(git status --porcelain) ]] || fail "git status is not clean after the commit"
cd ..

step "make"
cp -r "$W/program" make
make -s -C make -j4
[[ $(make/prog) == "$SUM" ]] || fail "the program does not compute $SUM"
[[ $(make -C make -j4) == *"up to date"* ]] || fail "make does not see that all is done"

step "cmake"
cmake -S "$W/program" -B cmake >/dev/null
cmake --build cmake -j2 >/dev/null
[[ $(cmake/prog) == "$SUM" ]] || fail "the program of CMake does not compute $SUM"

step "tar"
mkdir tar
tar -xf "$W/src.tar" -C tar

step "rsync"
mkdir "$TMP"/links
tar -xf "$W/links.tar" -C "$TMP"/links
rsync -aH "$TMP"/links/ rsync/
again=$(rsync -aHi --omit-dir-times "$TMP"/links/ rsync/)
[[ -z $again ]] || fail "rsync would copy again: $again"
[[ $(stat -c %h rsync/one) == 3 ]] || fail "three names of a file are not three links"
[[ $(stat -c %i rsync/one) == $(stat -c %i rsync/sub/three) ]] || fail "names of a file differ in inode number"

step "links"
mkdir links
cd links
echo text >a
ln a b
ln -s a s
ln -s /absolute/target abs
[[ $(stat -c %h a) == 2 && $(readlink s) == a && $(readlink abs) == /absolute/target && $(cat s) == text ]]
rm a
[[ $(stat -c %h b) == 1 ]] || fail "a removed name still counts"
cd ..

step "names"
mkdir names
long=$(printf 'x%.0s' {1..255})
echo long >"names/$long"
[[ $(cat "names/$long") == long ]]
! touch "names/${long}y" 2>/dev/null || fail "a name of 256 bytes was accepted"
echo latin >$'names/caf\xe9 \xff'
[[ $(cat $'names/caf\xe9 \xff') == latin ]]
[[ $(ls names | wc -l) == 2 ]]

step "holes and sizes"
truncate -s 3M hole
printf middle | dd of=hole bs=1 seek=1500000 conv=notrunc status=none
printf end | dd of=huge bs=1 seek=4500000000 conv=notrunc status=none
[[ $(stat -c %s huge) == 4500000003 && $(tail -c 3 huge) == end ]]

step "modes and times"
mkdir modes
echo x >modes/f
chmod 0751 modes/f
touch -d '2001-02-03 04:05:06.123456789' modes/f
[[ $(stat -c '%a %y' modes/f) == "751 2001-02-03 04:05:06.123456789 "* ]] || fail "$(stat -c '%a %y' modes/f)"
chmod 0444 modes/f
! (echo y >>modes/f) 2>/dev/null || fail "a read-only file was written"

step "a file grows at the home"
echo go >grow.start
# The client believes that there is no such name for up to acdirmax (60 s), and once more where it asked just before the home told.
for ((i = 0; i < 600; i++)); do
  if [[ -e grow.log ]]; then
    # Every state that is seen is a prefix of 1, 2, 3, …; never zeros, never a gap.
    grep -v END grow.log >"$TMP"/seen || true
    head -n "$(wc -l <"$TMP"/seen)" <(seq 100000) | cmp -s - "$TMP"/seen || { head -c 300 "$TMP"/seen; fail "torn log"; }
    ! grep -q END grow.log || break
  fi
  sleep 0.3
done
[[ $(tail -n 1 grow.log) == END && $(wc -l <grow.log) == 2001 ]] || fail "the end of the log was not seen: $(wc -l grow.log), $(tail -n 1 grow.log)"
step "done"
sync
"#;

/// The scenario.
pub fn run(world: &World) -> Result<()> {
    prepare(world)?;
    let work = world.home_dir(ANN, "work")?;
    let _lab = world.host("lab", "", None)?;
    let mut server = world.serve(&[])?;
    work_on(&work, |script| Guest::new(world, server.addr, GATEWAY, script, Duration::from_secs(720)))?;
    server.must_run()?;
    server.sync()?;
    check_home(world, &work)?;
    stranger_sees_nothing(world, &server, &work)
}

/// Runs the script on a client, while the log grows at the home.
pub fn work_on(work: &Path, client: impl FnOnce(&str) -> Result<Guest>) -> Result<()> {
    let sum = UNITS * (UNITS - 1) / 2;
    let script = format!("WORK={} SUM={sum}\n{SCRIPT}", work.display());
    let mut client = client(&script)?.start()?;
    let start = work.join("grow.start");
    wait_for("grow.start at the home", Duration::from_secs(700), || {
        (start.exists() || !matches!(client.works(), Ok(true))).then_some(())
    })?;
    if start.exists() {
        grow(&work.join("grow.log"))?;
    }
    client.finish().map(drop)
}

/// A log that gets 2,000 lines in some four seconds.
fn grow(log: &Path) -> Result<()> {
    let mut file = File::create(log)?;
    ANN.own(log)?;
    for i in 1..=2000 {
        writeln!(file, "{i}")?;
        if i % 5 == 0 {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    Ok(writeln!(file, "END")?)
}

/// Sources outside the mount: a tree, its archive, a program, a repository of it, a folder of hard links.
pub fn prepare(world: &World) -> Result<()> {
    trees::make_source(&world.dir.join("src"), FILES)?;
    trees::make_program(&world.dir.join("program"), UNITS)?;
    fs::create_dir_all(world.dir.join("links/sub"))?;
    let script = "cd \"$1\"; tar --format=posix -cf src.tar -C src .\n\
         cp -r program repo; git -C repo init -q; git -C repo add .\n\
         git -C repo -c user.name=t -c user.email=t@example.org commit -qm first\n\
         cd links; echo text >one; ln one two; ln one sub/three; ln -s one soft; chmod 640 one; tar --format=posix -cf ../links.tar .\n\
         chown -R \"$2:$2\" ../src ../program ../repo ../links";
    let mut sh = Command::new("bash");
    sh.args(["-euc", script, "-"]).arg(&world.dir).arg(GATEWAY.uid.to_string());
    run::output(&mut sh).map(drop)
}

/// What the home holds after `trellis sync`.
pub fn check_home(world: &World, work: &Path) -> Result<()> {
    let src = world.dir.join("src");
    trees::compare(&src, &work.join("tree"), Times::Exact).context("cp -a")?;
    trees::compare(&src, &work.join("tar"), Times::Exact).context("tar")?;
    trees::compare(&world.dir.join("links"), &work.join("rsync"), Times::Exact).context("rsync -aH")?;
    ensure!(fs::metadata(work.join("rsync/one"))?.ino() == fs::metadata(work.join("rsync/sub/three"))?.ino());
    ensure!(fs::metadata(work.join("tree"))?.uid() == ANN.uid, "the account does not own what it was sent");

    let names = trees::names(&work.join("names"))?;
    ensure!(names == [b"caf\xe9 \xff".to_vec(), vec![b'x'; 255]], "names: {names:?}");
    let hole = fs::read(work.join("hole"))?;
    ensure!(hole.len() == 3 << 20 && &hole[1_500_000..1_500_006] == b"middle");
    ensure!(hole.iter().filter(|b| **b != 0).count() == 6, "the hole holds something");
    let (huge, mut end) = (File::open(work.join("huge"))?, [0; 3]);
    huge.read_exact_at(&mut end, 4_500_000_000)?;
    ensure!(&end == b"end" && huge.metadata()?.len() == 4_500_000_003);
    ensure!(huge.metadata()?.blocks() * 512 < 1 << 30, "the sparse file is not sparse at the home");

    let file = fs::metadata(work.join("modes/f"))?;
    ensure!((file.mode() & 0o7777, file.mtime_nsec()) == (0o444, 123_456_789));
    let program = run::output(&mut Command::new(work.join("make/prog")))?;
    ensure!(program.trim() == (UNITS * (UNITS - 1) / 2).to_string(), "the program built here fails there");
    let mut fsck = Command::new("git");
    fsck.args(["-c", "safe.directory=*", "-C"]).arg(work.join("clone")).args(["fsck", "--full"]);
    run::output(&mut fsck).context("the clone at the home").map(drop)
}

/// Another uid of the same client gets nothing below a home.
fn stranger_sees_nothing(world: &World, server: &crate::e2e::Server, work: &Path) -> Result<()> {
    use crate::e2e::accounts::STRANGER;
    let path = format!("/trellis/ann@lab{}", work.display());
    let script = format!(
        "ls /trellis >/dev/null || fail 'the root is for all'\n\
         said=$(cat '{path}/grow.log' 2>&1) && fail 'a stranger reads a home'\n\
         case $said in *'Permission denied'*) ;; *) fail \"$said\" ;; esac\n\
         ! ls '{path}' 2>/dev/null || fail 'a stranger lists a home'\n"
    );
    Guest::new(world, server.addr, STRANGER, &script, Duration::from_secs(60))?.run().map(drop)
}
