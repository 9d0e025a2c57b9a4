//! `cargo xtask media`: databases on real file systems that fail. ext4 and XFS on loop devices are
//! shut down in the middle of commits, drains and edits of the journal, fill up, refuse to sync,
//! and lie on a device that refuses writes; then they are mounted again, and every commit that was
//! acknowledged must be there.
//!
//! It takes root, because it mounts.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::check::{Setting, passes};

/// How often each file system is shut down.
const SHUTDOWNS: u64 = 12;

/// Which sync is the first to fail.
const FAILING: [u64; 4] = [60, 150, 400, 1500];

/// How much a device still takes when it begins to refuse writes, in KiB.
const HEADROOM: [u64; 5] = [0, 64, 512, 2048, 6144];

/// How much it takes before, in MiB: more than a guest writes in all rounds.
const DEVICE: u64 = 360;

/// How many commits a guest may make while its device refuses writes, before it is stopped.
const REFUSED: u64 = 16_000;

/// How many commits a guest makes while its calls are interrupted.
const INTERRUPTED: u64 = 3000;

/// What a nearly full file system has left, in KiB: the files of a new database, and little more.
const LEFT: u64 = 14 << 10;

/// Part of the long check, for users that may.
pub(crate) fn check(setting: &mut Setting) -> Result<()> {
    match missing() {
        Some(missing) => setting.leave_out(missing),
        None => return run(&setting.root).map(drop),
    }
    Ok(())
}

/// Runs all of it; what is missing is an error.
pub(crate) fn run(root: &Path) -> Result<bool> {
    if let Some(missing) = missing() {
        bail!("{missing}");
    }
    let guest = build(root)?;
    let home = root.join("target/media");
    fs::create_dir_all(&home)?;
    for system in ["ext4", "xfs"] {
        shut_down(&Disk::make(&home, system)?, &guest)?;
        fill(&Disk::make(&home, system)?, &guest)?;
        refuse_writes(&home, system, &guest)?;
    }
    refuse_to_sync(&Disk::make(&home, "ext4")?, &guest)?;
    interrupt(&Disk::make(&home, "ext4")?, &guest)?;
    Ok(true)
}

/// Why it cannot run here.
fn missing() -> Option<String> {
    let id = Command::new("id").arg("-u").output().map(|out| out.stdout).unwrap_or_default();
    if id.trim_ascii() != b"0" {
        return Some("it mounts file systems, so it has to run as root".into());
    }
    let tools = [
        ("losetup", "mount"),
        ("mkfs.ext4", "e2fsprogs"),
        ("mkfs.xfs", "xfsprogs"),
        ("xfs_io", "xfsprogs"),
        ("fallocate", "util-linux"),
        ("strace", "strace"),
    ];
    let found =
        |tool: &str| Command::new("which").arg(tool).output().is_ok_and(|o| o.status.success());
    let (_, package) = tools.into_iter().find(|(tool, _)| !found(tool))?;
    Some(format!("it takes a tool of the package {package}; install it with apt-get"))
}

fn build(root: &Path) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments = ["build", "--release", "--package", "terrace", "--example", "guest"];
    passes(Command::new(cargo).current_dir(root).args(arguments))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    Ok(target.join("release/examples/guest"))
}

/// The file system's own shutdown, as after a power cut: nothing that is not synced gets to the
/// device, not even the file system's journal.
fn shut_down(disk: &Disk, guest: &Path) -> Result<()> {
    let (mut acked, mut in_drain) = (0, 0);
    for round in 0..SHUTDOWNS {
        let after = 20 + round * round * 40;
        // Every other time, when the first drain after that begins.
        let (waits_for_drain, mut is_due) = (round % 2 == 1, false);
        let seen = watch(&mut Command::new(guest), disk, |found, said| {
            is_due |= matches!(said, Said::Acked(n) if n >= found + after);
            if is_due && (!waits_for_drain || matches!(said, Said::Draining)) {
                return disk.shut_down().map(|()| false);
            }
            Ok(true)
        })?;
        ensure!(seen.found >= acked, "{}: {} commits lost", disk.system, acked - seen.found);
        in_drain += u64::from(seen.drain_was_cut);
        acked = seen.acked;
        disk.again()?;
    }
    let seen = watch(&mut Command::new(guest), disk, until_up)?;
    ensure!(seen.found >= acked, "{}: {} commits lost", disk.system, acked - seen.found);
    ensure!(in_drain > 0, "{}: none of the shutdowns fell in a drain", disk.system);
    println!(
        "media: {}, {SHUTDOWNS} shutdowns, {in_drain} of them in a drain: {acked} commits \
         acknowledged, none lost",
        disk.system
    );
    Ok(())
}

/// A full disk is said to be one, reads go on, and so do writes once there is space.
fn fill(disk: &Disk, guest: &Path) -> Result<()> {
    let filler = disk.mount.join("filler");
    let free = output(Command::new("df").args(["--output=avail", "-k"]).arg(&disk.mount))?;
    let free: u64 = free.lines().last().unwrap_or_default().trim().parse().context("df")?;
    let fill = format!("{}KiB", free.saturating_sub(LEFT));
    passes(Command::new("fallocate").args(["-l", &fill]).arg(&filler))?;
    let (mut last, mut at_full, mut read) = (0, None, 0);
    let seen = watch(&mut Command::new(guest), disk, |_, said| {
        match said {
            Said::Acked(n) => {
                last = n;
                return Ok(at_full.is_none_or(|full| n < full + 500));
            }
            Said::Full if at_full.is_none() => at_full = Some(last),
            Said::Read(n) if read == 0 => {
                read = n;
                fs::remove_file(&filler)?;
            }
            _ => {}
        }
        Ok(true)
    })?;
    let full = at_full.with_context(|| format!("{}: it never was full", disk.system))?;
    ensure!(read == full, "{}: {read} rows are read of {full} when it is full", disk.system);
    let again = watch(&mut Command::new(guest), disk, until_up)?;
    ensure!(again.found >= seen.acked, "{} commits lost", seen.acked - again.found);
    println!(
        "media: {}, full after {full} commits: all read; {} more once there was space, none lost",
        disk.system,
        seen.acked - full
    );
    Ok(())
}

/// After a sync that failed nothing is acknowledged, what was durable is read, and found again.
fn refuse_to_sync(disk: &Disk, guest: &Path) -> Result<()> {
    let (mut acked, mut unknown) = (0, 0);
    for nth in FAILING {
        let inject = format!("inject=fdatasync:error=EIO:when={nth}+");
        let mut traced = Command::new("strace");
        traced.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync", "-e", &inject]);
        let seen = watch(traced.arg(guest), disk, |_, _| Ok(true))?;
        ensure!(seen.found >= acked, "{} commits lost before sync {nth}", acked - seen.found);
        let stopped = seen.stopped.context("it goes on although syncs fail")?;
        // Where the background was first, the next commit does not begin.
        let told = ["unknown outcome", "unavailable"].map(|kind| stopped.contains(kind));
        ensure!(told[0] || told[1], "a failed sync is not told: {stopped}");
        unknown += u64::from(told[0]);
        let read = seen.read.context("what is durable cannot be read any more")?;
        ensure!(read >= seen.acked, "{} rows are read of {}", read, seen.acked);
        acked = seen.acked;
    }
    let seen = watch(&mut Command::new(guest), disk, until_up)?;
    ensure!(seen.found >= acked, "{} commits lost", acked - seen.found);
    println!(
        "media: {} times fdatasync failed from some call on, {unknown} times in a commit, which is \
         told as an unknown outcome: {acked} acknowledged, none lost",
        FAILING.len()
    );
    Ok(())
}

/// Signals interrupt reads, writes and preallocation, which are tried again: no caller sees it.
fn interrupt(disk: &Disk, guest: &Path) -> Result<()> {
    const CALLS: &str = "fallocate,pread64,pwrite64";
    let mut acked = 0;
    // The loader of the program makes the first two, and ends when one is interrupted.
    for which in ["3+3", "4+5"] {
        let inject = format!("inject={CALLS}:error=EINTR:when={which}");
        let mut traced = Command::new("strace");
        // Detached, so that the guest is the process that is killed in the end.
        traced.args(["-D", "-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={CALLS}")]);
        let seen = watch(traced.args(["-e", &inject]).arg(guest), disk, |found, said| {
            Ok(!matches!(said, Said::Acked(n) if n >= found + INTERRUPTED))
        })?;
        ensure!(seen.found >= acked, "{} commits lost", acked - seen.found);
        ensure!(seen.stopped.is_none(), "an interrupted call stops it: {:?}", seen.stopped);
        acked = seen.acked;
    }
    println!("media: {CALLS} interrupted again and again: {acked} acknowledged, none lost");
    Ok(())
}

/// The device refuses writes of blocks that it has not had before: the kernel writes back what was
/// acknowledged by no sync, and syncs fail. Then the file system is shut down, as by a power cut,
/// and mounted on a device that works again.
fn refuse_writes(home: &Path, system: &'static str, guest: &Path) -> Result<()> {
    let below = Below::mount(home.join("below"))?;
    let mut disk = Disk::make(&below.mount, system)?;
    disk.guest_mode = "growing";
    let (mut acked, mut stopped, mut refused) = (0, 0, 0);
    for headroom in HEADROOM {
        let (mut refused_from, mut full) = (None, 0);
        let seen = watch(&mut Command::new(guest), &disk, |found, said| {
            match (said, refused_from) {
                (Said::Acked(n), None) if n >= found + 150 => {
                    below.leave(headroom)?;
                    refused_from = Some(n);
                }
                (Said::Acked(n), Some(from)) => return Ok(n < from + REFUSED),
                (Said::Full, _) => full += 1,
                _ => {}
            }
            Ok(full < 20)
        })?;
        ensure!(seen.found >= acked, "{system}: {} commits lost", acked - seen.found);
        ensure!(refused_from.is_some(), "{system}: stopped before: {:?}", seen.stopped);
        stopped += u64::from(seen.stopped.is_some());
        refused += u64::from(seen.stopped.is_some() || full > 0);
        acked = seen.acked;
        disk.shut_down()?;
        below.takes_all()?;
        disk.again()?;
    }
    let seen = watch(&mut Command::new(guest), &disk, until_up)?;
    ensure!(seen.found >= acked, "{system}: {} commits lost", acked - seen.found);
    ensure!(stopped > 0, "{system}: no guest met a sync that failed");
    println!(
        "media: {system}, a device refused writes in {refused} of {} lives, and {stopped} \
         databases stopped for it: {acked} commits acknowledged, none lost",
        HEADROOM.len()
    );
    Ok(())
}

/// A file system in memory that a device lies on: when it is full, the device refuses writes.
struct Below {
    mount: PathBuf,
}

impl Below {
    fn mount(mount: PathBuf) -> Result<Below> {
        fs::create_dir_all(&mount)?;
        let size = format!("size={DEVICE}M");
        passes(Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&mount))?;
        Ok(Below { mount })
    }

    fn resize(&self, kib: u64) -> Result<()> {
        let options = format!("remount,size={kib}k");
        passes(Command::new("mount").args(["-o", &options]).arg(&self.mount))
    }

    /// It takes so many KiB more.
    fn leave(&self, kib: u64) -> Result<()> {
        let used = output(Command::new("df").args(["--output=used", "-k"]).arg(&self.mount))?;
        let used: u64 = used.lines().last().unwrap_or_default().trim().parse().context("df")?;
        self.resize(used + kib)
    }

    fn takes_all(&self) -> Result<()> {
        self.resize(DEVICE << 10)
    }
}

impl Drop for Below {
    fn drop(&mut self) {
        if let Err(error) = passes(Command::new("umount").arg(&self.mount)) {
            eprintln!("media: {error:#}");
        }
    }
}

/// A word of the guest.
#[derive(Clone, Copy)]
enum Said {
    Acked(u64),
    Full,
    Read(u64),
    Draining,
}

/// What a guest said in all.
#[derive(Default)]
struct Seen {
    found: u64,
    acked: u64,
    stopped: Option<String>,
    drain_was_cut: bool,
    /// Rows that could be read after it stopped.
    read: Option<u64>,
}

/// Enough once a guest has said what it found.
fn until_up(_found: u64, said: Said) -> Result<bool> {
    Ok(!matches!(said, Said::Acked(_)))
}

/// Starts a guest and hears it out, until it ends or `act` has enough of it (`Ok(false)`): then it
/// is killed, unless it stops by itself for what `act` did.
fn watch(
    command: &mut Command,
    disk: &Disk,
    mut act: impl FnMut(u64, Said) -> Result<bool>,
) -> Result<Seen> {
    let started = command.arg(disk.guest_mode).arg(&disk.mount).stdout(Stdio::piped()).spawn();
    let mut guest = Guest(started.with_context(|| format!("starting {command:?}"))?);
    let output = guest.0.stdout.take().context("its output is piped")?;
    let mut seen = Seen::default();
    let (mut goes_on, mut has_found) = (true, false);
    for line in BufReader::new(output).lines() {
        let line = line?;
        let number = line.rsplit(' ').next().and_then(|n| n.parse::<u64>().ok());
        let said = match (line.split([' ', ',', ':']).next(), number) {
            (Some("mode"), Some(n)) => {
                (seen.found, seen.acked, has_found) = (n, n, true);
                Said::Acked(n)
            }
            (Some("acked"), Some(n)) => {
                seen.acked = n;
                Said::Acked(n)
            }
            (Some("read"), Some(n)) => {
                seen.read = Some(n);
                Said::Read(n)
            }
            (Some("full"), _) => Said::Full,
            (Some("draining"), _) => Said::Draining,
            (Some("cut"), _) => {
                seen.drain_was_cut = true;
                continue;
            }
            _ => {
                seen.stopped.get_or_insert(line);
                continue;
            }
        };
        if goes_on {
            goes_on = act(seen.found, said)?;
        }
        if !goes_on && !disk.is_down() {
            break;
        }
    }
    ensure!(has_found, "the guest did not come up on {}: {:?}", disk.system, seen.stopped);
    Ok(seen)
}

/// A running guest, killed in the end.
struct Guest(Child);

impl Drop for Guest {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A file system in a file.
pub(crate) struct Disk {
    system: &'static str,
    /// The first argument of a guest on it.
    guest_mode: &'static str,
    image: PathBuf,
    device: String,
    mount: PathBuf,
    is_down: std::cell::Cell<bool>,
}

impl Disk {
    fn make(home: &Path, system: &'static str) -> Result<Disk> {
        let (image, mount) = (home.join(format!("{system}.img")), home.join(system));
        Disk::make_at(image, mount, system, 400 << 20)
    }

    /// A file system of `len` bytes in the file `image`, mounted at `mount`.
    pub(crate) fn make_at(
        image: PathBuf,
        mount: PathBuf,
        system: &'static str,
        len: u64,
    ) -> Result<Disk> {
        fs::create_dir_all(&mount)?;
        fs::File::create(&image)?.set_len(len)?;
        let device = output(Command::new("losetup").args(["-f", "--show"]).arg(&image))?;
        let device = device.trim().to_string();
        // A request of one page is written whole or refused. Of a longer one that its file has only
        // a part of the space for, the loop device writes that part and calls it done.
        let name = device.trim_start_matches("/dev/");
        fs::write(format!("/sys/block/{name}/queue/max_sectors_kb"), "4")?;
        let is_down = std::cell::Cell::new(false);
        let disk = Disk { system, guest_mode: "file", image, device, mount, is_down };
        passes(Command::new(format!("mkfs.{system}")).arg("-q").arg(&disk.device))?;
        disk.mount()?;
        Ok(disk)
    }

    fn mount(&self) -> Result<()> {
        passes(Command::new("mount").arg(&self.device).arg(&self.mount))
    }

    /// Shuts it down, as a power cut does: what was not synced is gone.
    pub(crate) fn shut_down(&self) -> Result<()> {
        passes(Command::new("xfs_io").args(["-x", "-c", "shutdown"]).arg(&self.mount))?;
        self.is_down.set(true);
        Ok(())
    }

    fn is_down(&self) -> bool {
        self.is_down.get()
    }

    /// Mounts it again after a shutdown.
    pub(crate) fn again(&self) -> Result<()> {
        passes(Command::new("umount").arg(&self.mount))?;
        self.is_down.set(false);
        self.mount()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let gone = [("umount", self.mount.as_os_str()), ("losetup", self.device.as_ref())];
        for (tool, what) in gone {
            let mut command = Command::new(tool);
            command.args((tool == "losetup").then_some("-d")).arg(what);
            if let Err(error) = passes(command) {
                eprintln!("media: {error:#}");
            }
        }
        fs::remove_file(&self.image).unwrap_or(());
    }
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("starting {command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
